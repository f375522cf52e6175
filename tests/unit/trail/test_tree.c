/* tests/unit/cli/test_tree.c - records of one unit, as a tree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "trail/tree.h"

#define TS "2026-01-02T03:04:05.123456Z"
#define AT "03:04:05.123  "

struct row {
    const char *event, *fields;
};

static struct tree *grow(const struct row *rows, size_t n)
{
    struct tree *t;
    assert_int_equal(tree_new("sbx_1", &t, NULL), 0);
    for (size_t i = 0; i < n; i++) {
        json_t *fields = json_loads(rows[i].fields, 0, NULL);
        assert_non_null(fields);
        tree_add(t, TS, rows[i].event, fields);
        json_decref(fields);
    }
    return t;
}

static void shows(const struct row *rows, size_t n, const char *want)
{
    char *text = NULL;
    size_t size = 0;
    struct tree *t = grow(rows, n);
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    tree_print(t, false, f);
    assert_int_equal(fclose(f), 0);
    assert_string_equal(text, want);
    free(text);
    tree_free(t);
}
#define SHOWS(rows, want) shows(rows, CL_COUNT(rows), want)

static void test_processes_stand_under_who_made_them(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"unit.admit", "{\"kind\":\"sandbox\",\"template\":\"python\",\"unit\":\"sbx_1\"}"},
        {"guest.exec",
         "{\"argv\":[\"sh\"],\"exec\":\"e1\",\"pid\":100,\"parent\":99,\"uid\":1000}"},
        {"exec.start", "{\"exec\":\"e1\",\"argv\":[\"sh\",\"-c\",\"x\"]}"},
        {"guest.exec", "{\"argv\":[\"ls\"],\"exec\":\"e1\",\"pid\":101,\"parent\":100,\"uid\":0}"},
        {"guest.write", "{\"path\":\"/a\",\"created\":true,\"pid\":101,\"parent\":100}"},
        {"guest.connect", "{\"address\":\"192.0.2.1\",\"port\":80,\"pid\":102,\"parent\":101}"},
        {"guest.connect", "{\"address\":\"192.0.2.1\",\"port\":80,\"pid\":103,\"parent\":101}"},
        {"guest.rename", "{\"path\":\"/a\",\"to\":\"/c\",\"pid\":101,\"parent\":100}"},
        {"guest.remove", "{\"path\":\"/d\",\"folder\":true,\"pid\":101,\"parent\":100}"},
        {"guest.read", "{\"path\":\"/e\",\"pid\":101,\"parent\":100}"},
        {"guest.truncate", "{\"path\":\"/e\",\"size\":12,\"pid\":101,\"parent\":100}"},
        {"guest.remove", "{\"path\":\"/c\",\"folder\":false,\"pid\":101,\"parent\":100}"},
        {"guest.denied", "{\"call\":\"unshare\",\"pid\":100,\"parent\":99}"},
        {"exec.end", "{\"exec\":\"e1\",\"outcome\":\"EXITED\",\"exit\":7}"},
        {"guest.write", "{\"path\":\"/b\",\"pid\":200,\"parent\":1,\"context\":\"python\"}"},
    };
    SHOWS(rows, AT "sbx_1  sandbox of python\n" AT
                   "|- exec e1: sh -c x  [EXITED 7, stdout 0 B, stderr 0 B]\n" AT
                   "|  `- 100  sh\n" AT "|     |- 101  ls  (root)\n" AT
                   "|     |  |- created /a\n" AT "|     |  |- connect 192.0.2.1 port 80  x 2\n" AT
                   "|     |  |- moved /a to /c\n" AT "|     |  |- removed folder /d\n" AT
                   "|     |  |- read /e\n" AT "|     |  |- cut /e to 12 bytes\n" AT
                   "|     |  `- removed /c\n" AT "|     `- denied: system call unshare\n" AT
                   "`- code context python\n" AT "   `- wrote /b\n");
}

static void test_of_system_calls_the_newest_sums(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"exec.start", "{\"exec\":\"e1\",\"argv\":[\"x\"]}"},
        {"guest.calls", "{\"exec\":\"e1\",\"calls\":[\"read=5\"],\"total\":5,\"number\":1}"},
        {"guest.calls",
         "{\"exec\":\"e1\",\"calls\":[\"read=7\",\"write=3\",\"close=20\",\"brk=3\"],"
         "\"total\":33,\"number\":2}"},
        {"guest.calls",
         "{\"context\":\"python\",\"calls\":[\"a=1\",\"b=1\",\"c=1\",\"d=1\",\"e=1\","
         "\"f=1\",\"g=1\",\"h=1\",\"i=9\",7,\"none\"],\"total\":17,\"number\":3}"},
    };
    SHOWS(rows, "              sbx_1\n" AT "|- exec e1: x\n" AT
                "|  `- 33 system calls: close 20, read 7, brk 3, write 3\n" AT
                "`- code context python\n" AT
                "   `- 17 system calls: i 9, a 1, b 1, c 1, d 1, e 1, f 1, g 1, ...\n");
}

static void test_a_copy_says_of_what(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"unit.admit", "{\"kind\":\"sandbox\",\"template\":\"python\",\"unit\":\"sbx_1\","
                       "\"fork_of\":\"sbx_0\"}"},
        {"guest.exec", "{\"argv\":[\"sh\"],\"pid\":100,\"parent\":99,\"uid\":1000}"},
    };
    SHOWS(rows, AT "sbx_1  sandbox of python, a copy of sbx_0\n" AT "`- processes\n" AT
                   "   `- 100  sh\n");
}

static void test_ends_are_told_where_it_began(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"net.dns", "{\"name\":\"a.org\"}"},
        {"net.open",
         "{\"flow\":1,\"protocol\":\"tcp\",\"name\":\"a.org\",\"address\":\"192.0.2.1\","
         "\"port\":443}"},
        {"port.open", "{\"connection\":\"c\",\"port\":80,\"by\":\"k\",\"link\":true}"},
        {"net.close", "{\"flow\":1,\"end\":\"closed\",\"sent_bytes\":1024,\"received_bytes\":2}"},
        {"port.close", "{\"connection\":\"c\",\"end\":\"left\",\"sent_bytes\":1,"
                       "\"received_bytes\":0}"},
        {"guest.count", "{\"seen\":9,\"recorded\":7,\"over\":2,\"lost\":0,\"missing\":0}"},
        {"unit.end", "{\"outcome\":\"CANCELLED\",\"reason\":\"REQUESTED\"}"},
        {"unit.end", "{\"outcome\":\"CANCELLED\",\"reason\":\"REQUESTED\",\"recovered\":1}"},
        {"some.event", "{}"},
    };
    SHOWS(rows, "              sbx_1\n" AT "|- network\n" AT "|  |- name a.org\n" AT
                "|  `- tcp a.org 192.0.2.1 port 443  [closed, sent 1 KiB, received 2 B]\n" AT
                "|- ports\n" AT "|  `- port 80 by a link of k  [left, sent 1 B, received 0 B]\n" AT
                "|- user code: 9 seen, 7 recorded, 2 NOT (over the rate 2, lost 0, missing 0)\n" AT
                "|- end CANCELLED, REQUESTED\n" AT
                "`- end CANCELLED, REQUESTED (told again: a scheduler had died)\n");
}

static size_t lines_of(const struct tree *t, bool all, const char *word)
{
    char *text = NULL;
    size_t size = 0, lines = 0;
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    tree_print(t, all, f);
    assert_int_equal(fclose(f), 0);
    for (const char *s = text; (s = strstr(s, word)) != NULL; s++)
        lines++;
    free(text);
    return lines;
}

static void test_files_in_masses_hide_nothing_else(void **state)
{
    (void)state;
    struct tree *t;
    assert_int_equal(tree_new("sbx_1", &t, NULL), 0);
    for (int i = 0; i < 100; i++) {
        json_t *fields = json_pack("{s:i, s:o}", "pid", 7, "path", json_sprintf("/f%d", i));
        tree_add(t, TS, "guest.read", fields);
        if (i < 12)
            tree_add(t, TS, "guest.write", fields);
        if (i % 10 == 0)
            tree_add(t, TS, "guest.exec", fields);
        json_decref(fields);
    }
    /* before the first of ten programs one file, after each but the last ten */
    assert_int_equal(lines_of(t, false, "- read"), 100);
    for (int i = 0; i < 90; i++) {
        json_t *fields = json_pack("{s:i, s:o}", "pid", 7, "path", json_sprintf("/g%d", i));
        tree_add(t, TS, "guest.read", fields);
        json_decref(fields);
    }
    assert_int_equal(lines_of(t, false, "- read"), 1 + 9 * 10 + 12);
    assert_int_equal(lines_of(t, false, "more files read"), 1);
    assert_int_equal(lines_of(t, false, "... and 87 more files read (--all)"), 1);
    assert_int_equal(lines_of(t, false, "- wrote"), 12);
    assert_int_equal(lines_of(t, false, "more files written"), 0);
    assert_int_equal(lines_of(t, true, "- read"), 190);
    tree_free(t);
}

