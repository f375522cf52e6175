/* tests/unit/worker/test_guest.c - worker/guest.h: what an agent may say on a connection's stream,
 * and worker/dial.h: what its errors mean. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "proto/guest_frame.h"
#include "tests/unit/worker/agent_end.h"
#include "worker/dial.h"

static const Cloche__V1__GuestChannel SOCKET = CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_SOCKET;
static const Cloche__V1__GuestChannel OUT = CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_STDOUT;

static struct bench {
    struct cl_loop *loop;
    struct guest *guest;
    struct guest_stream *stream;
    int ours, agent; /* both ends of the channel */
    char heard[16];
    size_t n_heard;
    bool broken, closed;
    struct cl_err why;
} b;

static void on_pong(void *arg, const Cloche__V1__GuestPong *pong)
{
    (void)arg, (void)pong;
    cl_loop_stop(b.loop);
}

static void on_broken(void *arg, const struct cl_err *why)
{
    (void)arg;
    b.broken = true;
    b.why = *why;
    cl_loop_stop(b.loop);
}

/* One letter a frame. */
static void on_frame(void *arg, const Cloche__V1__GuestFrame *frame)
{
    (void)arg;
    char letter = '?';
    if (frame->body_case == CLOCHE__V1__GUEST_FRAME__BODY_DIALED)
        letter = 'c';
    else if (frame->body_case == CLOCHE__V1__GUEST_FRAME__BODY_HUNG_UP)
        letter = 'h';
    else if (frame->body_case == CLOCHE__V1__GUEST_FRAME__BODY_DATA)
        letter = frame->data->eof ? 'e' : 'd';
    assert_true(b.n_heard < sizeof b.heard - 1);
    b.heard[b.n_heard++] = letter;
}

static void on_room(void *arg)
{
    (void)arg;
}

static void on_close(void *arg, const struct cl_err *why)
{
    (void)arg, (void)why;
    b.closed = true;
}

static const struct guest_stream_events stream_events = {on_frame, on_room, on_close};

