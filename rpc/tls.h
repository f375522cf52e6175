/* rpc/tls.h - TLS contexts for servers and channels: TLS 1.3, ALPN, worker identities.
 *
 * Owns:    nothing; contexts are the caller's (SSL_CTX_free).
 * Thread:  start-up and reload; reads files.
 */
#ifndef CL_RPC_TLS_H
#define CL_RPC_TLS_H

#include <openssl/types.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/util.h"

struct tls_files {
    const char *cert; /* PEM chain; NULL for a client without a certificate */
    const char *key;  /* PEM */
    const char *ca;   /* server: clients must present a certificate of this CA; NULL = none asked.
                         client: whom to believe; required */
};

/* Load a context; its errors name the file. */
int tls_server_new(const struct tls_files *files, SSL_CTX **ret_ctx, struct cl_err *err) CL_MUST;
/* One that speaks HTTP/1.1 too, to clients that do not offer h2 (or have no ALPN). */
int tls_web_server_new(const struct tls_files *files, SSL_CTX **ret_ctx,
                       struct cl_err *err) CL_MUST;
int tls_client_new(const struct tls_files *files, SSL_CTX **ret_ctx, struct cl_err *err) CL_MUST;

/* After the handshake: was h2 chosen? */
bool tls_is_h2(SSL *ssl);
/* Likewise: ALPN must be h2; the verified peer's "URI:worker:<id>" or "" lands in
 * worker_id. */
int tls_check_peer(SSL *ssl, char *worker_id, size_t size, struct cl_err *err) CL_MUST;
/* Make the client check the server's certificate against host (a name or an address). */
int tls_expect_host(SSL *ssl, const char *host, struct cl_err *err) CL_MUST;

#endif
