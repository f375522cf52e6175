/* agent/files.h - one file operation, seen from the agent.
 *
 * A helper process with the user's rights does the work (file_ops.h), so the kernel checks every
 * permission; the agent only moves bytes and frames.  The helper lives in the cgroup /user/files.
 * Owns:    the helper by pidfd, its data pipe and its control socket.
 * Thread:  the agent's only one; nothing here blocks.
 */
#ifndef CL_AGENT_FILES_H
#define CL_AGENT_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/cgroup.h"
#include "agent/chan.h"
#include "agent/gate.h"
#include "agent/person.h"
#include "agent/waits.h"

struct files;

struct files_world {
    const struct cgroups *groups;
    const struct people *people;
    int userns_fd;
};

int files_start(const struct files_world *world, uint64_t stream, const Cloche__V1__GuestFileOp *op,
                struct files **ret_files, struct cl_err *err) CL_MUST;
/* NULL is a no-op; the helper must be gone (files_is_gone). */
void files_free(struct files *files);

uint64_t files_stream(const struct files *files);
bool files_is_gone(const struct files *files);
void files_wait(const struct files *files, struct gate *gate, const struct chan *chan,
                struct waits *waits);
int files_turn(struct files *files, struct gate *gate, struct chan *chan,
               struct cl_err *err) CL_MUST;
int files_data(struct files *files, const Cloche__V1__GuestData *data, struct cl_err *err) CL_MUST;
/* The worker has reset the stream: a write that was not committed leaves no trace. */
void files_abort(struct files *files);

#endif
