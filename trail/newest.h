/* trail/newest.h - the newest records that match, without reading all that is older.
 *
 * The last part of each stream is read, and when that has too few, four times as much.
 *
 * Owns:    the records that it keeps, and its walk.
 * Limit:   NEWEST_MAX records and NEWEST_BYTES of them: the oldest make room.
 * Thread:  any; blocks on the disk for what one step reads.
 */
#ifndef CL_TRAIL_NEWEST_H
#define CL_TRAIL_NEWEST_H

#include "trail/walk.h"

enum { NEWEST_MAX = 10000, NEWEST_BYTES = 16 * 1024 * 1024, NEWEST_TAIL = 256 * 1024 };

struct newest;
/* n: 1 to NEWEST_MAX.  The filter's tail_bytes is ours; its texts are borrowed. */
int newest_new(const char *dir, const struct walk_filter *filter, size_t n,
               struct newest **ret_newest, struct cl_err *err) CL_MUST;
/* NULL is a no-op. */
void newest_free(struct newest *n);
CL_DEFINE_AUTO(struct newest, newest_free)

/* As walk_step(): 1: there is more to read; 0: they are known. */
int newest_step(struct newest *n, size_t bytes, struct cl_err *err) CL_MUST;
/* Tell them, the oldest first, and forget them: `bytes` of them, more or less.  1: there are more.
 */
int newest_tell(struct newest *n, size_t bytes, walk_fn *fn, void *arg, struct cl_err *err) CL_MUST;
/* The walk that goes on where they end; the caller's. */
struct walk *newest_take_walk(struct newest *n);

#endif
