/* tests/unit/cli/test_detect.c - what in the audit log deserves a look, and what does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "trail/detect.h"

static struct detect *d;
static uint64_t seq;

static int begin(void **state)
{
    (void)state;
    seq = 0;
    return detect_new(NULL, &d, NULL);
}

static int end(void **state)
{
    (void)state;
    detect_free(d);
    return 0;
}

/* One record at so many seconds; the finding that it made. */
static const struct finding *feed(int second, const char *event, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static const struct finding *feed(int second, const char *event, const char *fmt, ...)
{
    char ts[40], text[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)snprintf(ts, sizeof ts, "2026-01-02T%02d:%02d:%02d.000000Z", 3 + second / 3600,
                   second / 60 % 60, second % 60);
    json_t *fields = json_loads(text, 0, NULL);
    assert_non_null(fields);
    struct detect_record r = {"tenant/a", ts, event, ++seq, fields};
    const struct finding *f = detect_feed(d, &r);
    json_decref(fields);
    return f;
}

static void test_attacks_on_the_kernel(void **state)
{
    (void)state;
    const struct finding *f = feed(0, "guest.denied", "{\"call\":\"bpf\",\"unit\":\"u\"}");
    assert_non_null(f);
    assert_string_equal(f->name, "kernel-surface");
    assert_int_equal(f->severity, DETECT_HIGH);
    assert_string_equal(f->subject, "u");
    assert_int_equal(f->seq, 1);
    assert_null(feed(9, "guest.denied", "{\"call\":\"i386:kexec_load\",\"unit\":\"u\"}"));
    assert_int_equal(f->count, 2);
    assert_string_equal(f->value, "i386:kexec_load");
    assert_string_equal(f->last, "2026-01-02T03:00:09.000000Z");
    assert_non_null(feed(9, "guest.denied", "{\"call\":\"bpf\",\"unit\":\"v\"}"));
    assert_string_equal(feed(10, "guest.denied", "{\"call\":\"unshare\",\"unit\":\"u\"}")->name,
                        "new-namespace");
    assert_null(feed(11, "guest.denied", "{\"call\":\"settimeofday\",\"unit\":\"u\"}"));
    assert_int_equal(detect_count(d), 3);
}

static void test_a_scan_is_many_targets_within_a_minute(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) /* the same one, again and again */
        assert_null(
            feed(i, "guest.connect", "{\"address\":\"192.0.2.1\",\"port\":443,\"unit\":\"u\"}"));
    for (int i = 0; i < 100; i++) /* many, but slowly */
        assert_null(feed(100 + 4 * i, "guest.connect",
                         "{\"address\":\"192.0.2.1\",\"port\":%d,\"unit\":\"u\"}", i));
    for (int i = 0; i < 19; i++)
        assert_null(feed(600, "net.denied",
                         "{\"address\":\"192.0.2.1\",\"port\":%d,\"unit\":\"w\"}", 1000 + i));
    const struct finding *f =
        feed(601, "net.denied", "{\"address\":\"192.0.2.1\",\"port\":1,\"unit\":\"w\"}");
    assert_non_null(f);
    assert_string_equal(f->name, "port-scan");
    assert_int_equal(f->count, 20);
    for (int i = 0; i < 40; i++) /* its own loopback is nobody else's */
        assert_null(feed(700, "guest.connect",
                         "{\"address\":\"127.0.0.1\",\"port\":%d,\"unit\":\"x\"}", i));
}

static void test_where_credentials_lie(void **state)
{
    (void)state;
    assert_string_equal(
        feed(0, "guest.connect", "{\"address\":\"169.254.169.254\",\"port\":80,\"unit\":\"u\"}")
            ->name,
        "cloud-metadata");
    assert_string_equal(
        feed(0, "net.dns", "{\"name\":\"metadata.google.internal\",\"unit\":\"v\"}")->name,
        "cloud-metadata");
    for (int i = 1; i <= 4; i++)
        assert_null(
            feed(i, "net.denied", "{\"address\":\"10.0.0.%d\",\"port\":22,\"unit\":\"u\"}", i));
    assert_null(feed(5, "net.denied", "{\"address\":\"11.0.0.1\",\"port\":22,\"unit\":\"u\"}"));
    assert_string_equal(
        feed(6, "net.denied", "{\"address\":\"192.168.1.1\",\"port\":22,\"unit\":\"u\"}")->name,
        "private-network");
}

