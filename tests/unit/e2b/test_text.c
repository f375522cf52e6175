/* tests/unit/e2b/test_text.c - text is the same in any pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "e2b/text.h"

struct got {
    char text[256];
    size_t n;
};

static void take(struct got *got, json_t *text)
{
    size_t n = json_string_length(text);
    if (n > 0)
        memcpy(got->text + got->n, json_string_value(text), n);
    got->n += n;
    json_decref(text);
}

/* data in pieces of so many bytes, and its end. */
static void agrees(const char *data, size_t n, size_t piece, const char *want, size_t want_n)
{
    struct e2b_text t = {.n = 0};
    struct got got = {.n = 0};
    for (size_t at = 0; at < n; at += piece)
        take(&got, e2b_text_add(&t, data + at, CL_MIN(piece, n - at)));
    take(&got, e2b_text_end(&t));
    assert_int_equal(got.n, want_n);
    assert_memory_equal(got.text, want, want_n);
}
#define AGREES(data, want) \
    for (size_t piece = 1; piece <= sizeof(data); piece++) \
    agrees(data, sizeof(data) - 1, piece, want, sizeof(want) - 1)
#define FFFD "\xef\xbf\xbd"

static void test_any_pieces(void **state)
{
    (void)state;
    AGREES("plain", "plain");
    AGREES("a\0b", "a\0b");
    AGREES("\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80!", "\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80!");
    AGREES("a\xff"
           "b",
           "a" FFFD "b");
    AGREES("\x80", FFFD);
    AGREES("\xc0\x80", FFFD FFFD);
    AGREES("\xed\xa0\x80", FFFD FFFD FFFD); /* a surrogate */
    AGREES("\xc3(", FFFD "(");
}

static void test_an_end_in_a_character(void **state)
{
    (void)state;
    AGREES("a\xc3", "a" FFFD);
    AGREES("a\xf0\x9f\x98", "a" FFFD);
    AGREES("", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_pieces),
        cmocka_unit_test(test_an_end_in_a_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
