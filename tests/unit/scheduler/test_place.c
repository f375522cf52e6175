/* scheduler/workers.c: which worker gets a unit, by what they report and what was sent since. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/map.h"
#include "base/util.h"
#include "scheduler/place.h"

static struct worker workers[2];
static struct sched sched;
static const struct tenant strict = {.guest_separation = "isolated"},
                           easy = {.guest_separation = "shared-ok"};
static const uint64_t need[BOOKS_DIM_NR] = {
    [BOOKS_VCPU] = 1000, [BOOKS_MEM] = 256, [BOOKS_SANDBOXES] = 1};

/* Two of 16 vCPUs and 16 GiB, in their maps and connected; neither has a template. */
static int make_two(void **state)
{
    static int somebody;
    struct cl_err err = {0};
    (void)state;
    cl_map_free(sched.workers);
    cl_map_free(sched.units);
    if (cl_map_new(CL_COUNT(workers), &sched.workers, &err) < 0 ||
        cl_map_new(1, &sched.units, &err) < 0)
        return -1;
    for (unsigned i = 0; i < CL_COUNT(workers); i++) {
        struct worker *w = &workers[i];
        *w = (struct worker){.sched = &sched,
                             .call = (struct rpc_call *)(void *)&somebody,
                             .separation = CLOCHE__V1__GUEST_SEPARATION__GUEST_SEPARATION_ISOLATED,
                             .cap_vcpu = 16000,
                             .cap_mem = 16384,
                             .slots = 16};
        (void)snprintf(w->id, sizeof w->id, "wrk_%u", i);
        if (cl_map_put(sched.workers, w->id, w, &err) < 0)
            return -1;
    }
    return 0;
}

static int free_map(void **state)
{
    (void)state;
    cl_map_free(sched.workers);
    cl_map_free(sched.units);
    sched.workers = sched.units = NULL;
    return 0;
}

static struct worker_template *give(struct worker *w, const char *name, uint32_t warm)
{
    struct worker_template *t = &w->templates[w->n_templates++];
    *t = (struct worker_template){
        .separation = CLOCHE__V1__GUEST_SEPARATION__GUEST_SEPARATION_ISOLATED, .warm = warm};
    (void)snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}

static unsigned place(const struct tenant *tenant, const char *template)
{
    struct worker *w = worker_place(&sched, tenant, template, need);
    assert_non_null(w);
    worker_room_take(w, tenant, template, need);
    return (unsigned)(w - workers);
}

static void test_a_warm_vm_comes_before_an_idle_worker(void **state)
{
    (void)state;
    (void)give(&workers[0], "base", 0);
    (void)give(&workers[1], "base", 1);
    workers[1].used_vcpu = 8000;
    assert_int_equal(place(&strict, "base"), 1);
}

/* Between two reports no pool gets more than it has: the rest goes where there is room. */
static void test_a_warm_vm_is_given_once(void **state)
{
    (void)state;
    (void)give(&workers[0], "base", 2);
    (void)give(&workers[1], "base", 0);
    static const unsigned want[] = {0, 0, 1, 1};
    for (size_t i = 0; i < CL_COUNT(want); i++)
        assert_int_equal(place(&strict, "base"), want[i]);
    assert_int_equal(workers[0].templates[0].warm, 0);
}

static void test_what_a_tenant_may_not_have_is_not_counted(void **state)
{
    (void)state;
    give(&workers[0], "base", 3)->separation =
        CLOCHE__V1__GUEST_SEPARATION__GUEST_SEPARATION_SHARED;
    (void)give(&workers[0], "base", 0);
    (void)give(&workers[1], "base", 1);
    assert_int_equal(place(&strict, "base"), 1);
    assert_int_equal(place(&easy, "base"), 0);
    assert_int_equal(workers[0].templates[0].warm, 2);
    assert_int_equal(workers[0].templates[1].warm, 0);
}

static void test_one_that_makes_the_snapshot_still_comes_last(void **state)
{
    (void)state;
    give(&workers[0], "base", 4)->building = true;
    (void)give(&workers[1], "base", 0);
    workers[1].used_vcpu = 15000;
    assert_int_equal(place(&strict, "base"), 1);
    assert_int_equal(place(&strict, "base"), 0); /* the other is full */
}

