/* worker/claim.h - one worker a state folder, one worker an instance name.
 *
 * The VMs of a state folder are swept at start, and cgroups are named after the instance: two
 * workers that share either would kill each other's VMs.
 *
 * Owns:    a lock on the folder and an abstract socket's name, until close; both end with the
 * process. Thread:  start-up.
 */
#ifndef CL_WORKER_CLAIM_H
#define CL_WORKER_CLAIM_H

#include "base/err.h"
#include "base/util.h"

struct claim {
    int folder_fd, name_fd; /* owned; -1 = not held */
};

/* EXISTS says which of the two another worker holds. */
int claim_take(const char *state_dir, const char *instance, struct claim *ret_claim,
               struct cl_err *err) CL_MUST;
void claim_drop(struct claim *claim);

#endif
