/* scheduler/validate.c: what a request must be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "scheduler/options.h"
#include "scheduler/validate.h"

#define TEXT(s) ((char *)(uintptr_t)(s))

struct request {
    Cloche__V1__JobSpec spec;
    Cloche__V1__Command command;
    Cloche__V1__Resources resources;
    Cloche__V1__Label labels[LABELS_MAX + 1], *label_list[LABELS_MAX + 1];
    Cloche__V1__EnvVar env, *env_list[1];
    char *argv[2];
};

static void good(struct request *r)
{
    cloche__v1__job_spec__init(&r->spec);
    cloche__v1__command__init(&r->command);
    cloche__v1__resources__init(&r->resources);
    cloche__v1__env_var__init(&r->env);
    r->env.name = TEXT("A");
    r->env_list[0] = &r->env;
    r->argv[0] = TEXT("true");
    r->command.argv = r->argv;
    r->command.n_argv = 1;
    r->command.env = r->env_list;
    r->command.n_env = 1;
    r->spec.template_ = TEXT("base");
    r->spec.command = &r->command;
    r->spec.resources = &r->resources;
    r->spec.labels = r->label_list;
    for (size_t i = 0; i <= LABELS_MAX; i++) {
        cloche__v1__label__init(&r->labels[i]);
        r->labels[i].key = TEXT("k");
        r->label_list[i] = &r->labels[i];
    }
}

static void expect(struct request *r, enum cl_code code, const char *want)
{
    struct cl_err err = {0};
    struct tenant_limits limits;
    struct quota_need need;
    limits_default(&limits);
    const struct spec_frame frame = {.is_job = true, .life_ns = r->command.timeout_ns};
    int rc = validate_spec(&r->spec, &frame, &limits, &need, &err);
    if (err.code != code || (rc == 0) != (code == CL_OK) || !strstr(err.text, want))
        fail_msg("got code %d '%s', want %d '%s'", (int)err.code, err.text, (int)code, want);
}

static void test_a_good_request_reserves_its_defaults(void **state)
{
    (void)state;
    struct request r;
    struct cl_err err = {0};
    struct tenant_limits limits;
    struct quota_need need;
    good(&r);
    limits_default(&limits);
    struct spec_frame frame = {.is_job = true};
    assert_int_equal(validate_spec(&r.spec, &frame, &limits, &need, &err), 0);
    assert_int_equal(need.dim[DIM_VCPU], 1000);
    assert_int_equal(need.dim[DIM_MEM], 256);
    assert_int_equal(need.dim[DIM_SANDBOXES], 1);
    assert_int_equal(need.dim[DIM_CPU], 300000);

    frame.vcpus = 2;
    frame.memory_mib = 1024;
    assert_int_equal(validate_spec(&r.spec, &frame, &limits, &need, &err), 0);
    assert_int_equal(need.dim[DIM_VCPU], 2000);
    assert_int_equal(need.dim[DIM_MEM], 1024);
    r.resources.memory_mib = 64;   /* what the request says goes before */
    limits.unit_vcpu_milli = 1000; /* a template's wish stays within the limits */
    assert_int_equal(validate_spec(&r.spec, &frame, &limits, &need, &err), 0);
    assert_int_equal(need.dim[DIM_VCPU], 1000);
    assert_int_equal(need.dim[DIM_MEM], 64);
}

static void test_each_bad_field_is_named(void **state)
{
    (void)state;
    struct request r;
    good(&r), r.spec.template_ = TEXT("../etc"), expect(&r, CL_E_INVALID, "template");
    good(&r), r.command.n_argv = 0, expect(&r, CL_E_INVALID, "command.argv");
    good(&r), r.spec.command = NULL, expect(&r, CL_E_INVALID, "command.argv");
    good(&r), r.env.name = TEXT("A=B"), expect(&r, CL_E_INVALID, "command.env.name");
    good(&r), r.command.user = TEXT("daemon"), expect(&r, CL_E_INVALID, "user");
    good(&r), r.command.timeout_ns = 25 * 3600 * CL_NS_PER_S, expect(&r, CL_E_INVALID, "timeout");
    good(&r), r.command.output_max_bytes = 2 * CL_GIB, expect(&r, CL_E_INVALID, "output_max_bytes");
    good(&r), r.spec.network = (Cloche__V1__Network)7, expect(&r, CL_E_INVALID, "network");
    good(&r), r.spec.max_attempts = 11, expect(&r, CL_E_INVALID, "max_attempts");
    good(&r), r.spec.n_labels = LABELS_MAX + 1, expect(&r, CL_E_INVALID, "labels");
    good(&r), r.spec.n_labels = 2, expect(&r, CL_E_INVALID, "twice");
    good(&r), r.labels[0].key = TEXT("No"), r.spec.n_labels = 1,
              expect(&r, CL_E_INVALID, "labels.key");
    good(&r), r.resources.vcpus = 64, expect(&r, CL_E_INVALID, "vcpu");
    good(&r), r.resources.memory_mib = 1 << 20, expect(&r, CL_E_INVALID, "mem");
}