static void test_names_that_carry_something(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++)
        assert_null(feed(i, "net.dns", "{\"name\":\"www%d.example.org\",\"unit\":\"u\"}", i));
    for (int i = 0; i < 19; i++)
        assert_null(feed(40, "net.dns", "{\"name\":\"%024d.a.b.example.org\",\"unit\":\"u\"}", i));
    const struct finding *f =
        feed(41, "net.dns", "{\"name\":\"%024d.c.example.org\",\"unit\":\"u\"}", 99);
    assert_non_null(f);
    assert_string_equal(f->name, "dns-tunnel");
    assert_string_equal(f->subject, "u example.org");
}

static void test_programs_that_were_brought_along(void **state)
{
    (void)state;
    assert_null(feed(0, "guest.write", "{\"path\":\"/tmp/a\",\"created\":true,\"unit\":\"u\"}"));
    assert_null(feed(0, "guest.write", "{\"path\":\"/bin/sh\",\"created\":false,\"unit\":\"u\"}"));
    assert_null(feed(1, "guest.exec", "{\"path\":\"/bin/sh\",\"unit\":\"u\"}"));
    assert_null(feed(1, "guest.exec", "{\"path\":\"/tmp/a\",\"unit\":\"v\"}"));
    assert_string_equal(feed(2, "guest.exec", "{\"path\":\"/tmp/a\",\"unit\":\"u\"}")->name,
                        "dropped-program");
}

static void test_another_name_hides_no_program(void **state)
{
    (void)state;
    assert_null(feed(0, "guest.write", "{\"path\":\"/tmp/a\",\"created\":true,\"unit\":\"u\"}"));
    assert_null(feed(0, "guest.rename", "{\"path\":\"/tmp/a\",\"to\":\"/tmp/b\",\"unit\":\"u\"}"));
    assert_null(feed(0, "guest.rename", "{\"path\":\"/bin/x\",\"to\":\"/bin/y\",\"unit\":\"u\"}"));
    assert_null(feed(1, "guest.exec", "{\"path\":\"/bin/y\",\"unit\":\"u\"}"));
    assert_string_equal(feed(2, "guest.exec", "{\"path\":\"/tmp/b\",\"unit\":\"u\"}")->name,
                        "dropped-program");
}

static void test_files_that_get_the_same_ending(void **state)
{
    (void)state;
    static const char row[] = "{\"path\":\"/home/f%d\",\"to\":\"/home/%s%d%s\",\"unit\":\"u\"}";
    for (int i = 0; i < 40; i++) {
        assert_null(feed(0, "guest.rename", row, i, "f", i, "/.x")); /* into a folder */
        assert_null(feed(0, "guest.rename", row, i, "g", i, ".x"));  /* another name */
        assert_null(feed(0, "guest.rename", row, 1, "f", 1, ".x"));  /* one file */
        assert_null(feed(100 * i, "guest.rename", row, i, "f", i, ".slow"));
    }
    for (int i = 0; i < 19; i++) {
        assert_null(feed(5000, "guest.rename", row, i, "f", i, ".locked"));
        assert_null(feed(5000, "guest.rename", row, i + 100, "f", i + 100, ".other"));
    }
    const struct finding *f = feed(5010, "guest.rename", row, 19, "f", 19, ".locked");
    assert_non_null(f);
    assert_string_equal(f->name, "same-ending");
    assert_string_equal(f->subject, "u .locked");
}

static void test_credentials_that_are_read_and_may_leave(void **state)
{
    (void)state;
    static const char *const harmless[] = {"/etc/hosts",   "/home/user/.env.example",    "/.envrc",
                                           "/tmp/xid_rsa", "/home/user/.ssh/id_rsa.pub", ""};
    for (size_t i = 0; i < CL_COUNT(harmless); i++)
        assert_null(feed(0, "guest.read", "{\"path\":\"%s\",\"unit\":\"u\"}", harmless[i]));
    static const char flow[] = "{\"address\":\"192.0.2.1\",\"name\":\"a.example\",\"port\":443,"
                               "\"unit\":\"%s\"}";
    assert_null(feed(1, "net.open", flow, "u"));
    const struct finding *f =
        feed(2, "guest.read", "{\"path\":\"/home/user/.aws/credentials\",\"unit\":\"u\"}");
    assert_non_null(f);
    assert_string_equal(f->name, "credentials-read");
    assert_null(feed(3, "net.open", flow, "another"));
    f = feed(3, "net.open", flow, "u");
    assert_non_null(f);
    assert_string_equal(f->name, "credentials-out");
    assert_string_equal(f->value, "a.example 192.0.2.1 port 443");
    assert_non_null(
        feed(4, "guest.read", "{\"path\":\"n/.ssh/id_rsa\",\"unit\":\"v\"}")); /* its end */
}

