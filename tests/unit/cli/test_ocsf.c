/* tests/unit/cli/test_ocsf.c - findings as OCSF has them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "cli/ocsf.h"

static struct finding finding(const char *stream, const char *subject)
{
    struct finding f = {.name = "cloud-metadata",
                        .technique = "T1552.005",
                        .what = "looked for it",
                        .then = "look",
                        .severity = DETECT_HIGH,
                        .seq = 42,
                        .count = 7};
    (void)snprintf(f.stream, sizeof f.stream, "%s", stream);
    (void)snprintf(f.subject, sizeof f.subject, "%s", subject);
    (void)snprintf(f.first, sizeof f.first, "2026-01-02T03:04:05.678901Z");
    (void)snprintf(f.last, sizeof f.last, "2026-01-02T03:04:06.000000Z");
    (void)snprintf(f.value, sizeof f.value, "a\xff\"b");
    return f;
}

static const char *str(const json_t *e, const char *a, const char *b)
{
    const char *s = json_string_value(json_object_get(json_object_get(e, a), b));
    return s ? s : "";
}

static json_int_t num(const json_t *e, const char *name)
{
    return json_integer_value(json_object_get(e, name));
}

static void test_a_finding_of_a_tenants_sandbox(void **state)
{
    (void)state;
    const struct finding f = finding("tenant/acme", "sbx_1");
    json_t *e = ocsf_finding(&f);
    assert_non_null(e);
    assert_int_equal(num(e, "class_uid"), 2004);
    assert_int_equal(num(e, "type_uid"), 200401);
    assert_int_equal(num(e, "severity_id"), 4);
    assert_int_equal(num(e, "time"), 1767323046000);
    assert_int_equal(num(e, "start_time"), 1767323045678);
    assert_int_equal(num(e, "count"), 7);
    assert_string_equal(str(e, "metadata", "tenant_uid"), "acme");
    assert_string_equal(str(e, "metadata", "uid"), "tenant/acme:42:cloud-metadata");
    assert_string_equal(str(e, "finding_info", "uid"), "tenant/acme:42:cloud-metadata");
    const json_t *attack =
        json_array_get(json_object_get(json_object_get(e, "finding_info"), "attacks"), 0);
    assert_string_equal(str(attack, "technique", "uid"), "T1552");
    assert_string_equal(str(attack, "sub_technique", "name"), "Cloud Instance Metadata API");
    const json_t *resource = json_array_get(json_object_get(e, "resources"), 0);
    assert_string_equal(json_string_value(json_object_get(resource, "type")), "sandbox");
    char *text = json_dumps(e, 0); /* what hostile code said is JSON all the same */
    assert_non_null(text);
    free(text);
    json_decref(e);
}

static void test_one_of_the_host_without_a_technique(void **state)
{
    (void)state;
    struct finding f = finding("host/local", "host/local");
    f.technique = "";
    f.severity = DETECT_LOW;
    json_t *e = ocsf_finding(&f);
    assert_non_null(e);
    assert_int_equal(num(e, "severity_id"), 2);
    assert_string_equal(str(e, "metadata", "tenant_uid"), "");
    assert_int_equal(
        json_array_size(json_object_get(json_object_get(e, "finding_info"), "attacks")), 0);
    json_decref(e);
}

/* A technique of a detection that has no name here would go by its number. */
static void test_every_technique_has_a_name(void **state)
{
    (void)state;
    static const char *const used[] = {
#define DETECTION(id, name, severity, threshold, window_s, technique, what, then) technique,
#include "trail/detections.def"
#undef DETECTION
    };
    for (size_t i = 0; i < CL_COUNT(used); i++) {
        struct finding f = finding("host/local", "x");
        f.technique = used[i];
        json_t *e = ocsf_finding(&f);
        const json_t *attack =
            json_array_get(json_object_get(json_object_get(e, "finding_info"), "attacks"), 0);
        if (used[i][0])
            assert_string_not_equal(str(attack, "technique", "uid"),
                                    str(attack, "technique", "name"));
        if (strchr(used[i], '.'))
            assert_string_not_equal(str(attack, "sub_technique", "uid"),
                                    str(attack, "sub_technique", "name"));
        json_decref(e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_finding_of_a_tenants_sandbox),
        cmocka_unit_test(test_one_of_the_host_without_a_technique),
        cmocka_unit_test(test_every_technique_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
