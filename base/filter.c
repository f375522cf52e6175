/* base/filter.c - see base/filter.h. */
#include "base/filter.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <unistd.h>

int cl_filter_enter(const struct cl_filter *filter)
{
    struct sock_fprog program = {.len = filter->n,
                                 .filter = (struct sock_filter *)(uintptr_t)filter->program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
        return -errno;
    return 0;
}
