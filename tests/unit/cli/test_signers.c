/* tests/unit/cli/test_signers.c - a signing key and those that are trusted, in a folder. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"
#include "cli/plan.h"
#include "cli/signers.h"

static char dir[sizeof "/tmp/cloche-signers-XXXXXX"];
static char key[PATH_TEXT], pub[PATH_TEXT], other_key[PATH_TEXT], other_pub[PATH_TEXT];

static int setup(void **state)
{
    (void)state;
    memcpy(dir, "/tmp/cloche-signers-XXXXXX", sizeof dir);
    if (!mkdtemp(dir))
        return -1;
    path_join(key, dir, "signing.key");
    path_join(pub, dir, "signing.pub");
    path_join(other_key, dir, "other.key");
    path_join(other_pub, dir, "other.pub");
    return signers_ensure(other_key, other_pub, NULL);
}

static int teardown(void **state)
{
    (void)state;
    return cl_remove_tree(dir, NULL);
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 07777;
}

struct text {
    char s[4096];
};

static struct text read_text(const char *path)
{
    struct text t = {{0}};
    struct cl_buf buf;
    cl_buf_init(&buf, sizeof t.s - 1);
    assert_int_equal(cl_file_read(AT_FDCWD, path, &buf, NULL), 0);
    memcpy(t.s, buf.data, buf.len);
    cl_buf_fini(&buf);
    return t;
}

static void test_a_key_is_made_once_and_its_public_half_mended(void **state)
{
    (void)state;
    assert_int_equal(signers_ensure(key, pub, NULL), 0);
    assert_int_equal(mode_of(key), 0600);
    assert_int_equal(mode_of(pub), 0644);
    struct text first = read_text(pub);
    assert_non_null(strstr(first.s, "BEGIN PUBLIC KEY"));
    assert_int_equal(unlink(pub), 0);
    assert_int_equal(signers_ensure(key, pub, NULL), 0);
    assert_string_equal(read_text(pub).s, first.s);
    assert_int_equal(signers_ensure(key, pub, NULL), 0);
    assert_string_equal(read_text(pub).s, first.s);
}

static void test_a_key_that_cannot_be_read_is_not_replaced(void **state)
{
    (void)state;
    struct cl_err err = {0};
    assert_int_equal(cl_file_write(key, "x", 1, 0600, NULL), 0);
    assert_int_equal(signers_ensure(key, pub, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
    assert_string_equal(read_text(key).s, "x");
}

/* Templates that were brought here with their public key, and then a key of its own. */
static void test_who_was_trusted_still_is_beside_a_new_key(void **state)
{
    (void)state;
    struct text other = read_text(other_pub);
    size_t n = strlen(other.s);
    assert_int_equal(cl_file_write(pub, other.s, n - 1, 0644, NULL), 0); /* without its newline */
    assert_int_equal(signers_ensure(key, pub, NULL), 0);
    struct text both = read_text(pub);
    assert_memory_equal(both.s, other.s, n);
    assert_int_equal(strlen(both.s), 2 * n);
    assert_string_not_equal(both.s + n, other.s);
}

static void test_who_is_trusted_is_once(void **state)
{
    (void)state;
    struct text other = read_text(other_pub);
    assert_int_equal(signers_trust(pub, other_pub, NULL), 0);
    assert_string_equal(read_text(pub).s, other.s);
    assert_int_equal(signers_ensure(key, pub, NULL), 0);
    struct text both = read_text(pub);
    assert_int_equal(signers_trust(pub, other_pub, NULL), 0);
    assert_int_equal(signers_trust(other_pub, pub, NULL), 0); /* one of two is new */
    assert_string_equal(read_text(pub).s, both.s);
    assert_string_equal(read_text(other_pub).s, both.s);
}

static void test_what_is_no_public_key_is_refused(void **state)
{
    (void)state;
    struct cl_err err = {0};
    assert_int_equal(signers_trust(pub, other_key, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
    assert_non_null(strstr(err.text, "is a private key"));
    assert_int_equal(cl_file_write(key, "x", 1, 0600, NULL), 0);
    err = (struct cl_err){0};
    assert_int_equal(signers_trust(pub, key, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
    assert_non_null(strstr(err.text, "no public key in"));
    assert_int_equal(cl_file_write(key, "", 0, 0600, NULL), 0);
    assert_int_equal(signers_trust(pub, key, NULL), -1);
    assert_int_equal(access(pub, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_key_is_made_once_and_its_public_half_mended, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_key_that_cannot_be_read_is_not_replaced, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_who_was_trusted_still_is_beside_a_new_key, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_who_is_trusted_is_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_no_public_key_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
