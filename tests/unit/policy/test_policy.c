/* tests/unit/policy/test_policy.c - limits, keys, principals, quota arithmetic, the fair queue. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "policy/fairq.h"
#include "policy/key.h"
#include "policy/limits.h"
#include "policy/principal.h"

static void test_limits_pack_and_refuse_what_is_newer_or_out_of_bounds(void **state)
{
    (void)state;
    struct tenant_limits l, back;
    struct cl_err err = {0};
    uint8_t packed[LIMITS_PACKED_MAX];
    limits_default(&l);
    assert_int_equal(limits_validate(&l, NULL), 0);
    assert_int_equal(limits_set(&l, "sandboxes", 7, NULL), 0);
    assert_int_equal(limits_set(&l, "sandboxes", 0, &err), -1);
    assert_string_equal(err.subject, "sandboxes");
    assert_int_equal(limits_set(&l, "wishes", 3, &err), -1);
    assert_int_equal(err.code, CL_E_NOTFOUND);
    size_t n = limits_pack(&l, packed);
    assert_int_equal(limits_unpack(packed, n, &back, NULL), 0);
    assert_memory_equal(&l, &back, sizeof l);
    packed[1] = 5; /* an older writer knew five values */
    assert_int_equal(limits_unpack(packed, 2 + 8 * 5, &back, NULL), 0);
    assert_int_equal(back.queue_max, 1000);
    packed[0] = 2;
    assert_int_equal(limits_unpack(packed, n, &back, &err), -1);
    assert_int_equal(err.code, CL_E_STATE);
}

