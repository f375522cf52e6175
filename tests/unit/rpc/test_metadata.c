/* tests/unit/rpc/test_metadata.c - metadata pairs and their limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "rpc/call.h"
#include "rpc/metadata.h"

static int receive(struct metadata *md, const char *name, const char *value)
{
    return metadata_add_received(
        md, (struct metadata_pair){name, value, strlen(name), strlen(value)}, NULL);
}

static void test_pairs_are_found_by_name(void **state)
{
    (void)state;
    struct metadata md;
    size_t n;
    metadata_init(&md);
    assert_int_equal(receive(&md, "a", "1"), 0);
    assert_int_equal(receive(&md, "b", ""), 0);
    assert_int_equal(receive(&md, "a", "2"), 0);
    assert_string_equal(metadata_get(&md, "a", NULL), "1");
    assert_string_equal(metadata_get(&md, "b", &n), "");
    assert_int_equal(n, 0);
    assert_null(metadata_get(&md, "c", NULL));
    metadata_remove(&md, "a");
    assert_null(metadata_get(&md, "a", NULL));
    assert_string_equal(metadata_get(&md, "b", NULL), "");
    assert_int_equal(md.pairs, 1);
    metadata_fini(&md);
}

static void test_binary_values_are_split_and_decoded(void **state)
{
    (void)state;
    struct metadata md;
    struct metadata_pair p;
    size_t n, at = 0;
    metadata_init(&md);
    assert_int_equal(receive(&md, "k-bin", "q6ur, AAE="), 0);
    assert_int_equal(md.pairs, 2);
    assert_memory_equal(metadata_get(&md, "k-bin", &n), "\xab\xab\xab", 3);
    assert_int_equal(n, 3);
    assert_true(metadata_next(&md, &at, &p) && metadata_next(&md, &at, &p));
    assert_int_equal(p.value_len, 2);
    assert_memory_equal(p.value, "\x00\x01", 2);
    assert_int_equal(receive(&md, "k-bin", "!"), -1);
    metadata_fini(&md);
}

static void test_outgoing_pairs_are_checked_and_encoded(void **state)
{
    (void)state;
    struct metadata md;
    metadata_init(&md);
    assert_int_equal(metadata_add_outgoing(&md, "k-bin", "\xab\xab\xab", NULL), 0);
    assert_string_equal(metadata_get(&md, "k-bin", NULL), "q6ur");
    assert_int_equal(metadata_add_outgoing(&md, "k", "line\nbreak", NULL), -1);
    assert_int_equal(metadata_add_outgoing(&md, "Key", "v", NULL), -1);
    assert_int_equal(metadata_add_outgoing(&md, "grpc-x", "v", NULL), -1);
    metadata_fini(&md);
}

static void test_limits_hold(void **state)
{
    (void)state;
    struct metadata md;
    char name[16];
    static char big[RPC_METADATA_MAX + 2];
    memset(big, 'x', sizeof big - 1);
    metadata_init(&md);
    assert_int_equal(receive(&md, "big", big), -1);
    assert_int_equal(receive(&md, "big-bin", big), -1);
    for (int i = 0; i < RPC_METADATA_PAIRS; i++) {
        (void)snprintf(name, sizeof name, "k%d", i);
        assert_int_equal(receive(&md, name, "v"), 0);
    }
    assert_int_equal(receive(&md, "one-more", "v"), -1);
    metadata_fini(&md);
    metadata_init(&md);
    big[3000] = '\0';
    assert_int_equal(receive(&md, "a", big), 0);
    assert_int_equal(receive(&md, "b", big), 0);
    assert_int_equal(receive(&md, "c", big), -1);
    metadata_fini(&md);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs_are_found_by_name),
        cmocka_unit_test(test_binary_values_are_split_and_decoded),
        cmocka_unit_test(test_outgoing_pairs_are_checked_and_encoded),
        cmocka_unit_test(test_limits_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
