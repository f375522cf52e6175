/* tests/unit/worker/test_state_mac.c - worker/state_mac.h. */
#include "worker/state_mac.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static const struct state_mac_key key = {{1, 2, 3}}, other_key = {{3, 2, 1}};
static const char state_text[] = "CLVMSTAT and what follows";

static struct template make_template(void)
{
    struct template t = {.state_fd = memfd_create("state", MFD_CLOEXEC)};
    (void)snprintf(t.m.name, sizeof t.m.name, "base");
    (void)snprintf(t.snapshot_key, sizeof t.snapshot_key, "%064d", 1);
    assert_int_equal(pwrite(t.state_fd, state_text, sizeof state_text, 0), sizeof state_text);
    assert_int_equal(state_mac_make(&key, &t, NULL), 0);
    return t;
}

static void refuses(const struct state_mac_key *with, const struct template *t)
{
    struct cl_err err = {0};
    assert_int_equal(state_mac_check(with, t, &err), -1);
    assert_int_equal(err.code, CL_E_DATALOSS);
}

static void test_a_state_is_what_was_made(void **state)
{
    (void)state;
    struct template t = make_template();
    assert_int_equal(state_mac_check(&key, &t, NULL), 0);
    (void)close(t.state_fd);
}

static void test_each_changed_byte_is_noticed(void **state)
{
    (void)state;
    struct template t = make_template();
    for (off_t i = 0; i < (off_t)sizeof state_text; i++) {
        char flipped = (char)(state_text[i] ^ 1);
        assert_int_equal(pwrite(t.state_fd, &flipped, 1, i), 1);
        refuses(&key, &t);
        assert_int_equal(pwrite(t.state_fd, &state_text[i], 1, i), 1);
    }
    assert_int_equal(state_mac_check(&key, &t, NULL), 0);
    assert_int_equal(ftruncate(t.state_fd, sizeof state_text + 1), 0);
    refuses(&key, &t);
    (void)close(t.state_fd);
}

static void test_another_key_or_template_is_refused(void **state)
{
    (void)state;
    struct template t = make_template();
    refuses(&other_key, &t);
    t.snapshot_key[0] = '1';
    refuses(&key, &t);
    (void)close(t.state_fd);
}

static void test_a_state_of_any_size_is_not_read(void **state)
{
    (void)state;
    struct template t = make_template();
    struct cl_err err = {0};
    assert_int_equal(ftruncate(t.state_fd, STATE_MAC_MAX), 0);
    assert_int_equal(state_mac_make(&key, &t, NULL), 0);
    assert_int_equal(ftruncate(t.state_fd, STATE_MAC_MAX + 1), 0);
    assert_int_equal(state_mac_make(&key, &t, &err), -1);
    assert_int_equal(err.code, CL_E_GUEST);
    assert_int_equal(ftruncate(t.state_fd, 0), 0);
    assert_int_equal(state_mac_make(&key, &t, NULL), -1);
    (void)close(t.state_fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_state_is_what_was_made),
        cmocka_unit_test(test_each_changed_byte_is_noticed),
        cmocka_unit_test(test_another_key_or_template_is_refused),
        cmocka_unit_test(test_a_state_of_any_size_is_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
