/* agent/gate.h - which frames the worker may send now, and how much may flow on each stream.
 *
 * Owns:    the table of open streams with their credits.
 * Pure: no I/O, no clock.  gate_admit() looks at one parsed frame and says what to do with it;
 * a breach of the protocol is PEER, after which the only right act is to power off.
 *
 *   NEW --Identity--> READY --Exec, FileOp, ContextOp, Cell, Dial--> stream open --ended, Reset-->
 * stream closed
 *
 * A frame for a stream that was open once is stale, not wrong: it crossed our last frame.
 */
#ifndef CL_AGENT_GATE_H
#define CL_AGENT_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"
#include "proto/guest_frame.h"

enum {
    /* Each open stream costs a process, three fds and a window of memory: without a bound a
     * worker (or who fooled it) could exhaust the agent, which must outlive user code. */
    GATE_STREAMS_MAX = 64,
    GATE_CREDIT_MAX = 1 << 30, /* a peer that grants more is confused */
};

enum gate_kind { GATE_FREE, GATE_KIND_EXEC, GATE_KIND_FILE, GATE_KIND_CODE, GATE_KIND_DIAL };

struct gate_stream {
    uint64_t id;
    enum gate_kind kind;
    uint32_t send_credit; /* bytes that we may send */
    uint32_t recv_credit; /* bytes that the worker may send */
    bool recv_eof;        /* the worker has ended its direction */
};

struct gate {
    bool identified;  /* Identity was applied; user code may run */
    bool held;        /* between Hold and Release nothing else may come */
    uint64_t last_id; /* highest stream number seen */
    struct gate_stream streams[GATE_STREAMS_MAX];
};

enum gate_action {
    GATE_IGNORE, /* stale */
    GATE_IDENTITY,
    GATE_EXEC,    /* the stream is open now */
    GATE_FILE,    /* the stream is open now */
    GATE_CONTEXT, /* the stream is open now */
    GATE_CELL,    /* the stream is open now */
    GATE_DIAL,    /* the stream is open now */
    GATE_BUSY,    /* a new stream, but the table is full: answer with a failure */
    GATE_DATA,    /* credit is taken already */
    GATE_CREDIT,  /* credit is added already */
    GATE_SIGNAL,
    GATE_RESIZE,
    GATE_RESET, /* the caller ends the work; the stream is closed already */
    GATE_STATS,
    GATE_PING,
    GATE_CLOCK,
    GATE_HOLD,
    GATE_RELEASE,
};

void gate_init(struct gate *gate);
int gate_admit(struct gate *gate, const Cloche__V1__GuestFrame *frame, enum gate_action *ret_action,
               struct cl_err *err) CL_MUST;

/* NULL when it is not open.  Valid until gate_close() of this id. */
struct gate_stream *gate_find(struct gate *gate, uint64_t id);
/* Closing what is closed is harmless: the worker may have reset it. */
void gate_close(struct gate *gate, uint64_t id);

#endif
