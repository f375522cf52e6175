/* cli/drain.h - `worker drain`: which worker is meant, what is left on it, and when it is over.
 *
 * Owns:    nothing but a copy of what was said last.
 * Borrows: messages of the service, for the time of a call.
 * Thread:  the only one.
 * Pure: the caller asks the service, looks at the clock and speaks.
 */
#ifndef CL_CLI_DRAIN_H
#define CL_CLI_DRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"
#include "cloche/v1/fleet.pb-c.h"

enum {
    DRAIN_TEXT = 320,
    DRAIN_PATIENCE_S = 60, /* a worker or scheduler that starts anew is back within it */
};

/* The worker that has this id, or else the only one on a host of this name.  NOTFOUND; INVALID with
 * the ids of those that it may mean. */
int drain_find(const Cloche__V1__ListWorkersResponse *list, const char *name,
               const Cloche__V1__Worker **ret_worker, struct cl_err *err) CL_MUST;
/* The worker with this id; NULL if it is not there. */
const Cloche__V1__Worker *drain_by_id(const Cloche__V1__ListWorkersResponse *list, const char *id);

/* What is left there. */
struct drain_counts {
    uint32_t jobs, sandboxes, snapshots;
};
struct drain_counts drain_counts(const Cloche__V1__Worker *w);
uint64_t drain_sum(const struct drain_counts *n);
/* "2 jobs and 1 sandbox are left", "nothing is left". */
void drain_left(const struct drain_counts *n, char out[static DRAIN_TEXT]);
/* Of any worker: "open", why it is closed, "draining, 3 left" with what is in the way, "drained".
 */
void drain_state(const Cloche__V1__Worker *w, char out[static DRAIN_TEXT]);

struct drain {
    uint64_t seen_ns; /* it was there last, and draining */
    struct drain_counts left;
    bool counted; /* that was said */
    char trouble[DRAIN_TEXT];
};
enum drain_step {
    DRAIN_GOES_ON,
    DRAIN_EMPTY,
    DRAIN_UNDONE, /* by someone else */
    DRAIN_GONE,
};

/* A look at it; w is NULL when it is not there. */
enum drain_step drain_look(struct drain *d, const Cloche__V1__Worker *w, uint64_t now_ns);
/* The next thing of this look that was not said before; false when there is none. */
bool drain_news(struct drain *d, const Cloche__V1__Worker *w, char out[static DRAIN_TEXT]);

#endif
