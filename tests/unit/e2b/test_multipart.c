/* tests/unit/e2b/test_multipart.c - the files of a form, in any pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "e2b/multipart.h"

#define TYPE "multipart/form-data; boundary=B"
#define FIELD "Content-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n"
static struct multipart m;

/* What was read, as text: each part is "name=data;", the last one without ';' when it has no end.
 */
static char seen[65536];
static size_t seen_n;

static void note(const char *data, size_t n)
{
    assert_true(n <= sizeof seen - seen_n);
    memcpy(seen + seen_n, data, n);
    seen_n += n;
}

static int parts;

static int take(const char *body, size_t n)
{
    for (size_t at = 0, used; at < n; at += used) {
        enum multipart_step step = multipart_feed(&m, body + at, n - at, &used, NULL);
        assert_true(used <= n - at);
        if (step == MULTIPART_BAD)
            return -1;
        if (step == MULTIPART_MORE)
            assert_int_equal(used, n - at);
        if (step == MULTIPART_DATA)
            note(m.data, m.n);
        if (step == MULTIPART_END)
            note(";", 1);
        if (step != MULTIPART_PART)
            continue;
        parts++;
        note(m.filename, strlen(m.filename));
        note("=", 1);
    }
    return 0;
}

/* How many parts, or -1; read in pieces of so many bytes. */
static int read_form(const char *type, const char *body, size_t n, size_t piece)
{
    parts = 0;
    seen_n = 0;
    if (multipart_init(&m, type, NULL) < 0)
        return -1;
    for (size_t at = 0; at < n; at += piece) {
        if (take(body + at, CL_MIN(piece, n - at)) < 0)
            return -1;
    }
    return multipart_finish(&m, NULL) < 0 ? -1 : parts;
}

/* The same in every pieces; `want` is what was read of a form. */
static void check(const char *type, const char *body, size_t n, int count, const char *want)
{
    for (size_t piece = 1; piece <= n + 1; piece++) {
        int got = read_form(type, body, n, piece);
        if (got != count || (want && (seen_n != strlen(want) || memcmp(seen, want, seen_n) != 0)))
            fail_msg("%.60s in pieces of %zu: %d, '%.*s'", body, piece, got, (int)seen_n, seen);
    }
}
#define FORM(body, count, want) check(TYPE, body, sizeof(body) - 1, count, want)
#define NO_FORM(body) check(TYPE, body, sizeof(body) - 1, -1, NULL)

static void test_forms(void **state)
{
    (void)state;
    FORM("--B\r\n" FIELD "\r\nhello\r\n--B--\r\n", 1, "a.txt=hello;");
    FORM("--B\r\n" FIELD "\r\n\r\n--B--", 1, "a.txt=;");
    FORM("--B\r\n" FIELD "\r\n--B--", 1, "a.txt=;"); /* its CRLF is the head's */
    FORM("--B\r\n\r\nno fields\r\n--B--", 1, "=no fields;");
    FORM("--B\r\n\r\n--B--", 1, "=;");
    FORM("preamble\r\n--B\r\n" FIELD "\r\na\r\n--B\r\n\r\nb\r\n--B--", 2, "a.txt=a;=b;");
    FORM("\r\n--B\r\n\r\na\r\n--B--and more", 1, "=a;");
    FORM("--B--", 0, "");
    static const char quoted[] = "--x y\r\n\r\na\r\n--x y--";
    check("multipart/form-data; boundary=\"x y\"", quoted, sizeof quoted - 1, 1, "=a;");
}

/* Nothing may be taken for a whole part before all of its boundary's line was seen. */
static void test_a_part_ends_with_its_line(void **state)
{
    (void)state;
    NO_FORM("--B\r\n\r\na\r\n--B");
    assert_memory_equal(seen, "=a", seen_n);
    NO_FORM("--B\r\n\r\na\r\n--B-");
    assert_memory_equal(seen, "=a", seen_n);
    NO_FORM("--B\r\n\r\na\r\n--B x--");
    assert_memory_equal(seen, "=a", seen_n);
}

