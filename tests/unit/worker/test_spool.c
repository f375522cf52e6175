/* tests/unit/worker/test_spool.c - worker/spool.h: output that another process goes on with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/evp.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/mem.h"
#include "worker/spool.h"

enum { TOTAL = 50000, CAP = 1 << 20 };

static struct bench {
    char dir[32], path[64], out[72], errs[72];
    uint8_t all[TOTAL];
    struct spool *spool;
    struct spool_kept kept;
    struct cl_err err;
} b;

static int set_up(void **state)
{
    (void)state;
    b = (struct bench){.dir = "/tmp/spool.XXXXXX"};
    for (size_t i = 0; i < TOTAL; i++)
        b.all[i] = (uint8_t)(i * 7 + i / 251);
    if (!mkdtemp(b.dir))
        return -1;
    (void)snprintf(b.path, sizeof b.path, "%s/sbx_1.exec_1", b.dir);
    (void)snprintf(b.out, sizeof b.out, "%s.out", b.path);
    (void)snprintf(b.errs, sizeof b.errs, "%s.err", b.path);
    return spool_new(b.dir, CAP, &b.spool, &b.err);
}

static int tear_down(void **state)
{
    (void)state;
    spool_free(b.spool);
    return cl_remove_tree(b.dir, NULL);
}

static int restore(void)
{
    b.err = (struct cl_err){0};
    return spool_restore(b.path, &b.kept, &b.spool, &b.err);
}

/* Its process ends. */
static void leave(void)
{
    assert_int_equal(spool_name(b.spool, b.path, &b.err), 0);
    spool_get_kept(b.spool, &b.kept);
    spool_leave(b.spool);
    spool_free(b.spool);
    b.spool = NULL;
    assert_int_equal(access(b.out, F_OK), 0);
    assert_int_equal(access(b.errs, F_OK), 0);
}

static void check_read(enum spool_stream stream, size_t kept)
{
    static uint8_t got[TOTAL];
    size_t have = 0;
    for (size_t n = 1; n > 0; have += n)
        assert_int_equal(spool_read(b.spool, stream, have, got + have, 4093, &n, &b.err), 0);
    assert_int_equal(have, kept);
    assert_memory_equal(got, b.all, kept);
}

static void check_digest(enum spool_stream stream, size_t bytes)
{
    uint8_t digest[SPOOL_SHA256];
    struct spool_total t;
    spool_total(b.spool, stream, &t);
    assert_int_equal(t.bytes, bytes);
    assert_int_equal(EVP_Digest(b.all, bytes, digest, NULL, EVP_sha256(), NULL), 1);
    assert_memory_equal(t.sha256, digest, sizeof digest);
}

/* --- tests --------------------------------------------------------------------------------------
 */

static void test_it_goes_on_in_another_process_where_it_was(void **state)
{
    (void)state;
    static const size_t steps[] = {0, 1, 31, 32, 63, 64, 65, 127, 1000, 4096, 20000};
    size_t at = 0;
    for (size_t i = 0; i < CL_COUNT(steps); i++) {
        spool_append(b.spool, SPOOL_STDOUT, b.all + at, steps[i]);
        at += steps[i];
        leave();
        assert_int_equal(b.kept.lanes[0].n_digest, spool_digest_size(at, false));
        assert_int_equal(restore(), 0);
        check_read(SPOOL_STDOUT, at);
    }
    spool_append(b.spool, SPOOL_STDERR, b.all, 3);
    spool_close(b.spool);
    check_digest(SPOOL_STDOUT, at);
    check_digest(SPOOL_STDERR, 3);
}

static void test_what_is_over_the_cap_is_hashed_still(void **state)
{
    (void)state;
    spool_free(b.spool);
    assert_int_equal(spool_new(b.dir, 1500, &b.spool, &b.err), 0);
    spool_append(b.spool, SPOOL_STDOUT, b.all, 1000);
    spool_append(b.spool, SPOOL_STDERR, b.all, 700);
    leave();
    assert_int_equal(b.kept.lanes[1].kept, 500);
    assert_int_equal(restore(), 0);
    spool_append(b.spool, SPOOL_STDERR, b.all + 700, 1);
    spool_append(b.spool, SPOOL_STDOUT, b.all + 1000, 9);
    check_read(SPOOL_STDOUT, 1000);
    check_read(SPOOL_STDERR, 500);
    spool_close(b.spool);
    check_digest(SPOOL_STDOUT, 1009);
    check_digest(SPOOL_STDERR, 701);
}

static void test_a_closed_one_is_read_with_its_digest(void **state)
{
    (void)state;
    spool_append(b.spool, SPOOL_STDOUT, b.all, TOTAL);
    spool_close(b.spool);
    leave();
    assert_int_equal(b.kept.lanes[0].n_digest, SPOOL_SHA256);
    assert_int_equal(restore(), 0);
    assert_true(spool_is_closed(b.spool));
    spool_append(b.spool, SPOOL_STDOUT, "more", 4);
    check_read(SPOOL_STDOUT, TOTAL);
    check_digest(SPOOL_STDOUT, TOTAL);
    check_digest(SPOOL_STDERR, 0);
}

