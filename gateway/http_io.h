/* gateway/http_io.h - the HTTP listener: connections of both versions on one port.
 *
 * TLS chooses by ALPN; in plain text a client that knows us begins with HTTP/2's preface.
 *
 * Owns:    listeners and connections.
 * Borrows: the loop, the MCP server, the metrics, the endpoint's texts, the SSL_CTX.
 * Thread:  the loop's.
 * Limits (and what an attacker gains without each):
 *   HTTP_CONNECTIONS_MAX    every fd of the process
 *   HTTP_REQUEST_S          a connection for ever, by a request that never ends
 *   HTTP_UPLOAD_IDLE_S      likewise, by an upload, which may take longer while it goes on
 *   HTTP_IDLE_S             a connection for ever, by saying nothing
 *   HTTP_WRITE_S            memory for ever, by not reading an answer
 *   HTTP_STREAM_QUEUE       memory, by not reading progress
 *   PORT_CONNECTIONS_MAX    all connections, by WebSockets that stay open
 *   PORT_TUNNEL_S           one of those for ever, by saying nothing
 *   PORT_OUT_HIGH           memory, by not reading what a guest sends
 *   HTTP_LINGER_S           a connection for ever, by sending on behind the answer
 *   HTTP_HEAD_MAX, HTTP_BODY_MAX (http.h), HTTP2_* (http2_priv.h), the flood limits of
 *   rpc/h2_guard.h, MCP_CALLS_MAX (mcp/server.h)
 */
#ifndef CL_GATEWAY_HTTP_IO_H
#define CL_GATEWAY_HTTP_IO_H

#include <openssl/types.h>

#include "base/loop.h"
#include "e2b/server.h"
#include "gateway/endpoint.h"
#include "mcp/server.h"
#include "observability/metrics.h"
#include "web/server.h"

enum {
    HTTP_CONNECTIONS_MAX = 1024,
    HTTP_REQUEST_S = 30,
    HTTP_UPLOAD_IDLE_S = 60, /* without a byte, while it is wanted; e2b/ limits the whole */
    HTTP_IDLE_S = 120,
    HTTP_WRITE_S = 30,
    HTTP_LINGER_S = 5,               /* for a client that still sends when it has its answer */
    HTTP_STREAM_QUEUE = 1024 * 1024, /* bytes that wait; progress over it is dropped */
    /* Of all connections those that lead into sandboxes: pages open many, and the API's places must
     * not be theirs. */
    PORT_CONNECTIONS_MAX = 256,
    PORT_TUNNEL_S = 3600,       /* idle, after an upgrade; HTTP_IDLE_S before */
    PORT_OUT_HIGH = 256 * 1024, /* bytes that wait for the client; above it the guest is not read */
    PORT_OUT_LOW = 64 * 1024,
};

struct http_server;
struct http_conf {
    struct cl_loop *loop;
    struct mcp_server *mcp;
    struct e2b_server *e2b; /* NULL = not served */
    struct web_server *web; /* likewise */
    struct metrics *metrics;
    struct endpoint endpoint;
    const char *metadata; /* of metadata.h; NULL = none */
    SSL_CTX *tls;         /* NULL = plain */
    /* Where endpoint.ports names a domain: a pool of its own, for calls that slow clients pause,
     * and E2B_SECRET bytes that open E2B's tokens. */
    struct rpc_pool *ports;
    const uint8_t *secret;
};

int http_server_new(const struct http_conf *conf, struct http_server **ret_server,
                    struct cl_err *err) CL_MUST;
/* Listen on HOST:PORT (port 0 = any; *ret_port says which). */
int http_server_listen(struct http_server *s, const char *address, uint16_t *ret_port,
                       struct cl_err *err) CL_MUST;
/* The next connections use `tls`, which must outlive the server or the next call of this; open ones
 * go on. */
void http_server_set_tls(struct http_server *s, SSL_CTX *tls);
/* No new connections; those of HTTP/1.1 without a call in flight are closed, those of HTTP/2 told
 * GOAWAY, and closed when their streams have ended. */
void http_server_drain(struct http_server *s);
size_t http_server_connections(const struct http_server *s);
/* NULL is a no-op. */
void http_server_free(struct http_server *s);

#endif
