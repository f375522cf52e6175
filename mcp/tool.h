/* mcp/tool.h - what a tool sees of the call that it serves.
 *
 * A tool gets arguments that fit its schema, asks the scheduler with the caller's credential, and
 * ends the call exactly once: with a result, or with an error that the model can act on.
 * Everything that it asked for is cancelled when the call ends first.
 *
 * Owns:    nothing; a struct mcp_call lives until it is ended or cancelled, so after either of
 * them, and after anything that may do so, it must not be touched. Thread:  the server's loop.
 */
#ifndef CL_MCP_TOOL_H
#define CL_MCP_TOOL_H

#include <protobuf-c/protobuf-c.h>

#include "base/id.h"
#include "mcp/server.h"

typedef void mcp_run_fn(struct mcp_call *c);

/* Tools, methods and capabilities that a build adds to the product's (tests of conformance). */
struct mcp_row {
    const char *name; /* of a tool, or of a method */
    mcp_run_fn *run;
};
struct mcp_extra {
    const char *tools_json; /* an array as in tools.json */
    const struct mcp_row *tools;
    size_t n_tools;
    const struct mcp_row *methods; /* before the product's own; these may decline */
    size_t n_methods;
    const char *capabilities_json; /* merged into ours */
    /* A client's answer to what a tool of this build asked it (mcp_send()); NULL = none ever is. */
    void (*on_response)(const json_t *response);
};

/* --- the call ----------------------------------------------------------------------------------
 */

/* Borrowed until the end of the call. */
const json_t *mcp_args(const struct mcp_call *c);
const json_t *mcp_params(const struct mcp_call *c);
enum mcp_era mcp_call_era(const struct mcp_call *c);
bool mcp_call_is_stdio(const struct mcp_call *c);
struct mcp_server *mcp_call_server(const struct mcp_call *c);
/* The tool's own state; freed with the call, or when there is another. */
void mcp_set_work(struct mcp_call *c, void *work, void (*destroy)(void *work));
void *mcp_work(const struct mcp_call *c);

/* --- ends --------------------------------------------------------------------------------------
 */

/* A JSON-RPC result; takes the reference. */
void mcp_end(struct mcp_call *c, json_t *result);
/* A JSON-RPC error. */
void mcp_end_error(struct mcp_call *c, const struct mcp_refusal *why);
/* A tool's result.  Takes all references; text may be NULL when `content` says it all. */
struct mcp_result {
    json_t *structured; /* NULL = none */
    char *text;         /* owned: cl_free()d */
    json_t *content;    /* more items after the text; NULL = none */
    bool is_error;
};
void mcp_end_tool(struct mcp_call *c, struct mcp_result *r);
/* isError: what happened, why, and what the model can do. */
void mcp_end_tool_error(struct mcp_call *c, const struct cl_err *err);

/* Progress, if the client asked for it; at most once a second is sent. */
void mcp_progress(struct mcp_call *c, const char *message);
/* A notification on the call's own stream; takes the reference.  For fixtures. */
void mcp_notify(struct mcp_call *c, const char *method, json_t *params);
/* Any message on the call's own stream; takes the reference.  For fixtures. */
void mcp_send(struct mcp_call *c, json_t *message);
/* The token that progress is reported under, or NULL. */
const json_t *mcp_progress_token(const struct mcp_call *c);

/* --- the scheduler -----------------------------------------------------------------------------
 */

struct mcp_ask;
struct mcp_method_of {
    const char *path; /* "/cloche.v1.ExecService/Start" */
    const ProtobufCMessageDescriptor *out;
};
#define MCP_RPC(service, name, out_) \
    { \
        "/cloche.v1." service "/" name, &cloche__v1__##out_##__descriptor \
    }

struct mcp_ask_spec {
    const struct mcp_method_of *method;
    const ProtobufCMessage *request; /* sent at once; NULL = the caller sends */
    uint64_t timeout_ns;             /* 0 = MCP_ASK_NS */
    bool keep_open;                  /* more messages will be sent: mcp_ask_call() */
    size_t tag;                      /* the call's ask_tag while on_end runs */
    /* Each message of a stream; optional.  A unary answer comes here too. */
    void (*on_message)(struct mcp_call *c, const ProtobufCMessage *msg);
    void (*on_drain)(struct mcp_call *c, struct rpc_call *rpc);
    /* The end.  For unary methods `reply` is the answer, else NULL. */
    void (*on_end)(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err);
};
#define MCP_ASK_NS (60 * CL_NS_PER_S)
/* 0, or the call was ended with an error and must not be touched any more. */
int mcp_ask(struct mcp_call *c, const struct mcp_ask_spec *spec, struct rpc_call **ret_rpc) CL_MUST;

/* Find or make the sandbox that the arguments name or mean, and go on; ends the call when there is
 * none. */
void mcp_box_need(struct mcp_call *c, mcp_run_fn *next);
const char *mcp_box(const struct mcp_call *c);
/* Was it made for this call? */
bool mcp_box_is_new(const struct mcp_call *c);
/* Is it this caller's?  Goes on, or ends the call as for a sandbox that does not exist. */
void mcp_box_check(struct mcp_call *c, const char *sandbox_id, mcp_run_fn *next);
/* An answer said that it is gone: the next call makes a new one. */
void mcp_box_gone(struct mcp_call *c);
/* "sandbox_id: ... (new; pass it to keep state)" where the client must carry it. */
void mcp_box_note(const struct mcp_call *c, char *out, size_t size);

static inline char *mcp_pb(const char *s)
{
    return (char *)(uintptr_t)(s ? s : "");
}

#endif
