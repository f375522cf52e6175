/* agent/serve.h - the agent's life after boot: one loop over the channel and the open streams.
 *
 * Owns:    the channel, the gate, the cgroups, the user namespace and every stream's object.
 * Returns only when the worker broke the protocol or the machine cannot go on.
 */
#ifndef CL_AGENT_SERVE_H
#define CL_AGENT_SERVE_H

#include "agent/boot.h"
#include "base/err.h"

/* Takes boot's fds.  Always -1. */
int serve_run(struct boot *boot, struct cl_err *err);

#endif
