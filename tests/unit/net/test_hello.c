/* tests/unit/net/test_hello.c - the name in a ClientHello, and hellos that name nobody. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "net/hello.h"
#include "tests/unit/net/hello_bytes.h"

/* In memory that ends where the bytes do, so that reading on is seen. */
static enum net_hello parse(const uint8_t *bytes, size_t n, char name[static NET_NAME_MAX + 1])
{
    uint8_t *copy = malloc(n);
    assert_non_null(copy);
    memcpy(copy, bytes, n);
    enum net_hello what = net_hello_parse(copy, n, name);
    free(copy);
    if (what != NET_HELLO_NAME)
        assert_string_equal(name, "");
    return what;
}

static void names(const struct hello_bytes *b, enum net_hello want, const char *name)
{
    char got[NET_NAME_MAX + 1];
    assert_int_equal(parse(b->at, b->n, got), want);
    assert_string_equal(got, name);
}

static struct hello_bytes with(const struct hello_bytes *extensions, size_t piece)
{
    struct hello_bytes message = {.n = 0}, out = {.n = 0};
    hello_message(&message, extensions);
    hello_records(&out, &message, piece);
    return out;
}

static void test_the_name_is_found(void **state)
{
    (void)state;
    struct hello_bytes b = hello_for("a.example.org");
    names(&b, NET_HELLO_NAME, "a.example.org");
    b = hello_for("WWW.Example.ORG");
    names(&b, NET_HELLO_NAME, "www.example.org");
    hello_put(&b, 0x140303, 3); /* what follows it does not matter */
    names(&b, NET_HELLO_NAME, "www.example.org");
}

static void test_each_part_of_one_wants_more(void **state)
{
    (void)state;
    struct hello_bytes b = hello_for("a.example.org");
    char name[NET_NAME_MAX + 1];
    for (size_t n = 1; n < b.n; n++)
        assert_int_equal(parse(b.at, n, name), NET_HELLO_MORE);
}

static void test_records_may_cut_it_anywhere(void **state)
{
    (void)state;
    struct hello_bytes extensions = {.n = 0};
    hello_name(&extensions, "a.example.org");
    for (size_t piece = 1; piece < 90; piece++) {
        struct hello_bytes b = with(&extensions, piece);
        names(&b, NET_HELLO_NAME, "a.example.org");
    }
}

static void test_what_is_no_tls(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "GET / HTTP/1.1\r\n", "SSH-2.0-x",    "\x16",
        "\x16\x02\x01",       "\x80\x2e\x01", "\x15\x03\x01\x00\x02"};
    char name[NET_NAME_MAX + 1];
    for (size_t i = 0; i < CL_COUNT(texts); i++)
        assert_int_equal(parse((const uint8_t *)texts[i], strlen(texts[i]), name),
                         i == 2 ? NET_HELLO_MORE : NET_HELLO_NOT_TLS);
}

static void test_nobody_is_named(void **state)
{
    (void)state;
    struct hello_bytes b = hello_for(NULL), extensions = {.n = 0}, none = {.n = 0};
    names(&b, NET_HELLO_NO_NAME, "");
    b = with(&none, 16384);
    names(&b, NET_HELLO_NO_NAME, "");
    hello_name(&extensions, "a.org");
    hello_name(&extensions, "a.org"); /* twice */
    b = with(&extensions, 16384);
    names(&b, NET_HELLO_NO_NAME, "");
    static const char *const bad[] = {"", "a..org", "a.org.", "-", "a b", "\xc3\xa4.org", "a/b"};
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        b = hello_for(bad[i]);
        names(&b, NET_HELLO_NO_NAME, "");
    }
    char longest[256];
    memset(longest, 'a', sizeof longest);
    longest[255] = '\0';
    b = hello_for(longest);
    names(&b, NET_HELLO_NO_NAME, "");
}

/* Any byte of it may be any other: what it says then is one of four things, and no more is read. */
static void test_no_byte_leads_astray(void **state)
{
    (void)state;
    struct hello_bytes b = hello_for("a.example.org");
    char name[NET_NAME_MAX + 1];
    for (size_t i = 0; i < b.n; i++) {
        uint8_t was = b.at[i];
        for (int value = 0; value < 256; value++) {
            b.at[i] = (uint8_t)value;
            enum net_hello what = parse(b.at, b.n, name);
            assert_true(what >= NET_HELLO_MORE && what <= NET_HELLO_NO_NAME);
        }
        b.at[i] = was;
    }
}

static void test_one_that_is_too_long_is_none(void **state)
{
    (void)state;
    static const uint8_t huge[] = {0x16, 3, 1, 0x40, 0, 1, 0x00, 0x40, 0x00};
    static const uint8_t other[] = {0x16, 3, 1, 0, 4, 2, 0, 0, 0};
    static const uint8_t empty[] = {0x16, 3, 1, 0, 0};
    char name[NET_NAME_MAX + 1];
    assert_int_equal(parse(huge, sizeof huge, name), NET_HELLO_NO_NAME);
    assert_int_equal(parse(other, sizeof other, name), NET_HELLO_NO_NAME);
    assert_int_equal(parse(empty, sizeof empty, name), NET_HELLO_NO_NAME);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_name_is_found),
        cmocka_unit_test(test_each_part_of_one_wants_more),
        cmocka_unit_test(test_records_may_cut_it_anywhere),
        cmocka_unit_test(test_what_is_no_tls),
        cmocka_unit_test(test_nobody_is_named),
        cmocka_unit_test(test_no_byte_leads_astray),
        cmocka_unit_test(test_one_that_is_too_long_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
