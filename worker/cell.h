/* worker/cell.h - one RunCode: code in a context of a guest, and what it does, as events.
 *
 * Owns:    its guest stream until that closes; a result until it is whole (CODE_RESULT_MAX).
 * Borrows: the unit (its holder keeps it), the code until cell_start() returns.
 * Thread:  the worker loop.  No event comes inside cell_start().
 * Unlike an exec it has no spool: it ends with its one reader, and a reader that is slow makes the
 * guest wait (cell_pause).
 */
#ifndef CL_WORKER_CELL_H
#define CL_WORKER_CELL_H

#include "worker/unit.h"

enum { CELL_TIMEOUT_GRACE_S = 15 /* after the agent's own limit, it is given up */ };

struct cell;

struct cell_events {
    /* The last one is `ended`.  Lives until the callback returns. */
    void (*on_event)(void *arg, const Cloche__V1__RunCodeResponse *event);
    /* Instead of `ended`: it never ran. */
    void (*on_refused)(void *arg, const struct cl_err *why);
};

int cell_start(struct unit *u, const Cloche__V1__RelayCell *what, const struct cell_events *events,
               void *arg, struct cell **ret_cell, struct cl_err *err) CL_MUST;
/* NULL is a no-op.  A cell that runs is interrupted. */
void cell_free(struct cell *cell);
/* Let the guest wait, or go on. */
void cell_pause(struct cell *cell, bool paused);

/* What an errno of the agent about contexts means to a client; `id` is for the text. */
int cell_refusal(int error, const char *text, const char *id, struct cl_err *err);

#endif
