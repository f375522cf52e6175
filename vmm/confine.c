/* vmm/confine.c - see vmm/confine.h. */
#include "vmm/confine.h"

#include <errno.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_restrict_self 446
#endif

/* Documentation/userspace-api/landlock.rst.  The kernel takes a struct that is longer than its own
 * as long as the rest is zero, so the newest form serves all. */
struct landlock_handled {
    uint64_t files, net, scopes;
};

enum { LANDLOCK_ABI_QUERY = 1 };

/* All that this version of Landlock can refuse. */
static struct landlock_handled everything(long abi)
{
    uint64_t files = abi >= 5   ? (1U << 16) - 1
                     : abi >= 3 ? (1U << 15) - 1
                     : abi >= 2 ? (1U << 14) - 1
                                : (1U << 13) - 1;
    return (struct landlock_handled){
        .files = files, .net = abi >= 4 ? 3 : 0, .scopes = abi >= 6 ? 3 : 0};
}

/* A ruleset without a rule: nothing is left. */
static int enter_landlock(struct cl_err *err)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, (size_t)0, LANDLOCK_ABI_QUERY);
    if (abi < 1)
        return 0;
    struct landlock_handled all = everything(abi);
    long fd = syscall(SYS_landlock_create_ruleset, &all, sizeof all, 0);
    if (fd < 0)
        return cl_fail(err, CL_E_SYS, errno, "Landlock ruleset");
    long rc = syscall(SYS_landlock_restrict_self, (int)fd, 0);
    int why = errno;
    (void)close((int)fd);
    return rc < 0 ? cl_fail(err, CL_E_SYS, why, "enter Landlock") : 0;
}

int confine_process(struct cl_err *err)
{
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return cl_fail(err, CL_E_SYS, errno, "give up core files and privileges");
    return enter_landlock(err);
}
