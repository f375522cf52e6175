/* agent/exec.h - one exec, seen from the agent: its processes, pipes, limits and end.
 *
 *   STARTING --started--> RUNNING --command ended, killed, reset--> DRAINING --> ended
 *
 * Owns:    its room, the agent's ends of its pipes.
 * Thread:  the agent's only one; nothing here blocks.
 * ExecEnded is sent after all output; the object goes when its processes and cgroup are gone.
 */
#ifndef CL_AGENT_EXEC_H
#define CL_AGENT_EXEC_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/cgroup.h"
#include "agent/chan.h"
#include "agent/gate.h"
#include "agent/room.h"
#include "agent/waits.h"

struct exec;

/* Start.  A command that cannot be run is no failure here: it is reported as the exec's end. */
int exec_start(const struct room_world *world, uint64_t stream, const Cloche__V1__GuestExec *req,
               struct exec **ret_exec, struct cl_err *err) CL_MUST;
/* NULL is a no-op; the exec must be gone (exec_is_gone). */
void exec_free(struct exec *exec);

uint64_t exec_stream(const struct exec *exec);
/* The kernel's number for its cgroup. */
uint64_t exec_cgroup(const struct exec *exec);
/* The stream was ended and every process and the cgroup are gone. */
bool exec_is_gone(const struct exec *exec);
/* Say what to wait for. */
void exec_wait(const struct exec *exec, struct gate *gate, const struct chan *chan,
               struct waits *waits);
/* Do what can be done now.  `stream` is NULL once the worker has reset it. */
int exec_turn(struct exec *exec, struct gate *gate, struct chan *chan, struct cl_err *err) CL_MUST;

int exec_stdin(struct exec *exec, const Cloche__V1__GuestData *data, struct cl_err *err) CL_MUST;
void exec_signal(struct exec *exec, int signo);
void exec_resize(struct exec *exec, uint32_t rows, uint32_t columns);
/* Kill everything in it. */
void exec_kill(struct exec *exec);
/* Its processes; NULL once they are gone. */
struct room *exec_room(struct exec *exec);

#endif
