/* scheduler/api.h - what every method of the client services goes through: authentication, scope,
 * audit, and the life of a call whose answer comes later.
 *
 * A method is a row: path, scope, whether it changes something, handler.  Its handler gets a
 * struct api_call with the principal and (unless it streams) a copy of the request.  Calls that
 * change something, as one does that wakes a sandbox to look at it, are answered after their audit
 * record's ack; while the audit log takes no records they are refused before anything happens.
 *
 * Owns:    an api_call is counted: one reference is the open rpc_call, one each is an answer that
 *          is awaited.  `call` is NULL once the client is gone.
 */
#ifndef CL_SCHEDULER_API_H
#define CL_SCHEDULER_API_H

#include "observability/traceparent.h"
#include "scheduler/sched_priv.h"

struct api_call;

typedef void api_handler_fn(struct api_call *a);

struct api_method {
    const char *path; /* "/cloche.v1.JobService/Run" */
    const ProtobufCMessageDescriptor *in, *out;
    enum scope scope;
    bool changes; /* audited before it is answered */
    bool client_streams, server_streams;
    bool lasts; /* its caller attaches again elsewhere: the end of this process does not wait */
    bool wakes; /* it needs the sandbox that it (or its first message) names to run */
    bool takes_links;       /* streams of clients: a link to that sandbox will do */
    api_handler_fn *handle; /* authenticated; `request` is there unless it streams */
    void (*on_message)(struct api_call *a, const ProtobufCMessage *msg); /* client streams */
    void (*on_half_close)(struct api_call *a);
    void (*on_drain)(struct api_call *a);
    void (*on_gone)(struct api_call *a, const struct cl_err *why); /* the call is over */
};

struct api_call {
    int refs;
    struct sched *s;
    struct rpc_call *call; /* NULL once it is over */
    const struct api_method *m;
    struct principal p;
    ProtobufCMessage *request; /* owned; of client streams: a first message that waits */
    ProtobufCMessage *reply;   /* owned; waits for the audit ack */
    struct cl_list waits;      /* with others for a sandbox to run: pause.c */
    struct cl_err reply_err;
    bool changes; /* something: its method does, or it wakes a sandbox */
    bool replied, audited;
    char object[CL_ID_MAX]; /* what it is about, for the audit log */
    void *state;            /* the handler's own; freed by it in on_gone */
};

void api_hold(struct api_call *a);
void api_release(struct api_call *a);
/* The one answer of a unary (or client-streaming) call; msg is the caller's. */
void api_reply(struct api_call *a, const ProtobufCMessage *msg);
/* End any call with an error. */
void api_fail(struct api_call *a, const struct cl_err *err);
void api_fail_with(struct api_call *a, enum cl_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Handle a call that waited for its sandbox to run. */
void api_go_on(struct api_call *a);
/* The W3C trace context that it came with; NULL = none, or none that is one. */
const char *api_trace(const struct api_call *a, char out[static TRACEPARENT_TEXT]);
/* Note what the call is about. */
void api_about(struct api_call *a, const char *object);
/* The audit record of this call alone (streams do it themselves, once). */
void api_audit(struct api_call *a, const struct cl_err *err);

/* Serve all client services. */
int api_serve(struct sched *s, struct cl_err *err) CL_MUST;

/* audit_api.c: connect to the log's reader, where there is one. */
int audit_api_open(struct sched *s, struct cl_err *err) CL_MUST;

/* The tables, one a service. */
extern const struct api_method job_api[], sandbox_api[], exec_api[], file_api[], template_api[],
    tenant_api[], fleet_api[], code_api[], port_api[], snapshot_api[], audit_api[], function_api[];
extern const size_t job_api_n, sandbox_api_n, exec_api_n, file_api_n, template_api_n, tenant_api_n,
    fleet_api_n, code_api_n, port_api_n, snapshot_api_n, audit_api_n, function_api_n;

/* --- helpers of the services ------------------------------------------------------------------ */

/* A live sandbox or job of the caller's tenant whose worker is connected; NULL with the reason. */
struct unit *api_unit_find(struct api_call *a, const char *id, enum books_kind kind,
                           struct worker **ret_worker, struct cl_err *err);
/* The same, or fails the call. */
struct unit *api_unit(struct api_call *a, const char *id, enum books_kind kind,
                      struct worker **ret_worker);
/* Page sizes: 0 = def; INVALID over max. */
int api_page_size(uint32_t asked, uint32_t def, uint32_t max, size_t *ret_n,
                  struct cl_err *err) CL_MUST;
/* Has a unit that `have` labels each of those that a list asks for? */
bool api_labels_match(Cloche__V1__Label *const *have, size_t n_have, Cloche__V1__Label *const *want,
                      size_t n_want);

#endif
