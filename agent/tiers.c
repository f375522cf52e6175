/* agent/tiers.c - see agent/tiers.h and agent/tiers.def. */
#include "agent/tiers.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/own.h"

enum { PROGRAM_MAX = 4096 /* BPF_MAXINSNS */ };

struct tier {
    struct sock_filter program[PROGRAM_MAX];
    unsigned short n; /* 0 = not compiled yet */
};

static const struct rule {
    int call;
    int error;
    bool has_arg;
    struct scmp_arg_cmp arg;
    bool always;
} rules[] = {
#define DENY(call, error, why) {SCMP_SYS(call), error, false, {0}, false},
#define DENY_ARG(call, arg, mask, value, error, why) \
    {SCMP_SYS(call), error, true, {arg, SCMP_CMP_MASKED_EQ, mask, value}, false},
#define ALWAYS_ARG(call, arg, mask, value, error, why) \
    {SCMP_SYS(call), error, true, {arg, SCMP_CMP_MASKED_EQ, mask, value}, true},
#include "agent/tiers.def"
#undef DENY
#undef DENY_ARG
#undef ALWAYS_ARG
};

static int add_rules(scmp_filter_ctx ctx, bool is_open)
{
    for (size_t i = 0; i < CL_COUNT(rules); i++) {
        const struct rule *rule = &rules[i];
        if (is_open && !rule->always)
            continue;
        int rc = seccomp_rule_add_array(ctx, SCMP_ACT_ERRNO((uint32_t)rule->error), rule->call,
                                        rule->has_arg ? 1 : 0, &rule->arg);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* libseccomp writes its program to a file only. */
static int export_program(scmp_filter_ctx ctx, struct tier *tier)
{
    CL_AUTO(cl_closep) int fd = memfd_create("filter", MFD_CLOEXEC);
    if (fd < 0 || seccomp_export_bpf(ctx, fd) < 0)
        return -EIO;
    ssize_t n = pread(fd, tier->program, sizeof tier->program, 0);
    if (n <= 0 || n % (ssize_t)sizeof tier->program[0] != 0)
        return -EIO;
    tier->n = (unsigned short)((size_t)n / sizeof tier->program[0]);
    return 0;
}

static int compile(struct tier *tier, bool is_open, struct cl_err *err)
{
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
    if (!ctx)
        return cl_fail(err, CL_E_NOMEM, 0, "seccomp filter");
    int rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (rc == 0)
        rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* binary tree: cheap for all */
    if (rc == 0)
        rc = add_rules(ctx, is_open);
    if (rc == 0)
        rc = export_program(ctx, tier);
    seccomp_release(ctx);
    return rc < 0 ? cl_fail(err, CL_E_SYS, -rc, "seccomp filter") : 0;
}

int tier_get(Cloche__V1__GuestSeccompTier which, const struct tier **ret_tier, struct cl_err *err)
{
    static struct tier tiers[2]; /* a cache of constants; the agent has one thread */
    bool is_open = which == CLOCHE__V1__GUEST_SECCOMP_TIER__GUEST_SECCOMP_TIER_OPEN;
    if (!is_open && which != CLOCHE__V1__GUEST_SECCOMP_TIER__GUEST_SECCOMP_TIER_UNSPECIFIED &&
        which != CLOCHE__V1__GUEST_SECCOMP_TIER__GUEST_SECCOMP_TIER_STANDARD)
        return cl_fail(err, CL_E_INVALID, 0, "seccomp tier %d", (int)which);
    struct tier *tier = &tiers[is_open];
    if (tier->n == 0 && compile(tier, is_open, err) < 0)
        return -1;
    *ret_tier = tier;
    return 0;
}

int tier_apply(const struct tier *tier)
{
    struct sock_fprog program = {.len = tier->n,
                                 .filter = (struct sock_filter *)(uintptr_t)tier->program};
    /* LOG: the kernel calls audit_seccomp() for what it refuses, where the sensor hears of it */
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_LOG, &program) < 0
               ? -errno
               : 0;
}