static void test_data_that_look_like_a_boundary(void **state)
{
    (void)state;
    FORM("--B\r\n\r\n\r\n\r\n--A\r\n-\r\r\n--\r\r\n--B--", 1, "=\r\n\r\n--A\r\n-\r\r\n--\r;");
    FORM("--B\r\n\r\n--A\r\n--B--", 1, "=--A;");
    FORM("--B\r\n\r\n-\r\n--B--", 1, "=-;");
    FORM("--B\r\n\r\n--\r\n--B--", 1, "=--;");
    FORM("--A\r\n--\r\r\n--B\r\n\r\nx\r\n--B--", 1, "=x;");
    FORM("--B\r\n\r\na--B\r\n--B--", 1, "=a--B;");
}

static void test_what_is_no_form(void **state)
{
    (void)state;
    NO_FORM("");
    NO_FORM("--C--");
    NO_FORM("--B\r\n" FIELD "\r\nno end");
    NO_FORM("--B\r\n" FIELD "\r\nno end\r\n--");
    NO_FORM("--B\r\n" FIELD);
    NO_FORM("--Bx\r\n\r\na\r\n--B--");
    NO_FORM("--B\r\nno blank line\r\n--B--");
    NO_FORM("--B\r\nno blank line\r\n--B\r\n\r\na\r\n--B--");
    NO_FORM("--B\r\n--B\r\n\r\na\r\n--B--");
    NO_FORM("--B\r\nContent-Disposition: form-data; filename=\"a\r\n\r\nx\r\n--B--");
    check("multipart/form-data", "--B--", 5, -1, NULL);
    check("multipart/form-data; boundary=", "--B--", 5, -1, NULL);
    check("multipart/form-data; boundary=\"a\rb\"", "--a\rb--", 7, -1, NULL);
}

static void test_names(void **state)
{
    (void)state;
    FORM("--B\r\ncontent-type: text/plain\r\n"
         "CONTENT-DISPOSITION: form-data; filename=\"q\\\"b\\\\ \xc3\xbc\"\r\n\r\n1\r\n--B--",
         1, "q\"b\\ \xc3\xbc=1;");
    FORM("--B\r\nX-Other: filename=\"no\"\r\n\r\n1\r\n--B--", 1, "=1;");
    FORM("--B\r\n" FIELD "\r\n1\r\n--B\r\n\r\n2\r\n--B--", 2, "a.txt=1;=2;"); /* its own alone */
}

static void test_there_is_a_last_one(void **state)
{
    (void)state;
    static char body[7 * (MULTIPART_PARTS_MAX + 3)];
    size_t n = 0;
    for (int i = 0; i < MULTIPART_PARTS_MAX + 1; i++) {
        memcpy(body + n, "--B\r\n\r\n", 7); /* its boundary, and the end of the one before */
        n += 7;
    }
    memcpy(body + n, "--B--", 5);
    assert_int_equal(read_form(TYPE, body, n + 5, n), -1);
    assert_int_equal(parts, MULTIPART_PARTS_MAX);
    assert_int_equal(read_form(TYPE, body + 7, n - 2, n), MULTIPART_PARTS_MAX);
}

/* What is neither head nor data nor boundary is bounded, too. */
static void test_what_is_held_has_an_end(void **state)
{
    (void)state;
    enum { MANY = MULTIPART_HEAD_MAX + 64 };
    static char body[MANY + 256];
    static const char *const around[][2] = {
        {"--B\r\nX: ", "\r\n\r\nx\r\n--B--"}, {"", "\r\n--B--"}, {"--B--", ""}};
    for (size_t i = 0; i < CL_COUNT(around); i++) {
        for (int more = -128; more <= 64; more += 192) {
            int n = snprintf(body, sizeof body, "%s%0*d%s", around[i][0], MULTIPART_HEAD_MAX + more,
                             0, around[i][1]);
            int want = more > 0 ? -1 : i == 0;
            assert_int_equal(read_form(TYPE, body, (size_t)n, (size_t)n), want);
            assert_int_equal(read_form(TYPE, body, (size_t)n, 1000), want);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_a_part_ends_with_its_line),
        cmocka_unit_test(test_data_that_look_like_a_boundary),
        cmocka_unit_test(test_what_is_no_form),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_there_is_a_last_one),
        cmocka_unit_test(test_what_is_held_has_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
