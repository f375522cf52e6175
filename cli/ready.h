/* cli/ready.h - is the service of this instance able to run something?
 *
 * Owns:    nothing.
 * Thread:  the only one; calls block.
 */
#ifndef CL_CLI_READY_H
#define CL_CLI_READY_H

#include "cli/client.h"
#include "cli/plan.h"

enum { READY_TEXT = 256 };

struct readiness {
    bool serving;             /* health says SERVING */
    bool worker;              /* a worker has registered */
    char driver[16];          /* "" while no worker is there */
    char ready[READY_TEXT];   /* templates that are, separated by spaces */
    char pending[READY_TEXT]; /* templates that are built but not ready yet */
    unsigned warm;
};

/* -1 only when the service cannot be asked at all, or has not answered either of two questions for
 * patience_ns. */
int readiness_ask(struct client *c, uint64_t patience_ns, struct readiness *ret,
                  struct cl_err *err) CL_MUST;
/* Wait until a worker has a template ready, saying what happens on stderr.  0 also when that is
 * not to be expected (nothing is built); what is missing was said then. */
int readiness_wait(const struct cli_opts *o, const struct plan *p, struct cl_err *err) CL_MUST;

#endif
