/* tests/unit/rpc/test_grpc_wire.c - the byte-level rules of gRPC. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include <nghttp2/nghttp2.h>
#include <string.h>

#include "rpc/grpc_wire.h"

static const uint8_t *bytes(const char *s)
{
    return (const uint8_t *)s;
}

static void test_prefix_round_trips_and_refuses_flags(void **state)
{
    (void)state;
    uint8_t raw[GW_PREFIX];
    struct gw_prefix p;
    struct cl_err err;
    gw_prefix_write(raw, true, 0x01020304);
    assert_memory_equal(raw, "\x01\x01\x02\x03\x04", GW_PREFIX);
    assert_int_equal(gw_prefix_read(raw, &p, NULL), 0);
    assert_true(p.compressed);
    assert_int_equal(p.len, 0x01020304);
    raw[0] = 2;
    assert_int_equal(gw_prefix_read(raw, &p, &err), -1);
    assert_int_equal(err.code, CL_E_PEER);
}

static void test_timeouts_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t ns;
    } good[] = {
        {"1n", 1},
        {"100u", 100000},
        {"250m", 250000000},
        {"3S", 3000000000},
        {"2M", 120000000000},
        {"1H", 3600000000000},
        {"99999999H", UINT64_C(99999999) * 3600000000000},
        {"0m", 0},
    };
    static const char *const bad[] = {"", "1", "m", "123456789m", "1x", "-1m", "1 m", "1mm", "m1"};
    uint64_t ns;
    for (size_t i = 0; i < CL_COUNT(good); i++) {
        assert_true(gw_timeout_read(bytes(good[i].text), strlen(good[i].text), &ns));
        assert_true(ns == good[i].ns);
    }
    for (size_t i = 0; i < CL_COUNT(bad); i++)
        assert_false(gw_timeout_read(bytes(bad[i]), strlen(bad[i]), &ns));
}

static void test_timeouts_are_never_written_shorter(void **state)
{
    (void)state;
    char text[GW_TIMEOUT_MAX];
    uint64_t back;
    for (uint64_t ns = 1; ns < UINT64_MAX / 11; ns = ns * 11 + 7) {
        gw_timeout_write(ns, text);
        assert_true(strlen(text) <= 9);
        assert_true(gw_timeout_read(bytes(text), strlen(text), &back));
        assert_true(back >= ns && back - ns <= ns / 50000 + 1);
    }
}

static void test_messages_are_escaped_and_come_back(void **state)
{
    (void)state;
    static const char text[] = "\t\ntest 100%\r\n\xe2\x98\xba \xf0\x9f\x98\x88~";
    char out[200], back[200];
    size_t n = gw_percent_encode(text, out, sizeof out);
    assert_string_equal(out, "%09%0Atest 100%25%0D%0A%E2%98%BA %F0%9F%98%88~");
    (void)gw_percent_decode(bytes(out), n, back, sizeof back);
    assert_string_equal(back, text);
}

static void test_escapes_are_never_cut(void **state)
{
    (void)state;
    char out[16];
    for (size_t cap = 1; cap <= sizeof out; cap++) {
        size_t n = gw_percent_encode("a\xffz\xff", out, cap);
        assert_true(n < cap && n == strlen(out));
        assert_true(n < 2 || strncmp(out, "a%FFz%FF", n) == 0);
        assert_true(n == 0 || n == 1 || n == 4 || n == 5 || n == 8);
    }
}

static void test_broken_escapes_stand_for_themselves(void **state)
{
    (void)state;
    char out[32];
    (void)gw_percent_decode(bytes("a%z1%4"), 6, out, sizeof out);
    assert_string_equal(out, "a%z1%4");
    (void)gw_percent_decode(bytes("%00x"), 4, out, sizeof out);
    assert_string_equal(out, "?x");
}

static void test_base64_round_trips_at_every_length(void **state)
{
    (void)state;
    uint8_t in[64], back[80];
    char text[100];
    for (size_t n = 0; n < sizeof in; n++) {
        size_t len, got;
        for (size_t i = 0; i < n; i++)
            in[i] = (uint8_t)(i * 37 + n);
        len = gw_base64_encode(in, n, text);
        assert_true(len < gw_base64_size(n) && !strchr(text, '='));
        assert_true(gw_base64_decode(bytes(text), len, back, &got));
        assert_int_equal(got, n);
        assert_memory_equal(in, back, n);
        while (len % 4 != 0)
            text[len++] = '=';
        assert_true(gw_base64_decode(bytes(text), len, back, &got));
        assert_int_equal(got, n);
    }
    size_t n;
    assert_false(gw_base64_decode(bytes("A"), 1, back, &n));
    assert_false(gw_base64_decode(bytes("AB*D"), 4, back, &n));
    assert_false(gw_base64_decode(bytes("A=BC"), 4, back, &n));
}

static void test_content_types(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok;
    } t[] = {
        {"application/grpc", true},
        {"application/grpc+proto", true},
        {"application/grpc;x=1", true},
        {"application/grpc-web", false},
        {"application/grpc+json", false},
        {"application/grp", false},
        {"text/html", false},
        {"", false},
    };
    for (size_t i = 0; i < CL_COUNT(t); i++)
        assert_int_equal(gw_is_grpc_content_type(bytes(t[i].text), strlen(t[i].text)), t[i].ok);
}

static void test_lists_match_whole_tokens(void **state)
{
    (void)state;
    assert_true(gw_list_has(bytes("identity, deflate, gzip"), 23, "gzip"));
    assert_true(gw_list_has(bytes("gzip"), 4, "gzip"));
    assert_false(gw_list_has(bytes("x-gzip,gzipx"), 12, "gzip"));
    assert_false(gw_list_has(bytes(""), 0, "gzip"));
}

static void test_statuses_are_decimal(void **state)
{
    (void)state;
    assert_int_equal(gw_status_read(bytes("0"), 1), 0);
    assert_int_equal(gw_status_read(bytes("16"), 2), 16);
    assert_int_equal(gw_status_read(bytes(""), 0), -1);
    assert_int_equal(gw_status_read(bytes("1x"), 2), -1);
    assert_int_equal(gw_status_read(bytes("9999"), 4), -1);
}

static void test_metadata_names(void **state)
{
    (void)state;
    assert_true(gw_is_metadata_name("x-a_b.c-1"));
    assert_false(gw_is_metadata_name("X-a"));
    assert_false(gw_is_metadata_name("grpc-status"));
    assert_false(gw_is_metadata_name(":path"));
    assert_false(gw_is_metadata_name(""));
    assert_true(gw_is_binary_name("x-bin", 5));
    assert_false(gw_is_binary_name("-bin", 4));
    assert_false(gw_is_metadata_value("a\nb"));
}

static void test_status_maps(void **state)
{
    (void)state;
    assert_int_equal(gw_status_from_http(404), GRPC_UNIMPLEMENTED);
    assert_int_equal(gw_status_from_http(503), GRPC_UNAVAILABLE);
    assert_int_equal(gw_status_from_http(418), GRPC_UNKNOWN);
    assert_int_equal(gw_status_from_h2_error(NGHTTP2_REFUSED_STREAM), GRPC_UNAVAILABLE);
    assert_int_equal(gw_status_from_h2_error(NGHTTP2_CANCEL), GRPC_CANCELLED);
    assert_int_equal(gw_status_from_h2_error(NGHTTP2_ENHANCE_YOUR_CALM), GRPC_RESOURCE_EXHAUSTED);
    assert_int_equal(gw_status_from_h2_error(77), GRPC_INTERNAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prefix_round_trips_and_refuses_flags),
        cmocka_unit_test(test_timeouts_are_read),
        cmocka_unit_test(test_timeouts_are_never_written_shorter),
        cmocka_unit_test(test_messages_are_escaped_and_come_back),
        cmocka_unit_test(test_escapes_are_never_cut),
        cmocka_unit_test(test_broken_escapes_stand_for_themselves),
        cmocka_unit_test(test_base64_round_trips_at_every_length),
        cmocka_unit_test(test_content_types),
        cmocka_unit_test(test_lists_match_whole_tokens),
        cmocka_unit_test(test_statuses_are_decimal),
        cmocka_unit_test(test_metadata_names),
        cmocka_unit_test(test_status_maps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
