/* worker/unit_priv.h - the inside of a unit, for unit_io.c, unit_kept_io.c and
 * unit_watch_io.c. */
#ifndef CL_WORKER_UNIT_PRIV_H
#define CL_WORKER_UNIT_PRIV_H

#include "cloche/v1/kept.pb-c.h"
#include "worker/unit.h"

/* unit_io.c: */
void unit_set_state(struct unit *u, enum unit_state state);
extern const struct machine_events unit_machine_events;
/* With a copy of `assign`, known by its id, without a machine. */
int unit_new(struct units *us, const Cloche__V1__Assign *assign, struct unit **ret_unit,
             struct cl_err *err) CL_MUST;
/* One that never lived. */
void unit_free(struct unit *u);
/* Of an exec_slot: its exec has ended. */
void unit_exec_ended(void *slot, struct exec *e);
/* PAUSING, and its VM is at rest: it is PAUSED. */
void unit_rests(struct unit *u);
/* New, of a machine that is at rest: PAUSED. */
void unit_is_restored(struct unit *u);
/* A claim by its assignment; `grant` is the room for its network's. */
int unit_fill_claim(const struct unit *u, struct net_grant *grant, struct machine_claim *ret_claim,
                    struct cl_err *err) CL_MUST;

/* unit_watch_io.c, of a unit's machine: */
void unit_watched(void *unit, const Cloche__V1__GuestEvents *batch);
void unit_flowed(void *unit, const struct net_event *event);

/* unit_kept_io.c: */
/* PAUSING, at rest: let it outlive the worker, where that can be; unit_rests() follows. */
void unit_keep(struct unit *u);
/* PAUSED again, or otherwise than before: what was kept goes on being kept. */
void unit_keep_again(struct unit *u);
/* What its VM is to be made of here, as far as that can be said without its files; with a
 * reference. UNAVAILABLE, or what the template's files say, when this worker cannot let it go on.
 */
int unit_open_template(struct units *us, const Cloche__V1__KeptSandbox *m,
                       struct template **ret_template, struct cl_err *err) CL_MUST;
/* The unit of a record whose files are there: PAUSED and kept. */
int unit_restore(struct units *us, const Cloche__V1__KeptSandbox *m, struct template *t,
                 struct unit **ret_unit, struct cl_err *err) CL_MUST;
/* Before its VM goes on, or ends.  On an error its record is there still: it must not go on. */
int unit_forget_kept(struct unit *u, struct cl_err *err) CL_MUST;

#endif
