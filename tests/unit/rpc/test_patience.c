/* tests/unit/rpc/test_patience.c - how long a server waits for a client that says nothing.
 *
 * A client without calls may be slow to answer a PING: gRPC's C core looks at connections that
 * nobody waits for every 5 s, and at one event of one of them each time.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/loop.h"
#include "rpc/conn_priv.h"

enum { FRAME_HEAD = 9, FRAME_PING = 6, FRAME_GOAWAY = 7 };

struct world {
    struct cl_loop *loop;
    struct rpc_work *work;
    struct rpc_conn *conn; /* NULL once it is gone */
    struct cl_list list;
    int client;
    unsigned pings, goaways; /* that the client was sent */
    bool answers;
};

static struct rpc_call *begin(struct rpc_conn *conn, int32_t stream_id)
{
    (void)conn, (void)stream_id;
    return NULL;
}

static void gone(struct rpc_conn *conn, const struct cl_err *why)
{
    (void)why;
    ((struct world *)conn->owner)->conn = NULL;
}

static void nothing(struct rpc_conn *conn)
{
    (void)conn;
}

static const struct conn_role server = {.is_server = true,
                                        .begin = begin,
                                        .conn_up = nothing,
                                        .conn_going = nothing,
                                        .conn_gone = gone};

static void say(struct world *w, const void *bytes, size_t n)
{
    assert_int_equal(write(w->client, bytes, n), n);
}

static void take_frame(struct world *w, const uint8_t *frame, size_t n)
{
    uint8_t pong[FRAME_HEAD + 8];
    w->goaways += frame[3] == FRAME_GOAWAY;
    if (frame[3] != FRAME_PING || (frame[4] & 1))
        return;
    assert_int_equal(n, sizeof pong);
    w->pings++;
    memcpy(pong, frame, sizeof pong);
    pong[4] = 1;
    if (w->answers)
        say(w, pong, sizeof pong);
}

/* All that both have to say. */
static void turn(struct world *w)
{
    uint8_t bytes[4096];
    for (int i = 0; i < 10; i++) {
        cl_loop_turn(w->loop, 0);
        ssize_t n = read(w->client, bytes, sizeof bytes);
        for (ssize_t at = 0; at + FRAME_HEAD <= n;) {
            size_t len =
                FRAME_HEAD + ((size_t)bytes[at] << 16 | (size_t)bytes[at + 1] << 8 | bytes[at + 2]);
            take_frame(w, bytes + at, len);
            at += (ssize_t)len;
        }
    }
}

static int begin_world(void **state)
{
    static const char hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
    static struct world w;
    struct cl_err err = {0};
    int fds[2];
    w = (struct world){0};
    cl_list_init(&w.list);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0 ||
        cl_loop_new(&w.loop, &err) < 0 || rpc_work_new(w.loop, &w.work, &err) < 0)
        return -1;
    struct conn_spec spec = {
        .loop = w.loop, .work = w.work, .role = &server, .owner = &w, .fd = fds[0]};
    w.client = fds[1];
    if (conn_new(&spec, &w.conn, &err) < 0)
        return -1;
    cl_list_push(&w.list, &w.conn->link);
    say(&w, hello, sizeof hello);
    turn(&w);
    *state = &w;
    return w.conn && w.conn->state == CONN_OPEN ? 0 : -1;
}

static int end_world(void **state)
{
    static const struct cl_err over = {.code = CL_E_UNAVAILABLE, .text = "the test is over"};
    struct world *w = *state;
    if (w->conn)
        conn_close(w->conn, &over);
    cl_loop_turn(w->loop, 0);
    rpc_work_free(w->work);
    cl_loop_free(w->loop);
    close(w->client);
    return 0;
}

/* Every 5 s of so many seconds, as the server does. */
static void pass(struct world *w, uint64_t seconds)
{
    uint64_t from = cl_now_ns();
    for (uint64_t s = 0; w->conn && s <= seconds; s += 5) {
        conn_tick(w->conn, from + s * CL_NS_PER_S);
        turn(w);
    }
}

static void test_one_without_calls_is_not_asked(void **state)
{
    struct world *w = *state;
    pass(w, 14 * 60);
    assert_non_null(w->conn);
    assert_int_equal(w->conn->state, CONN_OPEN);
    assert_int_equal(w->pings, 0);
    assert_int_equal(w->goaways, 0);
}

static void test_it_is_sent_away_after_a_quarter_of_an_hour(void **state)
{
    struct world *w = *state;
    w->answers = true;
    pass(w, 16 * 60);
    assert_true(w->goaways > 0);
}

static void test_so_is_one_that_does_not_answer_any_more(void **state)
{
    struct world *w = *state;
    pass(w, 16 * 60);
    assert_true(w->goaways > 0);
    assert_true(!w->conn || w->conn->state != CONN_OPEN);
}

static void test_one_with_a_call_is_asked_and_lost_when_it_does_not_answer(void **state)
{
    struct world *w = *state;
    w->conn->n_calls = 1;
    pass(w, 55);
    assert_int_equal(w->pings, 0);
    pass(w, 75);
    assert_int_equal(w->pings, 1);
    assert_non_null(w->conn);
    w->conn->n_calls = 1;
    pass(w, 110);
    assert_null(w->conn);
}

static void test_one_that_answers_stays(void **state)
{
    struct world *w = *state;
    w->answers = true;
    w->conn->n_calls = 1;
    pass(w, 75);
    assert_non_null(w->conn);
    assert_true(w->pings > 0);
    assert_int_equal(w->conn->ping_ns, 0);
    w->conn->n_calls = 0;
}

/* It was asked while it had a call, which has ended since. */
static void test_no_answer_is_missed_once_there_is_no_call(void **state)
{
    struct world *w = *state;
    w->conn->n_calls = 1;
    pass(w, 65);
    assert_int_equal(w->pings, 1);
    w->conn->n_calls = 0;
    pass(w, 300);
    assert_non_null(w->conn);
    assert_int_equal(w->conn->state, CONN_OPEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_without_calls_is_not_asked, begin_world,
                                        end_world),
        cmocka_unit_test_setup_teardown(test_it_is_sent_away_after_a_quarter_of_an_hour,
                                        begin_world, end_world),
        cmocka_unit_test_setup_teardown(test_so_is_one_that_does_not_answer_any_more, begin_world,
                                        end_world),
        cmocka_unit_test_setup_teardown(
            test_one_with_a_call_is_asked_and_lost_when_it_does_not_answer, begin_world, end_world),
        cmocka_unit_test_setup_teardown(test_one_that_answers_stays, begin_world, end_world),
        cmocka_unit_test_setup_teardown(test_no_answer_is_missed_once_there_is_no_call, begin_world,
                                        end_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
