/* tests/unit/trail/test_rules.c - rules of the operator's own: what is one, and what matches it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "trail/rules.h"

#define RULE "\"name\":\"r\",\"severity\":\"low\",\"event\":\"net.dns\",\"what\":\"w\""

static struct rules *parse(const char *text)
{
    struct rules *rules = NULL;
    struct cl_err err = {0};
    if (rules_parse("f", text, strlen(text), &rules, &err) < 0)
        fail_msg("%s", err.text);
    return rules;
}

static void expect_bad(const char *text, const char *said)
{
    struct rules *rules = NULL;
    struct cl_err err = {0};
    assert_int_equal(rules_parse("f", text, strlen(text), &rules, &err), -1);
    assert_null(rules);
    if (!strstr(err.text, said))
        fail_msg("'%s' says '%s', not '%s'", text, err.text, said);
}

static void test_what_is_wrong_is_named(void **state)
{
    (void)state;
    expect_bad("", "line 1");
    expect_bad("[]", "{\"rules\": [...]}");
    expect_bad("{\"rules\":{}}", "{\"rules\": [...]}");
    expect_bad("{\"rules\":[],\"more\":1}", "nothing else");
    expect_bad("{\"rules\":[1]}", "rule 1 has no name");
    expect_bad("{\"rules\":[{\"name\":\"r\"}]}", "'severity' is missing");
    expect_bad("{\"rules\":[{" RULE ",\"wher\":{}}]}", "'wher' is no part");
    expect_bad("{\"rules\":[{" RULE "},{" RULE "}]}", "another rule");
    expect_bad("{\"rules\":[{\"name\":\"port-scan\",\"severity\":\"low\",\"event\":\"net.dns\","
               "\"what\":\"w\"}]}",
               "a detection of Cloche");
    expect_bad("{\"rules\":[{\"name\":\"R r\",\"severity\":\"low\"}]}", "small letters");
    expect_bad("{\"rules\":[{\"name\":\"r\",\"severity\":\"dire\",\"event\":\"net.dns\",\"what\":"
               "\"w\"}]}",
               "low, medium or high");
    expect_bad("{\"rules\":[{\"name\":\"r\",\"severity\":\"low\",\"event\":\"net.dn\",\"what\":"
               "\"w\"}]}",
               "no event 'net.dn'");
    expect_bad("{\"rules\":[{" RULE ",\"where\":{\"nam\":\"x\"}}]}", "no field 'nam'; it has");
    expect_bad("{\"rules\":[{" RULE ",\"where\":{\"name\":[]}}]}", "1 to 64 patterns");
    expect_bad("{\"rules\":[{" RULE ",\"where\":{\"name\":[1]}}]}", "a pattern is a text");
    expect_bad("{\"rules\":[{" RULE ",\"where\":[]}]}", "an object");
    expect_bad("{\"rules\":[{" RULE ",\"subject\":\"x\"}]}", "no field 'x'");
    expect_bad("{\"rules\":[{" RULE ",\"of\":2}]}", "'within_s'");
    expect_bad("{\"rules\":[{" RULE ",\"of\":33,\"within_s\":9}]}", "up to 32");
    expect_bad("{\"rules\":[{" RULE ",\"of\":0}]}", "1 to 32");
    expect_bad("{\"rules\":[{" RULE ",\"of\":2,\"within_s\":3601}]}", "up to 3600");
    expect_bad(
        "{\"rules\":[{\"name\":\"r\",\"severity\":\"low\",\"event\":\"key.refused\",\"what\":"
        "\"w\"}]}",
        "'subject' is missing"); /* it has no unit */
}

/* Does a rule over these patterns take a name? */
static bool takes(const char *patterns, const char *name)
{
    char text[256], subject[DETECT_SUBJECT], value[DETECT_VALUE];
    (void)snprintf(text, sizeof text, "{\"rules\":[{" RULE ",\"where\":{\"name\":%s}}]}", patterns);
    struct rules *rules = parse(text);
    json_t *fields = json_pack("{s:s, s:s}", "name", name, "unit", "u");
    const struct detect_record r = {"tenant/a", "2026-01-02T03:04:05.000000Z", "net.dns", 1,
                                    fields};
    bool takes = rules_match(rules, 0, &r, subject, value);
    if (takes) {
        assert_string_equal(subject, "u");
        assert_string_equal(value, name);
    }
    json_decref(fields);
    rules_free(rules);
    return takes;
}

