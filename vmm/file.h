/* vmm/file.h - bytes into a file and out of it, all of them. */
#ifndef CL_VMM_FILE_H
#define CL_VMM_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

/* 0, or -1 with errno; then some of them may be there. */
int file_put(int fd, const void *bytes, size_t n, uint64_t at) CL_MUST;
/* The same; ENODATA when the file ends before. */
int file_get(int fd, void *ret_bytes, size_t n, uint64_t at) CL_MUST;

#endif
