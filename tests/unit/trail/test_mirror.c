/* trail/mirror.c: a copy that goes on where it ended, and that nobody can change the log behind. */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format on */
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/files.h"
#include "audit/sign.h"
#include "audit/verify.h"
#include "base/fs.h"
#include "base/mem.h"
#include "trail/mirror.h"

static char top[64], from[96], to[96]; /* the log, its copy */
static struct audit_private_key *key;
static struct cl_buf pem;

static void read_key(const char *dir)
{
    char path[AUDIT_PATH];
    (void)snprintf(path, sizeof path, "%s/audit.key", dir);
    audit_private_key_free(key);
    assert_int_equal(audit_private_key_open(path, &key, NULL), 0);
    (void)snprintf(path, sizeof path, "%s/audit.key.pub", dir);
    cl_buf_clear(&pem);
    assert_int_equal(cl_file_read(AT_FDCWD, path, &pem, NULL), 0);
    assert_int_equal(cl_buf_append(&pem, "", 1, NULL), 0);
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(top, sizeof top, "/tmp/cloche-mirror-XXXXXX");
    assert_non_null(mkdtemp(top));
    (void)snprintf(from, sizeof from, "%s/log", top);
    (void)snprintf(to, sizeof to, "%s/copy", top);
    assert_int_equal(cl_mkdir_p(from, 0755, NULL), 0);
    cl_buf_init(&pem, AUDIT_PEM_MAX);
    read_key(from);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cl_buf_fini(&pem);
    audit_private_key_free(key);
    key = NULL;
    return cl_remove_tree(top, NULL);
}

/* --- the log ------------------------------------------------------------------------------------
 */

static void write_lines(const struct audit_chain *chain, struct cl_buf *lines)
{
    char path[AUDIT_PATH];
    (void)snprintf(path, sizeof path, "%s/%s", from, chain->stream);
    assert_int_equal(cl_mkdir_p(path, 0755, NULL), 0);
    audit_file_path(from, chain->stream, 1, path);
    FILE *f = fopen(path, "ab");
    assert_non_null(f);
    assert_int_equal(fwrite(lines->data, 1, lines->len, f), lines->len);
    assert_int_equal(fclose(f), 0);
    cl_buf_fini(lines);
}

/* n records, and one that signs them. */
static void put_some(struct audit_chain *chain, unsigned n, const char *unit, bool is_signed)
{
    struct cl_buf lines, fields;
    struct audit_record r;
    char text[64];
    cl_buf_init(&lines, 1 << 20);
    cl_buf_init(&fields, AUDIT_FIELDS_MAX);
    (void)snprintf(text, sizeof text, "{\"unit\":\"%s\"}", unit);
    for (unsigned i = 0; i < n; i++) {
        r = (struct audit_record){.epoch = 1,
                                  .n = chain->next_seq,
                                  .event = "unit.end",
                                  .fields = text,
                                  .fields_n = strlen(text),
                                  .source = "scheduler"};
        cl_rfc3339((1767225600 + chain->next_seq) * CL_NS_PER_S, r.ts);
        assert_int_equal(audit_chain_append(chain, &r, &lines, NULL), 0);
    }
    if (is_signed) {
        assert_int_equal(audit_checkpoint_make(key, 1, (1767225600 + chain->next_seq) * CL_NS_PER_S,
                                               chain, &fields, &r, NULL),
                         0);
        assert_int_equal(audit_chain_append(chain, &r, &lines, NULL), 0);
    }
    cl_buf_fini(&fields);
    write_lines(chain, &lines);
}

static void put(struct audit_chain *chain, unsigned n, const char *unit)
{
    put_some(chain, n, unit, true);
}

static void begin(struct audit_chain *chain, const char *stream)
{
    char path[AUDIT_PATH];
    audit_chain_init(chain, stream);
    audit_file_path(from, stream, 1, path);
    (void)remove(path);
}

/* --- the copy -----------------------------------------------------------------------------------
 */

static int read_log(struct mirror *m, struct cl_err *err)
{
    static const char *const every[] = {"*"};
    CL_AUTO(walk_freep) struct walk *w = NULL;
    struct walk_filter f = {.events = every, .n_events = 1};
    return mirror_begin(m, (const char *)pem.data, &f.from, &f.n_from, err) < 0 ||
                   walk_new(from, &f, &w, err) < 0 || walk_all(w, mirror_take, m, err) < 0 ||
                   mirror_settle(m, err) < 0
               ? -1
               : 0;
}

