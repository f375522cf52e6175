/* trail/walk.c, trail/newest.c, trail/sheaf.c: the right records, in order, from any amount of log,
 * also while it grows, and a piece at a time. */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* clang-format on */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "audit/files.h"
#include "base/fs.h"
#include "base/mem.h"
#include "trail/newest.h"
#include "trail/sheaf.h"

#define START UINT64_C(1767225600) /* 2026-01-01 */

struct stream {
    struct audit_chain chain;
    unsigned file;
};
static char dir[64];
static struct cl_buf got; /* "seq " of each that was told */
static size_t n_told;

static uint64_t at_s(uint64_t s)
{
    return (START + s) * CL_NS_PER_S;
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/cloche-walk-XXXXXX");
    assert_non_null(mkdtemp(dir));
    cl_buf_init(&got, 1 << 20);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cl_buf_fini(&got);
    return cl_remove_tree(dir, NULL);
}

static struct stream open_stream(const char *name)
{
    struct stream s = {.file = 1};
    char path[AUDIT_PATH];
    audit_chain_init(&s.chain, name);
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(cl_mkdir_p(path, 0755, NULL), 0);
    return s;
}

static void put_bytes(const struct stream *s, const void *data, size_t n)
{
    char path[AUDIT_PATH];
    audit_file_path(dir, s->chain.stream, s->file, path);
    FILE *f = fopen(path, "ab");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void format(struct stream *s, uint64_t ns, const char *event, const char *fields,
                   struct cl_buf *out)
{
    struct audit_record r = {.epoch = 1,
                             .n = s->chain.next_seq,
                             .fields = fields,
                             .fields_n = strlen(fields),
                             .source = "scheduler"};
    (void)snprintf(r.event, sizeof r.event, "%s", event);
    cl_rfc3339(ns, r.ts);
    cl_buf_init(out, AUDIT_RECORD_MAX + 1);
    assert_int_equal(audit_chain_append(&s->chain, &r, out, NULL), 0);
}

static void put(struct stream *s, uint64_t ns, const char *event, const char *fields)
{
    struct cl_buf line;
    format(s, ns, event, fields, &line);
    put_bytes(s, line.data, line.len);
    cl_buf_fini(&line);
}

static int tell(void *arg, const struct audit_record *r, const char *line, size_t n,
                struct cl_err *err)
{
    (void)arg;
    assert_memory_equal(line, "{\"assurance\"", 12);
    assert_int_equal(line[n - 1], '}');
    n_told++;
    return cl_buf_printf(&got, err, "%c%llu ", r->stream[strlen(r->stream) - 1],
                         (unsigned long long)r->seq);
}

static void expect(const char *text)
{
    assert_int_equal(cl_buf_append(&got, "", 1, NULL), 0);
    assert_string_equal((const char *)got.data, text);
    cl_buf_clear(&got);
    n_told = 0;
}

static void walk_once(const struct walk_filter *f)
{
    CL_AUTO(walk_freep) struct walk *w = NULL;
    assert_int_equal(walk_new(dir, f, &w, NULL), 0);
    assert_int_equal(walk_all(w, tell, NULL, NULL), 0);
    assert_int_equal(walk_unreadable(w), 0);
}

static void test_streams_are_merged_by_time(void **state)
{
    (void)state;
    struct stream a = open_stream("tenant/a"), b = open_stream("tenant/b"),
                  h = open_stream("host/h");
    put(&a, at_s(1), "unit.end", "{}");
    put(&a, at_s(4), "unit.end", "{}");
    put(&b, at_s(2), "unit.end", "{}");
    put(&b, at_s(3), "checkpoint", "{}");
    put(&b, at_s(5), "unit.end", "{}");
    put(&h, at_s(3), "vm.start", "{}");
    walk_once(&(struct walk_filter){0});
    expect("a1 b1 h1 a2 b3 ");
    walk_once(&(struct walk_filter){.since_ns = at_s(2), .until_ns = at_s(5)});
    expect("b1 h1 a2 ");
    walk_once(&(struct walk_filter){.stream = "tenant/b"});
    expect("b1 b3 ");
    static const char *const vm[] = {"vm.*", "checkpoint"}, *const every[] = {"*"};
    walk_once(&(struct walk_filter){.events = vm, .n_events = 2});
    expect("h1 b2 ");
    walk_once(&(struct walk_filter){.events = every, .n_events = 1, .stream = "tenant/b"});
    expect("b1 b2 b3 ");
    static const char *const no_end[] = {"!unit.*"}, *const but[] = {"*", "!vm.start"};
    walk_once(&(struct walk_filter){.events = no_end, .n_events = 1});
    expect("h1 ");
    walk_once(&(struct walk_filter){.events = but, .n_events = 2});
    expect("a1 b1 b2 a2 b3 ");
}

static void test_units_are_found_in_their_fields_alone(void **state)
{
    (void)state;
    struct stream a = open_stream("tenant/a");
    put(&a, at_s(1), "unit.end", "{\"unit\":\"sbx_1\"}");
    put(&a, at_s(2), "api.call", "{\"object\":\"sbx_1\"}");
    put(&a, at_s(3), "guest.exec", "{\"args\":[\"sbx_1\"],\"unit\":\"sbx_2\"}");
    put(&a, at_s(4), "unit.end", "{\"unit\":\"sbx_11\"}");
    walk_once(&(struct walk_filter){.unit = "sbx_1"});
    expect("a1 a2 ");
}

static void test_what_is_not_there_is_told(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct walk *w = NULL;
    assert_int_equal(walk_new(dir, &(struct walk_filter){.stream = "tenant/no"}, &w, &err), -1);
    assert_int_equal(err.code, CL_E_NOTFOUND);
    static const char *const bad[] = {"tenant/../host/h", "/etc", "tenant/", "other/a", "tenant"};
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        assert_int_equal(walk_new(dir, &(struct walk_filter){.stream = bad[i]}, &w, &err), -1);
        assert_int_equal(err.code, CL_E_INVALID);
    }
    assert_int_equal(walk_new("/nowhere", &(struct walk_filter){0}, &w, &err), -1);
    assert_int_equal(err.code, CL_E_NOTFOUND);
    struct stream a = open_stream("tenant/a"), b = open_stream("tenant/b");
    put(&a, at_s(1), "unit.end", "{}");
    put(&b, at_s(1), "unit.end", "{}");
    assert_int_equal(walk_new(dir, &(struct walk_filter){.streams_max = 1}, &w, NULL), 0);
    assert_int_equal(walk_all(w, tell, NULL, &err), -1);
    assert_int_equal(err.code, CL_E_TOOBIG);
    walk_free(w);
}

