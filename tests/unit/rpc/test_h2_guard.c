/* tests/unit/rpc/test_h2_guard.c - what a peer may do for nothing, and no more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "rpc/h2_guard.h"

/* Frames of the kind that are let through at once, of 3000. */
static int let_through(bool is_server, uint8_t type, uint8_t flags, size_t length)
{
    struct h2_guard g = {.is_server = is_server};
    nghttp2_frame frame = {.hd = {.type = type, .flags = flags, .length = length}};
    int n = 0;
    while (n < 3000 && !h2_guard_frame(&g, &frame))
        n++;
    return n;
}

static void test_each_kind_has_its_budget(void **state)
{
    (void)state;
    assert_in_range(let_through(true, NGHTTP2_RST_STREAM, 0, 4), 1000, 1100);
    assert_in_range(let_through(true, NGHTTP2_SETTINGS, 0, 0), 500, 550);
    assert_in_range(let_through(true, NGHTTP2_PRIORITY, 0, 5), 500, 550);
    assert_in_range(let_through(true, NGHTTP2_DATA, 0, 0), 500, 550);
    assert_int_equal(let_through(true, NGHTTP2_PING, 0, 8), 3);
    assert_in_range(let_through(false, NGHTTP2_PING, 0, 8), 500, 550);
}

static void test_work_is_free(void **state)
{
    (void)state;
    assert_int_equal(let_through(true, NGHTTP2_DATA, 0, 1), 3000);
    assert_int_equal(let_through(true, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 0), 3000);
    assert_int_equal(let_through(true, NGHTTP2_HEADERS, 0, 10), 3000);
    assert_int_equal(let_through(true, NGHTTP2_PING, NGHTTP2_FLAG_ACK, 8), 3000);
}

static void test_pings_are_forgiven_when_we_send(void **state)
{
    (void)state;
    struct h2_guard g = {.is_server = true};
    nghttp2_frame ping = {.hd = {.type = NGHTTP2_PING, .length = 8}};
    for (int i = 0; i < 100; i++) {
        assert_null(h2_guard_frame(&g, &ping));
        h2_guard_forgive_pings(&g);
    }
}

/* How many pings that come `ns` after one another are let through, of 100. */
static int spaced_pings(uint64_t ns)
{
    struct h2_guard g = {.is_server = true};
    nghttp2_frame ping = {.hd = {.type = NGHTTP2_PING, .length = 8}};
    int n = 0;
    while (n < 100 && !h2_guard_frame(&g, &ping)) {
        n++;
        g.peer_ping_ns -= ns;
    }
    return n;
}

static void test_a_client_may_ask_every_three_seconds_for_ever(void **state)
{
    (void)state;
    assert_int_equal(spaced_pings(3 * CL_NS_PER_S), 100);
    assert_int_equal(spaced_pings(CL_NS_PER_S), 3);
}

static void test_broken_frames_share_a_budget_with_settings(void **state)
{
    (void)state;
    struct h2_guard g = {.is_server = true};
    nghttp2_frame settings = {.hd = {.type = NGHTTP2_SETTINGS}};
    int n = 0;
    while (n < 3000 && !h2_guard_bad_frame(&g) && !h2_guard_frame(&g, &settings))
        n++;
    assert_in_range(n, 250, 275);
}

static void test_goaway_is_a_frame(void **state)
{
    (void)state;
    static const uint8_t want[] = {0, 0, 10, 7, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 11, 'h', 'i'};
    uint8_t frame[H2_GOAWAY_MAX];
    char text[200];
    assert_int_equal(h2_goaway(frame, 0x102, NGHTTP2_ENHANCE_YOUR_CALM, "hi"), sizeof want);
    assert_memory_equal(frame, want, sizeof want);
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(h2_goaway(frame, 0, 0, text), H2_GOAWAY_MAX);
}

static void test_floods_are_told_from_mistakes(void **state)
{
    (void)state;
    assert_int_equal(h2_guard_error_of(NGHTTP2_ERR_FLOODED), NGHTTP2_ENHANCE_YOUR_CALM);
    assert_int_equal(h2_guard_error_of(NGHTTP2_ERR_TOO_MANY_CONTINUATIONS),
                     NGHTTP2_ENHANCE_YOUR_CALM);
    assert_int_equal(h2_guard_error_of(NGHTTP2_ERR_BAD_CLIENT_MAGIC), NGHTTP2_PROTOCOL_ERROR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_kind_has_its_budget),
        cmocka_unit_test(test_work_is_free),
        cmocka_unit_test(test_pings_are_forgiven_when_we_send),
        cmocka_unit_test(test_a_client_may_ask_every_three_seconds_for_ever),
        cmocka_unit_test(test_broken_frames_share_a_budget_with_settings),
        cmocka_unit_test(test_goaway_is_a_frame),
        cmocka_unit_test(test_floods_are_told_from_mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
