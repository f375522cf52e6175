/* vmm/filters/make.c - at build time: libseccomp turns the tables of vmm/seccomp.c into programs.
 *
 * usage: vmm_make_filters > filters.c
 *
 * So the monitor, of which there is one a VM, has them from its first instruction and holds no
 * compiler of them.
 */
#include <errno.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/own.h"
#include "vmm/seccomp.h"

static int add_row(scmp_filter_ctx ctx, const struct vmm_allow *row)
{
    /* The kernel looks at the request's lower half only. */
    struct scmp_arg_cmp request = SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, row->request);
    return seccomp_rule_add_array(ctx, SCMP_ACT_ALLOW, row->call, row->request ? 1 : 0, &request);
}

/* libseccomp writes its program to a file only. */
static int export_program(scmp_filter_ctx ctx, struct vmm_filter *filter)
{
    CL_AUTO(cl_closep) int fd = memfd_create("filter", MFD_CLOEXEC);
    if (fd < 0 || seccomp_export_bpf(ctx, fd) < 0)
        return -EIO;
    ssize_t n = pread(fd, filter->program, sizeof filter->program, 0);
    if (n <= 0 || n == (ssize_t)sizeof filter->program)
        return -E2BIG;
    filter->n = (unsigned short)((size_t)n / sizeof filter->program[0]);
    return 0;
}

static int make(const struct vmm_profile *profile, struct vmm_filter *filter)
{
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_KILL_PROCESS);
    int rc = ctx ? seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS) : -ENOMEM;
    for (size_t i = 0; i < profile->n && rc == 0; i++)
        rc = add_row(ctx, &profile->rows[i]);
    if (rc == 0)
        rc = export_program(ctx, filter);
    seccomp_release(ctx);
    return rc;
}

static void print(int thread, const struct vmm_filter *filter)
{
    (void)printf("    [%d] = {\n        .n = %u,\n        .program = {\n", thread, filter->n);
    for (unsigned i = 0; i < filter->n; i++) {
        const struct sock_filter *f = &filter->program[i];
        (void)printf("            {0x%02x, %u, %u, 0x%08x},\n", f->code, f->jt, f->jf, f->k);
    }
    (void)printf("        }},\n");
}

int main(void)
{
    (void)printf(
        "#include \"vmm/seccomp.h\"\nconst struct vmm_filter vmm_filters[VMM_THREADS] = {\n");
    for (int t = 0; t < VMM_THREADS; t++) {
        struct vmm_filter filter = {.n = 0};
        int rc = make(vmm_profile((enum vmm_thread)t), &filter);
        if (rc < 0) {
            (void)fprintf(stderr, "filter of thread %d: %s\n", t, strerror(-rc));
            return 1;
        }
        print(t, &filter);
    }
    (void)printf("};\n");
    return fflush(stdout) == 0 ? 0 : 1;
}
