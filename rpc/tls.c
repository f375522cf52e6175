/* rpc/tls.c - see rpc/tls.h.  Source: RFC 8446, RFC 7301, RFC 9113 §3.2. */
#include "rpc/tls.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const unsigned char alpn_h2[] = {2, 'h', '2'};
static const unsigned char alpn_http1[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};

#define WORKER_PREFIX "worker:"

static int fail_tls(struct cl_err *err, enum cl_code code, const char *what, const char *name)
{
    char text[160];
    unsigned long e = ERR_get_error();
    ERR_error_string_n(e, text, sizeof text);
    ERR_clear_error();
    return cl_fail(err, code, 0, "%s '%s': %s", what, name, e ? text : "refused");
}

/* Is the protocol among those the client offers?  Then it is chosen. */
static bool choose(const unsigned char *protocol, const unsigned char *in, unsigned in_len,
                   const unsigned char **out, unsigned char *out_len)
{
    for (unsigned i = 0; i < in_len && in[i] < in_len - i; i += in[i] + 1u) {
        if (in[i] != protocol[0] || memcmp(in + i + 1, protocol + 1, protocol[0]) != 0)
            continue;
        *out = in + i + 1;
        *out_len = in[i];
        return true;
    }
    return false;
}

static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                   const unsigned char *in, unsigned in_len, void *arg)
{
    (void)ssl;
    const unsigned char *second = arg; /* NULL: h2 only */
    if (choose(alpn_h2, in, in_len, out, out_len) ||
        (second && choose(second, in, in_len, out, out_len)))
        return SSL_TLSEXT_ERR_OK;
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static int load_identity(SSL_CTX *ctx, const struct tls_files *files, struct cl_err *err)
{
    if (!files->cert)
        return 0;
    if (SSL_CTX_use_certificate_chain_file(ctx, files->cert) != 1)
        return fail_tls(err, CL_E_INVALID, "load certificate", files->cert);
    const char *key = files->key ? files->key : files->cert;
    if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1)
        return fail_tls(err, CL_E_INVALID, "load key", key);
    if (SSL_CTX_check_private_key(ctx) != 1)
        return fail_tls(err, CL_E_INVALID, "key does not fit certificate", files->cert);
    return 0;
}

static int load_ca(SSL_CTX *ctx, const struct tls_files *files, int verify, struct cl_err *err)
{
    if (!files->ca)
        return 0;
    if (SSL_CTX_load_verify_file(ctx, files->ca) != 1)
        return fail_tls(err, CL_E_INVALID, "load CA", files->ca);
    SSL_CTX_set_verify(ctx, verify, NULL);
    return 0;
}

static SSL_CTX *context_new(const SSL_METHOD *method)
{
    SSL_CTX *ctx = SSL_CTX_new(method);
    if (!ctx)
        return NULL;
    (void)SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION);
    /* No SSL_MODE_ENABLE_PARTIAL_WRITE: libevent 2.1 writes buffer by buffer and would go on with
     * the next one after a short write, so bytes would be lost. */
    (void)SSL_CTX_set_mode(ctx, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    (void)SSL_CTX_clear_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE);
    (void)SSL_CTX_set_options(ctx, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_RENEGOTIATION);
    return ctx;
}

static int server_new(const struct tls_files *files, const unsigned char *second, SSL_CTX **ret_ctx,
                      struct cl_err *err)
{
    SSL_CTX *ctx = context_new(TLS_server_method());
    if (!ctx)
        return cl_fail(err, CL_E_NOMEM, 0, "TLS context");
    SSL_CTX_set_alpn_select_cb(ctx, on_alpn, (void *)(uintptr_t)second);
    static const unsigned char session_context[] = "cloche";
    (void)SSL_CTX_set_session_id_context(ctx, session_context, sizeof session_context - 1);
    int rc = files->cert ? 0 : cl_fail(err, CL_E_INVALID, 0, "a TLS server needs a certificate");
    if (rc == 0)
        rc = load_identity(ctx, files, err);
    if (rc == 0)
        rc = load_ca(ctx, files, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, err);
    if (rc < 0) {
        SSL_CTX_free(ctx);
        return -1;
    }
    *ret_ctx = ctx;
    return 0;
}

