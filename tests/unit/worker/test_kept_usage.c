/* tests/unit/worker/test_kept_usage.c - worker/kept.h: what a sandbox used is in its record, as
 * much of it as there can be, and no more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/id.h"
#include "base/loop.h"
#include "worker/kept.h"
#include "worker/vm_driver.h"

static const struct vm_driver driver = {.name = "kvm/xenpv"};

static struct bench {
    struct cl_loop *loop;
    struct cl_arena *arena; /* of what was parsed last */
    struct template template;
    struct guest_past past;
    struct machine_kept machine;
    struct watch watch;
    Cloche__V1__Assign assign;
    char unit_id[CL_ID_MAX], lease_id[CL_ID_MAX];
    struct usage_sample samples[USAGE_MAX];
    struct kept_source source;
    struct cl_buf bytes; /* printed */
    struct cl_err err;
} b;

static void on_stored(void *arg, const struct cl_err *err)
{
    assert_ptr_equal(arg, &b);
    assert_null(err);
    cl_loop_stop(b.loop);
}

static void fill_template(void)
{
    struct template *t = &b.template;
    t->driver = &driver;
    t->memory_mib = 256;
    t->vcpus = 1;
    (void)snprintf(t->m.name, sizeof t->m.name, "base");
    (void)snprintf(t->file_name, sizeof t->file_name, "ram");
    memset(t->m.image_key, 'a', TEMPLATE_HEX - 1);
    memset(t->snapshot_key, '0', TEMPLATE_HEX - 1);
    assert_int_equal(rest_new(b.loop, UINT16_MAX, &t->file, &b.err), 0);
    assert_int_equal(rest_store(t->file, "/tmp", on_stored, &b, &b.err), 0);
    cl_loop_run(b.loop);
}

static int set_up(void **state)
{
    static char tenant[] = "local";
    (void)state;
    b = (struct bench){.past = {.next_stream = 1}};
    if (cl_loop_new(&b.loop, NULL) < 0)
        return -1;
    fill_template();
    cl_id_new("sbx", b.unit_id);
    cl_id_new("lease", b.lease_id);
    cloche__v1__assign__init(&b.assign);
    b.assign.kind = CLOCHE__V1__UNIT_KIND__UNIT_KIND_SANDBOX;
    b.assign.tenant = tenant;
    b.assign.unit_id = b.unit_id;
    b.assign.lease_id = b.lease_id;
    b.machine = (struct machine_kept){
        .template = &b.template, .name = b.unit_id, .unwatched = "", .past = &b.past};
    b.source = (struct kept_source){
        .assign = &b.assign, .machine = &b.machine, .watch = &b.watch, .network = &b.watch};
    for (uint64_t i = 0; i < USAGE_MAX; i++)
        b.samples[i] = (struct usage_sample){i << 55, i,      i << 1, i << 2,     i << 3,
                                             i << 4,  i << 5, i << 6, (uint32_t)i};
    cl_buf_init(&b.bytes, KEPT_MAX);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cl_buf_fini(&b.bytes);
    cl_arena_free(b.arena);
    rest_free(b.template.file);
    cl_loop_free(b.loop);
    return 0;
}

static int parse(const uint8_t *bytes, size_t n, const Cloche__V1__KeptSandbox **ret_kept)
{
    assert_int_equal(cl_arena_new((size_t)4 * KEPT_MAX, &b.arena, NULL), 0);
    return kept_parse(bytes, n, b.arena, ret_kept, &b.err);
}

/* Printed with the first n samples. */
static const Cloche__V1__KeptSandbox *pass(size_t n)
{
    const Cloche__V1__KeptSandbox *m;
    b.machine.usage = (struct usage){b.samples, n, USAGE_MAX};
    assert_int_equal(kept_print(&b.source, &b.bytes, &b.err), 0);
    assert_int_equal(parse(b.bytes.data, b.bytes.len, &m), 0);
    return m;
}

static void check_sample(const struct usage_sample *got, const struct usage_sample *want)
{
    assert_int_equal(got->at_ns, want->at_ns);
    assert_int_equal(got->span_ns, want->span_ns);
    assert_int_equal(got->cpu_ns, want->cpu_ns);
    assert_int_equal(got->memory_used, want->memory_used);
    assert_int_equal(got->memory_cached, want->memory_cached);
    assert_int_equal(got->memory_total, want->memory_total);
    assert_int_equal(got->scratch_used, want->scratch_used);
    assert_int_equal(got->scratch_total, want->scratch_total);
    assert_int_equal(got->processes, want->processes);
}

static void test_all_that_there_can_be(void **state)
{
    (void)state;
    struct usage_sample got[USAGE_MAX];
    b.machine.usage_open_ns = 81;
    b.machine.usage_cpu_ns = 82;
    const Cloche__V1__KeptSandbox *m = pass(USAGE_MAX);
    assert_int_equal(kept_usage(m, got), USAGE_MAX);
    for (size_t i = 0; i < USAGE_MAX; i++)
        check_sample(&got[i], &b.samples[i]);
    assert_int_equal(m->usage_open_ns, 81);
    assert_int_equal(m->usage_cpu_ns, 82);
}

static void test_nothing_yet(void **state)
{
    (void)state;
    struct usage_sample got[USAGE_MAX];
    assert_int_equal(kept_usage(pass(0), got), 0);
}

static void test_more_than_there_can_be(void **state)
{
    (void)state;
    (void)pass(USAGE_MAX);
    const Cloche__V1__KeptSandbox *m = NULL;
    Cloche__V1__KeptSandbox *whole =
        cloche__v1__kept_sandbox__unpack(NULL, b.bytes.len, b.bytes.data);
    Cloche__V1__KeptSandbox more = *whole;
    Cloche__V1__KeptSample *list[USAGE_MAX + 1];
    for (size_t i = 0; i < CL_COUNT(list); i++)
        list[i] = whole->usage[0];
    more.usage = list;
    more.n_usage = CL_COUNT(list);
    size_t n = cloche__v1__kept_sandbox__get_packed_size(&more);
    uint8_t *bytes = malloc(n);
    (void)cloche__v1__kept_sandbox__pack(&more, bytes);
    cl_arena_free(b.arena);
    assert_int_equal(parse(bytes, n, &m), -1);
    assert_int_equal(b.err.code, CL_E_INVALID);
    free(bytes);
    cloche__v1__kept_sandbox__free_unpacked(whole, NULL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_all_that_there_can_be),
        TEST(test_nothing_yet),
        TEST(test_more_than_there_can_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
