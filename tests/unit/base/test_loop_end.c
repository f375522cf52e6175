/* tests/unit/base/test_loop_end.c - base/loop.h: a loop that ends holds nothing, whatever libevent
 * has put off to a turn that never comes. */
#include "base/loop.h"

#include <event2/bufferevent.h>
#include <event2/event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static long held; /* allocations of libevent */

static void *count_malloc(size_t n)
{
    held++;
    return malloc(n);
}

static void *count_realloc(void *p, size_t n)
{
    held += !p;
    return realloc(p, n);
}

static void count_free(void *p)
{
    held -= p != NULL;
    free(p);
}

static void on_read(struct bufferevent *bev, void *arg)
{
    (void)bev, (void)arg;
    fail_msg("called after its connection was freed");
}

/* A connection whose bytes have come in the turn in which the loop was told to stop: it is freed
 * before it hears of them. */
static void live(bool has_bytes)
{
    struct cl_loop *loop;
    struct cl_err err = {0};
    int pair[2];
    assert_int_equal(cl_loop_new(&loop, &err), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    struct bufferevent *bev = bufferevent_socket_new(
        cl_loop_base(loop), pair[0], BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
    assert_non_null(bev);
    bufferevent_setcb(bev, on_read, NULL, NULL, NULL);
    if (has_bytes)
        bufferevent_trigger(bev, EV_READ, BEV_TRIG_IGNORE_WATERMARKS | BEV_TRIG_DEFER_CALLBACKS);
    bufferevent_free(bev);
    cl_loop_free(loop);
    assert_int_equal(close(pair[1]), 0);
}

static void test_a_connection_is_freed_though_it_was_about_to_be_told(void **state)
{
    (void)state;
    live(false); /* what libevent keeps for the process */
    long before = held;
    live(true);
    assert_int_equal(held, before);
}

int main(void)
{
    event_set_mem_functions(count_malloc, count_realloc, count_free);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_connection_is_freed_though_it_was_about_to_be_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