static void test_what_is_not_seen_is_told(void **state)
{
    (void)state;
    assert_null(feed(0, "guest.count",
                     "{\"seen\":9,\"recorded\":9,\"over\":0,\"lost\":0,\"missing\":0,"
                     "\"unit\":\"u\"}"));
    assert_string_equal(
        feed(0, "net.count", "{\"seen\":9,\"recorded\":8,\"over\":1,\"missing\":0,\"unit\":\"u\"}")
            ->name,
        "blinded");
    assert_null(feed(0, "vm.start", "{\"unit\":\"u\"}"));
    assert_string_equal(feed(0, "vm.start", "{\"unit\":\"u\",\"unwatched\":\"old\"}")->name,
                        "not-watched");
    assert_string_equal(
        feed(0, "gap", "{\"count\":3,\"producer\":\"p\",\"reason\":\"disk\"}")->name, "log-gap");
    assert_string_equal(feed(0, "recovered", "{\"bytes\":3,\"last_seq\":7}")->name,
                        "log-recovered");
}

static void test_credentials_that_are_tried(void **state)
{
    (void)state;
    for (int i = 0; i < 9; i++)
        assert_null(feed(i, "key.refused",
                         "{\"method\":\"m\",\"peer\":\"192.0.2.7:%d\",\"reason\":\"r\"}", 100 + i));
    const struct finding *f =
        feed(10, "key.refused", "{\"method\":\"m\",\"peer\":\"192.0.2.7:9999\",\"reason\":\"r\"}");
    assert_non_null(f);
    assert_string_equal(f->subject, "192.0.2.7");
    assert_string_equal(f->name, "key-guessing");
    for (int i = 0; i < 4; i++)
        assert_null(feed(i, "scope.refused", "{\"key\":\"k\",\"method\":\"m\",\"scope\":\"s\"}"));
    assert_string_equal(
        feed(5, "scope.refused", "{\"key\":\"k\",\"method\":\"m\",\"scope\":\"s\"}")->name,
        "scope-probing");
    for (int i = 0; i < 19; i++)
        assert_null(feed(i, "api.call", "{\"code\":\"NOTFOUND\",\"key\":\"k\",\"method\":\"m\"}"));
    assert_null(feed(20, "api.call", "{\"code\":\"OK\",\"key\":\"k\",\"method\":\"m\"}"));
    assert_string_equal(
        feed(21, "api.call", "{\"code\":\"NOTFOUND\",\"key\":\"k\",\"method\":\"m\"}")->name,
        "id-probing");
}

static void test_what_has_no_room_is_counted(void **state)
{
    (void)state;
    for (int i = 0; i < DETECT_SUBJECTS + 10; i++)
        (void)feed(0, "guest.trace", "{\"comm\":\"x\",\"unit\":\"u%d\"}", i);
    assert_int_equal(detect_count(d), DETECT_SUBJECTS);
    assert_int_equal(detect_forgotten(d), 10);
}

static const struct finding *scan(int second, const char *unit)
{
    const struct finding *f = NULL;
    for (int i = 0; i < 20; i++)
        f = feed(second, "guest.connect", "{\"address\":\"192.0.2.1\",\"port\":%d,\"unit\":\"%s\"}",
                 i, unit);
    return f;
}

static void test_who_follows_for_long_is_not_blinded(void **state)
{
    (void)state;
    detect_follow(d);
    for (int i = 0; i < DETECT_SUBJECTS + 100; i++) /* in each a connection, and that was it */
        assert_null(feed(i / 100, "guest.connect",
                         "{\"address\":\"192.0.2.1\",\"port\":443,\"unit\":\"u%d\"}", i));
    assert_non_null(scan(700, "new"));
    assert_int_equal(detect_forgotten(d), 0);
    for (int i = 0; i < DETECT_SUBJECTS; i++) /* at once: somebody's must go */
        (void)feed(701, "guest.connect",
                   "{\"address\":\"192.0.2.1\",\"port\":443,\"unit\":\"v%d\"}", i);
    assert_true(detect_forgotten(d) > 0);
    assert_non_null(scan(702, "newer"));
    assert_int_equal(detect_count(d), 0);
}