static void test_patterns(void **state)
{
    (void)state;
    assert_true(takes("\"a.org\"", "a.org"));
    assert_false(takes("\"a.org\"", "b.a.org"));
    assert_true(takes("\"*.org\"", "b.a.org"));
    assert_false(takes("\"*.org\"", "a.org.x"));
    assert_true(takes("\"*a?o*\"", "xxab.aco"));
    assert_true(takes("\"*\"", ""));
    assert_false(takes("\"?\"", ""));
    assert_true(takes("[\"x\", \"y*\"]", "yes"));
    assert_false(takes("[\"x\", \"y*\"]", "no"));
    char long_name[4000]; /* steps, not centuries */
    memset(long_name, 'a', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    assert_false(takes("\"*a*a*a*a*a*a*a*a*a*a*a*a*b\"", long_name));
}

static const struct finding *feed(struct detect *d, int second, const char *event, json_t *fields)
{
    char ts[40];
    static uint64_t seq;
    (void)snprintf(ts, sizeof ts, "2026-01-02T03:00:%02d.000000Z", second);
    const struct detect_record r = {"tenant/a", ts, event, ++seq, fields};
    const struct finding *f = detect_feed(d, &r);
    json_decref(fields);
    return f;
}

static void test_a_finding_of_ones_own(void **state)
{
    (void)state;
    struct detect *d;
    struct rules *rules =
        parse("{\"rules\":[{\"name\":\"killer\",\"severity\":\"high\",\"event\":\"exec.signal\","
              "\"where\":"
              "{\"signal\":\"9\"},\"subject\":\"by\",\"value\":\"unit\",\"of\":3,\"within_s\":10,"
              "\"what\":"
              "\"kills\",\"then\":\"ask\",\"technique\":\"T1489\"},{\"name\":\"shells\","
              "\"severity\":\"low\","
              "\"event\":\"exec.start\",\"where\":{\"argv\":\"sh -c *curl*\"},\"what\":\"w\"}]}");
    assert_int_equal(detect_new(rules, &d, NULL), 0);
#define KILL(by, unit, n) json_pack("{s:s, s:s, s:i}", "by", by, "unit", unit, "signal", n)
    assert_null(feed(d, 0, "exec.signal", KILL("k", "a", 9)));
    assert_null(feed(d, 1, "exec.signal", KILL("k", "b", 9)));
    assert_null(feed(d, 1, "exec.signal", KILL("k", "b", 9)));
    assert_null(feed(d, 1, "exec.signal", KILL("k", "c", 15)));
    assert_null(feed(d, 1, "exec.signal", KILL("other", "c", 9)));
    assert_null(feed(d, 12, "exec.signal", KILL("k", "c", 9))); /* those before are too old */
    assert_null(feed(d, 13, "exec.signal", KILL("k", "d", 9)));
    const struct finding *f = feed(d, 14, "exec.signal", KILL("k", "e", 9));
    assert_non_null(f);
    assert_string_equal(f->name, "killer");
    assert_string_equal(f->subject, "k");
    assert_string_equal(f->value, "e");
    assert_string_equal(f->then, "ask");
    assert_int_equal(f->severity, DETECT_HIGH);
    f = feed(d, 20, "exec.start",
             json_pack("{s:s, s:[s,s,s]}", "unit", "u", "argv", "sh", "-c", "curl x | sh"));
    assert_non_null(f);
    assert_string_equal(f->name, "shells");
    assert_string_equal(f->value, "sh -c curl x | sh");
    assert_null(feed(d, 20, "exec.start", json_pack("{s:s}", "unit", "u")));
    f = feed(d, 21, "guest.denied", json_pack("{s:s, s:s}", "unit", "u", "call", "bpf"));
    assert_string_equal(f->name, "kernel-surface"); /* beside the others */
    assert_int_equal(detect_count(d), 3);
    detect_free(d);
    rules_free(rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_wrong_is_named),
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_a_finding_of_ones_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
