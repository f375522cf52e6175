/* worker/warmup.h - what a fresh machine is put through before it is parked: commands, and the code
 * contexts that its template prestarts.  Pure.
 *
 *   boot:   commands, then each context: created, preloaded; then their warm-up cells;
 *           then the rehearsal: an identity, and the cells, or the commands where there are none
 *   clone:  commands, then the warm-up cells (the contexts are in the snapshot)
 *
 * Commands and cells run WARMUP_ROUNDS times: under emulation the first run translates, the second
 * shows that it did.  The rehearsal is what a clone does first, once, so that the snapshot can say
 * which pages that takes; who has no use for that stops before it.  A command writes hundreds of
 * pages or thousands: copying them would cost a clone that runs a cell more than it gains.
 */
#ifndef CL_WORKER_WARMUP_H
#define CL_WORKER_WARMUP_H

#include "worker/template.h"

enum { WARMUP_ROUNDS = 2 };

enum warmup_kind {
    WARMUP_COMMAND = 1,
    WARMUP_CONTEXT,
    WARMUP_PRELOAD,
    WARMUP_CELL,
    WARMUP_REHEARSE,
    WARMUP_IDENTITY
};

struct warmup_step {
    enum warmup_kind kind;
    const struct template_warmup *command;  /* COMMAND; borrowed from the manifest */
    const struct template_context *context; /* CONTEXT, PRELOAD, CELL */
};

/* The step of this index; false when there are no more. */
bool warmup_step(const struct template_manifest *m, bool boot, size_t index,
                 struct warmup_step *ret_step);

#endif
