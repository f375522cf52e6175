/* cli/certs.c - keys and certificates of one instance, made with OpenSSL.
 *
 * Owns:    nothing; files are written atomically, private keys with mode 0600.
 * Thread:  start-up.
 * A CA of its own (10 years) signs the server's certificate (397 days, renewed by `up` in its last
 * 30 days or when the host changes); both are P-256.
 */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/own.h"
#include "cli/certs.h"
#include "cli/plan.h"

enum { CA_DAYS = 3650, SERVER_DAYS = 397, RENEW_DAYS = 30, SAN_TEXT = 2048, DAY_S = 86400 };

static void pkey_freep(EVP_PKEY **k)
{
    EVP_PKEY_free(*k);
}

static void cert_freep(X509 **c)
{
    X509_free(*c);
}

static void bio_freep(BIO **b)
{
    (void)BIO_free(*b);
}

static int fail_ssl(struct cl_err *err, const char *what)
{
    return cl_fail(err, CL_E_SYS, 0,
                   "OpenSSL could not %s\ncheck the disk and the files in the tls folder", what);
}

static int write_bio(BIO *bio, const char *path, mode_t mode, struct cl_err *err)
{
    char *data = NULL;
    long n = BIO_get_mem_data(bio, &data);
    return cl_file_write(path, data, n > 0 ? (size_t)n : 0, mode, err);
}

static int write_key(EVP_PKEY *key, const char *path, struct cl_err *err)
{
    CL_AUTO(bio_freep) BIO *bio = BIO_new(BIO_s_mem());
    if (!bio || PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) != 1)
        return fail_ssl(err, "write a key");
    return write_bio(bio, path, 0600, err);
}

static int write_cert(X509 *cert, const char *path, struct cl_err *err)
{
    CL_AUTO(bio_freep) BIO *bio = BIO_new(BIO_s_mem());
    if (!bio || PEM_write_bio_X509(bio, cert) != 1)
        return fail_ssl(err, "write a certificate");
    return write_bio(bio, path, 0644, err);
}

static EVP_PKEY *read_key(const char *path)
{
    CL_AUTO(cl_fclosep) FILE *f = fopen(path, "re");
    return f ? PEM_read_PrivateKey(f, NULL, NULL, NULL) : NULL;
}

static X509 *read_cert(const char *path)
{
    CL_AUTO(cl_fclosep) FILE *f = fopen(path, "re");
    return f ? PEM_read_X509(f, NULL, NULL, NULL) : NULL;
}

static bool add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    bool ok = ext && X509_add_ext(cert, ext, -1) == 1;
    X509_EXTENSION_free(ext);
    return ok;
}

/* A certificate without its extensions and signature. */
static X509 *new_cert(EVP_PKEY *key, const char *name, X509_NAME *issuer, long days)
{
    X509 *cert = X509_new();
    unsigned char serial[16] = {0};
    BIGNUM *bn = NULL;
    bool ok = cert && RAND_bytes(serial, sizeof serial) == 1;
    serial[0] &= 0x7f; /* RFC 5280 §4.1.2.2: positive */
    ok = ok && (bn = BN_bin2bn(serial, sizeof serial, NULL)) != NULL &&
         BN_to_ASN1_INTEGER(bn, X509_get_serialNumber(cert)) &&
         X509_set_version(cert, X509_VERSION_3) == 1 &&
         X509_gmtime_adj(X509_getm_notBefore(cert), -300) &&
         X509_gmtime_adj(X509_getm_notAfter(cert), days * DAY_S) &&
         X509_set_pubkey(cert, key) == 1 &&
         X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_UTF8,
                                    (const unsigned char *)name, -1, -1, 0) == 1 &&
         X509_set_issuer_name(cert, issuer ? issuer : X509_get_subject_name(cert)) == 1;
    BN_free(bn);
    if (ok)
        return cert;
    X509_free(cert);
    return NULL;
}

static int make_ca(const char *cert_path, const char *key_path, struct cl_err *err)
{
    CL_AUTO(pkey_freep) EVP_PKEY *key = EVP_EC_gen("P-256");
    CL_AUTO(cert_freep) X509 *cert = key ? new_cert(key, "Cloche local CA", NULL, CA_DAYS) : NULL;
    if (!cert || !add_extension(cert, cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
        !add_extension(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign") ||
        !add_extension(cert, cert, NID_subject_key_identifier, "hash") ||
        !X509_sign(cert, key, EVP_sha256()))
        return fail_ssl(err, "make a CA");
    return write_key(key, key_path, err) < 0 ? -1 : write_cert(cert, cert_path, err);
}

static void add_san(char *san, const char *name)
{
    unsigned char raw[16];
    size_t n = strlen(san);
    bool is_ip = inet_pton(AF_INET, name, raw) == 1 || inet_pton(AF_INET6, name, raw) == 1;
    (void)snprintf(san + n, SAN_TEXT - n, "%s%s:%s", n ? "," : "", is_ip ? "IP" : "DNS", name);
}

/* The addresses of this machine, for a listener on all of them. */
static void add_interfaces(char *san)
{
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list) < 0)
        return;
    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
        char text[INET6_ADDRSTRLEN] = "";
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET)
            (void)inet_ntop(AF_INET,
                            &((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr,
                            text, sizeof text);
        if (text[0] && strncmp(text, "127.", 4) != 0 && strlen(san) < SAN_TEXT / 2)
            add_san(san, text);
    }
    freeifaddrs(list);
}

