/* vmm/delta.h - what a clone has changed of its template's memory, as a file.
 *
 * Blocks, one after the other to the end of the file: a struct delta_block, and behind it the pages
 * of its runs, in that order.  So a store and a load take two calls a block, however scattered the
 * pages.
 *
 * Owns:    nothing.
 * Thread:  the main thread, while no vCPU runs.  The check of a block is pure.
 * Trust:   a block that is loaded is hostile: whoever wrote the file had run a guest.
 */
#ifndef CL_VMM_DELTA_H
#define CL_VMM_DELTA_H

#include "vmm/mem.h"

enum { DELTA_RUNS = 1023 /* one less than IOV_MAX: a block and its pages are one pwritev() */ };

struct delta_block {
    uint32_t n; /* runs in it: 1 to DELTA_RUNS */
    uint32_t zero;
    struct page_run
        runs[DELTA_RUNS]; /* ascending, also over blocks; apart; none empty; then zeros */
};
_Static_assert(sizeof(struct delta_block) == 8192, "fixed in the file");

/* INVALID unless it is one, and all of its runs are in [first, end), numbers of pages.  *ret_next:
 * the page behind its last run. */
int delta_check(const struct delta_block *block, uint32_t first, uint32_t end, uint32_t *ret_next,
                struct cl_err *err) CL_MUST;

/* Make `fd` anew as what this clone's memory is other than `before`, a view of the file that it was
 * mapped from, but for `holes`, where it has had memory of its own.  Nothing may write meanwhile.
 */
int delta_store(const struct guest_mem *gm, const uint8_t *before, const struct page_runs *holes,
                int fd, struct cl_err *err) CL_MUST;
/* Put the pages of such a file into a clone's memory, before it runs.  INVALID when it is none, or
 * one of more memory; then what it had so far is there. */
int delta_load(const struct guest_mem *gm, int fd, struct cl_err *err) CL_MUST;

#endif