static void test_a_request_that_can_never_run_names_its_dimension(void **state)
{
    (void)state;
    struct tenant_limits l;
    struct quota_need need;
    struct cl_err err = {0};
    limits_default(&l);
    struct unit_request r = {0};
    unit_request_default(&r, &l);
    assert_int_equal(unit_request_check(&r, &l, &need, NULL), 0);
    assert_int_equal(need.dim[DIM_CPU], 300000);
    assert_int_equal(need.dim[DIM_SANDBOXES], 1);
    r.mem_mib = 5000;
    assert_int_equal(unit_request_check(&r, &l, &need, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
    r.mem_mib = 512;
    l.mem_mib = 300;
    assert_int_equal(unit_request_check(&r, &l, &need, &err), -1);
    assert_int_equal(err.code, CL_E_QUOTA);
    assert_string_equal(err.subject, "memory_mib");
}

static void test_a_key_survives_its_text_and_nothing_else_parses(void **state)
{
    (void)state;
    struct api_key k, back;
    char text[API_KEY_TEXT + 1];
    uint8_t a[API_KEY_MAC], b[API_KEY_MAC];
    static const uint8_t pepper[32] = {7};
    api_key_new(&k);
    api_key_format(&k, text);
    assert_int_equal(strlen(text), API_KEY_TEXT - 1);
    assert_int_equal(api_key_parse(text, &back, NULL), 0);
    assert_memory_equal(k.secret, back.secret, API_KEY_SECRET);
    assert_int_equal(api_key_mac(&k, pepper, sizeof pepper, a, NULL), 0);
    back.secret[5] ^= 1;
    assert_int_equal(api_key_mac(&back, pepper, sizeof pepper, b, NULL), 0);
    assert_false(api_key_mac_equal(a, b));
    assert_int_equal(api_key_mac(&k, pepper, 3, a, NULL), -1);
    for (size_t i = 0; i < API_KEY_TEXT - 1; i++) {
        char c = text[i];
        text[i] = 'X';
        assert_int_equal(api_key_parse(text, &back, NULL), -1);
        text[i] = c;
    }
    text[API_KEY_TEXT - 1] = 'a';
    text[API_KEY_TEXT] = '\0';
    assert_int_equal(api_key_parse(text, &back, NULL), -1);
    assert_int_equal(api_key_parse("", &back, NULL), -1);
}

static void test_scopes_and_tenants_are_kept_apart(void **state)
{
    (void)state;
    struct principal p = {.tenant = "acme", .scopes = SCOPE_RUN};
    struct cl_err err = {0};
    const char *tenant;
    uint32_t scopes;
    char text[SCOPES_TEXT];
    assert_int_equal(scopes_parse("run,audit", &scopes, NULL), 0);
    scopes_format(SCOPE_ALL, text);
    assert_string_equal(text, "admin,tenant-admin,run,read,audit");
    assert_int_equal(scopes_parse("run,", &scopes, &err), -1);
    assert_true(principal_has(&p, SCOPE_READ));
    assert_int_equal(principal_require(&p, SCOPE_AUDIT, &err), -1);
    assert_string_equal(err.subject, "audit");
    assert_int_equal(principal_tenant(&p, "", &tenant, NULL), 0);
    assert_int_equal(principal_tenant(&p, "other", &tenant, &err), -1);
    assert_int_equal(err.code, CL_E_NOTFOUND);
    p.scopes = SCOPE_ADMIN;
    assert_int_equal(principal_tenant(&p, "other", &tenant, NULL), 0);
    assert_string_equal(tenant, "other");
    struct key_facts f = {.mac = {1}, .expires_ms = 100};
    uint8_t mac[API_KEY_MAC] = {1};
    assert_int_equal(key_facts_check(&f, mac, 99, NULL), 0);
    assert_int_equal(key_facts_check(&f, mac, 100, NULL), -1);
    f.expires_ms = 0;
    f.revoked = true;
    assert_int_equal(key_facts_check(&f, mac, 0, NULL), -1);
    f.revoked = false;
    mac[31] = 1;
    assert_int_equal(key_facts_check(&f, mac, 0, &err), -1);
    assert_int_equal(err.code, CL_E_UNAUTH);
}

static void test_gcra_lets_exactly_burst_and_rate_through(void **state)
{
    (void)state;
    uint64_t tat = 0, retry, passed = 0;
    for (uint64_t now = 1000000; now < 5000000; now += 50)
        passed += gcra_step(&tat, now, 2000, 25, &retry);
    assert_int_equal(passed, 25 + 1999);
    tat = 0;
    assert_true(gcra_step(&tat, 10, 1000, 1, &retry));
    assert_false(gcra_step(&tat, 11, 1000, 1, &retry));
    assert_int_equal(retry, 999);
    assert_true(gcra_step(&tat, 1010, 1000, 1, &retry));
}

static void test_quota_holds_settles_and_forgets_the_old_period(void **state)
{
    (void)state;
    struct quota_usage u = {{0}, {0}, 0};
    struct quota_limits l = {{2000, 100, 2, 50, 10, 10}, 1000};
    struct quota_need n = {{1000, 50, 1, 20, 0, 5}};
    assert_int_equal(quota_over(&u, &l, &n), DIM_NR);
    quota_take(&u, &n);
    quota_take(&u, &n);
    assert_int_equal(quota_over(&u, &l, &n), DIM_VCPU);
    quota_settle(&u, &n, 40, 0);
    assert_int_equal(quota_over(&u, &l, &n), DIM_CPU); /* 20 held + 40 spent */
    quota_roll(&u, &l, 1000);
    assert_int_equal(quota_over(&u, &l, &n), DIM_NR);
    assert_int_equal(quota_burnt_cpu_ms(&n, 5), 5);
    assert_int_equal(quota_burnt_cpu_ms(&n, 5000), 20);
}

/* --- fair queue ----------------------------------------------------------------------------- */

enum { TENANTS = 6, ITEMS = 400 };

static const char *name_of(size_t i)
{
    static const char *const names[TENANTS] = {"a", "b", "c", "d", "e", "f"};
    return names[i];
}

static void test_equal_tenants_differ_by_at_most_one_while_both_wait(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct fairq *fq;
        static struct fairq_item items[TENANTS][ITEMS];
        long served[TENANTS][TENANTS] = {{0}}; /* of i, since i and j both wait */
        size_t next[TENANTS] = {0};
        cl_test_seed_random(seed);
        assert_int_equal(fairq_new(100, 100000, &fq, NULL), 0);
        for (int step = 0; step < 3000; step++) {
            uint32_t r;
            cl_random(&r, sizeof r);
            size_t t = r % TENANTS;
            if ((r >> 8) % 5 < 2 && next[t] < ITEMS) {
                fairq_item_init(&items[t][next[t]], 1);
                assert_int_equal(fairq_push(fq, name_of(t), &items[t][next[t]++], NULL), 0);
            }
            bool waits[TENANTS];
            for (size_t i = 0; i < TENANTS; i++)
                waits[i] = fairq_tenant_count(fq, name_of(i)) > 0;
            struct fairq_item *got = (r >> 16) % 3 ? fairq_pop(fq, NULL, NULL) : NULL;
            for (size_t i = 0; i < TENANTS; i++) {
                bool mine = got && got >= &items[i][0] && got < &items[i][ITEMS];
                for (size_t j = 0; j < TENANTS; j++) {
                    if (!waits[i] || !waits[j])
                        served[i][j] = served[j][i] = 0;
                    else if (mine)
                        served[i][j]++;
                }
            }
            for (size_t i = 0; i < TENANTS; i++) {
                for (size_t j = 0; j < i; j++) {
                    if (labs(served[i][j] - served[j][i]) > 1)
                        fail_msg("seed %lu step %d: %s %ld, %s %ld", (unsigned long)seed, step,
                                 name_of(i), served[i][j], name_of(j), served[j][i]);
                }
            }
        }
        fairq_free(fq);
    }
    cl_test_seed_random(0);
}

static void test_weights_share_and_blocked_tenants_gain_no_credit(void **state)
{
    (void)state;
    struct fairq *fq;
    static struct fairq_item items[2][ITEMS];
    size_t served[2] = {0};
    assert_int_equal(fairq_new(10, 1000, &fq, NULL), 0);
    assert_int_equal(fairq_tenant_set(fq, "a", 3, 1000, NULL), 0);
    for (size_t i = 0; i < ITEMS; i++) {
        for (size_t t = 0; t < 2; t++) {
            fairq_item_init(&items[t][i], 1);
            assert_int_equal(fairq_push(fq, name_of(t), &items[t][i], NULL), 0);
        }
    }
    for (int i = 0; i < 80; i++)
        served[fairq_pop(fq, NULL, NULL) >= &items[1][0]]++;
    assert_in_range(served[0], 59, 61);
    assert_int_equal(fairq_tenant_set(fq, "a", 1, 1000, NULL), 0);
    fairq_block(fq, "b");
    for (int i = 0; i < 50; i++)
        assert_true(fairq_pop(fq, NULL, NULL) < &items[1][0]);
    fairq_unblock(fq, "b");
    served[0] = served[1] = 0;
    for (int i = 0; i < 20; i++)
        served[fairq_pop(fq, NULL, NULL) >= &items[1][0]]++;
    assert_in_range(served[1], 9, 11);
    fairq_free(fq);
}

static bool not_a(const char *tenant, const struct fairq_item *head, void *arg)
{
    (void)head, (void)arg;
    return strcmp(tenant, "a") != 0;
}

static void test_unpop_does_not_lose_the_turn_among_equals(void **state)
{
    (void)state;
    struct fairq *fq;
    struct fairq_item item[3];
    static const char *const names[] = {"a", "b", "c"};
    assert_int_equal(fairq_new(3, 3, &fq, NULL), 0);
    for (size_t i = 0; i < 3; i++) {
        fairq_item_init(&item[i], 1);
        assert_int_equal(fairq_push(fq, names[i], &item[i], NULL), 0);
    }
    for (int tries = 0; tries < 5; tries++) {
        assert_ptr_equal(fairq_pop(fq, NULL, NULL), &item[0]);
        assert_int_equal(fairq_unpop(fq, "a", &item[0], NULL), 0);
    }
    for (size_t i = 0; i < 3; i++)
        assert_ptr_equal(fairq_pop(fq, NULL, NULL), &item[i]);
    fairq_free(fq);
}

static void test_requeue_unpop_bounds_and_the_predicate(void **state)
{
    (void)state;
    struct fairq *fq;
    struct fairq_item item[4];
    struct cl_err err = {0};
    assert_int_equal(fairq_new(2, 3, &fq, NULL), 0);
    assert_int_equal(fairq_tenant_set(fq, "a", 1, 2, NULL), 0);
    for (size_t i = 0; i < 4; i++)
        fairq_item_init(&item[i], 1);
    assert_int_equal(fairq_push(fq, "a", &item[0], NULL), 0);
    assert_int_equal(fairq_push(fq, "a", &item[1], NULL), 0);
    assert_int_equal(fairq_push(fq, "a", &item[2], &err), -1);
    assert_int_equal(err.code, CL_E_QUEUE);
    assert_int_equal(fairq_push(fq, "b", &item[2], NULL), 0);
    assert_int_equal(fairq_push(fq, "b", &item[3], &err), -1);
    assert_ptr_equal(fairq_pop(fq, not_a, NULL), &item[2]);
    assert_ptr_equal(fairq_pop(fq, not_a, NULL), NULL);
    assert_ptr_equal(fairq_pop(fq, NULL, NULL), &item[0]);
    assert_int_equal(fairq_unpop(fq, "a", &item[0], NULL), 0);
    assert_ptr_equal(fairq_pop(fq, NULL, NULL), &item[0]);
    assert_int_equal(fairq_restore(fq, "a", &item[3], NULL), 0);
    assert_int_equal(fairq_requeue(fq, "a", &item[0], NULL), 0); /* over its bound, at the head */
    assert_int_equal(fairq_tenant_count(fq, "a"), 3);
    assert_ptr_equal(fairq_pop(fq, NULL, NULL), &item[0]);
    fairq_remove(fq, &item[1]);
    fairq_remove(fq, &item[1]);
    assert_ptr_equal(fairq_pop(fq, NULL, NULL), &item[3]);
    assert_int_equal(fairq_count(fq), 0);
    assert_ptr_equal(fairq_pop(fq, NULL, NULL), NULL);
    fairq_free(fq);
}

static void test_new_survives_each_failed_allocation(void **state)
{
    (void)state;
    for (long nth = 0;; nth++) {
        struct fairq *fq = NULL;
        struct fairq_item item;
        struct cl_err err = {0};
        fairq_item_init(&item, 1);
        cl_test_fail_alloc(nth);
        int rc = fairq_new(4, 4, &fq, &err);
        if (rc == 0)
            rc = fairq_push(fq, "a", &item, &err);
        bool failed = cl_test_alloc_failed();
        cl_test_fail_alloc(-1);
        fairq_free(fq);
        if (!failed) {
            assert_int_equal(rc, 0);
            break;
        }
        assert_int_equal(rc, -1);
        assert_int_equal(err.code, CL_E_NOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits_pack_and_refuse_what_is_newer_or_out_of_bounds),
        cmocka_unit_test(test_a_request_that_can_never_run_names_its_dimension),
        cmocka_unit_test(test_a_key_survives_its_text_and_nothing_else_parses),
        cmocka_unit_test(test_scopes_and_tenants_are_kept_apart),
        cmocka_unit_test(test_gcra_lets_exactly_burst_and_rate_through),
        cmocka_unit_test(test_quota_holds_settles_and_forgets_the_old_period),
        cmocka_unit_test(test_equal_tenants_differ_by_at_most_one_while_both_wait),
        cmocka_unit_test(test_weights_share_and_blocked_tenants_gain_no_credit),
        cmocka_unit_test(test_unpop_does_not_lose_the_turn_among_equals),
        cmocka_unit_test(test_requeue_unpop_bounds_and_the_predicate),
        cmocka_unit_test(test_new_survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
