/* tests/unit/e2b/test_multipart.c - the files of a form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "e2b/multipart.h"

#define TYPE "multipart/form-data; boundary=B"
#define FIELD "Content-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n"
static struct multipart m;
static struct multipart_part part;

static void test_forms(void **state)
{
    (void)state;
    assert_int_equal(multipart_begin(&m, TYPE, "--B\r\n" FIELD "\r\nhello\r\n--B--\r\n",
                                     sizeof("--B\r\n" FIELD "\r\nhello\r\n--B--\r\n") - 1, NULL),
                     0);
    assert_int_equal(multipart_next(&m, &part, NULL), 1);
    assert_string_equal(part.filename, "a.txt");
    assert_int_equal(part.n, 5);
    assert_memory_equal(part.data, "hello", 5);
    assert_int_equal(multipart_next(&m, &part, NULL), 0);
}

/* How many parts, or -1. */
static int count_all(const char *type, const char *body, size_t n)
{
    int count = 0, rc = multipart_begin(&m, type, body, n, NULL);
    while (rc >= 0 && (rc = multipart_next(&m, &part, NULL)) > 0) {
        assert_true(part.data >= body && part.data + part.n <= body + n);
        count++;
    }
    return rc < 0 ? -1 : count;
}
#define COUNT(type, body) count_all(type, body, sizeof(body) - 1)

static void test_what_is_a_form_and_what_is_none(void **state)
{
    (void)state;
    assert_int_equal(COUNT(TYPE, "--B\r\n" FIELD "\r\n\r\n--B--"), 1);
    assert_int_equal(part.n, 0);
    assert_int_equal(COUNT(TYPE, "--B\r\n\r\nno fields\r\n--B--"), 1);
    assert_string_equal(part.filename, "");
    assert_int_equal(COUNT(TYPE, "preamble\r\n--B\r\n" FIELD "\r\na\r\n--B\r\n\r\nb\r\n--B--"), 2);
    assert_int_equal(COUNT("multipart/form-data; boundary=\"x y\"", "--x y\r\n\r\na\r\n--x y--"),
                     1);
    assert_int_equal(COUNT(TYPE, "--B--"), 0);
    assert_int_equal(COUNT(TYPE, ""), -1);
    assert_int_equal(COUNT(TYPE, "--C--"), -1);
    assert_int_equal(COUNT(TYPE, "--B\r\n" FIELD "\r\nno end"), -1);
    assert_int_equal(COUNT(TYPE, "--B\r\n" FIELD "\r\n--B--"), 1); /* its CRLF is the head's */
    assert_int_equal(COUNT(TYPE, "--Bx\r\n\r\na\r\n--B--"), -1);
    assert_int_equal(COUNT(TYPE, "--B\r\n\r\na\r\n--B"), -1);
    assert_int_equal(COUNT("multipart/form-data", "--B--"), -1);
    assert_int_equal(COUNT("multipart/form-data; boundary=", "--B--"), -1);
    assert_int_equal(
        COUNT(TYPE, "--B\r\nContent-Disposition: form-data; filename=\"a\r\n\r\nx\r\n--B--"), -1);
}

static void test_names(void **state)
{
    (void)state;
    assert_int_equal(COUNT(TYPE,
                           "--B\r\ncontent-type: text/plain\r\n"
                           "CONTENT-DISPOSITION: form-data; filename=\"q\\\"b\\\\ \xc3\xbc\"\r\n"
                           "\r\n1\r\n--B--"),
                     1);
    assert_string_equal(part.filename, "q\"b\\ \xc3\xbc");
    assert_int_equal(COUNT(TYPE, "--B\r\nX-Other: filename=\"no\"\r\n\r\n1\r\n--B--"), 1);
    assert_string_equal(part.filename, "");
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
    assert_int_equal(count_all(TYPE, body, n + 5), -1);
    assert_int_equal(m.parts, MULTIPART_PARTS_MAX + 1);
    assert_int_equal(count_all(TYPE, body + 7, n - 2), MULTIPART_PARTS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_what_is_a_form_and_what_is_none),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_there_is_a_last_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
