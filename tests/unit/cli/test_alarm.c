/* tests/unit/cli/test_alarm.c - what a program is told of findings, and what it is not told again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fs.h"
#include "cli/alarm.h"

static char dir[] = "/tmp/cloche-alarm.XXXXXX", path[64], out[64], script[256];
static char shell[] = "/bin/sh", dash_c[] = "-c";
static char *program[] = {shell, dash_c, script, NULL};
static struct alarm *a;

/* The program notes what it gets, and ends with the first line of DIR/status, which it removes. */
static int begin(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/cloche-alarm.XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(path, sizeof path, "%s/state", dir);
    (void)snprintf(out, sizeof out, "%s/out", dir);
    (void)snprintf(script, sizeof script,
                   "cd %s; echo \"$CLOCHE_SEVERITY $CLOCHE_FINDING $(cat)\" >> out; "
                   "s=$(head -n 1 status 2>/dev/null || echo 0); sed -i 1d status 2>/dev/null; "
                   "exit ${s:-0}",
                   dir);
    return 0;
}

static int end(void **state)
{
    (void)state;
    alarm_close(a);
    a = NULL;
    (void)unlink(path);
    (void)unlink(out);
    (void)snprintf(out, sizeof out, "%s/status", dir);
    (void)unlink(out);
    return rmdir(dir);
}

static void open_alarm(void)
{
    struct cl_err err = {0};
    alarm_close(a);
    a = NULL;
    if (alarm_open(path, "2026-01-02T03:00:00.000000Z", program, &a, &err) < 0)
        fail_msg("%s", err.text);
}

static void raise_one(const char *stream, uint64_t seq, const char *ts)
{
    struct finding f = {.name = "port-scan", .severity = DETECT_MEDIUM, .seq = seq};
    struct detect_record r = {stream, ts, "guest.connect", seq, NULL};
    (void)snprintf(f.subject, sizeof f.subject, "sbx_1");
    (void)snprintf(f.stream, sizeof f.stream, "%s", stream);
    (void)snprintf(f.first, sizeof f.first, "%s", ts);
    json_t *row = json_pack("{s:I}", "seq", (json_int_t)seq);
    alarm_see(a, &r);
    assert_int_equal(alarm_raise(a, &f, row, NULL), 0);
    json_decref(row);
}

static void expect_told(const char *lines)
{
    struct cl_buf text;
    cl_buf_init(&text, 65536);
    (void)!cl_file_read(AT_FDCWD, out, &text, NULL);
    assert_int_equal(text.len, strlen(lines));
    if (text.len)
        assert_memory_equal(text.data, lines, text.len);
    cl_buf_fini(&text);
}

#define T0 "2026-01-02T02:59:59.000000Z"
#define T1 "2026-01-02T03:00:01.000000Z"
#define T2 "2026-01-02T05:00:00.000000Z"
#define LINE(n) "medium port-scan {\"seq\":" #n "}\n"

static void test_each_is_told_once_over_restarts(void **state)
{
    (void)state;
    open_alarm();
    assert_int_equal(alarm_read_from(a), cl_rfc3339_ns("2026-01-02T02:00:00.000000Z"));
    raise_one("tenant/a", 1, T0); /* before it was asked for */
    raise_one("tenant/a", 2, T1);
    raise_one("tenant/a", 2, T1);
    expect_told(LINE(2));
    open_alarm(); /* the one before died in the middle */
    raise_one("tenant/a", 2, T1);
    raise_one("tenant/b", 1, T1);
    expect_told(LINE(2) LINE(1));
    assert_int_equal(alarm_settle(a, NULL), 0);
    raise_one("tenant/a", 9, T2);
    assert_int_equal(alarm_settle(a, NULL), 0);
    open_alarm();
    assert_int_equal(alarm_read_from(a), cl_rfc3339_ns("2026-01-02T04:00:00.000000Z"));
    raise_one("tenant/a", 9, T2); /* read again */
    raise_one("tenant/b", 1, T1);
    raise_one("tenant/a", 10, T1); /* late, and new */
    raise_one("tenant/b", 2, T2);
    expect_told(LINE(2) LINE(1) LINE(9) LINE(10) LINE(2));
}

static void test_a_program_that_fails_is_run_again(void **state)
{
    (void)state;
    char status[64];
    (void)snprintf(status, sizeof status, "%s/status", dir);
    assert_int_equal(cl_file_write(status, "3\n0\n", 4, 0644, NULL), 0);
    open_alarm();
    raise_one("tenant/a", 5, T1);
    expect_told(LINE(5) LINE(5));
}

static void test_a_state_that_is_none_is_not_overwritten(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "{}",
        "[]",
        "{\"version\":2,\"since\":\"" T1 "\",\"at\":\"" T1 "\",\"seen\":{},\"told\":{}}",
        "{\"version\":1,\"since\":\"x\",\"at\":\"" T1 "\",\"seen\":{},\"told\":{}}",
        "{\"version\":1,\"since\":\"" T1 "\",\"at\":\"" T1 "\",\"seen\":[],\"told\":{}}"};
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        struct cl_err err = {0};
        struct cl_buf text;
        assert_int_equal(cl_file_write(path, bad[i], strlen(bad[i]), 0600, NULL), 0);
        assert_int_equal(alarm_open(path, T1, program, &a, &err), -1);
        assert_non_null(strstr(err.text, path));
        cl_buf_init(&text, 65536);
        assert_int_equal(cl_file_read(AT_FDCWD, path, &text, NULL), 0);
        assert_int_equal(text.len, strlen(bad[i]));
        cl_buf_fini(&text);
    }
    struct cl_err err = {0};
    assert_int_equal(alarm_open("/nowhere/state", T1, program, &a, &err), -1);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_each_is_told_once_over_restarts),
        TEST(test_a_program_that_fails_is_run_again),
        TEST(test_a_state_that_is_none_is_not_overwritten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
