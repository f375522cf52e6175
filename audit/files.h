/* audit/files.h - where streams lie: DIR/tenant/<name>/00000001.log, DIR/host/<name>/00000001.log.
 *
 * Owns:    nothing but what each call returns.
 * Thread:  any; the calls block on the disk.
 */
#ifndef CL_AUDIT_FILES_H
#define CL_AUDIT_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include "audit/verify.h"
#include "base/err.h"
#include "base/util.h"

enum { AUDIT_FILE_MAX = 1 << 30, AUDIT_FILES_MAX = 99999999, AUDIT_STREAMS_MAX = 65536 };

/* "DIR/<stream>/00000007.log" */
void audit_file_path(const char *dir, const char *stream, unsigned number,
                     char out[static AUDIT_PATH]);
/* Numbers of the first and last file; 0 and 0 when there is none. */
int audit_file_range(const char *dir, const char *stream, unsigned *ret_first, unsigned *ret_last,
                     struct cl_err *err) CL_MUST;
/* Map a file for reading; *ret_n 0 and *ret_data "" for an empty one. */
int audit_file_map(const char *path, const char **ret_data, size_t *ret_n,
                   struct cl_err *err) CL_MUST;
void audit_file_unmap(const char *data, size_t n);
/* Call fn for the name of each stream under DIR/<kind>; fn returns -1 to stop. */
typedef int audit_stream_fn(const char *stream, void *arg, struct cl_err *err);
int audit_each_stream(const char *dir, const char *kind, audit_stream_fn *fn, void *arg,
                      struct cl_err *err) CL_MUST;

#endif
