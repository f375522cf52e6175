/* trail/sheaf.h - records that are kept to be told in the order of their time.
 *
 * A walk tells one stream as it lies, and what a producer had to send again lies late.
 *
 * Owns:    copies of the lines.
 * Limit:   the one that it is made with: TOOBIG.
 * Thread:  any.  Pure.
 */
#ifndef CL_TRAIL_SHEAF_H
#define CL_TRAIL_SHEAF_H

#include "trail/walk.h"

struct sheaf;
int sheaf_new(size_t max, struct sheaf **ret_sheaf, struct cl_err *err) CL_MUST;
/* NULL is a no-op. */
void sheaf_free(struct sheaf *s);
CL_DEFINE_AUTO(struct sheaf, sheaf_free)

/* A walk_fn whose arg is the sheaf. */
int sheaf_keep(void *sheaf, const struct audit_record *r, const char *line, size_t n,
               struct cl_err *err) CL_MUST;
size_t sheaf_count(const struct sheaf *s);
/* By time, and of one time as they were kept.  -1 of fn ends it. */
int sheaf_tell(struct sheaf *s, walk_fn *fn, void *arg, struct cl_err *err) CL_MUST;

#endif