static void test_a_report_forgets_nothing_that_was_promised(void **state)
{
    (void)state;
    struct room_promise promises[] = {{.worker = "wrk_0", .tenant = &strict, .need = need},
                                      {.worker = "wrk_1", .tenant = &strict, .need = need},
                                      {.worker = "wrk_0", .tenant = &strict, .need = need}};
    (void)give(&workers[0], "base", 1);
    cl_list_init(&sched.promises);
    for (size_t i = 0; i < CL_COUNT(promises); i++) {
        promises[i].template = "base";
        cl_list_push(&sched.promises, &promises[i].link);
    }
    workers[0].used_vcpu = 14000; /* a report says so */
    worker_count_pending(&workers[0]);
    assert_int_equal(workers[0].used_vcpu, 16000);
    assert_int_equal(workers[0].used_slots, 2);
    assert_int_equal(workers[0].templates[0].warm, 0);
    assert_int_equal(workers[1].used_slots, 0);
    assert_int_equal(place(&strict, "base"), 1);
}

/* Its worker or none: whatever room others have. */
static void test_a_copy_goes_to_its_origins_worker(void **state)
{
    static const uint64_t nothing[BOOKS_DIM_NR] = {0};
    (void)state;
    struct cl_err err = {0};
    struct tenant owner = strict, other = strict;
    struct unit of = {.tenant = &owner, .phase = PHASE_RUNNING};
    (void)snprintf(owner.name, sizeof owner.name, "owner");
    (void)snprintf(other.name, sizeof other.name, "other");
    (void)snprintf(of.worker_id, sizeof of.worker_id, "wrk_1");
    of.sched = &sched;
    assert_int_equal(cl_map_put(sched.units, "sbx_1", &of, &err), 0);
    workers[1].forks = true;
    workers[1].used_vcpu = 15000;
    assert_ptr_equal(worker_place_fork(&sched, &owner, "sbx_1", need), &workers[1]);
    assert_null(worker_place_fork(&sched, &other, "sbx_1", need));
    assert_null(worker_place_fork(&sched, &owner, "sbx_2", need));
    workers[1].used_vcpu = 16000;
    assert_null(worker_place_fork(&sched, &owner, "sbx_1", need));
    workers[1].used_vcpu = 0;
    workers[1].forks = false;
    assert_null(worker_place_fork(&sched, &owner, "sbx_1", need));
    workers[1].forks = true;
    of.separation = CLOCHE__V1__GUEST_SEPARATION__GUEST_SEPARATION_SHARED; /* as it was made */
    assert_null(worker_place_fork(&sched, &owner, "sbx_1", need));
    (void)snprintf(owner.guest_separation, sizeof owner.guest_separation, "shared-ok");
    assert_ptr_equal(worker_place_fork(&sched, &owner, "sbx_1", need), &workers[1]);
    workers[1].used_slots = workers[1].slots;
    assert_null(worker_place_fork(&sched, &owner, "sbx_1", need));
    assert_ptr_equal(worker_place_fork(&sched, &owner, "sbx_1", nothing), &workers[1]);
    worker_room_take(&workers[1], &owner, "", nothing); /* a snapshot takes no VM's place */
    worker_room_return(&sched, workers[1].id, nothing);
    assert_int_equal(workers[1].used_slots, workers[1].slots);
    workers[1].used_slots = 0;
    of.phase = PHASE_SETTLING;
    assert_null(worker_place_fork(&sched, &owner, "sbx_1", need));
    (void)cl_map_del(sched.units, "sbx_1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_warm_vm_comes_before_an_idle_worker, make_two),
        cmocka_unit_test_setup(test_a_warm_vm_is_given_once, make_two),
        cmocka_unit_test_setup(test_what_a_tenant_may_not_have_is_not_counted, make_two),
        cmocka_unit_test_setup(test_one_that_makes_the_snapshot_still_comes_last, make_two),
        cmocka_unit_test_setup(test_a_report_forgets_nothing_that_was_promised, make_two),
        cmocka_unit_test_setup(test_a_copy_goes_to_its_origins_worker, make_two),
    };
    return cmocka_run_group_tests(tests, NULL, free_map);
}