static int set_up(void **state)
{
    (void)state;
    static const struct guest_events events = {.on_pong = on_pong, .on_broken = on_broken};
    int pair[2];
    b = (struct bench){0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    b.ours = pair[0];
    b.agent = pair[1];
    assert_int_equal(cl_loop_new(&b.loop, NULL), 0);
    return guest_new(b.loop, pair[0], GUEST_STREAMS_BOOTED, &events, NULL, &b.guest, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    struct cl_err why = {0};
    (void)cl_fail(&why, CL_E_CANCELLED, 0, "over");
    guest_free(b.guest, &why);
    cl_loop_free(b.loop);
    (void)close(b.ours);
    (void)close(b.agent);
    return 0;
}

static void open_dial(void)
{
    Cloche__V1__GuestDial dial = CLOCHE__V1__GUEST_DIAL__INIT;
    dial.port = 80;
    GUEST_FRAME(frame, 0, DIAL, dial, &dial);
    assert_int_equal(guest_open(b.guest, &frame, &stream_events, NULL, &b.stream, NULL), 0);
}

static void open_exec(void)
{
    Cloche__V1__GuestExec exec = CLOCHE__V1__GUEST_EXEC__INIT;
    GUEST_FRAME(frame, 0, EXEC, exec, &exec);
    assert_int_equal(guest_open(b.guest, &frame, &stream_events, NULL, &b.stream, NULL), 0);
}

static void say_data(Cloche__V1__GuestChannel channel, bool eof)
{
    static uint8_t byte = 'x';
    Cloche__V1__GuestData data = CLOCHE__V1__GUEST_DATA__INIT;
    data.channel = channel;
    data.bytes.data = &byte;
    data.bytes.len = eof ? 0 : 1;
    data.eof = eof;
    GUEST_FRAME(frame, 1, DATA, data, &data);
    agent_say(b.agent, &frame);
}

static void say_hung_up(int error)
{
    Cloche__V1__GuestHungUp body = CLOCHE__V1__GUEST_HUNG_UP__INIT;
    body.error_number = error;
    GUEST_FRAME(frame, 1, HUNG_UP, hung_up, &body);
    agent_say(b.agent, &frame);
}

static void say_dialed(void)
{
    Cloche__V1__GuestDialed body = CLOCHE__V1__GUEST_DIALED__INIT;
    GUEST_FRAME(frame, 1, DIALED, dialed, &body);
    agent_say(b.agent, &frame);
}

/* What the agent says, one letter a frame: c Dialed, d Data, e its eof, h HungUp in order, x HungUp
 * with an error, o Data of STDOUT; then a Pong, after which what was heard is looked at. */
static const char *speak(const char *frames)
{
    for (const char *f = frames; *f; f++) {
        if (*f == 'c')
            say_dialed();
        else if (*f == 'd' || *f == 'e')
            say_data(SOCKET, *f == 'e');
        else if (*f == 'o')
            say_data(OUT, false);
        else
            say_hung_up(*f == 'h' ? 0 : ECONNRESET);
    }
    agent_say_pong(b.agent);
    b.n_heard = 0;
    cl_loop_run(b.loop);
    b.heard[b.n_heard] = '\0';
    return b.heard;
}

static void expect_breach(const char *frames, const char *heard)
{
    open_dial();
    (void)guest_stream_write(b.stream, SOCKET, "x", 1, false);
    assert_string_equal(speak(frames), heard);
    assert_true(b.broken);
    assert_int_equal(b.why.code, CL_E_PEER);
}

static void test_a_connection_goes_its_way(void **state)
{
    (void)state;
    open_dial();
    assert_int_equal(guest_stream_write(b.stream, SOCKET, "early", 5, false), 5);
    assert_string_equal(speak("cdde"), "cdde");
    assert_int_equal(guest_stream_write(b.stream, SOCKET, "", 0, true), 0);
    assert_string_equal(speak("h"), "h");
    assert_false(b.broken);
}

static void test_a_connection_may_break_at_any_time(void **state)
{
    (void)state;
    static const char *const ways[] = {"x", "cx", "cdx", "cdex"};
    for (size_t i = 0; i < CL_COUNT(ways); i++) {
        (void)tear_down(NULL);
        (void)set_up(NULL);
        open_dial();
        assert_string_equal(speak(ways[i]), i == 0 ? "h" : i == 1 ? "ch" : i == 2 ? "cdh" : "cdeh");
        assert_false(b.broken);
    }
}

static void test_what_comes_after_the_last_frame_is_stale(void **state)
{
    (void)state;
    open_dial();
    assert_string_equal(speak("cxdec"), "ch");
    assert_false(b.broken);
    while (!b.closed)
        assert_string_equal(speak("d"), "");
    assert_false(b.broken);
}

static void test_frames_out_of_order_break_the_guest(void **state)
{
    (void)state;
    static const struct {
        const char *frames, *heard;
    } cases[] = {
        {"d", ""},                                 /* before it is connected */
        {"e", ""},                                 /* too */
        {"cc", "c"},                               /* connected twice */
        {"ced", "ce"},                             /* after its eof */
        {"cee", "ce"}, {"cec", "ce"}, {"co", "c"}, /* another channel */
        {"h", ""},                                 /* in order, and never connected */
        {"ch", "c"},                               /* before its eof */
        {"ceh", "ce"},                             /* before ours */
    };
    for (size_t i = 0; i < CL_COUNT(cases); i++) {
        (void)tear_down(NULL);
        (void)set_up(NULL);
        expect_breach(cases[i].frames, cases[i].heard);
    }
}

static void test_nothing_else_is_a_connection(void **state)
{
    (void)state;
    static const char *const frames[] = {"c", "d", "h", "x"};
    for (size_t i = 0; i < CL_COUNT(frames); i++) {
        (void)tear_down(NULL);
        (void)set_up(NULL);
        open_exec();
        assert_string_equal(speak(frames[i]), "");
        assert_true(b.broken);
        assert_int_equal(b.why.code, CL_E_PEER);
    }
}

static void test_a_connection_is_no_exec(void **state)
{
    (void)state;
    Cloche__V1__GuestExecEnded ended = CLOCHE__V1__GUEST_EXEC_ENDED__INIT;
    open_dial();
    GUEST_FRAME(frame, 1, EXEC_ENDED, exec_ended, &ended);
    agent_say(b.agent, &frame);
    assert_string_equal(speak(""), "");
    assert_true(b.broken);
}

static void test_errors_of_a_connection_tell_the_client_what_to_do(void **state)
{
    (void)state;
    static const struct {
        int error;
        enum cl_code code;
        const char *text;
    } cases[] = {
        {ECONNREFUSED, CL_E_STATE, "nobody listens on port 8080 in the sandbox"},
        {ETIMEDOUT, CL_E_UNAVAILABLE, "port 8080 in the sandbox does not answer: why"},
        {ECONNRESET, CL_E_UNAVAILABLE, "the connection was reset: why"},
        {EPIPE, CL_E_UNAVAILABLE, "the connection was reset: why"},
        {EAGAIN, CL_E_TOOBIG, "why in this sandbox"},
        {EINVAL, CL_E_INVALID, "port 8080 in the sandbox: why"},
        {-1, CL_E_SYS, "port 8080 in the sandbox: why"},
    };
    for (size_t i = 0; i < CL_COUNT(cases); i++) {
        struct cl_err err = {0};
        assert_int_equal(dial_failure(cases[i].error, "why", 8080, &err), -1);
        assert_int_equal(err.code, cases[i].code);
        assert_string_equal(err.text, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_connection_goes_its_way, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_connection_may_break_at_any_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_comes_after_the_last_frame_is_stale, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_frames_out_of_order_break_the_guest, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_nothing_else_is_a_connection, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_connection_is_no_exec, set_up, tear_down),
        cmocka_unit_test(test_errors_of_a_connection_tell_the_client_what_to_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
