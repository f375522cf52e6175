/* agent/context.h - one code context: an interpreter that lives on between cells.
 *
 *   launch ─► STARTING ─READY─► IDLE ─cell─► BUSY ─ENDED─► IDLE
 *                │               │            │ (interrupt: ^C each second, five times)
 *                └───────────────┴────────────┴─ended, killed─► DEAD ─next cell, restart─► launch
 *
 * Owns:    its room, the socket to its runner, the agent's ends of its pipes, what it starts with.
 * Borrows: the world, for the agent's life.
 * Thread:  the agent's only one; nothing here blocks.
 * Trust:   the runner (agent/runners) is a process of user code: what it says is checked for form,
 *          bounded, and believed only about its own cell.  A breach kills the context alone.
 * Streams come and go: a cell whose stream was reset is interrupted, its output dropped.
 */
#ifndef CL_AGENT_CONTEXT_H
#define CL_AGENT_CONTEXT_H

#include "agent/cell_env.h"
#include "agent/chan.h"
#include "agent/gate.h"
#include "agent/room.h"
#include "agent/waits.h"

enum {
    CONTEXT_ID_MAX = 41,
    /* Code, its variables, and the lines of a few claims. */
    CONTEXT_IN_MAX = 1024 * 1024 + CELL_ENV_MAX + 8192,
    CONTEXT_CODE_MAX = 1024 * 1024,
    CONTEXT_CWD_MAX = 1024, /* so that a list of all contexts fits one frame */
    /* argv, cwd, environment as they are kept for a restart. */
    CONTEXT_SPEC_MAX = 128 * 1024,
    /* Of each stream, between two cells: a background process may write for ever. */
    CONTEXT_LATE_MAX = 32 * 1024,
};

struct context;

struct context_spec {
    const char *id;
    Cloche__V1__GuestLanguage language;
    const char *cwd;
    Cloche__V1__GuestEnv **env;
    size_t n_env;
    uint64_t serial; /* names its cgroup; never used before */
};

/* Make one and start its interpreter.  INVALID for a bad name, language or variable. */
int context_new(const struct room_world *world, const struct context_spec *spec,
                struct context **ret_context, struct cl_err *err) CL_MUST;
/* NULL is a no-op; it must be gone (context_is_gone). */
void context_free(struct context *c);

const char *context_id(const struct context *c);
/* The kernel's number for its interpreter's cgroup. */
uint64_t context_cgroup(const struct context *c);
/* Its processes; NULL once they are gone. */
struct room *context_room(struct context *c);
/* It was deleted, and all its processes are gone. */
bool context_is_gone(const struct context *c);
/* It is on its way there: its name may not be used. */
bool context_is_deleted(const struct context *c);
/* Point the fields at the context's own; valid until the next call. */
void context_describe(const struct context *c, Cloche__V1__GuestContext *out);

/* Run a cell.  Refusals (busy, too large) answer on the stream; -1 is the channel's failure. */
int context_run(struct context *c, uint64_t stream, const Cloche__V1__GuestCell *cell,
                struct gate *gate, struct chan *chan, struct cl_err *err) CL_MUST;
/* The worker gave the stream up. */
void context_reset(struct context *c, uint64_t stream);
/* Returns whether a cell runs. */
bool context_interrupt(struct context *c);

/* Answer on `stream` when it takes code, or cannot.  -EBUSY while another such answer waits. */
int context_await_ready(struct context *c, uint64_t stream);
void context_restart(struct context *c);
void context_delete(struct context *c);
/* After a restore: this clone's random numbers shall be its own. */
void context_reseed(struct context *c);

void context_wait(const struct context *c, struct gate *gate, const struct chan *chan,
                  struct waits *waits);
int context_turn(struct context *c, struct gate *gate, struct chan *chan,
                 struct cl_err *err) CL_MUST;

#endif
