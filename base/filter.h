/* base/filter.h - seccomp for a process that carries no libseccomp: its filters are made from its
 * tables when it is built (cmake/filters.cmake), so it has them from its first instruction.
 *
 * A call that is in no row kills the process; the kernel's log names it.
 * Thread: any; cl_filter_enter() confines the calling one, and those it makes afterwards.
 */
#ifndef CL_BASE_FILTER_H
#define CL_BASE_FILTER_H

#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#include "base/util.h"

struct cl_filter_row {
    int call;         /* SYS_name */
    const char *name; /* of the call, or of the one ioctl request that is meant */
    uint32_t request; /* 0 = whatever its arguments are */
    const char *why;
};

#define CL_CALL(name, why) \
    { \
        SYS_##name, #name, 0, why \
    }
#define CL_IOCTL(request, why) \
    { \
        SYS_ioctl, #request, (uint32_t)request, why \
    }

struct cl_filter_profile {
    const char *who;
    const struct cl_filter_row *rows;
    size_t n;
};

enum { CL_FILTER_MAX = 256 /* instructions; the kernel runs them at each call */ };

struct cl_filter {
    struct sock_filter program[CL_FILTER_MAX];
    unsigned short n;
};

/* Sets no_new_privs.  0 or -errno.  There is no way back. */
int cl_filter_enter(const struct cl_filter *filter) CL_MUST;

#endif
