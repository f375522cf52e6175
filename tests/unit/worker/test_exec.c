/* tests/unit/worker/test_exec.c - worker/exec.h: a command that another process goes on with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/evp.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "proto/guest_frame.h"
#include "tests/unit/worker/agent_end.h"
#include "worker/exec.h"

#define TEXT "what it said before, and what it says now"

static struct bench {
    struct cl_loop *loop;
    struct guest *guest;
    int ours, agent; /* both ends of the channel */
    struct exec *exec;
    struct guest_past past;
    char dir[32], path[64];
    unsigned ended, rooms;
    struct cl_err err;
} b;

static void stop(void *arg, const Cloche__V1__GuestPong *pong)
{
    (void)arg, (void)pong;
    cl_loop_stop(b.loop);
}

static void on_held(void *arg, const struct guest_past *past)
{
    (void)arg;
    b.past = *past;
    cl_loop_stop(b.loop);
}

static void on_broken(void *arg, const struct cl_err *why)
{
    (void)arg;
    fail_msg("broken: %s", why->text);
}

static void on_ended(void *arg, struct exec *e)
{
    assert_ptr_equal(arg, &b);
    assert_false(exec_is_running(e));
    b.ended++;
}

static void on_room(void *arg)
{
    (void)arg;
    b.rooms++;
}

static void open_guest(uint64_t first)
{
    static const struct guest_events events = {
        .on_pong = stop, .on_held = on_held, .on_broken = on_broken};
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    b.ours = pair[0];
    b.agent = pair[1];
    assert_int_equal(guest_new(b.loop, b.ours, first, &events, NULL, &b.guest, &b.err), 0);
}

static void close_guest(void)
{
    struct cl_err why = {0};
    (void)cl_fail(&why, CL_E_CANCELLED, 0, "over");
    guest_free(b.guest, &why);
    (void)close(b.ours);
    (void)close(b.agent);
}

static char *argv[] = {(char *)(uintptr_t) "sh"};
static Cloche__V1__Command command = CLOCHE__V1__COMMAND__INIT;

static struct exec_options options(void)
{
    command.argv = argv;
    command.n_argv = 1;
    command.open_stdin = 1;
    command.timeout_ns = 60 * CL_NS_PER_S;
    return (struct exec_options){.loop = b.loop,
                                 .guest = b.guest,
                                 .spool_dir = b.dir,
                                 .id = "exec_01ARZ3NDEKTSV4RRFFQ69G5FAV",
                                 .command = &command,
                                 .traceparent = "",
                                 .on_end = on_ended,
                                 .arg = &b};
}

static int set_up(void **state)
{
    (void)state;
    b = (struct bench){.dir = "/tmp/exec.XXXXXX"};
    if (!mkdtemp(b.dir) || cl_loop_new(&b.loop, NULL) < 0)
        return -1;
    (void)snprintf(b.path, sizeof b.path, "%s/sbx_1.exec_1", b.dir);
    open_guest(GUEST_STREAMS_RESTORED);
    const struct exec_options o = options();
    return exec_start(&o, &b.exec, &b.err);
}

static int tear_down(void **state)
{
    (void)state;
    close_guest();
    exec_free(b.exec);
    cl_loop_free(b.loop);
    return cl_remove_tree(b.dir, NULL);
}

/* --- what the agent says and hears --------------------------------------------------------------
 */

static void say_text(const char *text, size_t n)
{
    Cloche__V1__GuestData data = CLOCHE__V1__GUEST_DATA__INIT;
    data.channel = CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_STDOUT;
    data.bytes.data = (uint8_t *)(uintptr_t)text;
    data.bytes.len = n;
    GUEST_FRAME(frame, GUEST_STREAMS_RESTORED, DATA, data, &data);
    agent_say(b.agent, &frame);
}

static void say_ended(void)
{
    Cloche__V1__GuestExecEnded body = CLOCHE__V1__GUEST_EXEC_ENDED__INIT;
    body.end = CLOCHE__V1__GUEST_END__GUEST_END_EXITED;
    body.exit_code = 7;
    body.cpu_ns = 11;
    body.wall_ns = 12;
    GUEST_FRAME(frame, GUEST_STREAMS_RESTORED, EXEC_ENDED, exec_ended, &body);
    agent_say(b.agent, &frame);
}

