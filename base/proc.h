/* base/proc.h - is that process still the one it was?
 *
 * Thread: any.
 */
#ifndef CL_BASE_PROC_H
#define CL_BASE_PROC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { CL_PROC_MARK = 128 }; /* text, with its NUL */

/* When it began, in ticks since the boot (proc(5), field 22); 0 = there is none, or it is not
 * shown.  With its pid that names a process for as long as the kernel runs. */
uint64_t cl_proc_start_time(pid_t pid);

/* A mark of this process, by which others of its kernel and pid namespace can tell that it is dead:
 * "BOOT-ID NAMESPACE START PID".  "unknown" where /proc does not show what is needed. */
void cl_proc_mark(char out[static CL_PROC_MARK]);
/* Is the process of `mark` dead for certain?  `ours`: the mark of this one.  Of another kernel or
 * namespace, or where processes are hidden from us, nobody can tell: false. */
bool cl_proc_mark_is_dead(const char *ours, const char *mark);

#endif