static void test_a_grant_is_checked_and_held(void **state)
{
    (void)state;
    struct request r;
    struct cl_err err = {0};
    struct tenant_limits limits;
    struct quota_need need;
    Cloche__V1__NetworkGrant g = CLOCHE__V1__NETWORK_GRANT__INIT;
    char *rules[33];
    const struct spec_frame frame = {.is_job = true};
    for (size_t i = 0; i < CL_COUNT(rules); i++)
        rules[i] = TEXT("demo.org");
    g.allow = rules;
    good(&r), r.spec.network_grant = &g;
    expect(&r, CL_E_INVALID, "network_grant.allow");
    g.n_allow = 33, expect(&r, CL_E_INVALID, "network_grant.allow");
    g.n_allow = 1, expect(&r, CL_E_DENIED, "--network yes");
    limits_default(&limits);
    limits.network = 1;
    assert_int_equal(validate_spec(&r.spec, &frame, &limits, &need, &err), 0);
    assert_int_equal(need.dim[DIM_EGRESS], UNIT_DEFAULT_EGRESS_BYTES);
    limits.egress_bytes = 1000;
    assert_int_equal(validate_spec(&r.spec, &frame, &limits, &need, &err), 0);
    assert_int_equal(need.dim[DIM_EGRESS], 1000);
    g.egress_bytes = 1001;
    assert_int_equal(validate_spec(&r.spec, &frame, &limits, &need, &err), -1);
    assert_int_equal(err.code, CL_E_QUOTA);
    limits.egress_bytes = g.egress_bytes = 0;
    assert_int_equal(validate_spec(&r.spec, &frame, &limits, &need, &err), -1);
    assert_int_equal(err.code, CL_E_QUOTA);
    const struct spec_frame copy = {.is_job = true, .is_copy = true};
    g.n_allow = 0, limits.network = 0; /* a card that is there, and reaches nothing */
    assert_int_equal(validate_spec(&r.spec, &copy, &limits, &need, &err), 0);
    assert_int_equal(need.dim[DIM_EGRESS], 0);
    expect(&r, CL_E_INVALID, "network_grant.allow");
    g.n_allow = 1;
    rules[0] = TEXT("no such:rule"), expect(&r, CL_E_INVALID, "network_grant.allow");
    rules[0] = TEXT("demo.org"), r.spec.network = CLOCHE__V1__NETWORK__NETWORK_NONE;
    expect(&r, CL_E_INVALID, "NETWORK_NONE");
}

static void test_arguments_over_a_mebibyte_are_too_big(void **state)
{
    (void)state;
    struct request r;
    char *big = cl_zalloc(ARGS_MAX + 1);
    assert_non_null(big);
    memset(big, 'x', ARGS_MAX);
    good(&r), r.argv[0] = big, expect(&r, CL_E_TOOBIG, "argv and env");
    cl_free(big);
}

