/* scheduler/submit.h - from a request to an admitted unit: validate, admit in the books, record in
 * the audit log, enqueue.  Used by Run, Submit, and Create and Fork of sandboxes and snapshots.
 */
#ifndef CL_SCHEDULER_SUBMIT_H
#define CL_SCHEDULER_SUBMIT_H

#include "scheduler/api.h"

struct submit_spec {
    enum books_kind kind;
    const Cloche__V1__JobSpec *spec; /* borrowed from the call's request */
    const char *idempotency_key;
    uint64_t ttl_ns;         /* sandboxes; snapshots: how long they are kept */
    bool pause_on_idle;      /* sandboxes */
    bool wake_on_use;        /* sandboxes that do */
    const char *fork_of;     /* of which sandbox or snapshot it is a copy; NULL = of none */
    const char *fork_moment; /* ... and of which moment */
    const char *name;        /* snapshots; NULL or "" = none */
    bool replaces;           /* ... whoever has that */
    const Cloche__V1__FunctionEntry *function; /* ... what a call of it runs; NULL = nothing */
    bool refuse_over_quota;
    bool waits; /* the client waits for it: its deadline bounds the queueing */
};

/* u is NULL when an idempotent replay has ended already; a->object is its id either way.  Always
 * runs, also when the client has left (a->call is NULL). */
typedef void submit_fn(void *arg, struct unit *u, bool replayed, const struct cl_err *err);
void submit(struct api_call *a, const struct submit_spec *spec, submit_fn *fn, void *arg);

#endif
