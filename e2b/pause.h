/* e2b/pause.h - what E2B's SDKs say about pausing: in a new sandbox, a pause, a connect, a list.
 *
 * Owns:    nothing.
 * Thread:  any.  Pure.
 * Source:  e2b-dev/E2B, spec/openapi.yml: NewSandboxV2, SandboxPauseRequest, ConnectSandboxV2.
 */
#ifndef CL_E2B_PAUSE_H
#define CL_E2B_PAUSE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "base/util.h"

enum { E2B_RUNNING = 1, E2B_PAUSED = 2, E2B_ANY_STATE = E2B_RUNNING | E2B_PAUSED };

/* "running,paused" as a set; INVALID when there is another word, or none. */
int e2b_states_read(const char *text, unsigned *ret_states, struct cl_err *err) CL_MUST;

/* Is it paused when its time is over, and does it go on by itself when it is used then?  UNIMPL:
 * without its memory; INVALID: only to go on.  The body may be NULL. */
struct e2b_auto_pause {
    bool pauses, resumes;
};
int e2b_auto_pause_read(const json_t *body, struct e2b_auto_pause *ret, struct cl_err *err) CL_MUST;

/* Of a pause, a resume or a connect.  UNIMPL: without its memory, or only when its agent is well.
 */
int e2b_pause_check(const json_t *body, struct cl_err *err) CL_MUST;

#endif
