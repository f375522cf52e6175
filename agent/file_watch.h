/* agent/file_watch.h - what changes in a folder, inside a helper process, as inotify(7) tells it.
 *
 * Its first result says that it watches. Whoever reads the results too slowly blocks it, the kernel
 * keeps 16,384 changes meanwhile, and that more are lost is told. A folder that appears is watched
 * before it is looked into, so what is in it is told at least once.
 */
#ifndef CL_AGENT_FILE_WATCH_H
#define CL_AGENT_FILE_WATCH_H

#include "agent/file_ops.h"

enum { FILE_WATCH_FOLDERS = 8192 }; /* 1 KiB each of the guest's kernel, and their paths here */

/* Returns the errno that ended it: ENOENT = the folder is gone. */
int file_watch(const struct file_plan *plan);

#endif