static bool is_any(const char *host)
{
    return strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

static void make_san(const char *host, char san[static SAN_TEXT])
{
    char own[256] = "";
    san[0] = '\0';
    add_san(san, "localhost");
    add_san(san, "127.0.0.1");
    if (gethostname(own, sizeof own - 1) == 0 && own[0])
        add_san(san, own);
    if (is_any(host))
        add_interfaces(san);
    else
        add_san(san, host);
}

static int make_server(const char *dir, const char *host, struct cl_err *err)
{
    char path[PATH_TEXT], san[SAN_TEXT];
    path_join(path, dir, "ca.pem");
    CL_AUTO(cert_freep) X509 *ca = read_cert(path);
    path_join(path, dir, "ca.key");
    CL_AUTO(pkey_freep) EVP_PKEY *ca_key = read_key(path);
    CL_AUTO(pkey_freep) EVP_PKEY *key = EVP_EC_gen("P-256");
    CL_AUTO(cert_freep)
    X509 *cert = ca && key ? new_cert(key, host, X509_get_subject_name(ca), SERVER_DAYS) : NULL;
    make_san(host, san);
    if (!ca_key || !cert || !add_extension(cert, ca, NID_basic_constraints, "critical,CA:FALSE") ||
        !add_extension(cert, ca, NID_key_usage, "critical,digitalSignature") ||
        !add_extension(cert, ca, NID_ext_key_usage, "serverAuth") ||
        !add_extension(cert, ca, NID_subject_alt_name, san) ||
        !X509_sign(cert, ca_key, EVP_sha256()))
        return fail_ssl(err, "make the server's certificate");
    path_join(path, dir, "server.key");
    if (write_key(key, path, err) < 0)
        return -1;
    path_join(path, dir, "server.pem");
    return write_cert(cert, path, err);
}

/* Does the certificate that is there still fit? */
static bool server_fits(const char *dir, const char *host)
{
    char path[PATH_TEXT];
    int days = 0, seconds = 0;
    path_join(path, dir, "server.pem");
    CL_AUTO(cert_freep) X509 *cert = read_cert(path);
    path_join(path, dir, "server.key");
    if (!cert || access(path, F_OK) < 0 ||
        !ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(cert)) || days < RENEW_DAYS ||
        is_any(host))
        return false;
    return X509_check_ip_asc(cert, host, 0) == 1 || X509_check_host(cert, host, 0, 0, NULL) == 1;
}

int certs_ensure(const char *dir, const char *host, struct cl_err *err)
{
    char cert[PATH_TEXT], key[PATH_TEXT];
    path_join(cert, dir, "ca.pem");
    path_join(key, dir, "ca.key");
    if (cl_mkdir_p(dir, 0755, err) < 0)
        return -1;
    if ((access(cert, F_OK) < 0 || access(key, F_OK) < 0) && make_ca(cert, key, err) < 0)
        return -1;
    return server_fits(dir, host) ? 0 : make_server(dir, host, err);
}

static void req_freep(X509_REQ **r)
{
    X509_REQ_free(*r);
}

static bool fill_request(X509_REQ *req, EVP_PKEY *key, const char *name)
{
    return X509_REQ_set_version(req, X509_REQ_VERSION_1) == 1 &&
           X509_NAME_add_entry_by_txt(X509_REQ_get_subject_name(req), "CN", MBSTRING_UTF8,
                                      (const unsigned char *)name, -1, -1, 0) == 1 &&
           X509_REQ_set_pubkey(req, key) == 1 && X509_REQ_sign(req, key, EVP_sha256()) != 0;
}

int certs_request(const char *key_path, const char *name, char **ret_csr, struct cl_err *err)
{
    CL_AUTO(pkey_freep) EVP_PKEY *key = read_key(key_path);
    CL_AUTO(req_freep) X509_REQ *req = X509_REQ_new();
    CL_AUTO(bio_freep) BIO *bio = BIO_new(BIO_s_mem());
    if (!key) {
        key = EVP_EC_gen("P-256");
        if (!key)
            return fail_ssl(err, "make a key");
        if (write_key(key, key_path, err) < 0)
            return -1;
    }
    if (!req || !bio || !fill_request(req, key, name) || PEM_write_bio_X509_REQ(bio, req) != 1)
        return fail_ssl(err, "make a certificate request");
    char *data = NULL;
    long n = BIO_get_mem_data(bio, &data);
    *ret_csr = cl_strndup(data, n > 0 ? (size_t)n : 0);
    return *ret_csr ? 0 : cl_fail(err, CL_E_NOMEM, 0, "certificate request");
}