/* What runs behind a call, too. */
static void settle(void)
{
    for (int i = 0; i < 3; i++)
        cl_loop_turn(b.loop, 1000000);
}

static void hear(void)
{
    agent_say_pong(b.agent);
    cl_loop_run(b.loop);
    settle();
}

/* The kinds of what has come. */
static struct {
    size_t n;
    Cloche__V1__GuestFrame__BodyCase kinds[8];
} came;

static void note(const Cloche__V1__GuestFrame *f)
{
    assert_true(came.n < CL_COUNT(came.kinds));
    came.kinds[came.n++] = f->body_case;
}

static size_t heard(void)
{
    came.n = 0;
    agent_hear(b.agent, note);
    return came.n;
}

/* --- another process ----------------------------------------------------------------------------
 */

static void hold(void)
{
    assert_int_equal(guest_hold(b.guest, &b.err), 0);
    agent_say_held(b.agent);
    cl_loop_run(b.loop);
    guest_set_resting(b.guest, true);
}

/* What is written down of it, in bytes; then it is gone. */
static Cloche__V1__KeptExec *leave(void)
{
    struct exec_kept row;
    assert_int_equal(exec_keep_output(b.exec, b.path, &b.err), 0);
    exec_get_kept(b.exec, &row);
    size_t n = cloche__v1__kept_exec__get_packed_size(&row.m);
    uint8_t *bytes = malloc(n);
    assert_int_equal(cloche__v1__kept_exec__pack(&row.m, bytes), n);
    unsigned ended = b.ended;
    exec_leave(b.exec);
    close_guest();
    assert_int_equal(b.ended, ended); /* nobody has heard of its end */
    exec_free(b.exec);
    b.exec = NULL;
    Cloche__V1__KeptExec *m = cloche__v1__kept_exec__unpack(NULL, n, bytes);
    free(bytes);
    return m;
}

static void restore(Cloche__V1__KeptExec *m)
{
    open_guest(b.past.next_stream);
    guest_take_up(b.guest, &b.past);
    guest_set_resting(b.guest, true);
    const struct exec_options o = options();
    assert_int_equal(exec_restore(&o, m, b.path, &b.exec, &b.err), 0);
    cloche__v1__kept_exec__free_unpacked(m, NULL);
}

static void release(void)
{
    assert_int_equal(guest_release_copy(b.guest, &b.past, &b.err), 0);
    guest_set_resting(b.guest, false);
}

static void check_output(size_t want)
{
    char got[sizeof TEXT];
    size_t n;
    assert_int_equal(spool_read(exec_spool(b.exec), SPOOL_STDOUT, 0, got, sizeof got, &n, &b.err),
                     0);
    assert_int_equal(n, want);
    assert_memory_equal(got, TEXT, n);
}

static void check_end(void)
{
    uint8_t digest[32];
    const Cloche__V1__ExecResult *r = exec_result(b.exec);
    assert_false(exec_is_running(b.exec));
    assert_int_equal(r->outcome, CLOCHE__V1__OUTCOME__OUTCOME_EXITED);
    assert_int_equal(r->reason, CLOCHE__V1__REASON__REASON_FINISHED);
    assert_int_equal(r->exit_code, 7);
    assert_int_equal(r->usage->cpu_ns, 11);
    assert_int_equal(r->usage->wall_ns, 12);
    assert_int_equal(r->stdout->bytes, strlen(TEXT));
    assert_int_equal(EVP_Digest(TEXT, strlen(TEXT), digest, NULL, EVP_sha256(), NULL), 1);
    assert_int_equal(r->stdout->sha256.len, sizeof digest);
    assert_memory_equal(r->stdout->sha256.data, digest, sizeof digest);
}

/* --- tests --------------------------------------------------------------------------------------
 */