static void test_what_is_told_again_stands_once(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"guest.write", "{\"path\":\"/a\",\"number\":1,\"pid\":1}"},
        {"guest.write", "{\"path\":\"/a\",\"number\":1,\"pid\":1,\"again\":true}"},
        {"guest.write", "{\"path\":\"/a\",\"number\":2,\"pid\":1,\"again\":true}"},
        {"net.dns", "{\"name\":\"b\",\"number\":1,\"again\":true}"},
        {"net.dns", "{\"name\":\"b\",\"number\":1,\"again\":true}"}};
    SHOWS(rows, "              sbx_1\n" AT "|- processes\n" AT "|  `- wrote /a  x 2\n" AT
                "`- network\n" AT "   `- name b\n");
}

static void test_a_terminal_is_not_driven(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"guest.write", "{\"path\":\"/\\u001b[31m\\u009b\\u007f\\n\\u00fc\",\"pid\":1}"}};
    SHOWS(rows, "              sbx_1\n" AT "`- processes\n" AT "   `- wrote /?[31m????\u00fc\n");
}

static void test_a_chain_without_an_end_is_cut(void **state)
{
    (void)state;
    struct tree *t;
    enum { CHAIN = 20000 };
    char *text = NULL;
    size_t size = 0, lines = 0;
    assert_int_equal(tree_new("sbx_1", &t, NULL), 0);
    for (int i = 1; i <= CHAIN; i++) {
        json_t *fields = json_pack("{s:i, s:i, s:[s]}", "pid", i + 1, "parent", i, "argv", "x");
        tree_add(t, TS, "guest.exec", fields);
        json_decref(fields);
    }
    assert_int_equal(tree_records(t), CHAIN);
    FILE *f = open_memstream(&text, &size);
    tree_print(t, false, f);
    (void)fclose(f);
    for (const char *s = text; *s; s++)
        lines += *s == '\n';
    assert_true(lines > CHAIN);
    free(text);
    text = json_dumps(tree_root(t), 0);
    assert_non_null(text);
    free(text);
    tree_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes_stand_under_who_made_them),
        cmocka_unit_test(test_of_system_calls_the_newest_sums),
        cmocka_unit_test(test_a_copy_says_of_what),
        cmocka_unit_test(test_ends_are_told_where_it_began),
        cmocka_unit_test(test_files_in_masses_hide_nothing_else),
        cmocka_unit_test(test_what_is_told_again_stands_once),
        cmocka_unit_test(test_a_terminal_is_not_driven),
        cmocka_unit_test(test_a_chain_without_an_end_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
