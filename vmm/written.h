/* vmm/written.h - which pages a clone is about to write: those that the machine it comes from wrote
 * while it rehearsed a clone's first acts (vmm/control.h: CONTROL_RECORD).
 *
 * A clone's first write to a page takes a fault of KVM, a copy and an unmapping, one after the
 * other; all of them copied at once, before it runs, spare it that.  A hint: a page too many costs
 * its copy, one too few a fault.
 *
 * Owns:    nothing.
 * Thread:  any; pure.
 */
#ifndef CL_VMM_WRITTEN_H
#define CL_VMM_WRITTEN_H

#include "base/err.h"
#include "base/util.h"
#include "vmm/state.h"

enum {
    WRITTEN_PAGE = 4096,
    WRITTEN_RUNS_MAX = 4096, /* 32 KiB of a state; without it a guest decides how long that is */
    WRITTEN_GAP = 1,         /* so many pages between two runs are taken along */
};

struct written {
    uint32_t n;
    struct written_run {
        uint32_t first, pages; /* numbers of pages in the RAM file */
    } runs[WRITTEN_RUNS_MAX];  /* ascending, apart; none empty */
};

/* One page more, behind all that are in it; dropped when there is no room for another run. */
void written_add(struct written *w, uint32_t page);

void written_save(const struct written *w, struct state_writer *out);
/* Hostile; INVALID unless all of it lies in mem_bytes. */
int written_load(struct written *w, uint64_t mem_bytes, struct state_reader *in,
                 struct cl_err *err) CL_MUST;

#endif