static void test_variables_are_counted_as_execve_does(void **state)
{
    (void)state;
    struct request r;
    struct cl_err err = {0};
    size_t bytes = 7;
    good(&r), r.env.value = TEXT("12");
    assert_int_equal(validate_env(r.env_list, 1, "env.name", &bytes, &err), 0);
    assert_int_equal(bytes, 7 + 1 + 2 + 2 + sizeof(char *));
    assert_int_equal(validate_env(NULL, 0, "env.name", &bytes, &err), 0);
    r.env.name = TEXT("");
    assert_int_equal(validate_env(r.env_list, 1, "env.name", &bytes, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
    assert_non_null(strstr(err.text, "env.name"));
}

static void test_options_keep_the_order_of_lease_times(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct sched_options o = {.lease_ttl = 30,
                              .renew_every = 10,
                              .self_kill = 20,
                              .lead_group = "main",
                              .redis = "unix:/run/redis.sock"};
    assert_int_equal(sched_options_check(&o, &err), 0);
    o.self_kill = 30;
    assert_int_equal(sched_options_check(&o, &err), -1);
    o = (struct sched_options){.lease_ttl = 30,
                               .renew_every = 10,
                               .self_kill = 20,
                               .lead_group = "main",
                               .redis = "unix:/run/redis.sock",
                               .tcp = "0.0.0.0:7000"};
    assert_int_equal(sched_options_check(&o, &err), -1);
    assert_non_null(strstr(err.text, "--insecure-listen"));
    o.insecure_listen = true;
    assert_int_equal(sched_options_check(&o, &err), 0);
    o.insecure_listen = false;
    o.tcp[0] = '\0';
    (void)snprintf(o.redis, sizeof o.redis, "10.0.0.1:6379");
    assert_int_equal(sched_options_check(&o, &err), -1);
    assert_non_null(strstr(err.text, "Redis"));
    (void)snprintf(o.redis, sizeof o.redis, "unix:/run/redis.sock");
    (void)snprintf(o.lead_group, sizeof o.lead_group, "two words"); /* part of a key in Redis */
    assert_int_equal(sched_options_check(&o, &err), -1);
    assert_non_null(strstr(err.text, "--lead-group"));
}

static void test_times_of_sandboxes_have_limits_and_a_keep_has_a_default(void **state)
{
    (void)state;
    const uint64_t day_ns = 24 * 3600 * CL_NS_PER_S;
    struct cl_err err = {0};
    uint64_t keep_ns = 0;
    assert_int_equal(validate_ttl(day_ns, &err), 0);
    assert_int_equal(validate_ttl(day_ns + 1, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
    assert_non_null(strstr(err.text, "ttl_ns"));
    assert_int_equal(validate_keep(0, &keep_ns, &err), 0);
    assert_int_equal(keep_ns, day_ns);
    assert_int_equal(validate_keep(1, &keep_ns, &err), 0);
    assert_int_equal(keep_ns, 1);
    assert_int_equal(validate_keep(30 * day_ns, &keep_ns, &err), 0);
    assert_int_equal(keep_ns, 30 * day_ns);
    assert_int_equal(validate_keep(30 * day_ns + 1, &keep_ns, &err), -1);
    assert_int_equal(keep_ns, 30 * day_ns);
    assert_non_null(strstr(err.text, "keep_ns"));
}

static void test_what_an_idle_sandbox_does_is_one_of_the_known(void **state)
{
    (void)state;
    static const struct {
        int action;
        bool wakes, pauses;
    } good_ones[] = {{CLOCHE__V1__IDLE_ACTION__IDLE_ACTION_UNSPECIFIED, false, false},
                     {CLOCHE__V1__IDLE_ACTION__IDLE_ACTION_END, false, false},
                     {CLOCHE__V1__IDLE_ACTION__IDLE_ACTION_PAUSE, false, true},
                     {CLOCHE__V1__IDLE_ACTION__IDLE_ACTION_PAUSE, true, true}};
    static const int bad_ones[] = {3, -1, 1000};
    for (size_t i = 0; i < CL_COUNT(good_ones); i++) {
        struct cl_err err = {0};
        bool pauses = !good_ones[i].pauses;
        assert_int_equal(validate_on_idle((Cloche__V1__IdleAction)good_ones[i].action,
                                          good_ones[i].wakes, &pauses, &err),
                         0);
        assert_int_equal(pauses, good_ones[i].pauses);
    }
    for (size_t i = 0; i < CL_COUNT(bad_ones); i++) {
        struct cl_err err = {0};
        bool pauses;
        assert_int_equal(
            validate_on_idle((Cloche__V1__IdleAction)bad_ones[i], false, &pauses, &err), -1);
        assert_int_equal(err.code, CL_E_INVALID);
        assert_non_null(strstr(err.text, "on_idle"));
    }
}

static void test_only_what_pauses_is_woken(void **state)
{
    (void)state;
    for (int action = 0; action <= CLOCHE__V1__IDLE_ACTION__IDLE_ACTION_END; action++) {
        struct cl_err err = {0};
        bool pauses;
        assert_int_equal(validate_on_idle((Cloche__V1__IdleAction)action, true, &pauses, &err), -1);
        assert_int_equal(err.code, CL_E_INVALID);
        assert_non_null(strstr(err.text, "wake_on_use: "));
    }
}

static void test_names_of_snapshots(void **state)
{
    (void)state;
    static const char *const good[] = {"", "a", "0", "numpy-ready", "v1.2_3", "snp", "snp-1"};
    static const char *const bad[] = {"A",   "-a",  ".a",    "_a",      "a/b",
                                      "a b", "a:b", "snp_a", "\xc3\xa4"};
    char name[SNAPSHOT_NAME_MAX + 2] = "";
    struct cl_err err = {0};
    for (size_t i = 0; i < CL_COUNT(good); i++)
        assert_int_equal(validate_snapshot_name(good[i], &err), 0);
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        assert_int_equal(validate_snapshot_name(bad[i], &err), -1);
        assert_int_equal(err.code, CL_E_INVALID);
        assert_non_null(strstr(err.text, "name"));
    }
    memset(name, 'a', SNAPSHOT_NAME_MAX);
    assert_int_equal(validate_snapshot_name(name, &err), 0);
    name[SNAPSHOT_NAME_MAX] = 'a';
    assert_int_equal(validate_snapshot_name(name, &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_good_request_reserves_its_defaults),
        cmocka_unit_test(test_each_bad_field_is_named),
        cmocka_unit_test(test_a_grant_is_checked_and_held),
        cmocka_unit_test(test_arguments_over_a_mebibyte_are_too_big),
        cmocka_unit_test(test_options_keep_the_order_of_lease_times),
        cmocka_unit_test(test_times_of_sandboxes_have_limits_and_a_keep_has_a_default),
        cmocka_unit_test(test_what_an_idle_sandbox_does_is_one_of_the_known),
        cmocka_unit_test(test_only_what_pauses_is_woken),
        cmocka_unit_test(test_names_of_snapshots),
        cmocka_unit_test(test_variables_are_counted_as_execve_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
