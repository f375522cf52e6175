/* tests/unit/worker/test_guest_hold.c - worker/guest.h: a channel that is held, and that of a copy.
 */
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
#include "base/mem.h"
#include "proto/guest_frame.h"
#include "tests/unit/worker/agent_end.h"
#include "worker/guest.h"

static const Cloche__V1__GuestChannel OUT = CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_STDOUT;
static const Cloche__V1__GuestChannel IN = CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_STDIN;

static struct bench {
    struct cl_loop *loop;
    struct guest *guest;
    int ours, agent; /* both ends of the channel */
    struct guest_past past;
    unsigned held, rooms;
    size_t came; /* bytes of output */
    bool broken;
    struct cl_err why;
} b;

static void on_pong(void *arg, const Cloche__V1__GuestPong *pong)
{
    (void)arg, (void)pong;
    cl_loop_stop(b.loop);
}

static void on_held(void *arg, const struct guest_past *past)
{
    (void)arg;
    b.held++;
    b.past = *past;
    cl_loop_stop(b.loop);
}

static void on_broken(void *arg, const struct cl_err *why)
{
    (void)arg;
    b.broken = true;
    b.why = *why;
    cl_loop_stop(b.loop);
}

static void on_frame(void *arg, const Cloche__V1__GuestFrame *frame)
{
    (void)arg;
    if (frame->body_case == CLOCHE__V1__GUEST_FRAME__BODY_DATA)
        b.came += frame->data->bytes.len;
}

static void on_room(void *arg)
{
    (void)arg;
    b.rooms++;
}

static void on_close(void *arg, const struct cl_err *why)
{
    (void)arg, (void)why;
}

