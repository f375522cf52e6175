/* trail/rules_file.h - the operator's rules, of a file that may change while its reader runs.
 *
 * Who asks gets the rules as they are in the file by then.  A file that is gone or wrong changes
 * nothing: the rules of before stay, and the caller hears of it once.
 *
 * Owns:    the newest good rules; who was given them has a reference of his own.
 * Thread:  one; blocks on the disk for at most RULES_BYTES at each question.
 */
#ifndef CL_TRAIL_RULES_FILE_H
#define CL_TRAIL_RULES_FILE_H

#include "base/err.h"
#include "base/util.h"
#include "trail/rules.h"

struct rules_file;

/* An empty path is no rules.  The first rules must be good, as in rules_load(). */
int rules_file_open(const char *path, struct rules_file **ret_file, struct cl_err *err) CL_MUST;
/* NULL is a no-op. */
void rules_file_free(struct rules_file *f);
CL_DEFINE_AUTO(struct rules_file, rules_file_free)

/* The rules, the caller's by rules_free(); NULL = none.  *ret_why, once for each reason: why these
 * are those of before; else its code is OK. */
struct rules *rules_file_now(struct rules_file *f, struct cl_err *ret_why);

#endif
