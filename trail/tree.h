/* trail/tree.h - what happened in one job or sandbox, as a tree: who asked for what, which
 * processes came of it, what each of them did, what went over the network and through ports.
 *
 *   unit ─┬─ exec or code context ─── process ─┬─ process ...
 *         ├─ network, ports, files by the API  └─ wrote, connect, denied ...
 *         └─ its own life: start, pause, end
 *
 * Records come in the order of their time.  A process stands under the one that made it, as the
 * guest's kernel told; of one that was not told, under its exec or context.  Leaves that say the
 * same are one, with a count. Owns:    its nodes (JSON objects: at, what, text, fields, times,
 * nodes). Thread:  any.  Pure; the texts are user code's, and are printed without control
 * characters.
 */
#ifndef CL_TRAIL_TREE_H
#define CL_TRAIL_TREE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"
#include "base/own.h"
#include "base/util.h"

struct tree;
int tree_new(const char *unit, struct tree **ret_tree, struct cl_err *err) CL_MUST;
/* NULL is a no-op. */
void tree_free(struct tree *t);
CL_DEFINE_AUTO(struct tree, tree_free)

/* One record of the unit; `fields` as the log has them. */
void tree_add(struct tree *t, const char *ts, const char *event, const json_t *fields);
/* How many records were added. */
size_t tree_records(const struct tree *t);
/* Of files that one process read, wrote, moved ... the first dozen and how many more, unless `all`.
 */
void tree_print(const struct tree *t, bool all, FILE *out);
/* Borrowed. */
const json_t *tree_root(const struct tree *t);

#endif