static void test_its_files_are_ciphertext_and_go_with_it(void **state)
{
    (void)state;
    uint8_t got[64];
    spool_append(b.spool, SPOOL_STDOUT, b.all, sizeof got);
    assert_int_equal(access(b.out, F_OK), -1);
    for (int i = 0; i < 2; i++) /* the second time nothing changes */
        assert_int_equal(spool_name(b.spool, b.path, &b.err), 0);
    struct cl_buf bytes;
    cl_buf_init(&bytes, 1 << 16);
    assert_int_equal(cl_file_read(-100, b.out, &bytes, &b.err), 0);
    assert_int_equal(bytes.len, sizeof got);
    assert_memory_not_equal(bytes.data, b.all, sizeof got);
    cl_buf_fini(&bytes);
    spool_free(b.spool);
    b.spool = NULL;
    assert_int_equal(access(b.out, F_OK), -1);
    assert_int_equal(access(b.errs, F_OK), -1);
}

static void test_its_names_can_go_before_it(void **state)
{
    (void)state;
    spool_append(b.spool, SPOOL_STDOUT, b.all, 10);
    assert_int_equal(spool_name(b.spool, b.path, &b.err), 0);
    spool_unname(b.spool);
    assert_int_equal(access(b.out, F_OK), -1);
    check_read(SPOOL_STDOUT, 10);
    assert_int_equal(spool_name(b.spool, b.path, &b.err), -1);
    assert_int_equal(b.err.code, CL_E_STATE);
}

static void test_without_a_name_once_it_stays_without(void **state)
{
    (void)state;
    char nowhere[96];
    (void)snprintf(nowhere, sizeof nowhere, "%s/none/sbx_1.exec_1", b.dir);
    assert_int_equal(spool_name(b.spool, nowhere, &b.err), -1);
    assert_int_equal(b.err.code, CL_E_SYS);
    b.err = (struct cl_err){0};
    assert_int_equal(spool_name(b.spool, b.path, &b.err), -1);
    assert_int_equal(b.err.code, CL_E_STATE);
    spool_append(b.spool, SPOOL_STDOUT, b.all, 10);
    check_read(SPOOL_STDOUT, 10);
}

/* What would be written behind the bytes that were kept has been written there already. */
static void test_a_file_of_another_length_is_refused(void **state)
{
    (void)state;
    static const long lengths[] = {0, 99, 101, 5000};
    for (size_t i = 0; i < CL_COUNT(lengths); i++) {
        spool_append(b.spool, SPOOL_STDOUT, b.all, 100);
        leave();
        assert_int_equal(truncate(b.out, lengths[i]), 0);
        assert_int_equal(restore(), -1);
        assert_int_equal(b.err.code, CL_E_DATALOSS);
        assert_int_equal(access(b.out, F_OK), -1);
        assert_int_equal(spool_new(b.dir, CAP, &b.spool, &b.err), 0);
    }
}

static void test_files_that_are_not_there_are_refused(void **state)
{
    (void)state;
    leave();
    assert_int_equal(unlink(b.errs), 0);
    assert_int_equal(restore(), -1);
    assert_int_equal(b.err.code, CL_E_SYS);
    assert_int_equal(symlink("/etc/passwd", b.out), 0);
    assert_int_equal(restore(), -1);
    assert_int_equal(b.err.code, CL_E_SYS);
}

static void test_restoring_survives_each_failed_allocation(void **state)
{
    (void)state;
    spool_append(b.spool, SPOOL_STDOUT, b.all, 100);
    for (long nth = 0;; nth++) {
        leave();
        cl_test_fail_alloc(nth);
        int rc = restore();
        bool failed = cl_test_alloc_failed();
        cl_test_fail_alloc(-1);
        if (!failed) {
            assert_int_equal(rc, 0);
            break;
        }
        assert_int_equal(rc, -1);
        assert_int_equal(b.err.code, CL_E_NOMEM);
        (void)unlink(b.out);
        (void)unlink(b.errs);
        assert_int_equal(spool_new(b.dir, CAP, &b.spool, &b.err), 0);
        spool_append(b.spool, SPOOL_STDOUT, b.all, 100);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    static const struct CMUnitTest tests[] = {
        TEST(test_it_goes_on_in_another_process_where_it_was),
        TEST(test_what_is_over_the_cap_is_hashed_still),
        TEST(test_a_closed_one_is_read_with_its_digest),
        TEST(test_its_files_are_ciphertext_and_go_with_it),
        TEST(test_its_names_can_go_before_it),
        TEST(test_without_a_name_once_it_stays_without),
        TEST(test_a_file_of_another_length_is_refused),
        TEST(test_files_that_are_not_there_are_refused),
        TEST(test_restoring_survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
