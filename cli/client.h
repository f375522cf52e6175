/* cli/client.h - the connection of a command to the service, used as if calls were functions.
 *
 * Owns:    its loop, the channel, the TLS context.
 * Thread:  the only one; a blocking call runs the loop until its answer is there.
 * The endpoint is CLOCHE_ENDPOINT (all of several schedulers that stand by for one another,
 * separated by commas) or the instance's api.sock; the key CLOCHE_API_KEY, the file
 * CLOCHE_KEY_FILE, or the administrator's key that `up` made.
 */
#ifndef CL_CLI_CLIENT_H
#define CL_CLI_CLIENT_H

#include <protobuf-c/protobuf-c.h>

#include "base/err.h"
#include "base/loop.h"
#include "base/own.h"
#include "base/util.h"
#include "cli/cli.h"
#include "rpc/channel.h"

struct client;

int client_open(const struct cli_opts *o, struct client **ret_client, struct cl_err *err) CL_MUST;
/* NULL is a no-op. */
void client_free(struct client *c);
CL_DEFINE_AUTO(struct client, client_free)

struct cl_loop *client_loop(struct client *c);
struct rpc_channel *client_channel(struct client *c);
/* Did the connection ever come up? */
bool client_was_up(const struct client *c);

/* What is called and what comes back. */
struct client_method {
    const char *path;
    const ProtobufCMessageDescriptor *out;
};
#define CLIENT_METHOD(service, name, out_) \
    { \
        "/cloche.v1." service "/" name, &cloche__v1__##out_##__descriptor \
    }

enum { CLIENT_TIMEOUT_S = 60 };
/* timeout_ns 0 = CLIENT_TIMEOUT_S.  The caller frees *ret_reply with pb_free(); it is of the
 * method's type. */
int client_unary(struct client *c, const struct client_method *m, const ProtobufCMessage *request,
                 uint64_t timeout_ns, ProtobufCMessage **ret_reply, struct cl_err *err) CL_MUST;
/* Several of one method, at most CLIENT_AT_ONCE of them under way; timeout_ns is of each. */
enum { CLIENT_AT_ONCE = 32 };
struct client_ask {
    const ProtobufCMessage *request; /* borrowed */
    ProtobufCMessage *reply;         /* the caller's, by pb_free(); NULL: err says why */
    struct cl_err err;
};
void client_unary_all(struct client *c, const struct client_method *m, struct client_ask *asks,
                      size_t n, uint64_t timeout_ns);
/* One, when the answer holds nothing. */
int client_do(struct client *c, const struct client_method *m, const ProtobufCMessage *request,
              struct cl_err *err) CL_MUST;

/* --- streams, for transfers ---------------------------------------------------------------------
 */

struct client_stream;
/* One message; -1 with err ends the stream. */
typedef int client_message_fn(void *arg, const ProtobufCMessage *msg, struct cl_err *err);
int client_stream_open(struct client *c, const struct client_method *m, client_message_fn *fn,
                       void *arg, struct client_stream **ret_stream, struct cl_err *err) CL_MUST;
/* Send; waits while the window is full. */
int client_stream_send(struct client_stream *s, const ProtobufCMessage *msg,
                       struct cl_err *err) CL_MUST;
/* No more from here; waits for the end of the call. */
int client_stream_finish(struct client_stream *s, struct cl_err *err) CL_MUST;
/* Cancels what has not ended; NULL is a no-op. */
void client_stream_free(struct client_stream *s);
CL_DEFINE_AUTO(struct client_stream, client_stream_free)

/* Borrow a text for a message field; protobuf-c's fields are not const. */
static inline char *pb_text(const char *s)
{
    return (char *)(uintptr_t)(s ? s : "");
}

#endif
