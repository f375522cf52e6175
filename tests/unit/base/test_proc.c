/* tests/unit/base/test_proc.c - base/proc.h: whose death can be seen, and whose cannot. */
#include "base/proc.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"

/* A child that waits, and its mark. */
static pid_t make_child(char mark[static CL_PROC_MARK])
{
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char own[CL_PROC_MARK] = "";
        cl_proc_mark(own);
        (void)!write(pipe_fds[1], own, sizeof own);
        for (;;)
            (void)pause();
    }
    assert_int_equal(read(pipe_fds[0], mark, CL_PROC_MARK), CL_PROC_MARK);
    (void)close(pipe_fds[0]);
    (void)close(pipe_fds[1]);
    return pid;
}

static void test_a_death_is_seen_also_of_one_that_nobody_has_waited_for(void **state)
{
    (void)state;
    char ours[CL_PROC_MARK], child[CL_PROC_MARK];
    siginfo_t info;
    cl_proc_mark(ours);
    pid_t pid = make_child(child);
    assert_false(cl_proc_mark_is_dead(ours, ours));
    assert_false(cl_proc_mark_is_dead(ours, child));
    assert_int_equal(kill(pid, SIGSTOP), 0); /* it may go on */
    assert_false(cl_proc_mark_is_dead(ours, child));
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_true(cl_proc_mark_is_dead(ours, child));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(cl_proc_mark_is_dead(ours, child));
    assert_int_equal(cl_proc_start_time(pid), 0);
}

static void test_a_pid_that_is_anothers_by_now_is_a_death(void **state)
{
    (void)state;
    char ours[CL_PROC_MARK], older[CL_PROC_MARK + 32];
    char *start;
    cl_proc_mark(ours);
    (void)snprintf(older, sizeof older, "%s", ours);
    start = strchr(strchr(older, ' ') + 1, ' ') + 1;
    (void)snprintf(start, 64, "1 %d", (int)getpid());
    assert_true(cl_proc_mark_is_dead(ours, older));
}

static void test_of_what_cannot_be_seen_nobody_is_dead(void **state)
{
    (void)state;
    static const char *const marks[] = {"",           " ",          "  ",       "unknown",
                                        "boot",       "boot 1",     "boot 1 2", "boot 1 x 3",
                                        "boot 1 2 0", "boot 1 2 -1"};
    char ours[CL_PROC_MARK], other[CL_PROC_MARK];
    cl_proc_mark(ours);
    for (size_t i = 0; i < CL_COUNT(marks); i++) {
        assert_false(cl_proc_mark_is_dead(ours, marks[i]));
        assert_false(cl_proc_mark_is_dead(marks[i], marks[i]));
        assert_false(cl_proc_mark_is_dead("boot 1 2 3", marks[i]));
    }
    pid_t pid = make_child(other);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_false(cl_proc_mark_is_dead("unknown", other));
    other[0] = other[0] == '0' ? '1' : '0'; /* of another kernel */
    assert_false(cl_proc_mark_is_dead(ours, other));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_death_is_seen_also_of_one_that_nobody_has_waited_for),
        cmocka_unit_test(test_a_pid_that_is_anothers_by_now_is_a_death),
        cmocka_unit_test(test_of_what_cannot_be_seen_nobody_is_dead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
