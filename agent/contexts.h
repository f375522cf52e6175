/* agent/contexts.h - the code contexts of this guest, by name.
 *
 * Owns:    them.
 * Thread:  the agent's only one; nothing here blocks.
 */
#ifndef CL_AGENT_CONTEXTS_H
#define CL_AGENT_CONTEXTS_H

#include "agent/context.h"

/* Each costs an interpreter, four fds and half a MiB of the agent when it is driven to its bounds.
 */
enum { CONTEXTS_MAX = 16 };

struct contexts {
    const struct room_world *world; /* borrowed */
    struct context *all[CONTEXTS_MAX];
    uint64_t serial;
};

void contexts_init(struct contexts *cs, const struct room_world *world);
/* A ContextOp, a Cell: answered on its stream, now or when it is done. */
int contexts_op(struct contexts *cs, uint64_t stream, const Cloche__V1__GuestContextOp *op,
                struct gate *gate, struct chan *chan, struct cl_err *err) CL_MUST;
int contexts_run(struct contexts *cs, uint64_t stream, const Cloche__V1__GuestCell *cell,
                 struct gate *gate, struct chan *chan, struct cl_err *err) CL_MUST;
void contexts_reset(struct contexts *cs, uint64_t stream);
void contexts_reseed(struct contexts *cs);
/* The id of the context whose interpreter runs in there; "" = none's. */
const char *contexts_by_cgroup(const struct contexts *cs, uint64_t cgroup);
/* That of the one whose programs hold the most memory; NULL = nothing runs. */
struct room *contexts_largest(const struct contexts *cs);
void contexts_wait(const struct contexts *cs, struct gate *gate, const struct chan *chan,
                   struct waits *waits);
int contexts_turn(struct contexts *cs, struct gate *gate, struct chan *chan,
                  struct cl_err *err) CL_MUST;

#endif
