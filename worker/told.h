/* worker/told.h - what the scheduler was told for the audit log and has not confirmed to be there:
 * a scheduler that dies takes with it what it had not written, and the next one is told again.
 * (docs/adr/0030)
 *
 * Owns:    copies of those messages (UnitWatched, ExecChanged), oldest first.
 * Limits:  TOLD_BYTES_MAX of them; there is no room for more.  Without that user code could fill
 *          the worker's memory while the log stands.
 * Thread:  the worker's loop.
 * Pure: no I/O.
 */
#ifndef CL_WORKER_TOLD_H
#define CL_WORKER_TOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/util.h"
#include "cloche/v1/worker.pb-c.h"

enum {
    TOLD_BYTES_MAX = 8 * 1024 * 1024,
    TOLD_COPY_COST = 1024, /* that one is counted with beside its bytes on the wire */
};

struct told {
    struct cl_list rows;
    uint64_t number; /* of the newest */
    size_t bytes;
};

void told_init(struct told *told);
/* Forget all; it can be used on. */
void told_clear(struct told *told);
/* Number m and keep a copy; is_sent: a scheduler is told now, else the next one is.  False: there
 * is no room for it, or no memory; m has no number. */
bool told_keep(struct told *told, Cloche__V1__SessionRequest *m, bool is_sent);
/* All up to this number are in the log. */
void told_confirmed(struct told *told, uint64_t number);
/* Each that is kept, oldest first, to a scheduler that begins; what was sent before is marked as
 * told again.  fn keeps nothing of it. */
typedef void told_fn(void *arg, Cloche__V1__SessionRequest *m);
void told_again(struct told *told, told_fn *fn, void *arg);

#endif
