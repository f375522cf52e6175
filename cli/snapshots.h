/* cli/snapshots.h - what commands about snapshots and functions, which are snapshots, share.
 *
 * Owns:    nothing.
 * Thread:  the only one.
 */
#ifndef CL_CLI_SNAPSHOTS_H
#define CL_CLI_SNAPSHOTS_H

#include <jansson.h>

#include "cli/pages.h"
#include "cloche/v1/snapshot.pb-c.h"

enum { SNAPSHOT_TIMEOUT_S = 180 };

/* The caller's. */
json_t *snapshot_json(const Cloche__V1__Snapshot *s);
/* Of all, or of those of the sandbox that the first argument names. */
page_fn snapshot_page;
/* `snapshot rm`, `function rm` */
int snapshot_rm(const struct cli_opts *o, const struct args *a);

#endif