static void test_what_comes_again_is_told_again(void **state)
{
    (void)state;
    detect_follow(d);
    assert_non_null(scan(0, "u"));
    assert_null(scan(600, "u"));
    assert_null(scan(600 + DETECT_QUIET_S, "u"));
    const struct finding *f = scan(2 * (600 + DETECT_QUIET_S), "u");
    assert_non_null(f);
    assert_int_equal(f->count, 20);
}

static void make_files(const char *unit, int n)
{
    for (int i = 0; i < n; i++)
        (void)feed(0, "guest.write", "{\"created\":true,\"path\":\"/%d\",\"unit\":\"%s\"}", i,
                   unit);
}

static const struct finding *run_file(const char *unit, int i)
{
    return feed(1, "guest.exec", "{\"path\":\"/%d\",\"unit\":\"%s\"}", i, unit);
}

static void test_files_of_one_do_not_hide_those_of_another(void **state)
{
    (void)state;
    char unit[16];
    make_files("quiet", 1);
    make_files("busy", 2 * DETECT_FILES);
    assert_int_equal(detect_forgotten(d), 2 * DETECT_FILES - DETECT_FILES_OF_UNIT);
    assert_non_null(run_file("quiet", 0));
    assert_null(run_file("busy", 0)); /* its own oldest made room */
    assert_non_null(run_file("busy", 2 * DETECT_FILES - 1));
    for (int i = 0; i < 40; i++) { /* one after the other */
        (void)snprintf(unit, sizeof unit, "u%d", i);
        make_files(unit, DETECT_FILES_OF_UNIT);
        (void)feed(0, "unit.end", "{\"unit\":\"%s\"}", unit);
    }
    assert_int_equal(detect_forgotten(d), 2 * DETECT_FILES - DETECT_FILES_OF_UNIT);
    for (int i = 0; i < 40; i++) { /* at once: who made nothing for longest loses his */
        (void)snprintf(unit, sizeof unit, "v%d", i);
        make_files(unit, DETECT_FILES_OF_UNIT);
    }
    assert_null(run_file("busy", 2 * DETECT_FILES - 2));
    assert_non_null(run_file("v39", 0));
}

static void test_fields_of_any_kind_do_no_harm(void **state)
{
    (void)state;
    static const char *const events[] = {
        "guest.denied", "guest.connect",  "net.dns", "guest.write",  "guest.exec",
        "guest.count",  "key.refused",    "gap",     "guest.rename", "guest.remove",
        "guest.read",   "guest.truncate", "net.open"};
    for (size_t i = 0; i < CL_COUNT(events); i++) {
        (void)feed(0, events[i], "{}");
        (void)feed(0, events[i],
                   "{\"call\":1,\"address\":[],\"name\":{},\"path\":true,\"unit\":7,\"peer\":null,"
                   "\"seen\":\"x\",\"over\":-1}");
    }
    enum detect_severity s;
    assert_int_equal(detect_severity_parse("high", &s, NULL), 0);
    assert_int_equal(s, DETECT_HIGH);
    assert_int_equal(detect_severity_parse("", &s, NULL), -1);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_attacks_on_the_kernel),
        TEST(test_a_scan_is_many_targets_within_a_minute),
        TEST(test_where_credentials_lie),
        TEST(test_names_that_carry_something),
        TEST(test_programs_that_were_brought_along),
        TEST(test_another_name_hides_no_program),
        TEST(test_files_that_get_the_same_ending),
        TEST(test_credentials_that_are_read_and_may_leave),
        TEST(test_what_is_not_seen_is_told),
        TEST(test_credentials_that_are_tried),
        TEST(test_what_has_no_room_is_counted),
        TEST(test_who_follows_for_long_is_not_blinded),
        TEST(test_what_comes_again_is_told_again),
        TEST(test_files_of_one_do_not_hide_those_of_another),
        TEST(test_fields_of_any_kind_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
