/* worker/seed.h - a VM that runs or rests, as it was at one moment: what copies of it are made
 * from.
 *
 * Owns:    the memfds of its memory and state, its disk, a reference to its template.  Counted: it
 *          goes with the last copy that needs it.
 * Thread:  the worker loop.
 * Trust:   as hostile as the guest that it was.
 */
#ifndef CL_WORKER_SEED_H
#define CL_WORKER_SEED_H

#include "worker/guest.h"
#include "worker/rest.h"
#include "worker/template.h"

struct seed {
    unsigned refs;
    struct template *template; /* owned reference */
    struct rest *rest;         /* owned: its files, never stored, or loaded */
    int disk;                  /* owned; -1 = none, or given to the last copy */
    bool lends;                /* that is the disk of what rests, which nobody is given */
    uint64_t disk_bytes;       /* its size */
    struct guest_past past;    /* what its agent has open */
    bool is_elsewhere;         /* its state is another process's (struct vm_spec) */
};

/* What one copy is made from. */
struct seed_share {
    struct seed *seed;
    int disk; /* its own, of the seed's content; -1 = none */
};

/* With one reference, without a disk; takes `rest`, also when it fails. */
int seed_new(struct template *t, struct rest *rest, struct seed **ret_seed,
             struct cl_err *err) CL_MUST;
struct seed *seed_ref(struct seed *s);
/* NULL is a no-op. */
void seed_unref(struct seed *s);

#endif
