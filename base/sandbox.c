/* base/sandbox.c - see base/sandbox.h. */
#include "base/sandbox.h"

#include <errno.h>
#include <seccomp.h>
#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WITH_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WITH_SANITIZER 1
#endif
#endif
#ifndef WITH_SANITIZER
#define WITH_SANITIZER 0
#endif

static const struct cl_allow sanitizer_rows[] = {
    {SCMP_SYS(clone), "leak check runs in a thread of its own"},
    {SCMP_SYS(ptrace), "leak check stops the other threads"},
    {SCMP_SYS(wait4), "leak check waits for them"},
    {SCMP_SYS(prctl), "leak check becomes dumpable"},
    {SCMP_SYS(getppid), "leak check's thread watches its parent"},
    {SCMP_SYS(getdents), "leak check lists the threads"},
    {SCMP_SYS(getdents64), "leak check lists the threads"},
    {SCMP_SYS(nanosleep), "leak check waits"},
    {SCMP_SYS(clock_nanosleep), "leak check waits"},
    {SCMP_SYS(open), "leak check reads /proc"},
    {SCMP_SYS(exit), "leak check's thread ends"},
    {SCMP_SYS(kill), "leak check lets the others go on"},
    {SCMP_SYS(getpid), "reports name the process"},
    {SCMP_SYS(gettid), "reports name the thread"},
    {SCMP_SYS(sigaltstack), "the stack of the crash handler"},
    {SCMP_SYS(rt_sigaction), "the crash handler"},
    {SCMP_SYS(readlink), "symbolizer finds the program"},
    {SCMP_SYS(openat), "symbolizer and memory maps"},
    {SCMP_SYS(sched_yield), "spin locks"},
    {SCMP_SYS(madvise), "shadow memory"},
    {SCMP_SYS(mprotect), "shadow memory"},
    {SCMP_SYS(mmap), "shadow memory"},
    {SCMP_SYS(munmap), "shadow memory"},
    {SCMP_SYS(getrlimit), "stack bounds"},
    {SCMP_SYS(sched_getaffinity), "stack bounds"},
    {SCMP_SYS(lseek), "memory maps"},
    {SCMP_SYS(tgkill), "abort"},
    {SCMP_SYS(process_vm_readv), "unwinder probes memory"},
    {SCMP_SYS(pipe2), "unwinder probes memory"},
};

static int add_rows(scmp_filter_ctx ctx, uint32_t action, const struct cl_allow *rows, size_t n,
                    struct cl_err *err)
{
    for (size_t i = 0; i < n; i++) {
        int rc = seccomp_rule_add(ctx, action, rows[i].nr, 0);
        if (rc < 0)
            return cl_fail(err, CL_E_SYS, -rc, "seccomp row %zu (call %d)", i, rows[i].nr);
    }
    return 0;
}

static int load(scmp_filter_ctx ctx, struct cl_err *err)
{
    int rc = seccomp_load(ctx);
    return rc < 0 ? cl_fail(err, CL_E_SYS, -rc, "load the seccomp filter") : 0;
}

int cl_sandbox_apply(const struct cl_allow *rows, size_t n, struct cl_err *err)
{
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_KILL_PROCESS);
    if (!ctx)
        return cl_fail(err, CL_E_NOMEM, 0, "seccomp filter");
    int rc = add_rows(ctx, SCMP_ACT_ALLOW, rows, n, err);
    if (rc == 0 && WITH_SANITIZER)
        rc = add_rows(ctx, SCMP_ACT_ALLOW, sanitizer_rows, CL_COUNT(sanitizer_rows), err);
    if (rc == 0)
        rc = load(ctx, err);
    seccomp_release(ctx);
    return rc;
}

int cl_sandbox_refuse(const struct cl_allow *rows, size_t n, struct cl_err *err)
{
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
    if (!ctx)
        return cl_fail(err, CL_E_NOMEM, 0, "seccomp filter");
    int rc = add_rows(ctx, SCMP_ACT_ERRNO(EPERM), rows, n, err);
    if (rc == 0)
        rc = load(ctx, err);
    seccomp_release(ctx);
    return rc;
}
