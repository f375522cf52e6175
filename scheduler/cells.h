/* scheduler/cells.h - one cell in a context of a sandbox: recorded, relayed, and its end recorded.
 *
 * Owns:    a cell, its caller's from cell_run() to cell_drop(); the relay.
 * Thread:  the loop's.  Dropping it before its end interrupts what runs.
 */
#ifndef CL_SCHEDULER_CELLS_H
#define CL_SCHEDULER_CELLS_H

#include "cloche/v1/code.pb-c.h"
#include "scheduler/api.h"

struct cell;

struct cell_spec {
    const char *sandbox_id;
    const char *context; /* an id */
    const char *code;
    uint64_t timeout_ns, output_max_bytes;
    Cloche__V1__EnvVar **env;
    size_t n_env;
};

struct cell_events {
    /* In order; ENDED is the last one, and on_end follows. */
    void (*on_event)(void *arg, const Cloche__V1__RunCodeResponse *m);
    /* Once; NULL = in order.  The last event. */
    void (*on_end)(void *arg, const struct cl_err *err);
};

/* The name of a language, which is the id of its default context; NULL for none that exists. */
const char *cell_language_name(Cloche__V1__Language language);
/* Of a default context's id; UNSPECIFIED for any other. */
Cloche__V1__Language cell_language_of(const char *id);

/* Borrows `spec` until its end or cell_drop().  No event comes before this returns. */
int cell_run(struct api_call *a, const struct cell_spec *spec, const struct cell_events *events,
             void *arg, struct cell **ret_cell, struct cl_err *err) CL_MUST;
/* Take no more events from the worker for now; or go on. */
void cell_pause(struct cell *cell, bool paused);
/* NULL = nothing. */
void cell_drop(struct cell *cell);

#endif
