/* e2b/call_priv.h - the inside of a call, for the files that make up the API.
 *
 *   NEW --route, credential, body--> WORKING --e2b_reply(), _fail()--------------> DEAD
 *                                       |  e2b_begin()                              ^
 *                                       +--> STREAMING --e2b_end()------------------+
 *   the client leaves: DEAD, from any of them; before that, left()
 *
 * A call that has ended must not be touched: every function below that says "ends the call" is the
 * last of its caller.
 *
 * Owns:    see each member.
 * Thread:  the server's loop.
 */
#ifndef CL_E2B_CALL_PRIV_H
#define CL_E2B_CALL_PRIV_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

#include "base/buf.h"
#include "base/clock.h"
#include "e2b/route.h"
#include "mcp/json.h"
#include "observability/traceparent.h"

enum {
    E2B_ASKS_MAX = 4,          /* gRPC calls of one call at a time */
    E2B_OUT_HIGH = 256 * 1024, /* of a stream: above it the scheduler is not read */
    E2B_LIFE_S = 24 * 3600,    /* the longest that anything may take */
};
#define E2B_ASK_NS (60 * CL_NS_PER_S)
#define E2B_LIFE_NS (E2B_LIFE_S * CL_NS_PER_S)
/* What the SDKs may expect of envd: everything that we serve is in it. */
#define E2B_ENVD_VERSION "0.6.4"
#define E2B_CLIENT_ID "cloche"

struct e2b_server {
    struct e2b_server_conf conf;
    struct cl_list calls;
    size_t n_calls;
    struct cl_list watchers; /* of watch.c */
    struct cl_list builds;   /* of builds.c */
    size_t n_builds;
};

struct e2b_call {
    struct e2b_server *server; /* borrowed */
    struct cl_list link;
    struct cl_grave grave;
    const struct web_transport *transport; /* NULL once it has ended */
    void *arg;
    struct e2b_request in;
    const struct e2b_route *route;
    struct e2b_ids ids;           /* of the path */
    char *id;                     /* the first of them */
    struct e2b_grant *grant;      /* owned; its sandbox is "" on the control plane */
    const char *user;             /* in the guest: static */
    char tenant[E2B_ID_MAX];      /* once it was asked for (builds.c) */
    char trace[TRACEPARENT_TEXT]; /* of all that it asks; "" = none */
    json_t *body;                 /* owned; NULL = none */
    struct cl_list asks;
    size_t n_asks;
    struct rpc_call *paused;   /* the channel's: not read until the client has */
    struct cl_timer timer;     /* keeps a stream alive, or looks whether it can be read on */
    uint64_t keepalive_ns;     /* 0 = none */
    e2b_run_fn *beat;          /* every so often, while a stream is quiet */
    e2b_run_fn *after;         /* once, then NULL */
    struct e2b_origin *origin; /* borrowed: what is looked for (origin.h) */
    e2b_run_fn *found;         /* … and then? */
    e2b_run_fn *left; /* the client has: undo what nobody knows of; must not end the call */
    bool is_streaming;
    bool wants_body; /* of an upload: on_body() or on_body_end() may be next */
    size_t (*on_body)(struct e2b_call *c, const void *data, size_t n);
    e2b_run_fn *on_body_end;
    void *work; /* owned */
    void (*work_destroy)(void *work);
};

/* Zeroed, and destroyed with the call.  NULL: memory is out, and the call has ended. */
void *e2b_work_new(struct e2b_call *c, size_t size, void (*work_free)(void *work));

/* --- ends ---------------------------------------------------------------------------------------
 */

/* A JSON body; takes the reference; NULL = none.  Ends the call. */
void e2b_reply(struct e2b_call *c, int status, json_t *body);
void e2b_reply_next(struct e2b_call *c, json_t *body, const char *next_token);
/* Any body.  Ends the call. */
void e2b_reply_text(struct e2b_call *c, int status, const char *type, const char *text);
/* What went wrong, as this surface says it; ends the call. */
void e2b_fail(struct e2b_call *c, const struct cl_err *err);
/* The same, once it is known whether the sandbox itself is gone; ends the call. */
void e2b_fail_in_box(struct e2b_call *c, const struct cl_err *err);
int e2b_fail_invalid(struct e2b_call *c, const char *what);

/* --- streams ------------------------------------------------------------------------------------
 */

void e2b_begin(struct e2b_call *c, const char *type);
/* Of Connect envelopes; `beat` is sent as often as the client wants it. */
void e2b_begin_messages(struct e2b_call *c, e2b_run_fn *beat);
/* How long the client wants it to take at most. */
uint64_t e2b_limit_ns(const struct e2b_call *c);
/* `rpc` is where it comes from: not read while the client does not read. */
void e2b_send(struct e2b_call *c, const void *data, size_t n, struct rpc_call *rpc);
/* One Connect envelope; takes the reference. */
void e2b_send_message(struct e2b_call *c, json_t *message, struct rpc_call *rpc);
/* The last envelope: err == NULL is success.  Ends the call. */
void e2b_end_messages(struct e2b_call *c, const struct cl_err *err);
void e2b_end(struct e2b_call *c);
/* Go on with `run` later; the call may end until then.  Not for a stream. */
void e2b_after(struct e2b_call *c, uint64_t ns, e2b_run_fn *run);