/* A line that is half there is read when it is whole, a stream when it begins. */
static void test_what_comes_later_is_told_once(void **state)
{
    (void)state;
    CL_AUTO(walk_freep) struct walk *w = NULL;
    struct stream a = open_stream("tenant/a"), b;
    struct cl_buf line;
    put(&a, at_s(1), "unit.end", "{}");
    assert_int_equal(walk_new(dir, &(struct walk_filter){0}, &w, NULL), 0);
    assert_int_equal(walk_all(w, tell, NULL, NULL), 0);
    expect("a1 ");
    format(&a, at_s(2), "unit.end", "{}", &line);
    put_bytes(&a, line.data, 50);
    assert_int_equal(walk_all(w, tell, NULL, NULL), 0);
    expect("");
    put_bytes(&a, line.data + 50, line.len - 50);
    cl_buf_fini(&line);
    b = open_stream("tenant/b");
    put(&b, at_s(3), "unit.end", "{}");
    a.file++;
    put(&a, at_s(4), "unit.end", "{}");
    assert_int_equal(walk_all(w, tell, NULL, NULL), 0);
    expect("a2 b1 a3 ");
    assert_int_equal(walk_all(w, tell, NULL, NULL), 0);
    expect("");
}

static void test_damage_is_counted_and_passed_over(void **state)
{
    (void)state;
    CL_AUTO(walk_freep) struct walk *w = NULL;
    struct stream a = open_stream("tenant/a");
    struct cl_buf line;
    put(&a, at_s(1), "unit.end", "{}");
    put_bytes(&a, "no record\n", 10);
    put(&a, at_s(2), "unit.end", "{}");
    format(&a, at_s(3), "unit.end", "{\"unit\":\"sbx_1\"}", &line);
    char *changed = memmem(line.data, line.len, "sbx_1", 5);
    assert_non_null(changed);
    changed[4] = '2';
    put_bytes(&a, line.data, line.len);
    cl_buf_fini(&line);
    char *long_line = cl_zalloc(200000);
    assert_non_null(long_line);
    memset(long_line, 'x', 200000);
    long_line[199999] = '\n';
    put_bytes(&a, long_line, 200000);
    cl_free(long_line);
    put(&a, at_s(4), "unit.end", "{}");
    put_bytes(&a, "torn", 4);
    a.file++;
    put(&a, at_s(5), "unit.end", "{}");
    assert_int_equal(walk_new(dir, &(struct walk_filter){0}, &w, NULL), 0);
    assert_int_equal(walk_all(w, tell, NULL, NULL), 0);
    expect("a1 a2 a4 a5 ");
    assert_int_equal(walk_unreadable(w), 4);
}

