/* Every row of every process's seccomp table does what it says, and what is not in it kills. */
#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "audit/writer/seccomp.h"
#include "base/sandbox.h"
#include "gateway/seccomp.h"
#include "net/seccomp.h"
#include "scheduler/seccomp.h"
#include "trail/reader/seccomp.h"
#include "worker/seccomp.h"

/* An argument that no call can do harm with: no such fd, pid, address or size. */
#define BAD 0x7ffffff0L

typedef int apply_fn(struct cl_err *err);

/* Call nr in a child under the filter.  Returns its wait status; exit code = errno (0 = success).
 */
static int try_call(apply_fn *apply, int nr)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct cl_err err = {0};
        int null = open("/dev/null", O_WRONLY);
        (void)dup2(null, STDERR_FILENO);
        if (apply(&err) < 0)
            _exit(200);
        long rc = syscall(nr, BAD, BAD, BAD, BAD, BAD, BAD);
        _exit(rc == -1 ? errno & 127 : 0);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void check_allowed(const struct cl_profile *p, apply_fn *apply)
{
    for (size_t i = 0; i < p->n; i++) {
        int status = try_call(apply, p->rows[i].nr);
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
            fail_msg("%s: row %zu (call %d, %s) is not allowed", p->process, i, p->rows[i].nr,
                     p->rows[i].why);
        assert_true(p->rows[i].why[0] != '\0');
    }
}

static void test_each_allowed_row_is_allowed(void **state)
{
    (void)state;
    check_allowed(&writer_profile, writer_seccomp);
    check_allowed(&sched_profile, sched_seccomp);
    check_allowed(&gateway_profile, gateway_seccomp);
    check_allowed(&net_profile, net_seccomp);
    check_allowed(&reader_profile, reader_seccomp);
}

static void test_each_refused_row_answers_eperm(void **state)
{
    (void)state;
    for (size_t i = 0; i < worker_refused.n; i++) {
        int status = try_call(worker_seccomp, worker_refused.rows[i].nr);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != EPERM)
            fail_msg("worker: row %zu (call %d): status %x", i, worker_refused.rows[i].nr,
                     (unsigned)status);
    }
}

static void expect_killed(apply_fn *apply, size_t table, int call)
{
    int status = try_call(apply, call);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSYS)
        fail_msg("table %zu: call %d was let through (status %x)", table, call, (unsigned)status);
}

static void test_what_is_in_no_allow_table_kills(void **state)
{
    (void)state;
    static const int never[] = {SYS_execve, SYS_execveat, SYS_bpf,    SYS_mount, SYS_unshare,
                                SYS_setns,  SYS_chroot,   SYS_setuid, SYS_bind,  SYS_memfd_create};
    static apply_fn *const all[] = {writer_seccomp, sched_seccomp, gateway_seccomp, net_seccomp,
                                    reader_seccomp};
    for (size_t a = 0; a < CL_COUNT(all); a++) {
        for (size_t i = 0; i < CL_COUNT(never); i++)
            expect_killed(all[a], a, never[i]);
        if (all[a] != sched_seccomp) /* one that stands by listens later */
            expect_killed(all[a], a, SYS_listen);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_allowed_row_is_allowed),
        cmocka_unit_test(test_each_refused_row_answers_eperm),
        cmocka_unit_test(test_what_is_in_no_allow_table_kills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
