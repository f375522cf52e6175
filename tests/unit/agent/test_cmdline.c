/* tests/unit/agent/test_cmdline.c - agent/cmdline.h. */
#include "agent/cmdline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void test_a_whole_line_is_understood(void **state)
{
    (void)state;
    struct boot_args args;
    const char *text =
        "console=ttyS0 quiet cloche.verity=" HASH ":100:101:00ff cloche.scratch=65536 "
        "cloche.fault_around=262144 cloche.sensor_us=20000 "
        "cloche.net=192.0.0.2/29,192.0.0.1,192.0.0.3\n";
    assert_int_equal(cmdline_parse(text, &args, NULL), 0);
    assert_true(args.has_verity && !args.noverity);
    assert_string_equal(args.verity.root_hash, HASH);
    assert_string_equal(args.verity.salt, "00ff");
    assert_int_equal(args.verity.data_blocks, 100);
    assert_int_equal(args.verity.hash_start, 101);
    assert_int_equal(args.scratch_bytes, 65536);
    assert_int_equal(args.fault_around, 262144);
    assert_int_equal(args.sensor_us, 20000);
    assert_int_equal(args.card.address, 0xc0000002);
    assert_int_equal(args.card.prefix, 29);
    assert_int_equal(args.card.gateway, 0xc0000001);
    assert_int_equal(args.card.dns, 0xc0000003);
}

static void test_without_a_hash_the_boot_is_refused(void **state)
{
    (void)state;
    struct boot_args args;
    assert_int_equal(cmdline_parse("quiet", &args, NULL), -1);
    assert_int_equal(cmdline_parse("", &args, NULL), -1);
    assert_int_equal(cmdline_parse("quiet cloche.noverity=1", &args, NULL), 0);
    assert_true(args.noverity);
    assert_int_equal(args.card.address, 0);
}

static void test_misspelt_words_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "cloche.noverity=2",
        "cloche.verity=",
        "cloche.verity=" HASH,
        "cloche.verity=" HASH ":1:2",
        "cloche.verity=" HASH ":0:2:00",
        "cloche.verity=" HASH ":1:2:0",
        "cloche.verity=" HASH ":1:2:zz",
        "cloche.verity=" HASH ":1:2:00:3",
        "cloche.verity=abc:1:2:00",
        "cloche.verity=" HASH ":99999999999999999999:2:00",
        "cloche.verity=" HASH ":-1:2:00",
        "cloche.noverity=1 cloche.scratch=1k",
        "cloche.noverity=1 cloche.scratch=",
        "cloche.noverity=1 cloche.fault_around=64k",
        "cloche.noverity=1 cloche.net=",
        "cloche.noverity=1 cloche.net=192.0.0.2,192.0.0.1,192.0.0.3",
        "cloche.noverity=1 cloche.net=192.0.0.2/33,192.0.0.1,192.0.0.3",
        "cloche.noverity=1 cloche.net=192.0.0.2/0,192.0.0.1,192.0.0.3",
        "cloche.noverity=1 cloche.net=192.0.0.2/29,192.0.0.1",
        "cloche.noverity=1 cloche.net=192.0.0.2/29,192.0.0.1,",
        "cloche.noverity=1 cloche.net=192.0.0.2/29,0.0.0.0,192.0.0.3",
        "cloche.noverity=1 cloche.net=192.0.0.2/29,192.0.0.1,192.0.0.3,192.0.0.4",
        "cloche.noverity=1 cloche.net=192.0.0.2,192.0.0.1/29,192.0.0.3",
        "cloche.noverity=1 cloche.unknown",
    };
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        struct boot_args args;
        struct cl_err err = {0};
        assert_int_equal(cmdline_parse(bad[i], &args, &err), -1);
        assert_int_equal(err.code, CL_E_INVALID);
    }
}

static void test_long_words_of_others_are_passed_by(void **state)
{
    (void)state;
    char text[1200] = "cloche.noverity=1 ";
    memset(text + strlen(text), 'x', 1000);
    struct boot_args args;
    assert_int_equal(cmdline_parse(text, &args, NULL), 0);
    memcpy(text + 18, "cloche.scratch=", 15);
    assert_int_equal(cmdline_parse(text, &args, NULL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_whole_line_is_understood),
        cmocka_unit_test(test_without_a_hash_the_boot_is_refused),
        cmocka_unit_test(test_misspelt_words_are_refused),
        cmocka_unit_test(test_long_words_of_others_are_passed_by),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
