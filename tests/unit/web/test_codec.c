/* tests/unit/web/test_codec.c - the forms of a message over HTTP. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cloche/v1/sandbox.pb-c.h"
#include "web/codec.h"

static const ProtobufCMessageDescriptor *const kill_type = &cloche__v1__kill_request__descriptor;

static void test_types(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        bool streams, is_there;
        enum web_codec codec;
    } rows[] = {
        {"application/json", false, true, WEB_JSON},
        {"Application/JSON; charset=utf-8", true, true, WEB_JSON},
        {"application/proto", false, true, WEB_PROTO},
        {"application/proto", true, false, 0},
        {"application/connect+json", true, true, WEB_CONNECT_JSON},
        {"application/connect+json", false, false, 0},
        {"application/connect+proto", true, true, WEB_CONNECT_PROTO},
        {"application/grpc-web", false, true, WEB_GRPC_PROTO},
        {"application/grpc-web+proto", true, true, WEB_GRPC_PROTO},
        {"application/grpc-web-text", true, true, WEB_GRPC_PROTO},
        {"application/grpc-web-text+proto", false, true, WEB_GRPC_PROTO},
        {"application/grpc-web+json", true, true, WEB_GRPC_JSON},
        {"application/grpc-web+thrift", true, false, 0},
        {"application/grpc", true, false, 0},
        {"application/jsonp", false, false, 0},
        {"text/plain", false, false, 0},
        {"", false, false, 0},
        {NULL, false, false, 0},
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct web_form form;
        assert_int_equal(web_codec_find(rows[i].type, rows[i].streams, &form), rows[i].is_there);
        if (!rows[i].is_there)
            continue;
        assert_int_equal(form.codec, rows[i].codec);
        assert_int_equal(form.in_text, strstr(rows[i].type, "-text") != NULL);
        assert_int_equal(strstr(form.type, "-text") != NULL, form.in_text);
    }
}

static void test_there_and_back(void **state)
{
    (void)state;
    Cloche__V1__KillRequest m = CLOCHE__V1__KILL_REQUEST__INIT;
    m.sandbox_id = (char[]){"sbx_1"};
    static const struct {
        enum web_codec codec;
        bool streams;
        const char *bytes;
        size_t n;
    } rows[] = {
        {WEB_JSON, false, "{\"sandboxId\":\"sbx_1\"}", 21},
        {WEB_PROTO, false, "\x0a\5sbx_1", 7},
        {WEB_CONNECT_JSON, true, "\0\0\0\0\x15{\"sandboxId\":\"sbx_1\"}", 26},
        {WEB_CONNECT_PROTO, true, "\0\0\0\0\7\x0a\5sbx_1", 12},
        {WEB_GRPC_JSON, false, "\0\0\0\0\x15{\"sandboxId\":\"sbx_1\"}", 26},
        {WEB_GRPC_PROTO, false, "\0\0\0\0\7\x0a\5sbx_1", 12},
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct cl_buf out;
        struct cl_arena *arena;
        const ProtobufCMessage *back;
        cl_buf_init(&out, 4096);
        assert_int_equal(web_codec_write(rows[i].codec, &m.base, rows[i].streams, &out, NULL), 0);
        assert_int_equal(out.len, rows[i].n);
        assert_memory_equal(out.data, rows[i].bytes, rows[i].n);
        assert_int_equal(cl_arena_new(4096, &arena, NULL), 0);
        struct web_body body = {rows[i].codec, (const char *)out.data, out.len}, one;
        assert_int_equal(web_body_next(&body, false, &one, NULL), 1);
        assert_int_equal(web_codec_read(&one, kill_type, arena, &back, NULL), 0);
        assert_int_equal(web_body_next(&body, false, &one, NULL), 0);
        assert_string_equal(((const Cloche__V1__KillRequest *)back)->sandbox_id, "sbx_1");
        cl_arena_free(arena);
        cl_buf_fini(&out);
    }
}

static void test_lines_and_ends(void **state)
{
    (void)state;
    Cloche__V1__KillResponse m = CLOCHE__V1__KILL_RESPONSE__INIT;
    struct cl_err why = {0};
    struct cl_buf out;
    (void)cl_fail(&why, CL_E_NOTFOUND, 0, "no such job");
    cl_buf_init(&out, 4096);
    assert_int_equal(web_codec_write(WEB_JSON, &m.base, true, &out, NULL), 0);
    assert_int_equal(web_codec_end(WEB_JSON, NULL, &out, NULL), 0);
    assert_memory_equal(out.data, "{\"result\":{}}\n", out.len);
    cl_buf_clear(&out);
    assert_int_equal(web_codec_end(WEB_JSON, &why, &out, NULL), 0);
    static const char line[] = "{\"error\":{\"code\":\"not_found\",\"message\":\"no such job\"";
    assert_memory_equal(out.data, line, sizeof line - 1);
    assert_int_equal(out.data[out.len - 1], '\n');
    cl_buf_clear(&out);
    assert_int_equal(web_codec_end(WEB_CONNECT_PROTO, NULL, &out, NULL), 0);
    assert_memory_equal(out.data, "\2\0\0\0\2{}", 7);
    assert_int_equal(out.len, 7);
    cl_buf_clear(&out);
    assert_int_equal(web_codec_end(WEB_GRPC_JSON, NULL, &out, NULL), 0);
    assert_int_equal(out.len, 20);
    assert_memory_equal(out.data, "\x80\0\0\0\x0fgrpc-status:0\r\n", 20);
    cl_buf_fini(&out);
}

static void test_many(void **state)
{
    (void)state;
    static const struct {
        enum web_codec codec;
        const char *bytes;
        size_t n, messages;
    } rows[] = {
        {WEB_JSON, "{}\n{}\n", 6, 2},
        {WEB_JSON, "\n{}\r\n\r\n{}", 9, 2},
        {WEB_JSON, "", 0, 0},
        {WEB_CONNECT_JSON, "", 0, 0},
        {WEB_CONNECT_PROTO, "\0\0\0\0\0\0\0\0\0\0", 10, 2},
        {WEB_CONNECT_JSON, "\0\0\0\0\2{}\0\0\0\0\2{}", 14, 2},
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct web_body body = {rows[i].codec, rows[i].bytes, rows[i].n}, one;
        struct cl_arena *arena;
        const ProtobufCMessage *msg;
        size_t n = 0;
        assert_int_equal(cl_arena_new(4096, &arena, NULL), 0);
        for (; web_body_next(&body, true, &one, NULL) > 0; n++)
            assert_int_equal(web_codec_read(&one, kill_type, arena, &msg, NULL), 0);
        assert_int_equal(n, rows[i].messages);
        cl_arena_free(arena);
    }
}

static void test_bad_bodies(void **state)
{
    (void)state;
    static const struct {
        enum web_codec codec;
        const char *body;
        size_t n;
    } rows[] = {
        {WEB_JSON, "{", 1},
        {WEB_JSON, "[]", 2},
        {WEB_JSON, "{\"sandboxId\":\"\\u0000\"}", 22},
        {WEB_JSON, "{\"sandboxId\":\"a\",\"sandboxId\":\"b\"}", 33},
        {WEB_PROTO, "\x0a\6sbx_1", 7},
        {WEB_PROTO, "\x0a\1\xff", 3},
        {WEB_CONNECT_JSON, "{}", 2},
        {WEB_CONNECT_JSON, "\1\0\0\0\2{}", 7},
        {WEB_CONNECT_JSON, "\0\0\0\0\3{}", 7},
        {WEB_CONNECT_PROTO, "\0\0\0\0\1\x0a", 6},
        {WEB_GRPC_PROTO, "\x80\0\0\0\0", 5},
        {WEB_GRPC_PROTO, "\0\0\0\0", 4},
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct cl_arena *arena;
        const ProtobufCMessage *msg;
        struct cl_err err = {0};
        assert_int_equal(cl_arena_new(4096, &arena, NULL), 0);
        struct web_body body = {rows[i].codec, rows[i].body, rows[i].n}, one;
        assert_true(web_body_next(&body, false, &one, &err) < 0 ||
                    web_codec_read(&one, kill_type, arena, &msg, &err) < 0);
        assert_int_equal(err.code, CL_E_INVALID);
        cl_arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),          cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_lines_and_ends), cmocka_unit_test(test_many),
        cmocka_unit_test(test_bad_bodies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
