/* rpc/call.h - one gRPC call, as its server or as its client sees it.
 *
 * Owns:    the stream's buffers; borrowed by the handler from on_start (server) or
 *          rpc_channel_call() (client) until on_end returns.  on_end runs exactly once, for any
 *          reason (finished, peer reset, deadline, connection lost); the call is dead after it.
 * Thread:  the loop of its server or channel.
 * Limits:  a message over the method's limit ends the call with TOOBIG at its length prefix; a
 *          writer that ignores rpc_call_is_full() is cut off with TOOBIG at RPC_OUT_MAX.
 * Source:  gRPC over HTTP/2 (grpc/doc/PROTOCOL-HTTP2.md), RFC 9113.
 */
#ifndef CL_RPC_CALL_H
#define CL_RPC_CALL_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/util.h"

enum {
    RPC_MESSAGE_MAX = 4 * 1024 * 1024, /* one message, after decompression */
    RPC_OUT_HIGH = 256 * 1024,         /* is_full above this; on_drain when below half of it */
    RPC_OUT_MAX = 16 * 1024 * 1024,    /* queued output of one call */
    RPC_METADATA_MAX = 8 * 1024,       /* header list of one request (name + value + 32 each) */
    RPC_METADATA_PAIRS = 64,
};

struct rpc_call;

/* Who is at the other end of the connection. */
struct rpc_peer {
    char address[64]; /* "unix", "127.0.0.1:40312" */
    bool is_unix;
    uid_t uid; /* SO_PEERCRED; valid when is_unix */
    pid_t pid;
    char worker_id[64]; /* from a verified certificate's SAN "URI:worker:<id>", or "" */
    int listener;       /* the tag that rpc_server_listen() was given */
};

/* One method; tables of these are static. */
struct rpc_method {
    const char *path; /* "/cloche.v1.JobService/Run" */
    const ProtobufCMessageDescriptor *in, *out;
    bool client_streams;
    bool server_streams;
    bool lasts;         /* whoever calls goes on elsewhere when it is cut: a drain does not wait */
    size_t max_message; /* bytes; 0 = RPC_MESSAGE_MAX */
    /* Request headers are here; no message yet.  Optional. */
    void (*on_start)(struct rpc_call *call, void *service);
    /* One message; it lives until the callback returns.  For a unary or server-streaming method
     * it runs exactly once, after the client's half-close is known to follow one message. */
    void (*on_message)(struct rpc_call *call, const ProtobufCMessage *msg, void *service);
    /* The client sent its last message (streaming requests only).  Optional. */
    void (*on_half_close)(struct rpc_call *call, void *service);
    /* Queued output fell below half of RPC_OUT_HIGH.  Optional. */
    void (*on_drain)(struct rpc_call *call, void *service);
    /* The call is over; why is NULL when it ended with the status this side gave it, else what
     * cut it (CANCELLED, DEADLINE, UNAVAILABLE).  Optional. */
    void (*on_end)(struct rpc_call *call, const struct cl_err *why, void *service);
};

/* The client's side of a method. */
struct rpc_client_events {
    void (*on_message)(struct rpc_call *call, const ProtobufCMessage *msg, void *arg);
    void (*on_drain)(struct rpc_call *call, void *arg);
    /* status == NULL: OK.  Otherwise code, text, retry_ms and subject from the server's details. */
    void (*on_end)(struct rpc_call *call, const struct cl_err *status, void *arg);
};

/* --- both sides ----------------------------------------------------------------------------- */

/* Queue one message (packed now; msg stays the caller's).  Fails with STATE after finish or
 * half-close, TOOBIG over RPC_OUT_MAX.  A first send also sends the initial metadata. */
int rpc_call_send(struct rpc_call *call, const ProtobufCMessage *msg, struct cl_err *err) CL_MUST;
/* Back-pressure: stop producing while true; on_drain tells when to go on. */
bool rpc_call_is_full(const struct rpc_call *call);
size_t rpc_call_queued(const struct rpc_call *call);
/* Nothing more of `call` goes to the peer before what is queued on `first` now, another call of the
 * same channel or server: two streams of a connection have no order else.  The peer takes them in
 * that order.  When `first` ends with something unsent, `call` waits no longer. */
void rpc_call_after(struct rpc_call *call, struct rpc_call *first);
/* Stop (or go on) taking messages: the HTTP/2 window closes, so the peer stops sending. */
void rpc_call_pause(struct rpc_call *call, bool paused);
void rpc_call_set_user(struct rpc_call *call, void *user);
void *rpc_call_user(const struct rpc_call *call);
/* Absolute monotonic deadline, 0 = none. */
uint64_t rpc_call_deadline_ns(const struct rpc_call *call);
const char *rpc_call_path(const struct rpc_call *call);
const struct rpc_peer *rpc_call_peer(const struct rpc_call *call);

/* Compress the messages sent from now on with gzip, where the peer accepts that.  On a server the
 * first use comes before the first send. */
void rpc_call_compress(struct rpc_call *call, bool on);
/* Was the message that is being handed over compressed? */
bool rpc_call_was_compressed(const struct rpc_call *call);

/* --- server side ---------------------------------------------------------------------------- */

/* Value of a request metadata key (lower case), or NULL.  "-bin" values are decoded.  On a client:
 * of the response headers and trailers. */
const char *rpc_call_metadata(const struct rpc_call *call, const char *name);
/* The same with its length, for "-bin" values that may hold NUL. */
const char *rpc_call_metadata_bytes(const struct rpc_call *call, const char *name, size_t *ret_n);
/* End the call: err == NULL is OK; otherwise grpc-status, message and google.rpc details
 * (ErrorInfo always; RetryInfo when retry_ms; QuotaFailure for RATE, QUOTA, QUEUE) come from err.
 * Queued messages are sent first.  Only the first finish counts. */
void rpc_call_finish(struct rpc_call *call, const struct cl_err *err);
/* The same with a bare status that errors.def does not know (a proxy passing one on); no details.
 */
void rpc_call_finish_status(struct rpc_call *call, int grpc_status, const char *text);
/* Send msg and finish with OK, or with the error that sending gave. */
void rpc_call_reply(struct rpc_call *call, const ProtobufCMessage *msg);
/* Add response metadata before the first send; name lower case. */
int rpc_call_add_header(struct rpc_call *call, const char *name, const char *value,
                        struct cl_err *err) CL_MUST;
int rpc_call_add_trailer(struct rpc_call *call, const char *name, const char *value,
                         struct cl_err *err) CL_MUST;

/* --- client side ---------------------------------------------------------------------------- */

/* No more messages from here. */
void rpc_call_close_send(struct rpc_call *call);
/* RST_STREAM(CANCEL); on_end follows with CANCELLED, in a later loop turn. */
void rpc_call_cancel(struct rpc_call *call);

#endif
