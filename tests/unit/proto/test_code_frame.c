/* tests/unit/proto/test_code_frame.c - proto/code_frame.h. */
#include "proto/code_frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* READY, BEGUN, a result of 4 bytes, an empty error, ENDED with status 7. */
static const uint8_t talk[] = {
    0, 0, 0,           0,   CODE_READY, 0,           0,   0, 0, CODE_BEGUN, 4, 0,
    0, 0, CODE_RESULT, 'a', 'b',        'c',         'd', 0, 0, 0,          0, CODE_ERROR,
    5, 0, 0,           0,   CODE_ENDED, CODE_FAILED, 7,   0, 0, 0};

/* What a whole stream said: kinds of the frames that began, payload, the end. */
struct heard {
    int kinds[8];
    size_t n, ended;
    char payload[64];
    size_t payload_n;
    enum code_outcome outcome;
    int32_t status;
};

static int hear(struct code_reader *r, const uint8_t *data, size_t n, struct heard *h,
                struct cl_err *err)
{
    for (size_t at = 0; at < n;) {
        struct code_piece piece;
        size_t used;
        if (code_reader_next(r, data + at, n - at, &used, &piece, err) < 0)
            return -1;
        assert_true(used > 0 && used <= n - at);
        at += used;
        if (!piece.head)
            continue;
        if (piece.first)
            h->kinds[h->n++] = (int)piece.head->kind;
        if (piece.last)
            h->ended++;
        if (piece.n > 0)
            memcpy(h->payload + h->payload_n, piece.data, piece.n);
        h->payload_n += piece.n;
        if (piece.head->kind == CODE_ENDED) {
            h->outcome = piece.outcome;
            h->status = piece.status;
        }
    }
    return 0;
}

static void test_a_talk_is_the_same_however_it_is_cut(void **state)
{
    (void)state;
    for (size_t cut = 0; cut <= sizeof talk; cut++) {
        for (size_t again = cut; again <= sizeof talk; again++) {
            struct code_reader r = {0};
            struct heard h = {0};
            struct cl_err err = {0};
            assert_int_equal(hear(&r, talk, cut, &h, &err), 0);
            assert_int_equal(hear(&r, talk + cut, again - cut, &h, &err), 0);
            assert_int_equal(hear(&r, talk + again, sizeof talk - again, &h, &err), 0);
            assert_int_equal(h.n, 5);
            assert_int_equal(h.ended, 5);
            assert_int_equal(h.kinds[0], CODE_READY);
            assert_int_equal(h.kinds[1], CODE_BEGUN);
            assert_int_equal(h.kinds[2], CODE_RESULT);
            assert_int_equal(h.kinds[3], CODE_ERROR);
            assert_int_equal(h.kinds[4], CODE_ENDED);
            assert_string_equal(h.payload, "abcd");
            assert_int_equal(h.outcome, CODE_FAILED);
            assert_int_equal(h.status, 7);
        }
    }
}

static void expect_breach(const uint8_t *data, size_t n)
{
    struct code_reader r = {0};
    struct heard h = {0};
    struct cl_err err = {0};
    assert_int_equal(hear(&r, data, n, &h, &err), -1);
    assert_int_equal(err.code, CL_E_PEER);
}

static void test_what_is_no_frame_is_a_breach(void **state)
{
    (void)state;
    const uint8_t no_kind[] = {0, 0, 0, 0, 0}, far_kind[] = {0, 0, 0, 0, 6},
                  long_ready[] = {1, 0, 0, 0, CODE_READY, 0},
                  endless[] = {0xff, 0xff, 0xff, 0xff, CODE_RESULT},
                  long_error[] = {1, 0, 4, 0, CODE_ERROR},
                  long_begun[] = {1, 0, 0, 0, CODE_BEGUN, 0},
                  short_end[] = {4, 0, 0, 0, CODE_ENDED},
                  no_outcome[] = {5, 0, 0, 0, CODE_ENDED, 0, 0, 0, 0, 0},
                  far_outcome[] = {5, 0, 0, 0, CODE_ENDED, 4, 0, 0, 0, 0};
    expect_breach(no_kind, sizeof no_kind);
    expect_breach(far_kind, sizeof far_kind);
    expect_breach(long_ready, sizeof long_ready);
    expect_breach(long_begun, sizeof long_begun);
    expect_breach(endless, sizeof endless);
    expect_breach(long_error, sizeof long_error);
    expect_breach(short_end, sizeof short_end);
    expect_breach(no_outcome, sizeof no_outcome);
    expect_breach(far_outcome, sizeof far_outcome);
}

static void test_a_head_survives_writing(void **state)
{
    (void)state;
    const struct code_head heads[] = {{CODE_READY, 0},
                                      {CODE_RESULT, CODE_RESULT_MAX},
                                      {CODE_ERROR, 258},
                                      {CODE_ENDED, 5},
                                      {CODE_BEGUN, 0}};
    for (size_t i = 0; i < CL_COUNT(heads); i++) {
        uint8_t bytes[CODE_FRAME_HEAD];
        struct code_head back;
        code_head_write(&heads[i], bytes);
        assert_int_equal(code_head_parse(bytes, &back, NULL), 0);
        assert_int_equal(back.kind, heads[i].kind);
        assert_int_equal(back.len, heads[i].len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_talk_is_the_same_however_it_is_cut),
        cmocka_unit_test(test_what_is_no_frame_is_a_breach),
        cmocka_unit_test(test_a_head_survives_writing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
