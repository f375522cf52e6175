/* scheduler/sandboxes.h - what the two files of SandboxService share: sandboxes.c, and pause.c for
 * Pause and Resume.
 */
#ifndef CL_SCHEDULER_SANDBOXES_H
#define CL_SCHEDULER_SANDBOXES_H

#include "scheduler/api.h"

/* A Sandbox message over a unit of this process or a row of the books; it borrows from that. */
struct sandbox_view {
    Cloche__V1__Sandbox m;
    Cloche__V1__Time created, expires;
};
void sandbox_view_unit(struct sandbox_view *o, const struct unit *u);

/* Set the time to live of one whose worker is connected.  `done` gets the call, which is held for
 * it, and releases it. */
void sandbox_ask_extend(struct api_call *a, struct unit *u, uint64_t ttl_ns, request_fn *done);
/* That was done. */
void sandbox_extended(struct unit *u, const Cloche__V1__ExecAnswer *answer, uint64_t ttl_ns);

/* pause.c */
void sandbox_pause(struct api_call *a);
void sandbox_resume(struct api_call *a);
/* The call needs this sandbox to run from now on.  Not NULL: it rests for being idle (or is about
 * to), and is to be woken first. */
struct unit *sandbox_use(const struct api_call *a, const char *id);
/* Wake it: the call waits, and later goes on by api_go_on() or fails as a Resume would.  Calls that
 * wait for the same one go on together.  Whoever leaves, it is woken. */
void sandbox_wake(struct api_call *a, struct unit *u);

#endif