/* One record a second over several files, one long one of ten. */
enum { MANY = 20000, A_FILE = 4500 };

static void put_many(struct stream *s)
{
    char fields[800], note[600];
    memset(note, 'n', sizeof note - 1);
    note[sizeof note - 1] = '\0';
    struct cl_buf all;
    cl_buf_init(&all, 64 << 20);
    for (unsigned i = 0; i < MANY; i++) {
        struct cl_buf line;
        (void)snprintf(fields, sizeof fields, "{\"note\":\"%s\",\"unit\":\"sbx_%u\"}",
                       i % 10 ? "" : note, i);
        format(s, at_s(i), "unit.end", fields, &line);
        assert_int_equal(cl_buf_append(&all, line.data, line.len, NULL), 0);
        cl_buf_fini(&line);
        if (i % A_FILE == A_FILE - 1) {
            put_bytes(s, all.data, all.len);
            cl_buf_clear(&all);
            s->file++;
        }
    }
    put_bytes(s, all.data, all.len);
    cl_buf_fini(&all);
}

static void test_a_time_is_found_without_reading_what_is_before(void **state)
{
    (void)state;
    struct stream a = open_stream("tenant/a");
    put_many(&a);
    for (unsigned s = 0; s < MANY; s += 1999) {
        const struct walk_filter f = {.since_ns = at_s(s), .until_ns = at_s(s + 3)};
        CL_AUTO(walk_freep) struct walk *w = NULL;
        char text[64];
        assert_int_equal(walk_new(dir, &f, &w, NULL), 0);
        /* the slack on both sides, and a piece */
        assert_int_equal(walk_step(w, 2 * WALK_SLACK_S * 420 + 2 * 65536, tell, NULL, NULL), 0);
        (void)snprintf(text, sizeof text, "a%u a%u a%u ", s + 1, s + 2, s + 3);
        expect(text);
    }
}

static void test_a_number_is_found_without_reading_what_is_before(void **state)
{
    (void)state;
    struct stream a = open_stream("tenant/a"), b = open_stream("tenant/b");
    put_many(&a);
    put(&b, at_s(MANY), "unit.end", "{}");
    for (unsigned s = 1; s < MANY; s += 1999) {
        const struct walk_place from = {"tenant/a", s};
        const struct walk_filter f = {.from = &from, .n_from = 1, .until_ns = at_s(s + 2)};
        CL_AUTO(walk_freep) struct walk *w = NULL;
        char text[64];
        assert_int_equal(walk_new(dir, &f, &w, NULL), 0);
        /* the slack behind it, and a piece */
        assert_int_equal(walk_step(w, WALK_SLACK_S * 420 + 2 * 65536, tell, NULL, NULL), 0);
        (void)snprintf(text, sizeof text, "a%u a%u a%u ", s, s + 1, s + 2);
        expect(text);
    }
    static const struct walk_place from[] = {{"tenant/a", MANY}, {"tenant/c", 7}};
    walk_once(&(struct walk_filter){.from = from, .n_from = 2});
    expect("a20000 b1 ");
    static const struct walk_place beyond[] = {{"tenant/a", MANY + 1}, {"tenant/b", 0}};
    walk_once(&(struct walk_filter){.from = beyond, .n_from = 2});
    expect("b1 ");
    struct walk *w = NULL;
    const struct walk_filter many = {.from = from, .n_from = 2, .streams_max = 1};
    assert_int_equal(walk_new(dir, &many, &w, NULL), -1);
}

/* Where a line's own words look like a number of its stream. */
static void test_a_number_is_not_taken_from_what_user_code_said(void **state)
{
    (void)state;
    struct stream a = open_stream("tenant/a");
    put(&a, at_s(1), "unit.end", "{\"note\":\"\\\"seq\\\":9,\\\"source\\\":\"}");
    put(&a, at_s(2), "unit.end", "{}");
    static const struct walk_place from[] = {{"tenant/a", 2}};
    walk_once(&(struct walk_filter){.from = from, .n_from = 1});
    expect("a2 ");
}

