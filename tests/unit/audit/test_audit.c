/* tests/unit/audit/test_audit.c - canonical form, chain, signatures, frames, redaction. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "audit/frame.h"
#include "audit/redact.h"
#include "audit/sign.h"
#include "audit/verify.h"
#include "base/fs.h"

static struct cl_buf log_buf;
static struct audit_private_key *key;
static struct audit_public_key *pub;
static size_t starts[16];

static int set_up(void **state)
{
    (void)state;
    char dir[] = "/tmp/cloche-unit-XXXXXX", path[64], path_pub[64];
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(path, sizeof path, "%s/k", dir);
    (void)snprintf(path_pub, sizeof path_pub, "%s/k.pub", dir);
    int rc = audit_private_key_open(path, &key, NULL);
    if (rc == 0)
        rc = audit_public_key_open(path_pub, &pub, NULL);
    return cl_remove_tree(dir, NULL) | rc;
}

static int tear_down(void **state)
{
    (void)state;
    audit_private_key_free(key);
    audit_public_key_free(pub);
    cl_buf_fini(&log_buf);
    return 0;
}

/* Five records and a checkpoint. */
static void build_log(void)
{
    struct audit_chain chain;
    struct cl_buf fields;
    struct audit_record r;
    audit_chain_init(&chain, "tenant/acme");
    cl_buf_fini(&log_buf);
    cl_buf_init(&log_buf, 1 << 20);
    cl_buf_init(&fields, 1 << 17);
    for (uint64_t i = 0; i < 5; i++) {
        struct audit_field f[] = {AUDIT_STR("by", "ann"), AUDIT_STR("unit", "job_1")};
        r = (struct audit_record){.epoch = 9,
                                  .n = i + 1,
                                  .event = "unit.cancel",
                                  .source = "scheduler",
                                  .ts = "2026-01-02T03:04:05.678901Z"};
        cl_buf_clear(&fields);
        assert_int_equal(audit_fields_format(&fields, AUDIT_UNIT_CANCEL, f, 2, NULL), 0);
        r.fields = (const char *)fields.data;
        r.fields_n = fields.len;
        starts[i] = log_buf.len;
        assert_int_equal(audit_chain_append(&chain, &r, &log_buf, NULL), 0);
    }
    starts[5] = log_buf.len;
    assert_int_equal(audit_checkpoint_make(key, 1, 1, &chain, &fields, &r, NULL), 0);
    assert_int_equal(audit_chain_append(&chain, &r, &log_buf, NULL), 0);
    cl_buf_fini(&fields);
}

static enum audit_verdict check(const void *data, size_t n)
{
    struct audit_stream_check c;
    audit_stream_check_init(&c, "tenant/acme", pub);
    return audit_stream_check_feed(&c, data, n, true, NULL);
}

