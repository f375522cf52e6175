/* cli/child_log.h - the log files of an instance's processes: bounded, however long they run.
 *
 * A process appends to NAME.log by a descriptor that it inherited and never opens again, so the
 * file cannot be replaced under it.  What is old is copied to NAME.log.1 instead, and then cut off
 * at the beginning of the file (FALLOC_FL_COLLAPSE_RANGE, in whole blocks), so that nothing is lost
 * that is written meanwhile: NAME.log.1 and NAME.log, one behind the other, are what was written.
 * On a file system that cannot do so all is copied, and what is written until the file is cut is
 * lost.
 *
 * Owns:    nothing.
 * Thread:  any.
 * Source:  fallocate(2).
 */
#ifndef CL_CLI_CHILD_LOG_H
#define CL_CLI_CHILD_LOG_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

#define CHILD_LOG_MAX (16 * CL_MIB) /* of NAME.log; NAME.log.1 is as large at most */

/* For appending; made when it is not there.  -1 with SYS. */
int child_log_open(const char *path, int *ret_fd, struct cl_err *err) CL_MUST;
/* When there are more than `max` bytes, move them to NAME.log.1, in place of what is there.  SYS:
 * it stays as it is, and grows. */
int child_log_trim(const char *path, uint64_t max, struct cl_err *err) CL_MUST;
/* Its last line, "" when there is none; cut at `size`. */
void child_log_last_line(const char *path, char *out, size_t size);

#endif
