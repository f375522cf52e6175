/* base/filters/make.c - at build time: libseccomp turns a process's tables into programs.
 *
 * usage: make_NAME_filters > filters.c
 *
 * Compiled once a process, with FILTERS_HEADER, which declares FILTERS_FROM[] (the tables) and
 * FILTERS_TO[] (what comes out).
 */
#include <errno.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/own.h"
#include FILTERS_HEADER

#define TEXT_OF(word) #word
#define TEXT(word) TEXT_OF(word)

static int add_row(scmp_filter_ctx ctx, const struct cl_filter_row *row)
{
    /* The kernel looks at the request's lower half only. */
    struct scmp_arg_cmp request = SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, row->request);
    return seccomp_rule_add_array(ctx, SCMP_ACT_ALLOW, row->call, row->request ? 1 : 0, &request);
}

/* libseccomp writes its program to a file only. */
static int export_program(scmp_filter_ctx ctx, struct cl_filter *filter)
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

static int make(const struct cl_filter_profile *profile, struct cl_filter *filter)
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

static void print(size_t i, const struct cl_filter *filter)
{
    (void)printf("    [%zu] = {\n        .n = %u,\n        .program = {\n", i, filter->n);
    for (unsigned at = 0; at < filter->n; at++) {
        const struct sock_filter *f = &filter->program[at];
        (void)printf("            {0x%02x, %u, %u, 0x%08x},\n", f->code, f->jt, f->jf, f->k);
    }
    (void)printf("        }},\n");
}

int main(void)
{
    (void)printf("#include \"%s\"\nconst struct cl_filter %s[%zu] = {\n", FILTERS_HEADER,
                 TEXT(FILTERS_TO), CL_COUNT(FILTERS_FROM));
    for (size_t i = 0; i < CL_COUNT(FILTERS_FROM); i++) {
        struct cl_filter filter = {.n = 0};
        int rc = make(&FILTERS_FROM[i], &filter);
        if (rc < 0) {
            (void)fprintf(stderr, "filter of %s: %s\n", FILTERS_FROM[i].who, strerror(-rc));
            return 1;
        }
        print(i, &filter);
    }
    (void)printf("};\n");
    return fflush(stdout) == 0 ? 0 : 1;
}
