/* scheduler/cancel.h - end a unit on request: noted in the books first, so that it
 * holds whatever happens to this scheduler; then its worker hears.
 */
#ifndef CL_SCHEDULER_CANCEL_H
#define CL_SCHEDULER_CANCEL_H

#include "scheduler/api.h"

struct cancel_spec {
    enum books_kind kind;
    const char *id;                /* borrowed from the call's request */
    const ProtobufCMessage *reply; /* static */
};

/* Answers the call: `reply` when the unit has ended and holds no quota, after 5 s at the latest; or
 * NOTFOUND when the tenant has no such unit. */
void cancel_unit(struct api_call *a, const struct cancel_spec *spec);
/* on_gone of such a call. */
void cancel_gone(struct api_call *a, const struct cl_err *why);

/* The only client that knew of the unit has left: end it.  Noted in the books too; nobody waits. */
void cancel_abandoned(struct unit *u);
/* The same, of one that nobody was told of: by its idempotency key the next one is made. */
void cancel_unmade(struct unit *u);

#endif