static void test_every_flipped_bit_is_found(void **state)
{
    (void)state;
    build_log();
    assert_int_equal(check(log_buf.data, log_buf.len), AUDIT_OK);
    for (size_t bit = 0; bit < log_buf.len * 8; bit++) {
        log_buf.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (check(log_buf.data, log_buf.len) == AUDIT_OK)
            fail_msg("bit %zu", bit);
        log_buf.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

static void test_a_removed_swapped_or_doubled_record_is_found(void **state)
{
    (void)state;
    build_log();
    for (size_t i = 0; i < 5; i++) {
        struct cl_buf b;
        cl_buf_init(&b, 1 << 20);
        assert_int_equal(cl_buf_append(&b, log_buf.data, starts[i], NULL), 0);
        assert_int_equal(
            cl_buf_append(&b, log_buf.data + starts[i + 1], log_buf.len - starts[i + 1], NULL), 0);
        assert_int_equal(check(b.data, b.len), AUDIT_BAD);
        cl_buf_clear(&b);
        assert_int_equal(cl_buf_append(&b, log_buf.data, starts[i + 1], NULL), 0);
        assert_int_equal(cl_buf_append(&b, log_buf.data + starts[i], log_buf.len - starts[i], NULL),
                         0);
        assert_int_equal(check(b.data, b.len), AUDIT_BAD);
        cl_buf_fini(&b);
    }
    for (size_t n = 0; n < log_buf.len; n++) {
        size_t i = 0;
        while (i < 6 && starts[i] != n)
            i++;
        assert_int_equal(check(log_buf.data, n),
                         i < 6 ? AUDIT_OK : AUDIT_TORN); /* a whole prefix needs the host stream */
    }
}

static void test_fields_are_checked_and_written_in_one_form(void **state)
{
    (void)state;
    struct cl_buf b;
    struct cl_err err = {0};
    cl_buf_init(&b, 1 << 20);
    struct audit_field f[] = {AUDIT_STR("unit", "a\"\\\n\x01\xff"
                                                "\xc3\xa9"),
                              AUDIT_STR("by", "x")};
    assert_int_equal(audit_fields_format(&b, AUDIT_UNIT_CANCEL, f, 2, NULL), 0);
    assert_memory_equal(
        b.data, "{\"by\":\"x\",\"unit\":\"a\\\"\\\\\\u000a\\u0001\xef\xbf\xbd\xc3\xa9\"}", b.len);
    assert_true(audit_fields_is_canonical((char *)b.data, b.len));
    assert_int_equal(audit_fields_format(&b, AUDIT_UNIT_CANCEL, f, 1, &err), -1);
    struct audit_field wrong[] = {AUDIT_NUM("unit", 1), AUDIT_STR("by", "x")};
    assert_int_equal(audit_fields_format(&b, AUDIT_UNIT_CANCEL, wrong, 2, &err), -1);
    struct audit_field more[] = {AUDIT_STR("unit", "1"), AUDIT_STR("by", "x"),
                                 AUDIT_STR("zz", "y")};
    assert_int_equal(audit_fields_format(&b, AUDIT_UNIT_CANCEL, more, 3, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
    static char big[20000];
    static const char *list[4000];
    memset(big, 1, sizeof big - 1);
    for (size_t i = 0; i < CL_COUNT(list); i++)
        list[i] = big;
    struct audit_field huge[] = {AUDIT_LIST("argv", list, CL_COUNT(list)), AUDIT_STR("cwd", big),
                                 AUDIT_STR("exec", big), AUDIT_NUM("uid", 1),
                                 AUDIT_STR("unit", big)};
    cl_buf_clear(&b);
    assert_int_equal(audit_fields_format(&b, AUDIT_EXEC_START, huge, CL_COUNT(huge), NULL), 0);
    assert_true(b.len <= AUDIT_FIELDS_MAX && audit_fields_is_canonical((char *)b.data, b.len));
    static const char *const bad[] = {"{\"b\":1,\"a\":2}", "{\"a\":01}",   "{ }",
                                      "{\"a\":-1}",        "{\"a\":1.5}",  "{\"a\":\"\\n\"}",
                                      "{\"a\":{}}",        "{\"a\":null}", "{\"a\":1}x",
                                      "{\"a\":1,\"a\":1}", "{\"a\":[1]}",  "{\"a\":\"\xff\"}"};
    for (size_t i = 0; i < CL_COUNT(bad); i++)
        assert_false(audit_fields_is_canonical(bad[i], strlen(bad[i])));
    cl_buf_fini(&b);
}

static void test_every_event_of_the_table_is_sorted_and_known_by_name(void **state)
{
    (void)state;
    static const char *const rows[] = {
#define AUDIT_EVENT(id, name, fields, text) fields,
#include "audit/events.def"
#undef AUDIT_EVENT
    };
    for (int ev = 0; ev < AUDIT_EVENT_NR; ev++) {
        const char *name = audit_event_name((enum audit_event)ev);
        assert_int_equal(audit_event_by_name(name, strlen(name)), ev);
        char before[64] = "", word[64];
        for (const char *at = rows[ev]; *at; at += *at == ',') {
            size_t n = strcspn(at, "?:");
            (void)snprintf(word, sizeof word, "%.*s", (int)n, at);
            if (strcmp(before, word) >= 0)
                fail_msg("%s: %s after %s", name, word, before);
            memcpy(before, word, sizeof before);
            at += strcspn(at, ",");
        }
    }
}

static void test_frames_survive_and_malformed_ones_are_refused(void **state)
{
    (void)state;
    struct cl_buf b;
    struct audit_frame f = {.type = AUDIT_F_RECORD,
                            .number = 5,
                            .text = "acme",
                            .text_n = 4,
                            .wall_ns = 9,
                            .event = AUDIT_UNIT_CANCEL,
                            .fields = "{\"a\":1}",
                            .fields_n = 7},
                       g;
    size_t used;
    cl_buf_init(&b, 1 << 16);
    assert_int_equal(audit_frame_pack(&b, &f, NULL), 0);
    for (size_t n = 0; n < b.len; n++) {
        assert_int_equal(audit_frame_parse(b.data, n, &g, &used, NULL), 0);
        assert_int_equal(used, 0);
    }
    assert_int_equal(audit_frame_parse(b.data, b.len, &g, &used, NULL), 0);
    assert_int_equal(used, b.len);
    assert_int_equal(g.fields_n, 7);
    assert_memory_equal(g.text, "acme", 4);
    b.data[b.len - 1] = 'x';
    assert_int_equal(audit_frame_parse(b.data, b.len, &g, &used, NULL), -1);
    b.data[4] = 99;
    assert_int_equal(audit_frame_parse(b.data, b.len, &g, &used, NULL), -1);
    b.data[3] = 0xff;
    assert_int_equal(audit_frame_parse(b.data, b.len, &g, &used, NULL), -1);
    cl_buf_fini(&b);
}

static void test_salted_digests_differ_by_tenant(void **state)
{
    (void)state;
    uint8_t salt[AUDIT_SALT] = {3};
    char a[AUDIT_DIGEST_TEXT], b[AUDIT_DIGEST_TEXT], c[AUDIT_DIGEST_TEXT];
    audit_digest_salted(salt, "acme", "s", 1, a);
    audit_digest_salted(salt, "beta", "s", 1, b);
    audit_digest_salted(salt, "acme", "s", 1, c);
    assert_string_not_equal(a, b);
    assert_string_equal(a, c);
    assert_true(audit_name_is_secret("MY-Api-Key", 10));
    assert_false(audit_name_is_secret("monkey", 6));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_flipped_bit_is_found),
        cmocka_unit_test(test_a_removed_swapped_or_doubled_record_is_found),
        cmocka_unit_test(test_fields_are_checked_and_written_in_one_form),
        cmocka_unit_test(test_every_event_of_the_table_is_sorted_and_known_by_name),
        cmocka_unit_test(test_frames_survive_and_malformed_ones_are_refused),
        cmocka_unit_test(test_salted_digests_differ_by_tenant),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
