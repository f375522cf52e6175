/* scheduler/snapshots.h - snapshots of sandboxes: their service, and their names.
 *
 * A snapshot is a unit that is PAUSED from its start on (snapshot.proto).  Its name is what its
 * record says, from the moment that it is whole until its end, unless another one takes it.
 *
 * Owns:    sched.snapshots, which has who is called what.
 * Thread:  the loop's.
 */
#ifndef CL_SCHEDULER_SNAPSHOTS_H
#define CL_SCHEDULER_SNAPSHOTS_H

#include "cloche/v1/snapshot.pb-c.h"
#include "scheduler/api.h"

/* It is whole: it takes its name, or ends when that is another one's which it does not replace.
 * Those of the books are told in the order in which they were made. */
void snapshot_is_whole(struct unit *u);
/* It has ended: its name is free. */
void snapshot_is_over(const struct unit *u);
/* What begins with a snapshot, as it was asked for, with all that it has of that. */
struct snapshot_start {
    Cloche__V1__JobSpec spec; /* borrows from the request and the snapshot */
    Cloche__V1__Resources resources;
    const char *id;                            /* the snapshot's */
    const Cloche__V1__FunctionEntry *function; /* ... NULL = it was not made as one */
};
/* False: the call has failed. */
bool snapshot_start(struct api_call *a, const Cloche__V1__JobSpec *asked,
                    struct snapshot_start *ret);
/* May one of this name be made?  INVALID, EXISTS. */
int snapshot_check_name(const struct sched *s, const char *tenant, const char *name, bool replace,
                        struct cl_err *err) CL_MUST;
/* A Snapshot message over a unit of this process, or a row of the books; it borrows from that. */
struct snapshot_view {
    Cloche__V1__Snapshot m;
    Cloche__V1__Time created, expires;
};
void snapshot_view_unit(struct snapshot_view *o, const struct unit *u);
/* The id of what `word` names: itself if it is an id; NULL when nobody is called that. */
const char *snapshot_id(const struct sched *s, const char *tenant, const char *word);

#endif