static int copy_with(const struct mirror_conf *conf, uint64_t *ret_taken, struct cl_err *err)
{
    CL_AUTO(mirror_closep) struct mirror *m = NULL;
    *ret_taken = 0;
    if (mirror_open(conf, &m, err) < 0 || read_log(m, err) < 0)
        return -1;
    for (size_t i = 0; i < mirror_count(m); i++)
        *ret_taken += mirror_state(m, i).taken;
    return 0;
}

static void expect_taken(uint64_t want)
{
    struct cl_err err = {0};
    uint64_t taken;
    if (copy_with(&(struct mirror_conf){.dir = to}, &taken, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(taken, want);
}

static void expect_refusal(enum cl_code code, const char *text)
{
    struct cl_err err = {0};
    uint64_t taken;
    assert_int_equal(copy_with(&(struct mirror_conf){.dir = to}, &taken, &err), -1);
    assert_int_equal(err.code, code);
    if (!strstr(err.text, text))
        fail_msg("%s", err.text);
}

static void expect_same(const char *stream)
{
    struct cl_buf a, b;
    char path[AUDIT_PATH];
    cl_buf_init(&a, 1 << 20);
    cl_buf_init(&b, 1 << 20);
    audit_file_path(from, stream, 1, path);
    assert_int_equal(cl_file_read(AT_FDCWD, path, &a, NULL), 0);
    for (unsigned i = 1;; i++) {
        audit_file_path(to, stream, i, path);
        if (access(path, F_OK) < 0)
            break;
        assert_int_equal(cl_file_read(AT_FDCWD, path, &b, NULL), 0);
    }
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
    cl_buf_fini(&a);
    cl_buf_fini(&b);
}

static enum audit_verdict verify(bool may_lack_host)
{
    char pub[AUDIT_PATH];
    struct audit_report report = {0};
    (void)snprintf(pub, sizeof pub, "%s/audit.key.pub", to);
    const struct audit_verify_conf conf = {
        .dir = to, .public_key = pub, .may_lack_host = may_lack_host};
    return audit_verify_dir(&conf, &report, NULL) < 0 ? AUDIT_TORN : report.verdict;
}

/* --- tests --------------------------------------------------------------------------------------
 */

static void test_it_goes_on_where_it_ended(void **state)
{
    (void)state;
    struct audit_chain a, h;
    begin(&a, "tenant/a");
    begin(&h, "host/h");
    put(&a, 5, "sbx_1");
    put(&h, 2, "sbx_1");
    expect_taken(9);
    expect_taken(0);
    put(&a, 3, "sbx_2");
    expect_taken(4);
    expect_same("tenant/a");
    expect_same("host/h");
    assert_int_equal(verify(false), AUDIT_OK);
}

static void put_claim(struct audit_chain *host, const char *stream, uint64_t seq, const char *hash)
{
    struct cl_buf lines, fields;
    struct audit_record r = {
        .epoch = 1, .n = host->next_seq, .event = "tenant.checkpoint", .source = "scheduler"};
    const struct audit_field f[] = {AUDIT_STR("hash", hash), AUDIT_NUM("seq", seq),
                                    AUDIT_STR("stream", stream)};
    cl_buf_init(&lines, 1 << 20);
    cl_buf_init(&fields, AUDIT_FIELDS_MAX);
    assert_int_equal(audit_fields_format(&fields, AUDIT_TENANT_CHECKPOINT, f, CL_COUNT(f), NULL),
                     0);
    r.fields = (const char *)fields.data;
    r.fields_n = fields.len;
    cl_rfc3339((1767225600 + host->next_seq) * CL_NS_PER_S, r.ts);
    assert_int_equal(audit_chain_append(host, &r, &lines, NULL), 0);
    cl_buf_fini(&fields);
    write_lines(host, &lines);
}

/* The log was read to the tenant's end before its newest was there, and to the host's behind it. */
static void test_the_hosts_stream_does_not_run_ahead(void **state)
{
    (void)state;
    struct audit_chain a, h, ahead;
    begin(&a, "tenant/a");
    begin(&h, "host/h");
    put(&a, 2, "sbx_1");
    put_claim(&h, "tenant/a", 3, a.head);
    put(&h, 1, "sbx_1");
    expect_taken(6);
    ahead = a;
    char path[AUDIT_PATH];
    struct stat st;
    audit_file_path(from, "tenant/a", 1, path);
    assert_int_equal(stat(path, &st), 0);
    put(&ahead, 1, "sbx_2");
    put_claim(&h, "tenant/a", 5, ahead.head);
    put(&h, 1, "sbx_1");
    assert_int_equal(truncate(path, st.st_size), 0);
    expect_taken(0);
    assert_int_equal(verify(false), AUDIT_OK);
    put(&a, 1, "sbx_2");
    expect_taken(5);
    assert_int_equal(verify(false), AUDIT_OK);
}

static void test_one_stream_alone(void **state)
{
    (void)state;
    struct audit_chain a, b;
    uint64_t taken;
    begin(&a, "tenant/a");
    begin(&b, "tenant/b");
    put(&a, 5, "sbx_1");
    assert_int_equal(
        copy_with(&(struct mirror_conf){.dir = to, .stream = "tenant/a"}, &taken, NULL), 0);
    assert_int_equal(taken, 6);
    assert_int_equal(verify(true), AUDIT_OK);
    put(&b, 1, "sbx_2");
    struct cl_err err = {0};
    assert_int_equal(
        copy_with(&(struct mirror_conf){.dir = to, .stream = "tenant/a"}, &taken, &err), -1);
    assert_int_equal(err.code, CL_E_PEER); /* it was not asked for */
}

static void test_files_end_at_their_size(void **state)
{
    (void)state;
    struct audit_chain a;
    uint64_t taken;
    struct stat st;
    char path[AUDIT_PATH];
    begin(&a, "tenant/a");
    for (int i = 0; i < 5; i++) {
        put(&a, 20, "sbx_1");
        assert_int_equal(
            copy_with(&(struct mirror_conf){.dir = to, .file_max = 20000}, &taken, NULL), 0);
        assert_int_equal(taken, 21);
    }
    expect_same("tenant/a");
    for (unsigned i = 1; i <= 2; i++) {
        audit_file_path(to, "tenant/a", i, path);
        assert_int_equal(stat(path, &st), 0);
        assert_in_range(st.st_size, 10000, 20000);
    }
    assert_int_equal(verify(true), AUDIT_OK);
}

static void test_a_line_that_was_not_finished_comes_again(void **state)
{
    (void)state;
    struct audit_chain a;
    struct stat st;
    char path[AUDIT_PATH];
    begin(&a, "tenant/a");
    put(&a, 5, "sbx_1");
    expect_taken(6);
    audit_file_path(to, "tenant/a", 1, path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 10), 0);
    expect_taken(1);
    expect_same("tenant/a");
}

static void test_a_log_that_was_written_anew_is_seen(void **state)
{
    (void)state;
    struct audit_chain a;
    begin(&a, "tenant/a");
    put(&a, 5, "sbx_1");
    expect_taken(6);
    begin(&a, "tenant/a"); /* with the log's own key: it verifies */
    put(&a, 5, "sbx_x");
    put(&a, 5, "sbx_2");
    expect_refusal(CL_E_DATALOSS, "record 6 is not the one that was copied");
    begin(&a, "tenant/a");
    put(&a, 3, "sbx_1");
    expect_refusal(CL_E_DATALOSS, "ends before record 6");
    begin(&a, "tenant/a");
    expect_refusal(CL_E_DATALOSS, "ends before record 6");
    put(&a, 5, "sbx_1"); /* nothing was lost of the copy: it goes on with the log that it knows */
    put(&a, 1, "sbx_2");
    expect_taken(2);
}

static void test_what_is_not_signed_may_still_be_lost(void **state)
{
    (void)state;
    struct audit_chain a, before;
    struct stat st;
    char path[AUDIT_PATH];
    begin(&a, "tenant/a");
    put(&a, 5, "sbx_1");
    expect_taken(6);
    before = a;
    audit_file_path(from, "tenant/a", 1, path);
    assert_int_equal(stat(path, &st), 0);
    put_some(&a, 3, "sbx_2", false);
    expect_taken(0);
    assert_int_equal(truncate(path, st.st_size), 0); /* the power failed */
    put(&before, 2, "sbx_3");
    expect_taken(3);
    expect_same("tenant/a");
}

static void test_what_does_not_follow_is_not_taken(void **state)
{
    (void)state;
    struct audit_chain a, left_out;
    begin(&a, "tenant/a");
    put(&a, 5, "sbx_1");
    expect_taken(6);
    left_out = a;
    char path[AUDIT_PATH];
    struct stat st;
    audit_file_path(from, "tenant/a", 1, path);
    assert_int_equal(stat(path, &st), 0);
    put(&left_out, 1, "sbx_2");
    assert_int_equal(truncate(path, st.st_size), 0);
    put(&left_out, 1, "sbx_3");
    expect_refusal(CL_E_DATALOSS, "record 9: number 9 where 7 must follow");
    assert_int_equal(truncate(path, st.st_size), 0);
    put(&a, 1, "sbx_2");
    expect_taken(2);
    expect_same("tenant/a");
}

static void test_another_key_is_seen(void **state)
{
    (void)state;
    struct audit_chain a;
    char other[128];
    begin(&a, "tenant/a");
    put(&a, 5, "sbx_1");
    expect_taken(6);
    (void)snprintf(other, sizeof other, "%s/other", top);
    assert_int_equal(cl_mkdir_p(other, 0755, NULL), 0);
    read_key(other);
    expect_refusal(CL_E_DATALOSS, "is signed with key");
    read_key(from);
    struct cl_buf honest = pem;
    cl_buf_init(&pem, AUDIT_PEM_MAX);
    read_key(other);
    put(&a, 1, "sbx_2"); /* signed by the other, and the key that is told is the old one */
    cl_buf_fini(&pem);
    pem = honest;
    expect_refusal(CL_E_DATALOSS, "record 8: a checkpoint of key");
}

static void test_a_copy_that_was_changed_says_so(void **state)
{
    (void)state;
    struct audit_chain a;
    char path[AUDIT_PATH];
    begin(&a, "tenant/a");
    put(&a, 5, "sbx_1");
    expect_taken(6);
    audit_file_path(to, "tenant/a", 1, path);
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "9", 1, 700), 1);
    assert_int_equal(close(fd), 0);
    expect_refusal(CL_E_DATALOSS, "the copy was changed");
    (void)snprintf(path, sizeof path, "%s/audit.key.pub", to);
    assert_int_equal(remove(path), 0);
    expect_refusal(CL_E_DATALOSS, "has lost its audit.key.pub");
}

