/* agent/dial.h - one connection to a TCP port of the guest's loopback, seen from the agent.
 *
 *   CONNECTING ─► CONNECTED ─► GONE         (to 127.0.0.1, then to ::1; GONE at once when neither
 *        └────────────────────────┘          answers, and when the worker has reset it)
 *
 * The worker's eof shuts the socket down for writing, the program's FIN becomes an eof frame; the
 * last frame, HungUp, tells how both ended.
 * Owns:    its socket, by an fd a direction, and at most one window of bytes for the program.
 * Thread:  the agent's only one; nothing here blocks.
 * Source:  proto/cloche/v1/guest.proto, GuestDial.
 */
#ifndef CL_AGENT_DIAL_H
#define CL_AGENT_DIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/chan.h"
#include "agent/gate.h"
#include "agent/waits.h"

struct dial;

/* Fails with errno in err->sys: EINVAL for a port that cannot be. */
int dial_start(uint64_t stream, const Cloche__V1__GuestDial *req, struct dial **ret_dial,
               struct cl_err *err) CL_MUST;
/* NULL is a no-op. */
void dial_free(struct dial *dial);

uint64_t dial_stream(const struct dial *dial);
bool dial_is_gone(const struct dial *dial);
void dial_wait(const struct dial *dial, struct gate *gate, const struct chan *chan,
               struct waits *waits);
int dial_turn(struct dial *dial, struct gate *gate, struct chan *chan, struct cl_err *err) CL_MUST;
int dial_data(struct dial *dial, const Cloche__V1__GuestData *data, struct cl_err *err) CL_MUST;
/* The worker has reset the stream: so does the program see its connection. */
void dial_abort(struct dial *dial);
/* The last frame of a stream: it could not be made, or `error` is 0 and it ended in order. */
int dial_hang_up(uint64_t stream, int error, char *why, struct gate *gate, struct chan *chan,
                 struct cl_err *err) CL_MUST;

#endif
