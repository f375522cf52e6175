/* cli/prune.h - builds of templates that nothing needs any more.
 *
 * A build is needed when it is the current one of its template, or when a worker has locked it
 * (worker/template.h): for what runs, waits warm, rests or is a snapshot.  That counts while a
 * worker has the folder itself locked (worker/template_watch.h), which is when it has found
 * everything that rests; without one nobody can tell.  Two workers with one folder must both run.
 *
 * Owns:    nothing.  Thread: main.
 */
#ifndef CL_CLI_PRUNE_H
#define CL_CLI_PRUNE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "base/util.h"

struct prune_options {
    const char *dir;  /* borrowed: of templates */
    const char *name; /* borrowed: of one of them; NULL = all */
    bool dry_run;     /* only look */
    bool force;       /* even if no worker runs */
};

/* Take them away.  *ret_rows: of each build that is not current `name`, `build`, `bytes` (what it
 * frees) and `state`, "removed", "not needed" (dry_run) or "in use".  UNAVAILABLE: no worker runs;
 * NOTFOUND: no such template. */
int prune(const struct prune_options *o, json_t **ret_rows, struct cl_err *err) CL_MUST;

#endif