static void test_whose_folder(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct mirror *m = NULL, *second = NULL;
    assert_int_equal(mirror_open(&(struct mirror_conf){.dir = from}, &m, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID); /* the log itself */
    assert_int_equal(mirror_open(&(struct mirror_conf){.dir = to}, &m, NULL), 0);
    assert_string_equal(mirror_key_id(m), "");
    assert_int_equal(mirror_open(&(struct mirror_conf){.dir = to}, &second, &err), -1);
    assert_int_equal(err.code, CL_E_STATE);
    mirror_close(m);
    struct audit_record r = {.stream = "tenant/../../etc", .seq = 1};
    assert_int_equal(mirror_open(&(struct mirror_conf){.dir = to}, &m, NULL), 0);
    assert_int_equal(mirror_take(m, &r, "{}", 2, &err), -1);
    assert_int_equal(err.code, CL_E_PEER);
    mirror_close(m);
    mirror_close(NULL);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_it_goes_on_where_it_ended),
        TEST(test_the_hosts_stream_does_not_run_ahead),
        TEST(test_one_stream_alone),
        TEST(test_files_end_at_their_size),
        TEST(test_a_line_that_was_not_finished_comes_again),
        TEST(test_a_log_that_was_written_anew_is_seen),
        TEST(test_what_is_not_signed_may_still_be_lost),
        TEST(test_what_does_not_follow_is_not_taken),
        TEST(test_another_key_is_seen),
        TEST(test_a_copy_that_was_changed_says_so),
        TEST(test_whose_folder),
    };
    return cmocka_run_group_tests_name("trail/mirror", tests, NULL, NULL);
}
