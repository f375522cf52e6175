/* vmm/page_runs.h - a list of pages of the RAM file, as runs: what a snapshot tells its clones of
 * their memory.
 *
 *   written   pages that a clone is about to write: those that the machine it comes from wrote
 *             while it rehearsed a clone's first acts (vmm/control.h: CONTROL_RECORD).  A first
 *             write takes a fault of KVM, a copy and an unmapping, one after the other; all of them
 *             copied at once, before it runs, spare a clone that.
 *   holes     what the file does not have, because the machine never used it.  A clone has memory
 *             of its own there: in a private mapping of the file each page that it touches would
 *             first be made in the file, for good, and then copied.
 *
 * A page too few in either costs time or memory, and so does one too many of the written ones; one
 * too many of the holes is zeros in the clone, whatever the machine had there.
 *
 * Owns:    nothing.
 * Thread:  any; pure.
 */
#ifndef CL_VMM_PAGE_RUNS_H
#define CL_VMM_PAGE_RUNS_H

#include "base/err.h"
#include "base/util.h"
#include "vmm/state.h"

enum {
    RUNS_PAGE = 4096,
    PAGE_RUNS_MAX = 4096, /* 32 KiB of a state; without it a guest decides how long that is */
    PAGE_RUNS_GAP = 1,    /* so many pages between two runs are taken along by page_runs_add() */
};

struct page_runs {
    uint32_t n;
    struct page_run {
        uint32_t first, pages; /* numbers of pages in the RAM file */
    } runs[PAGE_RUNS_MAX];     /* ascending, apart; none empty */
};

/* One page more, behind all that are in it; dropped when there is no room for another run. */
void page_runs_add(struct page_runs *p, uint32_t page);

/* section: STATE_WRITTEN or STATE_HOLES. */
void page_runs_save(const struct page_runs *p, enum state_section section,
                    struct state_writer *out);
/* Hostile; INVALID unless all of it lies in mem_bytes. */
int page_runs_load(struct page_runs *p, enum state_section section, uint64_t mem_bytes,
                   struct state_reader *in, struct cl_err *err) CL_MUST;

#endif
