/* tests/unit/rpc/test_outq.c - the queue of packed messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include <string.h>

#include "rpc/call.h"
#include "rpc/outq.h"
#include "rpc/proto/health.pb-c.h"

static void push(struct outq *q, char *text)
{
    Grpc__Health__V1__HealthCheckRequest msg;
    grpc__health__v1__health_check_request__init(&msg);
    msg.service = text;
    assert_int_equal(outq_push(q, &msg.base, false, NULL), 0);
}

static void test_messages_come_out_framed_in_any_pieces(void **state)
{
    (void)state;
    static const char want[] = "\0\0\0\0\x05\x0a\x03one\0\0\0\0\x05\x0a\x03two";
    char one[] = "one", two[] = "two";
    for (size_t piece = 1; piece < sizeof want; piece++) {
        struct outq q = {0};
        uint8_t got[sizeof want];
        size_t n = 0, part;
        push(&q, one);
        push(&q, two);
        assert_int_equal(q.bytes, sizeof want - 1);
        while ((part = outq_take(&q, got + n, piece)) > 0)
            n += part;
        assert_int_equal(n, sizeof want - 1);
        assert_memory_equal(got, want, n);
        assert_int_equal(q.bytes, 0);
        outq_fini(&q);
    }
}

static void test_drop_keeps_a_begun_message_whole(void **state)
{
    (void)state;
    struct outq q = {0};
    uint8_t got[64];
    char one[] = "one";
    push(&q, one);
    push(&q, one);
    assert_int_equal(outq_take(&q, got, 3), 3);
    outq_drop_unsent(&q);
    assert_int_equal(outq_take(&q, got, sizeof got), 7);
    push(&q, one);
    outq_drop_unsent(&q);
    assert_int_equal(q.bytes, 0);
    push(&q, one);
    assert_int_equal(outq_take(&q, got, sizeof got), 10);
    outq_fini(&q);
}

static void test_the_limit_holds(void **state)
{
    (void)state;
    struct outq q = {0};
    struct cl_err err = {0};
    enum { PIECE = 1024 * 1024 };
    static uint8_t piece[PIECE];
    int n = 0;
    while (n < 100 && outq_push_raw(&q, piece, PIECE, &err) == 0)
        n++;
    assert_int_equal(n, RPC_OUT_MAX / PIECE);
    assert_int_equal(err.code, CL_E_TOOBIG);
    outq_fini(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_come_out_framed_in_any_pieces),
        cmocka_unit_test(test_drop_keeps_a_begun_message_whole),
        cmocka_unit_test(test_the_limit_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