static void test_a_step_reads_no_more_than_it_may(void **state)
{
    (void)state;
    struct stream a = open_stream("tenant/a");
    put_many(&a);
    CL_AUTO(walk_freep) struct walk *w = NULL;
    size_t steps = 0;
    int more;
    assert_int_equal(walk_new(dir, &(struct walk_filter){0}, &w, NULL), 0);
    do {
        size_t before = n_told;
        more = walk_step(w, 40000, tell, NULL, NULL);
        assert_true(n_told - before <= 40000 / 300 + 2);
        steps++;
    } while (more > 0);
    assert_int_equal(more, 0);
    assert_int_equal(n_told, MANY);
    assert_true(steps > MANY * 300 / 40000);
    n_told = 0;
    cl_buf_clear(&got);
}

static void read_newest(const struct walk_filter *f, size_t n)
{
    CL_AUTO(newest_freep) struct newest *newest = NULL;
    int more;
    assert_int_equal(newest_new(dir, f, n, &newest, NULL), 0);
    do
        more = newest_step(newest, WALK_STEP, NULL);
    while (more > 0);
    assert_int_equal(more, 0);
    do
        more = newest_tell(newest, 1, tell, NULL, NULL);
    while (more > 0);
    assert_int_equal(more, 0);
}

static void test_the_newest_are_found_from_the_end(void **state)
{
    (void)state;
    struct stream a = open_stream("tenant/a"), b = open_stream("tenant/b");
    put_many(&a);
    put(&b, at_s(5), "unit.end", "{\"unit\":\"sbx_old\"}");
    put(&b, at_s(MANY), "unit.end", "{}");
    read_newest(&(struct walk_filter){0}, 3);
    expect("a19999 a20000 b2 ");
    /* far back, and the only one: the whole log is read for it */
    read_newest(&(struct walk_filter){.unit = "sbx_old"}, 3);
    expect("b1 ");
    read_newest(&(struct walk_filter){.unit = "sbx_7"}, 1);
    expect("a8 ");
    read_newest(&(struct walk_filter){.until_ns = at_s(10)}, 2);
    expect("a9 a10 ");
    read_newest(&(struct walk_filter){.stream = "tenant/a"}, NEWEST_MAX);
    assert_int_equal(n_told, NEWEST_MAX);
    n_told = 0;
    cl_buf_clear(&got);
}

static void test_a_sheaf_is_told_by_time(void **state)
{
    (void)state;
    CL_AUTO(sheaf_freep) struct sheaf *s = NULL;
    struct stream a = open_stream("tenant/a");
    struct cl_err err = {0};
    CL_AUTO(walk_freep) struct walk *w = NULL, *again = NULL;
    put(&a, at_s(3), "unit.end", "{}");
    put(&a, at_s(1), "unit.end", "{}"); /* sent again, late */
    put(&a, at_s(3), "unit.end", "{}");
    assert_int_equal(sheaf_new(3, &s, NULL), 0);
    assert_int_equal(walk_new(dir, &(struct walk_filter){0}, &w, NULL), 0);
    assert_int_equal(walk_all(w, sheaf_keep, s, NULL), 0);
    assert_int_equal(sheaf_tell(s, tell, NULL, NULL), 0);
    expect("a2 a1 a3 ");
    assert_int_equal(walk_new(dir, &(struct walk_filter){0}, &again, NULL), 0);
    assert_int_equal(walk_all(again, sheaf_keep, s, &err), -1);
    assert_int_equal(err.code, CL_E_TOOBIG);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_streams_are_merged_by_time),
        TEST(test_units_are_found_in_their_fields_alone),
        TEST(test_what_is_not_there_is_told),
        TEST(test_what_comes_later_is_told_once),
        TEST(test_damage_is_counted_and_passed_over),
        TEST(test_a_time_is_found_without_reading_what_is_before),
        TEST(test_a_number_is_found_without_reading_what_is_before),
        TEST(test_a_number_is_not_taken_from_what_user_code_said),
        TEST(test_a_step_reads_no_more_than_it_may),
        TEST(test_the_newest_are_found_from_the_end),
        TEST(test_a_sheaf_is_told_by_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