static void test_it_goes_on_in_another_process(void **state)
{
    (void)state;
    uint64_t begun = exec_started_wall_ns(b.exec);
    say_text(TEXT, 21);
    hear();
    hold();
    restore(leave());
    assert_true(exec_is_running(b.exec));
    assert_int_equal(exec_started_wall_ns(b.exec), begun);
    assert_int_equal(exec_guest_stream(b.exec), GUEST_STREAMS_RESTORED);
    check_output(21);
    exec_set_stdin_room(b.exec, on_room, NULL);
    assert_false(exec_takes_stdin(b.exec));
    assert_int_equal(exec_write_stdin(b.exec, "x", 1, true), 0);
    assert_int_equal(exec_signal(b.exec, 15, &b.err), 0); /* waits for the release */
    assert_int_equal(heard(), 0);
    release();
    assert_int_equal(heard(), 2);
    assert_int_equal(came.kinds[0], CLOCHE__V1__GUEST_FRAME__BODY_RELEASE);
    assert_int_equal(came.kinds[1], CLOCHE__V1__GUEST_FRAME__BODY_SIGNAL);
    hear();
    assert_int_equal(b.rooms, 1);
    assert_int_equal(exec_write_stdin(b.exec, "x", 1, true), 1);
    say_text(&TEXT[21], strlen(TEXT) - 21);
    hear();
    check_output(strlen(TEXT));
    say_ended();
    hear();
    assert_int_equal(b.ended, 1);
    check_end();
}

static void test_one_that_has_ended_is_there_with_its_end(void **state)
{
    (void)state;
    say_text(TEXT, strlen(TEXT));
    say_ended();
    hear();
    assert_int_equal(b.ended, 1);
    hold();
    assert_int_equal(b.past.n, 0);
    for (int i = 0; i < 2; i++) /* and in the one after that */
        restore(leave());
    check_output(strlen(TEXT));
    check_end();
    release();
    assert_int_equal(b.ended, 1);
}

static void test_its_limit_is_what_was_left_of_it(void **state)
{
    (void)state;
    struct exec_kept row;
    uint64_t all = 60 * CL_NS_PER_S + EXEC_TIMEOUT_GRACE_S * CL_NS_PER_S;
    hold();
    exec_get_kept(b.exec, &row);
    assert_null(row.m.result);
    assert_in_range(row.m.limit_ns, all - 20 * CL_NS_PER_S, all);
    Cloche__V1__KeptExec *m = leave();
    m->limit_ns = 30 * CL_NS_PER_S;
    restore(m);
    (void)usleep(20000); /* it rests, which is no time of its */
    exec_get_kept(b.exec, &row);
    assert_in_range(row.m.limit_ns, 30 * CL_NS_PER_S - CL_NS_PER_MS,
                    30 * CL_NS_PER_S + CL_NS_PER_MS);
}

static void test_one_over_its_limit_ends(void **state)
{
    (void)state;
    hold();
    Cloche__V1__KeptExec *m = leave();
    m->limit_ns = 1;
    restore(m);
    release();
    for (int i = 0; i < 100 && b.ended == 0; i++) {
        hear();
        (void)usleep(1000);
    }
    assert_int_equal(b.ended, 1);
    assert_int_equal(exec_result(b.exec)->outcome, CLOCHE__V1__OUTCOME__OUTCOME_TIMED_OUT);
}

static void test_without_its_output_it_is_not_gone_on_with(void **state)
{
    (void)state;
    char out[72];
    hold();
    Cloche__V1__KeptExec *m = leave();
    (void)snprintf(out, sizeof out, "%s.out", b.path);
    assert_int_equal(truncate(out, 1), 0);
    open_guest(b.past.next_stream);
    guest_take_up(b.guest, &b.past);
    const struct exec_options o = options();
    assert_int_equal(exec_restore(&o, m, b.path, &b.exec, &b.err), -1);
    assert_int_equal(b.err.code, CL_E_DATALOSS);
    assert_null(b.exec);
    cloche__v1__kept_exec__free_unpacked(m, NULL);
    release(); /* it is unheard then */
    say_text(TEXT, 5);
    hear();
    assert_int_equal(b.ended, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    static const struct CMUnitTest tests[] = {
        TEST(test_it_goes_on_in_another_process),
        TEST(test_one_that_has_ended_is_there_with_its_end),
        TEST(test_its_limit_is_what_was_left_of_it),
        TEST(test_one_over_its_limit_ends),
        TEST(test_without_its_output_it_is_not_gone_on_with),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
