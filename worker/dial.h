/* worker/dial.h - one connection to a TCP port of a guest's loopback, made by its agent.
 *
 * Owns:    its guest stream until that closes; bytes that the guest has no room for yet.
 * Holds:   the unit, while it waits for its turn or the guest has the connection.
 * Thread:  the worker loop.  No event comes inside dial_start().
 * Bytes in either direction are use of the sandbox, an open connection alone is not: its guest may
 * be paused meanwhile, and the connection is silent until it goes on.
 */
#ifndef CL_WORKER_DIAL_H
#define CL_WORKER_DIAL_H

#include "worker/unit.h"

struct dial;

struct dial_events {
    /* What the guest did: `connected`, `data`, `eof`.  Lives until the callback returns. */
    void (*on_event)(void *arg, Cloche__V1__RelayRequest *event);
    /* Not to be used inside of it: dial_flush() may have room. */
    void (*on_room)(void *arg);
    /* The last one.  NULL: both directions have ended in order. */
    void (*on_end)(void *arg, const struct cl_err *why);
};

/* UNIMPL when the agent is too old.  With UNIT_DIALS_MAX open it begins when one of them ends;
 * TOOBIG when too many wait for that, and as its end when it waited for DIAL_WAIT_S. */
int dial_start(struct unit *u, uint32_t port, const struct dial_events *events, void *arg,
               struct dial **ret_dial, struct cl_err *err) CL_MUST;
/* NULL is a no-op.  A connection that is open is reset. */
void dial_free(struct dial *dial);
/* Bytes for the guest, also before `connected`.  What it has no room for is kept; no more of that
 * than of one call's output. */
int dial_write(struct dial *dial, const void *data, size_t n, bool eof, struct cl_err *err) CL_MUST;
/* Something is kept: no more should come. */
bool dial_is_full(const struct dial *dial);
void dial_flush(struct dial *dial);
/* Let the guest wait, or go on. */
void dial_pause(struct dial *dial, bool paused);

/* What an errno of the agent about a connection means to a client. */
int dial_failure(int error, const char *text, uint32_t port, struct cl_err *err);

#endif