int tls_server_new(const struct tls_files *files, SSL_CTX **ret_ctx, struct cl_err *err)
{
    return server_new(files, NULL, ret_ctx, err);
}

int tls_web_server_new(const struct tls_files *files, SSL_CTX **ret_ctx, struct cl_err *err)
{
    return server_new(files, alpn_http1, ret_ctx, err);
}

int tls_client_new(const struct tls_files *files, SSL_CTX **ret_ctx, struct cl_err *err)
{
    SSL_CTX *ctx = context_new(TLS_client_method());
    if (!ctx)
        return cl_fail(err, CL_E_NOMEM, 0, "TLS context");
    int rc = files->ca ? 0 : cl_fail(err, CL_E_INVALID, 0, "a TLS client needs a CA file");
    if (SSL_CTX_set_alpn_protos(ctx, alpn_h2, sizeof alpn_h2) != 0)
        rc = cl_fail(err, CL_E_NOMEM, 0, "TLS context");
    if (rc == 0)
        rc = load_identity(ctx, files, err);
    if (rc == 0)
        rc = load_ca(ctx, files, SSL_VERIFY_PEER, err);
    if (rc < 0) {
        SSL_CTX_free(ctx);
        return -1;
    }
    *ret_ctx = ctx;
    return 0;
}

/* Copy the id of the first "URI:worker:<id>"; an id with odd characters is no id. */
static void read_worker_id(X509 *cert, char *worker_id, size_t size)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    int n = names ? sk_GENERAL_NAME_num(names) : 0;
    for (int i = 0; i < n; i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type != GEN_URI)
            continue;
        const char *uri = (const char *)ASN1_STRING_get0_data(name->d.uniformResourceIdentifier);
        size_t len = (size_t)ASN1_STRING_length(name->d.uniformResourceIdentifier);
        size_t prefix = sizeof WORKER_PREFIX - 1;
        if (len <= prefix || len - prefix >= size || memcmp(uri, WORKER_PREFIX, prefix) != 0 ||
            memchr(uri, '\0', len))
            continue;
        memcpy(worker_id, uri + prefix, len - prefix);
        worker_id[len - prefix] = '\0';
        break;
    }
    GENERAL_NAMES_free(names);
}

bool tls_is_h2(SSL *ssl)
{
    const unsigned char *protocol;
    unsigned n;
    SSL_get0_alpn_selected(ssl, &protocol, &n);
    return n == alpn_h2[0] && memcmp(protocol, alpn_h2 + 1, n) == 0;
}

int tls_check_peer(SSL *ssl, char *worker_id, size_t size, struct cl_err *err)
{
    worker_id[0] = '\0';
    if (!tls_is_h2(ssl))
        return cl_fail(err, CL_E_PEER, 0, "the peer does not speak HTTP/2 (ALPN)");
    X509 *cert = SSL_get0_peer_certificate(ssl);
    bool verified = (SSL_get_verify_mode(ssl) & SSL_VERIFY_PEER) != 0 &&
                    SSL_get_verify_result(ssl) == X509_V_OK;
    if (cert && verified)
        read_worker_id(cert, worker_id, size);
    return 0;
}

int tls_expect_host(SSL *ssl, const char *host, struct cl_err *err)
{
    struct in6_addr raw;
    bool is_address = inet_pton(AF_INET, host, &raw) == 1 || inet_pton(AF_INET6, host, &raw) == 1;
    /* SSL_set_tlsext_host_name(), whose macro casts const away. */
    bool named = is_address || SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME,
                                        TLSEXT_NAMETYPE_host_name, (void *)(uintptr_t)host) == 1;
    int ok = is_address ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host)
                        : named && SSL_set1_host(ssl, host);
    if (ok != 1)
        return fail_tls(err, CL_E_INVALID, "TLS host", host);
    return 0;
}