/* Of an upload: go on with the body, here or later; ends the call, perhaps. */
void e2b_want_body(struct e2b_call *c);

/* --- the scheduler ------------------------------------------------------------------------------
 */

struct e2b_method {
    const char *path;
    const ProtobufCMessageDescriptor *out;
};
#define E2B_RPC(service, name, out_) \
    { \
        "/cloche.v1." service "/" name, &cloche__v1__##out_##__descriptor \
    }

struct e2b_ask {
    const struct e2b_method *method;
    const ProtobufCMessage *request; /* sent at once; NULL = the caller sends */
    uint64_t timeout_ns;             /* 0 = E2B_ASK_NS */
    bool keep_open;                  /* more messages will be sent */
    void (*on_message)(struct e2b_call *c, const ProtobufCMessage *msg, struct rpc_call *rpc);
    void (*on_drain)(struct e2b_call *c, struct rpc_call *rpc);
    /* The end.  Of a unary method `reply` is the answer, else NULL. */
    void (*on_end)(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err);
};
/* 0, or the call was ended with an error. */
int e2b_ask(struct e2b_call *c, const struct e2b_ask *ask, struct rpc_call **ret_rpc) CL_MUST;
/* 0, or err says why not, and the call goes on. */
int e2b_ask_try(struct e2b_call *c, const struct e2b_ask *ask, struct rpc_call **ret_rpc,
                struct cl_err *err) CL_MUST;
/* A wish whose end nobody awaits: it outlives the call. */
void e2b_tell(struct e2b_call *c, const struct e2b_method *method, const ProtobufCMessage *request);

static inline char *e2b_pb(const char *s)
{
    return (char *)(uintptr_t)(s ? s : "");
}

static inline const char *e2b_text(const struct e2b_call *c, const char *name)
{
    return mcp_json_text(c->body, name);
}

/* An EntryInfo of envd's. */
struct Cloche__V1__FileInfo;
json_t *e2b_entry(const struct Cloche__V1__FileInfo *f, const char *path);
/* "/home/user/a" for "a": as the guest's own working folder would.  -1: too long. */
int e2b_path(const struct e2b_call *c, const char *path, char *out, size_t size) CL_MUST;
/* Environment of an object {name: value}, behind that of a grant (JSON, "" = none); freed with
 * e2b_env_free().  The object's texts are borrowed. */
struct e2b_env {
    struct Cloche__V1__EnvVar *vars, **list;
    size_t n;
    json_t *grant; /* owned: the texts are its */
};
/* INVALID unless it is an object whose values are texts; NULL and null are fine. */
int e2b_env_check(const json_t *object, struct cl_err *err) CL_MUST;
int e2b_env_make(const char *grant, const json_t *object, struct e2b_env *ret_env,
                 struct cl_err *err) CL_MUST;
void e2b_env_free(struct e2b_env *env);

/* --- what there is, by surface ------------------------------------------------------------------
 */

e2b_run_fn e2b_not_there, e2b_health;
e2b_run_fn e2b_sandbox_create, e2b_sandbox_list, e2b_sandbox_get, e2b_sandbox_kill,
    e2b_sandbox_timeout, e2b_sandbox_connect, e2b_sandbox_pause, e2b_sandbox_resume,
    e2b_sandbox_fork, e2b_sandbox_metrics;
e2b_run_fn e2b_template_request, e2b_template_upload_link, e2b_template_upload, e2b_template_build,
    e2b_template_status, e2b_template_exists;
void e2b_builds_free(struct e2b_server *s);
e2b_run_fn e2b_snapshot_create, e2b_snapshot_list, e2b_snapshot_delete;
e2b_run_fn e2b_process_start, e2b_process_connect, e2b_process_list, e2b_process_signal,
    e2b_process_input, e2b_process_close, e2b_process_update;
e2b_run_fn e2b_folder_stat, e2b_folder_list, e2b_folder_make, e2b_folder_move, e2b_folder_remove;
e2b_run_fn e2b_folder_watch, e2b_watcher_create, e2b_watcher_events, e2b_watcher_remove;
void e2b_watchers_free(struct e2b_server *s);
e2b_run_fn e2b_file_read, e2b_file_write;
/* Take the call's body, which is no form, as the file at `path` of the sandbox of its grant. */
void e2b_file_take(struct e2b_call *c, const char *path);
e2b_run_fn e2b_code_run, e2b_context_list, e2b_context_create, e2b_context_delete,
    e2b_context_restart;

#endif
