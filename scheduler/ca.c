/* scheduler/ca.c - see scheduler/ca.h. */
#include "scheduler/ca.h"

#include <errno.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

#include "base/own.h"

enum { SERIAL_BYTES = 16 };

static void x509_freep(X509 **p)
{
    X509_free(*p);
}

static void req_freep(X509_REQ **p)
{
    X509_REQ_free(*p);
}

static void pkey_freep(EVP_PKEY **p)
{
    EVP_PKEY_free(*p);
}

static int load_ca(const struct ca_files *files, X509 **ret_cert, EVP_PKEY **ret_key,
                   struct cl_err *err)
{
    CL_AUTO(cl_fclosep) FILE *cert = fopen(files->cert, "re");
    CL_AUTO(cl_fclosep) FILE *key = cert ? fopen(files->key, "re") : NULL;
    if (!cert || !key)
        return cl_fail(err, CL_E_STATE, errno,
                       "this scheduler cannot enroll workers: --worker-ca and --worker-ca-key");
    *ret_cert = PEM_read_X509(cert, NULL, NULL, NULL);
    *ret_key = PEM_read_PrivateKey(key, NULL, NULL, NULL);
    if (!*ret_cert || !*ret_key || X509_check_private_key(*ret_cert, *ret_key) != 1)
        return cl_fail(err, CL_E_STATE, 0, "'%s' and '%s' are no pair of certificate and key",
                       files->cert, files->key);
    return 0;
}

static int read_request(const char *csr, X509_REQ **ret_req, struct cl_err *err)
{
    size_t n = strnlen(csr, CA_PEM_MAX + 1);
    if (n > CA_PEM_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "csr: at most %d bytes", CA_PEM_MAX);
    BIO *bio = BIO_new_mem_buf(csr, (int)n);
    *ret_req = bio ? PEM_read_bio_X509_REQ(bio, NULL, NULL, NULL) : NULL;
    BIO_free(bio);
    EVP_PKEY *key = *ret_req ? X509_REQ_get0_pubkey(*ret_req) : NULL;
    if (!key || X509_REQ_verify(*ret_req, key) != 1)
        return cl_fail(err, CL_E_INVALID, 0, "csr: not a certificate request that its key signed");
    return 0;
}

static bool add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    bool ok = ext && X509_add_ext(cert, ext, -1) == 1;
    X509_EXTENSION_free(ext);
    return ok;
}

static bool set_serial(X509 *cert)
{
    uint8_t bytes[SERIAL_BYTES];
    BIGNUM *n = RAND_bytes(bytes, sizeof bytes) == 1 ? BN_bin2bn(bytes, sizeof bytes, NULL) : NULL;
    bool ok = n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(cert));
    BN_free(n);
    return ok;
}

static bool fill(X509 *cert, X509 *ca, EVP_PKEY *key, const char *id)
{
    char san[128];
    (void)snprintf(san, sizeof san, "URI:worker:%s", id);
    X509_NAME *name = X509_get_subject_name(cert);
    return X509_set_version(cert, X509_VERSION_3) == 1 && set_serial(cert) &&
           X509_gmtime_adj(X509_getm_notBefore(cert), -300) &&
           X509_time_adj_ex(X509_getm_notAfter(cert), CA_DAYS, 0, NULL) &&
           X509_set_issuer_name(cert, X509_get_subject_name(ca)) == 1 &&
           X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)id, -1, -1,
                                      0) == 1 &&
           X509_set_pubkey(cert, key) == 1 && add_extension(cert, ca, NID_subject_alt_name, san) &&
           add_extension(cert, ca, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(cert, ca, NID_key_usage, "critical,digitalSignature") &&
           add_extension(cert, ca, NID_ext_key_usage, "clientAuth");
}

static int put_pem(X509 *cert, struct cl_buf *out, struct cl_err *err)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *data = NULL;
    int rc = -1;
    long n = bio && PEM_write_bio_X509(bio, cert) == 1 ? BIO_get_mem_data(bio, &data) : 0;
    if (n > 0)
        rc = cl_buf_append(out, data, (size_t)n, err);
    else
        (void)cl_fail(err, CL_E_NOMEM, 0, "certificate");
    BIO_free(bio);
    return rc;
}

int ca_sign(const struct ca_files *files, const char *csr, const char *id, struct cl_buf *ret_cert,
            struct cl_buf *ret_ca, struct cl_err *err)
{
    CL_AUTO(x509_freep) X509 *ca = NULL;
    CL_AUTO(pkey_freep) EVP_PKEY *ca_key = NULL;
    CL_AUTO(req_freep) X509_REQ *req = NULL;
    if (load_ca(files, &ca, &ca_key, err) < 0 || read_request(csr, &req, err) < 0)
        return -1;
    CL_AUTO(x509_freep) X509 *cert = X509_new();
    /* Ed25519 and Ed448 bring their own digest. */
    int type = EVP_PKEY_get_base_id(ca_key);
    const EVP_MD *md = type == EVP_PKEY_ED25519 || type == EVP_PKEY_ED448 ? NULL : EVP_sha256();
    if (!cert || !fill(cert, ca, X509_REQ_get0_pubkey(req), id) || X509_sign(cert, ca_key, md) == 0)
        return cl_fail(err, CL_E_SYS, 0, "sign the certificate of '%s'", id);
    return put_pem(cert, ret_cert, err) < 0 || put_pem(ca, ret_ca, err) < 0 ? -1 : 0;
}

int ca_request_digest(const char *csr, uint8_t ret_digest[static 32], struct cl_err *err)
{
    CL_AUTO(req_freep) X509_REQ *req = NULL;
    if (read_request(csr, &req, err) < 0)
        return -1;
    X509_PUBKEY *key = X509_REQ_get_X509_PUBKEY(req);
    unsigned char *der = NULL;
    int n = i2d_X509_PUBKEY(key, &der);
    int ok = n > 0 ? EVP_Digest(der, (size_t)n, ret_digest, NULL, EVP_sha256(), NULL) : 0;
    OPENSSL_free(der);
    return ok == 1 ? 0 : cl_fail(err, CL_E_NOMEM, 0, "digest of a public key");
}
