/* rpc/channel.h - a gRPC client channel to one target, or to the first of several that answers;
 * connects by itself, with back-off.
 *
 * Owns:    its connection and calls.
 * Borrows: the SSL_CTX.
 * Thread:  its loop's.
 * Targets: "unix:/path", "HOST:PORT" (h2c, meant for loopback), and with an SSL_CTX HOST:PORT over
 *          TLS with the certificate checked against HOST; or up to TARGETS_MAX of them, separated
 *          by commas.  Names are resolved once at new (blocking).
 *
 * Several targets stand by for one another.  They are tried in turn, each for at most 3 s, until
 * one answers; only when all have failed is that a failure, and the back-off begins.  When the one
 * in use is lost, says goodbye, or is silent for 3 s and for 3 s more after a PING, the next one's
 * turn comes at once.
 */
#ifndef CL_RPC_CHANNEL_H
#define CL_RPC_CHANNEL_H

#include <openssl/types.h>

#include "base/loop.h"
#include "rpc/call.h"

enum { RPC_CHANNEL_CALLS_MAX = 4096 }; /* open calls; more fail with TOOBIG */

struct rpc_channel;

/* The connection came up (err == NULL) or went down (err says why).  Never inside another call. */
typedef void rpc_channel_state_fn(void *arg, const struct cl_err *err);

int rpc_channel_new(struct cl_loop *loop, const char *targets, SSL_CTX *tls,
                    struct rpc_channel **ret_channel, struct cl_err *err) CL_MUST;
/* Every open call gets its on_end(CANCELLED).  NULL is a no-op. */
void rpc_channel_free(struct rpc_channel *channel);
void rpc_channel_on_state(struct rpc_channel *channel, rpc_channel_state_fn *fn, void *arg);
/* Connect now and keep connected (otherwise the first call does it). */
void rpc_channel_connect(struct rpc_channel *channel);
/* The next connections use `tls`, which must outlive the channel or the next call of this; the
 * open one goes on.  For channels that were made with TLS. */
void rpc_channel_set_tls(struct rpc_channel *channel, SSL_CTX *tls);
bool rpc_channel_is_up(const struct rpc_channel *channel);
/* The one in use, as it was written; while there is none, the one to be tried next. */
const char *rpc_channel_target(const struct rpc_channel *channel);
/* Open now, those that wait for a connection too. */
size_t rpc_channel_calls(const struct rpc_channel *channel);

/* Metadata that every call of the channel carries ("authorization") unless it has its own of that
 * name; replaces an earlier value. */
int rpc_channel_set_metadata(struct rpc_channel *channel, const char *name, const char *value,
                             struct cl_err *err) CL_MUST;

struct rpc_metadata {
    const char *name, *value; /* borrowed for the call of rpc_channel_call() */
};

/* Start a call.  `out` unpacks what the server sends; deadline_ns is absolute monotonic, 0 = none.
 * While the channel is down the call waits for the connection, unless fail_fast: then on_end says
 * UNAVAILABLE.  The call is the channel's; it is dead after on_end returns. */
struct rpc_call_spec {
    const char *path;
    const ProtobufCMessageDescriptor *out;
    uint64_t deadline_ns;
    bool fail_fast;
    const struct rpc_metadata *metadata;
    size_t n_metadata;
    size_t max_message; /* of what the server sends; 0 = RPC_MESSAGE_MAX */
    bool gzip;          /* accept gzip and allow rpc_call_compress() */
};
int rpc_channel_call(struct rpc_channel *channel, const struct rpc_call_spec *spec,
                     const struct rpc_client_events *events, void *arg, struct rpc_call **ret_call,
                     struct cl_err *err) CL_MUST;

#endif
