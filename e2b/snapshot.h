/* e2b/snapshot.h - what the SDKs say about snapshots, and how to tell one from a template.
 *
 * Owns:    nothing.
 * Thread:  any.  Pure.
 * Source:  e2b-dev/E2B, spec/openapi.yml: SandboxSnapshotRequest.
 */
#ifndef CL_E2B_SNAPSHOT_H
#define CL_E2B_SNAPSHOT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "base/util.h"

/* The name that a new one is to have, borrowed from the body, which may be NULL; "" = none. UNIMPL:
 * without its memory.  What may be a name is the scheduler's to say. */
int e2b_snapshot_read(const json_t *body, const char **ret_name, struct cl_err *err) CL_MUST;

/* Can it be a snapshot's id or name, and no template's name? */
bool e2b_snapshot_is_meant(const char *word);

#endif