static void begin(uint64_t first_stream)
{
    static const struct guest_events events = {
        .on_pong = on_pong, .on_held = on_held, .on_broken = on_broken};
    int pair[2];
    b = (struct bench){0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    b.ours = pair[0];
    b.agent = pair[1];
    assert_int_equal(cl_loop_new(&b.loop, NULL), 0);
    assert_int_equal(guest_new(b.loop, pair[0], first_stream, &events, NULL, &b.guest, NULL), 0);
}

static int set_up(void **state)
{
    (void)state;
    begin(GUEST_STREAMS_BOOTED);
    return 0;
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

/* --- what the worker says: a letter and the stream of each frame that has come ------------------
 */

static char letter_of(const Cloche__V1__GuestFrame *f)
{
    switch ((int)f->body_case) {
    case CLOCHE__V1__GUEST_FRAME__BODY_EXEC:
        return 'E';
    case CLOCHE__V1__GUEST_FRAME__BODY_FILE_OP:
        return 'F';
    case CLOCHE__V1__GUEST_FRAME__BODY_DIAL:
        return 'D';
    case CLOCHE__V1__GUEST_FRAME__BODY_DATA:
        return 'd';
    case CLOCHE__V1__GUEST_FRAME__BODY_WINDOW:
        return 'w';
    case CLOCHE__V1__GUEST_FRAME__BODY_SIGNAL:
        return 's';
    case CLOCHE__V1__GUEST_FRAME__BODY_RESET:
        return 'r';
    case CLOCHE__V1__GUEST_FRAME__BODY_PING:
        return 'p';
    case CLOCHE__V1__GUEST_FRAME__BODY_HOLD:
        return '[';
    case CLOCHE__V1__GUEST_FRAME__BODY_RELEASE:
        return ']';
    default:
        return '?';
    }
}

static char said_text[256];
static size_t said_n;

static void note(const Cloche__V1__GuestFrame *f)
{
    said_n += (size_t)snprintf(said_text + said_n, sizeof said_text - said_n,
                               f->stream ? "%c%llu " : "%c ", letter_of(f),
                               (unsigned long long)f->stream);
}

static const char *said(void)
{
    said_text[said_n = 0] = '\0';
    agent_hear(b.agent, note);
    return said_text;
}

/* More than it can be told of at once. */
static size_t said_all(void)
{
    static uint8_t bytes[1 << 16];
    size_t all = 0;
    for (ssize_t n; (n = recv(b.agent, bytes, sizeof bytes, MSG_DONTWAIT)) > 0;)
        all += (size_t)n;
    return all;
}

/* --- what the agent says ------------------------------------------------------------------------
 */

static void say_data(uint64_t stream, size_t n)
{
    static uint8_t bytes[GUEST_DATA_MAX];
    Cloche__V1__GuestData data = CLOCHE__V1__GUEST_DATA__INIT;
    data.channel = OUT;
    data.bytes.data = bytes;
    data.bytes.len = n;
    GUEST_FRAME(frame, stream, DATA, data, &data);
    agent_say(b.agent, &frame);
}

static void say_window(uint64_t stream, uint32_t n)
{
    Cloche__V1__GuestWindow body = CLOCHE__V1__GUEST_WINDOW__INIT;
    body.bytes = n;
    GUEST_FRAME(frame, stream, WINDOW, window, &body);
    agent_say(b.agent, &frame);
}

static void say_ended(uint64_t stream)
{
    Cloche__V1__GuestExecEnded body = CLOCHE__V1__GUEST_EXEC_ENDED__INIT;
    GUEST_FRAME(frame, stream, EXEC_ENDED, exec_ended, &body);
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

/* --- streams ------------------------------------------------------------------------------------
 */

static struct guest_stream *open_stream(Cloche__V1__GuestFrame *frame)
{
    static const struct guest_stream_events events = {on_frame, on_room, on_close};
    struct guest_stream *s;
    assert_int_equal(guest_open(b.guest, frame, &events, NULL, &s, NULL), 0);
    return s;
}

static struct guest_stream *open_exec(void)
{
    Cloche__V1__GuestExec exec = CLOCHE__V1__GUEST_EXEC__INIT;
    GUEST_FRAME(frame, 0, EXEC, exec, &exec);
    return open_stream(&frame);
}

static void open_file(void)
{
    Cloche__V1__GuestFileOp op = CLOCHE__V1__GUEST_FILE_OP__INIT;
    GUEST_FRAME(frame, 0, FILE_OP, file_op, &op);
    (void)open_stream(&frame);
}

static void open_dial(void)
{
    Cloche__V1__GuestDial dial = CLOCHE__V1__GUEST_DIAL__INIT;
    GUEST_FRAME(frame, 0, DIAL, dial, &dial);
    (void)open_stream(&frame);
}

static void hold(void)
{
    assert_int_equal(guest_hold(b.guest, NULL), 0);
    agent_say_held(b.agent);
    cl_loop_run(b.loop);
}

/* --- tests --------------------------------------------------------------------------------------
 */

static void test_nothing_is_sent_while_it_is_held(void **state)
{
    (void)state;
    struct guest_stream *s = open_exec();
    assert_int_equal(guest_hold(b.guest, NULL), 0);
    assert_int_equal(guest_stream_signal(s, 15, NULL), 0);
    assert_int_equal(guest_ping(b.guest, 1, NULL), 0);
    assert_string_equal(said(), "E1 [ ");
    agent_say_held(b.agent);
    cl_loop_run(b.loop);
    assert_int_equal(b.held, 1);
    (void)open_exec();
    assert_string_equal(said(), "");
    assert_int_equal(guest_release(b.guest, NULL), 0);
    assert_string_equal(said(), "] s1 p E2 ");
    assert_int_equal(guest_ping(b.guest, 2, NULL), 0);
    assert_string_equal(said(), "p ");
}

/* They would be lost with this process. */
static void test_bytes_wait_where_they_are_until_it_goes_on(void **state)
{
    (void)state;
    struct guest_stream *s = open_exec();
    (void)said();
    assert_true(guest_stream_takes(s));
    assert_int_equal(guest_hold(b.guest, NULL), 0);
    assert_int_equal(guest_stream_write(s, IN, "x", 1, true), 0);
    assert_false(guest_stream_takes(s));
    agent_say_held(b.agent);
    cl_loop_run(b.loop);
    guest_set_resting(b.guest, true);
    assert_int_equal(guest_stream_write(s, IN, "x", 1, true), 0);
    assert_int_equal(guest_release(b.guest, NULL), 0);
    hear();
    assert_int_equal(b.rooms, 0);
    assert_int_equal(guest_stream_write(s, IN, "x", 1, true), 0);
    guest_set_resting(b.guest, false);
    hear();
    assert_int_equal(b.rooms, 1);
    assert_true(guest_stream_takes(s));
    assert_int_equal(guest_stream_write(s, IN, "x", 1, true), 1);
    assert_string_equal(said(), "[ ] d1 ");
    hear();
    assert_int_equal(b.rooms, 1);
}

/* Until it is held the agent goes on, and what it has not heard of is not in its windows. */
static void test_windows_are_those_that_both_ends_know(void **state)
{
    (void)state;
    struct guest_stream *s = open_exec(); /* 1 */
    (void)open_exec();                    /* 2 */
    assert_int_equal(guest_stream_write(s, IN, "12345", 5, false), 5);
    say_window(1, 3);
    say_data(1, 1000);
    hear();
    guest_stream_consume(s, 1000);
    assert_int_equal(guest_hold(b.guest, NULL), 0);
    say_data(1, GUEST_DATA_MAX);
    say_data(1, GUEST_DATA_MAX);
    say_window(1, 1);
    say_window(2, 1); /* more than it has room for */
    hear();
    guest_stream_consume(s, 2 * GUEST_DATA_MAX); /* a quarter: but nothing is said of it now */
    agent_say_held(b.agent);
    cl_loop_run(b.loop);
    size_t came = 1000 + 2 * GUEST_DATA_MAX;
    const struct guest_past_stream *first = &b.past.streams[0], *second = &b.past.streams[1];
    assert_int_equal(b.past.n, 2);
    assert_int_equal(first->id, 1);
    assert_int_equal(first->send_credit, GUEST_WINDOW_INITIAL - 5 + 3 + 1);
    assert_int_equal(first->recv_credit, GUEST_WINDOW_INITIAL - came);
    assert_int_equal(first->consumed, came);
    assert_int_equal(second->send_credit, GUEST_WINDOW_INITIAL);
    assert_int_equal(second->recv_credit, GUEST_WINDOW_INITIAL);
    assert_int_equal(second->consumed, 0);
    (void)said();
    assert_int_equal(guest_release(b.guest, NULL), 0);
    assert_string_equal(said(), "] w1 ");
}

/* The guest of a process that is gone. */
static void take_up(void)
{
    struct guest_past past = b.past;
    (void)tear_down(NULL);
    begin(past.next_stream);
    b.past = past;
    guest_take_up(b.guest, &past);
}

static struct guest_stream *adopt(uint64_t stream)
{
    static const struct guest_stream_events events = {on_frame, on_room, on_close};
    struct guest_stream *s;
    assert_int_equal(guest_adopt(b.guest, stream, &events, NULL, &s, NULL), 0);
    return s;
}

static void test_what_is_adopted_goes_on_and_the_rest_is_unheard(void **state)
{
    (void)state;
    struct guest_stream *s = open_exec(); /* 1: adopted */
    (void)open_exec();                    /* 2: not */
    open_file();                          /* 3 */
    assert_int_equal(guest_stream_write(s, IN, "12345", 5, false), 5);
    say_data(1, 1000);
    hear();
    guest_stream_consume(s, 1000);
    hold();
    take_up();
    s = adopt(1);
    assert_int_equal(guest_stream_id(s), 1);
    assert_int_equal(guest_stream_write(s, IN, "x", 1, false), 0);
    assert_int_equal(guest_stream_signal(s, 15, NULL), 0);
    assert_string_equal(said(), "");
    assert_int_equal(guest_release_copy(b.guest, &b.past, NULL), 0);
    assert_string_equal(said(), "] s1 w2 r3 ");
    hear();
    assert_int_equal(b.rooms, 1);
    (void)open_exec();
    assert_string_equal(said(), "E4 ");
    static uint8_t bytes[GUEST_WINDOW_INITIAL]; /* to the last that the agent has room for */
    assert_int_equal(guest_stream_write(s, IN, bytes, sizeof bytes, false), sizeof bytes - 5);
    size_t sent = 0;
    for (; sent < sizeof bytes - 5; settle())
        sent += said_all();
    say_data(2, GUEST_DATA_MAX);
    say_data(2, GUEST_DATA_MAX);
    say_data(1, GUEST_DATA_MAX);
    say_data(1, GUEST_DATA_MAX);
    hear();
    assert_int_equal(b.came, 2 * GUEST_DATA_MAX); /* of the first */
    assert_string_equal(said(), "w2 ");
    guest_stream_consume(s, 2 * GUEST_DATA_MAX - 1001);
    assert_string_equal(said(), "");
    guest_stream_consume(s, 1);
    assert_string_equal(said(), "w1 ");
    assert_false(b.broken);
}

static void test_who_sends_more_than_was_left_to_it_is_broken(void **state)
{
    (void)state;
    (void)open_exec();
    for (int i = 0; i < 7; i++) {
        say_data(1, GUEST_DATA_MAX);
        hear();
    }
    hold();
    take_up();
    (void)adopt(1);
    assert_int_equal(guest_release_copy(b.guest, &b.past, NULL), 0);
    say_data(1, GUEST_DATA_MAX);
    hear();
    assert_false(b.broken);
    say_data(1, 1);
    hear();
    assert_true(b.broken);
    assert_non_null(strstr(b.why.text, "more than its credit"));
}

static void test_only_what_runs_can_be_adopted_and_once(void **state)
{
    (void)state;
    static const struct guest_stream_events events = {on_frame, on_room, on_close};
    static const uint64_t none[] = {0, 2, 3, 4, 77};
    struct guest_stream *s;
    (void)open_exec(); /* 1 */
    open_file();       /* 2 */
    (void)open_exec(); /* 3: has ended */
    say_ended(3);
    hear();
    hold();
    take_up();
    for (size_t i = 0; i < CL_COUNT(none); i++)
        assert_int_equal(guest_adopt(b.guest, none[i], &events, NULL, &s, NULL), -1);
    (void)adopt(1);
    struct cl_err err = {0};
    assert_int_equal(guest_adopt(b.guest, 1, &events, NULL, &s, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
}

static void test_adopted_ones_are_counted(void **state)
{
    (void)state;
    static const struct guest_stream_events events = {on_frame, on_room, on_close};
    struct cl_err err = {0};
    struct guest_stream *s;
    for (int i = 0; i < GUEST_STREAMS_MAX; i++)
        (void)open_exec();
    hold();
    take_up();
    for (uint64_t i = 1; i <= GUEST_STREAMS_MAX; i++)
        (void)adopt(i);
    Cloche__V1__GuestExec exec = CLOCHE__V1__GUEST_EXEC__INIT;
    GUEST_FRAME(frame, 0, EXEC, exec, &exec);
    assert_int_equal(guest_open(b.guest, &frame, &events, NULL, &s, &err), -1);
    assert_int_equal(err.code, CL_E_TOOBIG);
    assert_int_equal(guest_release_copy(b.guest, &b.past, NULL), 0);
    assert_string_equal(said(), "] ");
    say_ended(5);
    hear();
    (void)open_exec();
    hold();
    assert_int_equal(b.past.n, GUEST_STREAMS_MAX);
}

static void test_the_past_is_what_the_agent_has_open(void **state)
{
    (void)state;
    (void)open_exec();                           /* 1: stays */
    (void)open_exec();                           /* 2: ends before */
    open_file();                                 /* 3 */
    open_dial();                                 /* 4 */
    (void)open_exec();                           /* 5: its end crosses the hold */
    struct guest_stream *given_up = open_exec(); /* 6: given up, which the agent does not hear */
    struct guest_stream *heard_of = open_exec(); /* 7: given up, which it does */
    guest_stream_reset(heard_of, "not needed");
    say_ended(2);
    hear();
    assert_int_equal(guest_hold(b.guest, NULL), 0);
    (void)open_exec(); /* 8: after it */
    guest_stream_reset(given_up, "not needed");
    say_ended(5);
    agent_say_held(b.agent);
    cl_loop_run(b.loop);
    uint64_t seen = 0, ends = 0;
    for (size_t i = 0; i < b.past.n; i++) {
        seen |= UINT64_C(1) << b.past.streams[i].id;
        ends |= b.past.streams[i].ends ? UINT64_C(1) << b.past.streams[i].id : 0;
    }
    assert_int_equal(seen, 1 << 1 | 1 << 3 | 1 << 4 | 1 << 6);
    assert_int_equal(ends, 1 << 3 | 1 << 4);
    assert_int_equal(b.past.n, 4);
    assert_int_equal(b.past.next_stream, 8);
}

static void test_it_can_be_held_again(void **state)
{
    (void)state;
    for (unsigned i = 1; i <= 3; i++) {
        hold();
        assert_int_equal(b.held, i);
        assert_int_equal(guest_release(b.guest, NULL), 0);
        hear();
    }
    assert_string_equal(said(), "[ ] [ ] [ ] ");
    assert_false(b.broken);
}

static void test_a_hold_can_be_given_up(void **state)
{
    (void)state;
    assert_int_equal(guest_hold(b.guest, NULL), 0);
    assert_int_equal(guest_ping(b.guest, 1, NULL), 0);
    assert_int_equal(guest_release(b.guest, NULL), 0);
    assert_string_equal(said(), "[ ] p ");
    agent_say_held(b.agent); /* late, and of that one */
    hear();
    assert_false(b.broken);
    assert_int_equal(b.held, 0);
    hold();
    assert_int_equal(b.held, 1);
}

static void test_who_speaks_while_it_is_held_is_broken(void **state)
{
    (void)state;
    hold();
    agent_say_pong(b.agent);
    cl_loop_run(b.loop);
    assert_true(b.broken);
    assert_int_equal(b.why.code, CL_E_PEER);
}

static void test_who_holds_unasked_is_broken(void **state)
{
    (void)state;
    agent_say_held(b.agent);
    cl_loop_run(b.loop);
    assert_true(b.broken);
    assert_int_equal(b.why.code, CL_E_PEER);
}

static void test_a_copy_drains_what_runs_and_ends_transfers(void **state)
{
    (void)state;
    (void)open_exec();
    open_file();
    open_dial();
    hold();
    struct guest_past past = b.past;
    (void)tear_down(NULL);
    begin(past.next_stream);
    assert_int_equal(guest_release_copy(b.guest, &past, NULL), 0);
    assert_string_equal(said(), "] w1 r2 r3 ");
    (void)open_exec();
    assert_string_equal(said(), "E4 ");
    say_data(1, GUEST_DATA_MAX);
    hear();
    assert_string_equal(said(), "");
    say_data(1, GUEST_DATA_MAX);
    hear();
    assert_string_equal(said(), "w1 "); /* a quarter of the window at a time */
    for (int i = 0; i < 64; i++) {      /* many windows */
        say_data(1, GUEST_DATA_MAX);
        hear();
    }
    assert_int_equal(strlen(said()), 32 * strlen("w1 "));
    say_ended(1);
    say_data(1, GUEST_DATA_MAX); /* what comes then is stale */
    say_data(1, GUEST_DATA_MAX);
    say_data(3, GUEST_DATA_MAX);
    hear();
    assert_string_equal(said(), "");
    assert_false(b.broken);
}

/* Nobody listens in a copy of a copy either, nor in a copy that was copied. */
static void test_a_copy_can_be_copied(void **state)
{
    (void)state;
    (void)open_exec();
    hold();
    struct guest_past past = b.past;
    (void)tear_down(NULL);
    begin(past.next_stream);
    assert_int_equal(guest_release_copy(b.guest, &past, NULL), 0);
    (void)open_exec();
    (void)said();
    hold();
    assert_int_equal(b.past.n, 2);
    assert_int_equal(b.past.next_stream, 3);
    past = b.past;
    assert_int_equal(guest_release(b.guest, NULL), 0);
    (void)said();
    say_data(1, GUEST_DATA_MAX);
    say_data(1, GUEST_DATA_MAX);
    hear();
    assert_string_equal(said(), "w1 ");
    (void)tear_down(NULL);
    begin(past.next_stream);
    assert_int_equal(guest_release_copy(b.guest, &past, NULL), 0);
    assert_string_equal(said(), "] w1 w2 ");
    say_ended(1);
    say_data(2, GUEST_DATA_MAX);
    say_data(2, GUEST_DATA_MAX);
    hear();
    assert_string_equal(said(), "w2 ");
    hold();
    assert_int_equal(b.past.n, 1);
    assert_int_equal(b.past.streams[0].id, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nothing_is_sent_while_it_is_held, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bytes_wait_where_they_are_until_it_goes_on, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_windows_are_those_that_both_ends_know, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_adopted_goes_on_and_the_rest_is_unheard,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_who_sends_more_than_was_left_to_it_is_broken, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_only_what_runs_can_be_adopted_and_once, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_adopted_ones_are_counted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_past_is_what_the_agent_has_open, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_it_can_be_held_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_hold_can_be_given_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_who_speaks_while_it_is_held_is_broken, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_who_holds_unasked_is_broken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_copy_drains_what_runs_and_ends_transfers, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_copy_can_be_copied, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
