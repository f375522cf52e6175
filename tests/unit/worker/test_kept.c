/* tests/unit/worker/test_kept.c - worker/kept.h: what is printed comes back, all else is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/id.h"
#include "base/loop.h"
#include "proto/guest_frame.h"
#include "worker/kept.h"
#include "worker/sealed_file.h"
#include "worker/spool.h"
#include "worker/vm_driver.h"

enum {
    ARENA = 4 * KEPT_MAX,
    SNAPSHOT = 8192,
    STREAMS = 2 * GUEST_STREAMS_MAX,
    RULES = 32,                        /* of one grant */
    RUNS = GUEST_STREAMS_RESTORED + 1, /* streams of commands: one that runs, others that ended */
    ENDED = GUEST_STREAMS_RESTORED + 2,
};

static const struct vm_driver driver = {.name = "kvm/xenpv", .is_shared = true};

static struct bench {
    struct cl_loop *loop;
    struct cl_arena *arena; /* of what was parsed last */
    struct template template;
    struct guest_past past;
    struct machine_kept machine;
    struct watch watch, network;
    Cloche__V1__Assign assign;
    Cloche__V1__Resources resources;
    Cloche__V1__NetworkGrant grant;
    char unit_id[CL_ID_MAX], lease_id[CL_ID_MAX], tenant[64];
    char *rules[RULES];
    struct exec {
        Cloche__V1__KeptExec m;
        Cloche__V1__ExecStartCommand start;
        Cloche__V1__Command command;
        Cloche__V1__KeptOutput output;
        Cloche__V1__KeptBytes lanes[SPOOL_STREAMS], *list[SPOOL_STREAMS];
        Cloche__V1__ExecResult result;
        char id[CL_ID_MAX];
    } execs[KEPT_EXECS_MAX];
    Cloche__V1__KeptExec *list[KEPT_EXECS_MAX];
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

/* The RAM of a snapshot, in its file. */
static void store_snapshot(void)
{
    assert_int_equal(rest_new(b.loop, SNAPSHOT, &b.template.file, &b.err), 0);
    assert_int_equal(pwrite(rest_files(b.template.file)->memory, "snapshot", 8, 0), 8);
    assert_int_equal(ftruncate(rest_files(b.template.file)->memory, SNAPSHOT), 0);
    assert_int_equal(rest_store(b.template.file, "/tmp", on_stored, &b, &b.err), 0);
    cl_loop_run(b.loop);
}

static void fill_template(void)
{
    struct template *t = &b.template;
    t->driver = &driver;
    t->memory_mib = 512;
    t->vcpus = 2;
    t->network = t->dials = t->cell_env = true;
    (void)snprintf(t->m.name, sizeof t->m.name, "python");
    memset(t->m.image_key, 'a', TEMPLATE_HEX - 1);
    memset(t->snapshot_key, '0', TEMPLATE_HEX - 1);
    memset(t->monitor.sha256, 'f', MONITOR_HEX - 1);
    memset(t->monitor.build, 'b', MONITOR_BUILD - 1);
    (void)snprintf(t->file_name, sizeof t->file_name, "ram_01ARZ3NDEKTSV4RRFFQ69G5FAV");
}

static void fill_assign(void)
{
    static char rule[] = "*.example.org:80-443";
    cl_id_new("sbx", b.unit_id);
    cl_id_new("lease", b.lease_id);
    (void)snprintf(b.tenant, sizeof b.tenant, "local");
    cloche__v1__network_grant__init(&b.grant);
    cloche__v1__resources__init(&b.resources);
    cloche__v1__assign__init(&b.assign);
    for (size_t i = 0; i < RULES; i++)
        b.rules[i] = rule;
    b.grant.allow = b.rules;
    b.grant.n_allow = RULES;
    b.grant.egress_bytes = 1 << 30;
    b.resources.vcpus = 2;
    b.resources.memory_mib = 512;
    b.assign.kind = CLOCHE__V1__UNIT_KIND__UNIT_KIND_SANDBOX;
    b.assign.tenant = b.tenant;
    b.assign.unit_id = b.unit_id;
    b.assign.lease_id = b.lease_id;
    b.assign.template_ = b.template.m.name;
    b.assign.fence = 77;
    b.assign.attempt = 1;
    b.assign.ttl_ns = 600000000000;
    b.assign.max_life_ns = 3600000000000;
    b.assign.pause_on_idle = 1;
    b.assign.resources = &b.resources;
    b.assign.network_grant = &b.grant;
}

static void fill_machine(void)
{
    b.past.next_stream = GUEST_STREAMS_RESTORED + 9;
    b.past.n = STREAMS;
    for (size_t i = 0; i < STREAMS; i++)
        b.past.streams[i] = (struct guest_past_stream){.id = 3 * i + 1,
                                                       .ends = i % 2,
                                                       .send_credit = i,
                                                       .recv_credit = 2 * i,
                                                       .consumed = 3 * i};
    b.machine = (struct machine_kept){
        .template = &b.template,
        .name = b.unit_id,
        .image = {.bytes = 4711, .pieces = 17, .memory_bytes = 512ULL << 20, .state_bytes = 9098},
        .disk_bytes = 1ULL << 40,
        .scratch_bytes = 1ULL << 41,
        .cpu_ns = 123456789012,
        .flow = 12,
        .code_started = true,
        .unwatched = "switched off",
        .past = &b.past};
    for (size_t i = 0; i < REST_KEY; i++)
        b.machine.image.key[i] = (uint8_t)(200 + i);
}

static int set_up(void **state)
{
    (void)state;
    b = (struct bench){0};
    if (cl_loop_new(&b.loop, NULL) < 0)
        return -1;
    store_snapshot();
    fill_template();
    fill_assign();
    fill_machine();
    b.watch = (struct watch){{1, 2}, 31, 32, 33, 34, 35, 36};
    b.network = (struct watch){{3, 4}, 41, 42, 43, 44, 45, 46};
    b.source = (struct kept_source){.assign = &b.assign,
                                    .machine = &b.machine,
                                    .expires_unix_ns = 1800000000000000000,
                                    .paused_for_idle = true,
                                    .goes_on = true,
                                    .watch = &b.watch,
                                    .network = &b.network,
                                    .sent_bytes = 1ULL << 33,
                                    .received_bytes = 1ULL << 34};
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

static const Cloche__V1__KeptSandbox *parse(const uint8_t *bytes, size_t n, enum cl_code want)
{
    const Cloche__V1__KeptSandbox *m;
    cl_arena_free(b.arena);
    b.err = (struct cl_err){0};
    assert_int_equal(cl_arena_new(ARENA, &b.arena, &b.err), 0);
    int rc = kept_parse(bytes, n, b.arena, &m, &b.err);
    if (b.err.code != want || rc != (want == CL_OK ? 0 : -1))
        fail_msg("%d, want %d: %s", (int)b.err.code, (int)want, b.err.text);
    return m;
}

/* Print what the bench has and parse it. */
static const Cloche__V1__KeptSandbox *pass(enum cl_code want)
{
    cl_buf_clear(&b.bytes);
    assert_int_equal(kept_print(&b.source, &b.bytes, &b.err), 0);
    return parse(b.bytes.data, b.bytes.len, want);
}

/* --- there and back -----------------------------------------------------------------------------
 */

static void check_ticket(const Cloche__V1__SealedFile *m, const struct rest_ticket *want)
{
    struct rest_ticket got;
    sealed_file_ticket(m, &got);
    assert_memory_equal(&got, want, sizeof got);
}

static void check_watch(const Cloche__V1__KeptCount *m, const struct watch *want)
{
    struct watch got;
    kept_watch(m, &got);
    assert_int_equal(got.came, want->came);
    assert_int_equal(got.over, want->over);
    assert_int_equal(got.seen, want->seen);
    assert_int_equal(got.lost, want->lost);
    assert_int_equal(got.told_over, want->told_over);
    assert_int_equal(got.told_lost, want->told_lost);
    for (int i = 0; i < WATCH_CLASSES; i++)
        assert_int_equal(got.tat_us[i], 0); /* of another process's clock */
}

static void check_assign(const Cloche__V1__Assign *a)
{
    size_t n = cloche__v1__assign__get_packed_size(&b.assign);
    uint8_t *want = malloc(n), *got = malloc(n);
    assert_int_equal(cloche__v1__assign__get_packed_size(a), n);
    assert_int_equal(cloche__v1__assign__pack(&b.assign, want), n);
    assert_int_equal(cloche__v1__assign__pack(a, got), n);
    assert_memory_equal(got, want, n);
    assert_int_equal(a->network_grant->n_allow, RULES);
    assert_string_equal(a->network_grant->allow[RULES - 1], b.rules[RULES - 1]);
    assert_int_equal(a->network_grant->egress_bytes, b.grant.egress_bytes);
    free(want);
    free(got);
}

static void check_template(const Cloche__V1__KeptTemplate *m)
{
    struct rest_ticket ticket;
    rest_get_ticket(b.template.file, &ticket);
    assert_int_equal(ticket.memory_bytes, SNAPSHOT);
    assert_string_equal(m->name, "python");
    assert_string_equal(m->driver, "kvm/xenpv");
    assert_true(m->is_shared);
    assert_string_equal(m->image_key, b.template.m.image_key);
    assert_string_equal(m->snapshot_key, b.template.snapshot_key);
    assert_string_equal(m->monitor->sha256, b.template.monitor.sha256);
    assert_string_equal(m->monitor->build, b.template.monitor.build);
    assert_int_equal(m->memory_mib, 512);
    assert_int_equal(m->vcpus, 2);
    assert_true(m->network && m->dials && m->cell_env);
    assert_string_equal(m->memory->name, b.template.file_name);
    check_ticket(m->memory, &ticket);
}

static void check_past(const Cloche__V1__KeptSandbox *m)
{
    struct guest_past past;
    kept_past(m, &past);
    assert_int_equal(past.next_stream, b.past.next_stream);
    assert_int_equal(past.n, b.past.n);
    for (size_t i = 0; i < past.n; i++) {
        assert_int_equal(past.streams[i].id, b.past.streams[i].id);
        assert_int_equal(past.streams[i].ends, b.past.streams[i].ends);
        assert_int_equal(past.streams[i].send_credit, b.past.streams[i].send_credit);
        assert_int_equal(past.streams[i].recv_credit, b.past.streams[i].recv_credit);
        assert_int_equal(past.streams[i].consumed, b.past.streams[i].consumed);
    }
}

static void test_what_is_printed_comes_back(void **state)
{
    (void)state;
    const Cloche__V1__KeptSandbox *m = pass(CL_OK);
    assert_int_equal(m->version, KEPT_VERSION);
    check_assign(m->assign);
    assert_string_equal(m->image->name, b.unit_id);
    check_ticket(m->image, &b.machine.image);
    check_template(m->template_);
    check_past(m);
    check_watch(m->watch, &b.watch);
    check_watch(m->network, &b.network);
    assert_int_equal(m->disk_bytes, b.machine.disk_bytes);
    assert_int_equal(m->scratch_bytes, b.machine.scratch_bytes);
    assert_int_equal(m->cpu_ns, b.machine.cpu_ns);
    assert_int_equal(m->flow, b.machine.flow);
    assert_true(m->code_started);
    assert_string_equal(m->unwatched, "switched off");
    assert_int_equal(m->expires_unix_ns, b.source.expires_unix_ns);
    assert_true(m->paused_for_idle && m->goes_on);
    assert_int_equal(m->sent_bytes, b.source.sent_bytes);
    assert_int_equal(m->received_bytes, b.source.received_bytes);
}

static void test_the_least_that_there_can_be_comes_back(void **state)
{
    (void)state;
    b.assign.network_grant = NULL;
    b.assign.resources = NULL;
    b.past = (struct guest_past){.next_stream = 1};
    b.machine = (struct machine_kept){
        .template = &b.template, .name = b.unit_id, .unwatched = "", .past = &b.past};
    b.watch = b.network = (struct watch){.came = 0};
    b.template.network = b.template.dials = b.template.cell_env = false;
    b.source = (struct kept_source){
        .assign = &b.assign, .machine = &b.machine, .watch = &b.watch, .network = &b.network};
    const Cloche__V1__KeptSandbox *m = pass(CL_OK);
    assert_null(m->assign->network_grant);
    assert_string_equal(m->unwatched, "");
    assert_false(m->code_started || m->paused_for_idle);
    assert_false(m->template_->network || m->template_->dials || m->template_->cell_env);
    check_ticket(m->image, &b.machine.image);
    check_past(m);
    check_watch(m->watch, &b.watch);
}

static void test_names_may_be_as_long_as_they_get(void **state)
{
    (void)state;
    memset(b.tenant, 't', sizeof b.tenant - 1);
    memset(b.template.m.name, 'n', TEMPLATE_NAME_MAX - 1);
    memset(b.template.file_name, 'f', TEMPLATE_FILE_MAX - 1);
    const Cloche__V1__KeptSandbox *m = pass(CL_OK);
    assert_string_equal(m->assign->tenant, b.tenant);
    assert_string_equal(m->template_->memory->name, b.template.file_name);
    assert_string_equal(m->template_->name, b.template.m.name);
}

static void test_a_record_that_is_too_long_is_not_printed(void **state)
{
    (void)state;
    size_t n = KEPT_MAX;
    b.bytes.max = 2 * KEPT_MAX;
    char *text = malloc(n + 1);
    memset(text, 'x', n);
    text[n] = '\0';
    b.assign.traceparent = text;
    assert_int_equal(kept_print(&b.source, &b.bytes, &b.err), -1);
    assert_int_equal(b.err.code, CL_E_TOOBIG);
    assert_int_equal(b.bytes.len, 0);
    free(text);
}

/* --- what is refused ----------------------------------------------------------------------------
 */

static void set_text(char **field, const char *text)
{
    *field = (char *)(uintptr_t)text;
}

typedef void change_fn(Cloche__V1__KeptSandbox *m);

/* Change one thing of what was printed, and only that. */
static void refuse(change_fn *change, enum cl_code want)
{
    cl_buf_clear(&b.bytes);
    assert_int_equal(kept_print(&b.source, &b.bytes, &b.err), 0);
    Cloche__V1__KeptSandbox *m = cloche__v1__kept_sandbox__unpack(NULL, b.bytes.len, b.bytes.data);
    Cloche__V1__KeptSandbox changed = *m;
    Cloche__V1__Assign assign = *m->assign;
    Cloche__V1__SealedFile image = *m->image, memory = *m->template_->memory;
    Cloche__V1__KeptTemplate template = *m->template_;
    Cloche__V1__KeptMonitor monitor = *template.monitor;
    changed.assign = &assign;
    changed.image = &image;
    changed.template_ = &template;
    template.memory = &memory;
    template.monitor = &monitor;
    change(&changed);
    size_t n = cloche__v1__kept_sandbox__get_packed_size(&changed);
    uint8_t *bytes = malloc(n);
    assert_int_equal(cloche__v1__kept_sandbox__pack(&changed, bytes), n);
    (void)parse(bytes, n, want);
    free(bytes);
    cloche__v1__kept_sandbox__free_unpacked(m, NULL);
}

static void change_nothing(Cloche__V1__KeptSandbox *m)
{
    (void)m;
}

static void change_version(Cloche__V1__KeptSandbox *m)
{
    m->version = KEPT_VERSION + 1;
}

static void change_to_no_version(Cloche__V1__KeptSandbox *m)
{
    m->version = 0;
}

static void test_another_version_is_refused_as_that(void **state)
{
    (void)state;
    refuse(change_nothing, CL_OK);
    refuse(change_version, CL_E_UNIMPL);
    assert_non_null(strstr(b.err.text, "version 2"));
    refuse(change_to_no_version, CL_E_UNIMPL);
}

static void take_assign(Cloche__V1__KeptSandbox *m)
{
    m->assign = NULL;
}

static void make_job(Cloche__V1__KeptSandbox *m)
{
    m->assign->kind = CLOCHE__V1__UNIT_KIND__UNIT_KIND_JOB;
}

static void take_tenant(Cloche__V1__KeptSandbox *m)
{
    set_text(&m->assign->tenant, "");
}

static void stretch_tenant(Cloche__V1__KeptSandbox *m)
{
    set_text(&m->assign->tenant,
             "t234567890123456789012345678901234567890123456789012345678901234");
}

static void change_unit_id(Cloche__V1__KeptSandbox *m)
{
    set_text(&m->assign->unit_id, "sbx_1");
    set_text(&m->image->name, "sbx_1");
}

static void change_unit_kind(Cloche__V1__KeptSandbox *m)
{
    set_text(&m->assign->unit_id, "job_01ARZ3NDEKTSV4RRFFQ69G5FAV");
    set_text(&m->image->name, "job_01ARZ3NDEKTSV4RRFFQ69G5FAV");
}

static void change_lease_id(Cloche__V1__KeptSandbox *m)
{
    m->assign->lease_id = m->assign->unit_id;
}

static void test_a_record_of_no_sandbox_is_refused(void **state)
{
    (void)state;
    static change_fn *const changes[] = {take_assign,    make_job,       take_tenant,
                                         stretch_tenant, change_unit_id, change_unit_kind,
                                         change_lease_id};
    for (size_t i = 0; i < CL_COUNT(changes); i++) {
        refuse(changes[i], CL_E_INVALID);
        assert_string_equal(b.err.text, "a record of no sandbox");
    }
}

/* --- its files ----------------------------------------------------------------------------------
 */

static const char *name; /* the next that is tried */

static void name_memory(Cloche__V1__KeptSandbox *m)
{
    set_text(&m->template_->memory->name, name);
}

static void name_image(Cloche__V1__KeptSandbox *m)
{
    set_text(&m->image->name, name);
}

static void name_template(Cloche__V1__KeptSandbox *m)
{
    set_text(&m->template_->name, name);
}

static void test_names_that_lead_elsewhere_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {
        "",        ".",           "..",
        ".hidden", "/etc/shadow", "../up",
        "in/side", "end/",        "f23456789012345678901234567890123456789012345678"};
    static const char long_name[] =
        "t234567890123456789012345678901234567890123456789012345678901234";
    _Static_assert(TEMPLATE_FILE_MAX == 48, "the last of them is one too long for a file");
    _Static_assert(sizeof long_name > TEMPLATE_NAME_MAX, "this one for a template");
    for (size_t i = 0; i < CL_COUNT(names); i++) {
        name = names[i];
        refuse(name_memory, CL_E_INVALID);
        assert_non_null(strstr(b.err.text, "template's memory has no name"));
        refuse(name_image, CL_E_INVALID);
        assert_non_null(strstr(b.err.text, "image has no name"));
        name = i + 1 < CL_COUNT(names) ? name : long_name;
        refuse(name_template, CL_E_INVALID);
        assert_non_null(strstr(b.err.text, "without its template"));
    }
    name = "sbx_01ARZ3NDEKTSV4RRFFQ69G5FAV";
    refuse(name_memory, CL_OK);
    refuse(name_image, CL_E_INVALID); /* of another */
    assert_non_null(strstr(b.err.text, "is another's"));
}

static void take_image(Cloche__V1__KeptSandbox *m)
{
    m->image = NULL;
}

static void take_memory(Cloche__V1__KeptSandbox *m)
{
    m->template_->memory = NULL;
}

static void shorten_key_of_image(Cloche__V1__KeptSandbox *m)
{
    m->image->key.len--;
}

static void shorten_key_of_memory(Cloche__V1__KeptSandbox *m)
{
    m->template_->memory->key.len--;
}

static void stretch_key(Cloche__V1__KeptSandbox *m)
{
    static uint8_t key[REST_KEY + 1];
    m->image->key.data = key;
    m->image->key.len = sizeof key;
}

static void take_key(Cloche__V1__KeptSandbox *m)
{
    m->image->key.len = 0;
}

static void test_a_file_needs_its_key(void **state)
{
    (void)state;
    static change_fn *const changes[] = {take_image,  take_memory, shorten_key_of_image,
                                         stretch_key, take_key,    shorten_key_of_memory};
    for (size_t i = 0; i < CL_COUNT(changes); i++) {
        refuse(changes[i], CL_E_INVALID);
        assert_non_null(strstr(b.err.text, "has no name or no key"));
    }
}

/* --- its template -------------------------------------------------------------------------------
 */

static void take_template(Cloche__V1__KeptSandbox *m)
{
    m->template_ = NULL;
}

static void take_driver(Cloche__V1__KeptSandbox *m)
{
    set_text(&m->template_->driver, "");
}

static void take_ram(Cloche__V1__KeptSandbox *m)
{
    m->template_->memory_mib = 0;
}

static void take_vcpus(Cloche__V1__KeptSandbox *m)
{
    m->template_->vcpus = 0;
}

static const char *hex;
static int which;

static void change_hex(Cloche__V1__KeptSandbox *m)
{
    Cloche__V1__KeptTemplate *t = m->template_;
    set_text((char **[]){&t->image_key, &t->snapshot_key, &t->monitor->sha256}[which], hex);
}

#define HEX_63 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde"

static void test_a_record_without_its_template_is_refused(void **state)
{
    (void)state;
    static change_fn *const changes[] = {take_template, take_driver, take_ram, take_vcpus};
    static const char *const keys[] = {"",          HEX_63,     HEX_63 "f0",
                                       HEX_63 "fg", HEX_63 "F", HEX_63 "/"};
    for (size_t i = 0; i < CL_COUNT(changes); i++) {
        refuse(changes[i], CL_E_INVALID);
        assert_string_equal(b.err.text, "a record without its template");
    }
    for (size_t i = 0; i < CL_COUNT(keys); i++) {
        hex = keys[i];
        for (which = 0; which < 3; which++)
            refuse(change_hex, CL_E_INVALID);
    }
    hex = HEX_63 "f";
    for (which = 0; which < 3; which++)
        refuse(change_hex, CL_OK);
}

/* --- its past -----------------------------------------------------------------------------------
 */

static void add_stream(Cloche__V1__KeptSandbox *m)
{
    static Cloche__V1__KeptStream stream, *list[STREAMS + 1];
    cloche__v1__kept_stream__init(&stream);
    for (size_t i = 0; i < CL_COUNT(list); i++)
        list[i] = &stream;
    m->streams = list;
    m->n_streams = CL_COUNT(list);
}

static void take_next_stream(Cloche__V1__KeptSandbox *m)
{
    m->next_stream = 0;
}

static void take_watch(Cloche__V1__KeptSandbox *m)
{
    m->watch = NULL;
}

static void take_network(Cloche__V1__KeptSandbox *m)
{
    m->network = NULL;
}

static void test_a_past_that_cannot_be_is_refused(void **state)
{
    (void)state;
    static change_fn *const changes[] = {add_stream, take_next_stream, take_watch, take_network};
    for (size_t i = 0; i < CL_COUNT(changes); i++) {
        refuse(changes[i], CL_E_INVALID);
        assert_string_equal(b.err.text, "a record with too much or too little of its past");
    }
}

/* --- its commands -------------------------------------------------------------------------------
 */

static char *argv[] = {(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c", (char *)(uintptr_t) "x"};
static uint8_t digest[SPOOL_DIGEST_MAX], key[SPOOL_KEY];

static void fill_output(struct exec *e, bool is_running)
{
    cloche__v1__kept_output__init(&e->output);
    e->output.key.data = key;
    e->output.key.len = sizeof key;
    e->output.cap = 1000;
    e->output.streams = e->list;
    e->output.n_streams = SPOOL_STREAMS;
    for (size_t i = 0; i < SPOOL_STREAMS; i++) {
        cloche__v1__kept_bytes__init(&e->lanes[i]);
        e->list[i] = &e->lanes[i];
        e->lanes[i].bytes = 700 * (i + 1);
        e->lanes[i].kept = i ? 300 : 700;
        e->lanes[i].sha256.data = digest;
        e->lanes[i].sha256.len = spool_digest_size(e->lanes[i].bytes, !is_running);
    }
}

static void add_exec(bool is_running)
{
    size_t i = b.source.n_execs++;
    struct exec *e = &b.execs[i];
    cloche__v1__kept_exec__init(&e->m);
    cloche__v1__exec_start_command__init(&e->start);
    cloche__v1__command__init(&e->command);
    cl_id_new("exec", e->id);
    e->start.exec_id = e->id;
    e->start.command = &e->command;
    e->start.kill_on_disconnect = 1;
    e->command.argv = argv;
    e->command.n_argv = CL_COUNT(argv);
    e->m.start = &e->start;
    e->m.output = &e->output;
    e->m.started_unix_ns = 1700000000000000000;
    e->m.stream = ENDED + i;
    fill_output(e, is_running);
    if (is_running) {
        e->m.stream = RUNS;
        e->m.limit_ns = 1000000007;
        b.past.streams[0] = (struct guest_past_stream){.id = RUNS,
                                                       .send_credit = GUEST_WINDOW_INITIAL,
                                                       .recv_credit = 1000,
                                                       .consumed = GUEST_WINDOW_INITIAL - 1000};
    } else {
        cloche__v1__exec_result__init(&e->result);
        e->result.outcome = CLOCHE__V1__OUTCOME__OUTCOME_EXITED;
        e->result.reason = CLOCHE__V1__REASON__REASON_FINISHED;
        e->result.exit_code = 42;
        e->m.result = &e->result;
    }
    b.past.next_stream = ENDED + KEPT_EXECS_MAX;
    b.list[i] = &e->m;
    b.source.execs = b.list;
}

static void test_commands_come_back(void **state)
{
    (void)state;
    add_exec(false);
    add_exec(true);
    b.execs[1].m.abandoned = 1;
    for (size_t i = 0; i < sizeof digest; i++)
        digest[i] = (uint8_t)(100 + i);
    memset(key, 7, sizeof key);
    const Cloche__V1__KeptSandbox *m = pass(CL_OK);
    assert_int_equal(m->n_execs, 2);
    check_past(m);
    for (size_t i = 0; i < 2; i++) { /* all of them, by their bytes */
        size_t n = cloche__v1__kept_exec__get_packed_size(&b.execs[i].m);
        uint8_t *want = malloc(n), *got = malloc(n);
        assert_int_equal(cloche__v1__kept_exec__get_packed_size(m->execs[i]), n);
        (void)cloche__v1__kept_exec__pack(&b.execs[i].m, want);
        (void)cloche__v1__kept_exec__pack(m->execs[i], got);
        assert_memory_equal(want, got, n);
        free(want);
        free(got);
    }
    assert_int_equal(m->execs[0]->result->exit_code, 42);
    assert_true(m->execs[1]->abandoned && !m->execs[1]->result);
    assert_int_equal(m->execs[1]->output->streams[1]->sha256.len, SPOOL_SHA256 + 1400 % 64);
}

/* Of those that have ended the newest stay; whatever runs stays before them. */
static void test_commands_that_do_not_fit_are_left_out(void **state)
{
    (void)state;
    enum { LONG = KEPT_MAX / 3 };
    char *text = malloc(LONG + 1);
    char *words[] = {text};
    memset(text, 'x', LONG);
    text[LONG] = '\0';
    add_exec(true);
    for (int i = 0; i < 4; i++)
        add_exec(false);
    for (size_t i = 0; i < b.source.n_execs; i++) {
        b.execs[i].command.argv = words;
        b.execs[i].command.n_argv = 1;
    }
    b.execs[1].command.argv = argv; /* the oldest is small */
    const Cloche__V1__KeptSandbox *m = pass(CL_OK);
    assert_int_equal(m->n_execs, 3);
    assert_int_equal(m->execs[0]->stream, RUNS);
    assert_int_equal(m->execs[1]->stream, ENDED + 1);
    assert_int_equal(m->execs[2]->stream, ENDED + 4);
    free(text);
}

/* What is printed can be parsed, whatever it is made of. */
static void test_commands_of_many_parts_fit_their_parser(void **state)
{
    (void)state;
    enum { VARS = 2048 };
    static char var_name[] = "NAME_OF_A_VARIABLE_1", value[] = "value_of_it_1234";
    static Cloche__V1__EnvVar var, *vars[VARS];
    cloche__v1__env_var__init(&var);
    var.name = var_name;
    var.value = value;
    for (size_t i = 0; i < VARS; i++)
        vars[i] = &var;
    for (int i = 0; i < 12; i++) {
        add_exec(false);
        b.execs[i].command.env = vars;
        b.execs[i].command.n_env = VARS;
    }
    const Cloche__V1__KeptSandbox *m = pass(CL_OK);
    assert_int_equal(m->n_execs, KEPT_ELEMENTS_MAX / VARS - 1);
    assert_int_equal(m->execs[0]->stream, ENDED + 12 - m->n_execs);
}

static void test_as_many_commands_as_a_sandbox_can_have_come_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < KEPT_EXECS_MAX; i++)
        add_exec(false);
    assert_int_equal(pass(CL_OK)->n_execs, KEPT_EXECS_MAX);
    assert_in_range(b.bytes.len, 1, KEPT_MAX / 4);
}

/* A command that would make the whole record one that is refused is not in it. */
static void test_commands_that_would_be_refused_are_left_out(void **state)
{
    (void)state;
    add_exec(true);
    add_exec(false);
    b.past.streams[0].ends = true;
    assert_int_equal(pass(CL_OK)->n_execs, 1);
    b.past.streams[0].id++;
    assert_int_equal(pass(CL_OK)->n_execs, 1);
    b.past.streams[0] = b.past.streams[1] = (struct guest_past_stream){.id = RUNS};
    assert_int_equal(pass(CL_OK)->n_execs, 1);
    b.past.streams[1].id = 2;
    assert_int_equal(pass(CL_OK)->n_execs, 2);
}

/* Of a record with one that ended and one that runs. */
typedef void change_exec_fn(Cloche__V1__KeptSandbox *m, Cloche__V1__KeptExec *ended,
                            Cloche__V1__KeptExec *runs);

#define CHANGE(name, what) \
    static void name(Cloche__V1__KeptSandbox *m, Cloche__V1__KeptExec *e, Cloche__V1__KeptExec *r) \
    { \
        (void)m, (void)e, (void)r; \
        what; \
    }

CHANGE(keep_exec, )
CHANGE(lose_start, e->start = NULL)
CHANGE(lose_command, e->start->command = NULL)
CHANGE(lose_argv, e->start->command->n_argv = 0)
CHANGE(name_exec_short, set_text(&e->start->exec_id, "exec_1"))
CHANGE(name_exec_else, set_text(&e->start->exec_id, "sbx_01ARZ3NDEKTSV4RRFFQ69G5FAV"))
CHANGE(name_exec_up, set_text(&e->start->exec_id, "exec_../../NDEKTSV4RRFFQ69G5FAV"))
CHANGE(stream_none, e->stream = 0)
CHANGE(stream_to_come, e->stream = m->next_stream)
CHANGE(stream_gone, r->stream++)
CHANGE(stream_ends, m->streams[0]->ends = 1)
CHANGE(lose_limit, r->limit_ns = 0)
CHANGE(stretch_limit, r->limit_ns = 25ULL * 3600 * 1000000000 + 1)
CHANGE(window_send, m->streams[0]->send_credit++)
CHANGE(window_recv, m->streams[0]->recv_credit++)
CHANGE(window_recv_more, m->streams[0]->recv_credit = UINT64_MAX)
CHANGE(window_consumed, m->streams[0]->consumed = UINT64_MAX)
CHANGE(both, e->limit_ns = 1)
CHANGE(lose_outcome, e->result->outcome = 0)
CHANGE(outcome_else, e->result->outcome = (Cloche__V1__Outcome)99)
CHANGE(reason_else, e->result->reason = (Cloche__V1__Reason)99)
CHANGE(lose_output, e->output = NULL)
CHANGE(shorten_key, e->output->key.len--)
CHANGE(lose_cap, e->output->cap = 999)
CHANGE(stretch_cap, e->output->cap = 1ULL << 63)
CHANGE(lose_stream, e->output->n_streams--)
CHANGE(keep_more, e->output->streams[0]->kept++)
CHANGE(keep_most, e->output->streams[0]->kept = UINT64_MAX)
CHANGE(keep_more_than_all, e->output->streams[0]->bytes = 699)
CHANGE(bytes_most, e->output->streams[1]->bytes = 1ULL << 63)
CHANGE(digest_short, e->output->streams[0]->sha256.len--)
CHANGE(digest_short_running, r->output->streams[0]->sha256.len--)
CHANGE(digest_of_else, r->output->streams[1]->bytes++)
CHANGE(twice_by_id, r->start->exec_id = e->start->exec_id)
CHANGE(twice_by_stream, e->stream = r->stream)

static void refuse_exec(change_exec_fn *change, const char *why)
{
    struct cl_arena *arena; /* what is changed in it, nobody frees */
    const Cloche__V1__KeptSandbox *printed;
    cl_buf_clear(&b.bytes);
    assert_int_equal(kept_print(&b.source, &b.bytes, &b.err), 0);
    assert_int_equal(cl_arena_new(ARENA, &arena, &b.err), 0);
    assert_int_equal(kept_parse(b.bytes.data, b.bytes.len, arena, &printed, &b.err), 0);
    Cloche__V1__KeptSandbox *m = (Cloche__V1__KeptSandbox *)(uintptr_t)printed;
    change(m, m->execs[0], m->execs[1]);
    size_t n = cloche__v1__kept_sandbox__get_packed_size(m);
    uint8_t *bytes = malloc(n);
    assert_int_equal(cloche__v1__kept_sandbox__pack(m, bytes), n);
    cl_arena_free(arena);
    (void)parse(bytes, n, why ? CL_E_INVALID : CL_OK);
    free(bytes);
    if (why && !strstr(b.err.text, why))
        fail_msg("'%s' instead of '%s'", b.err.text, why);
}

static void test_commands_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const char none[] = "that is none", no_end[] = "neither runs nor ended",
                      output[] = "output that cannot be", twice[] = "twice";
    static const struct {
        change_exec_fn *change;
        const char *why;
    } cases[] = {
        {keep_exec, NULL},
        {lose_start, none},
        {lose_command, none},
        {lose_argv, none},
        {name_exec_short, none},
        {name_exec_else, none},
        {name_exec_up, none},
        {stream_none, no_end},
        {stream_to_come, no_end},
        {stream_gone, no_end},
        {stream_ends, no_end},
        {lose_limit, no_end},
        {stretch_limit, no_end},
        {window_send, no_end},
        {window_recv, no_end},
        {window_recv_more, no_end},
        {window_consumed, no_end},
        {both, no_end},
        {lose_outcome, no_end},
        {outcome_else, no_end},
        {reason_else, no_end},
        {lose_output, output},
        {shorten_key, output},
        {lose_cap, output},
        {stretch_cap, output},
        {lose_stream, output},
        {keep_more, output},
        {keep_most, output},
        {keep_more_than_all, output},
        {bytes_most, output},
        {digest_short, output},
        {digest_short_running, output},
        {digest_of_else, output},
        {twice_by_id, twice},
        {twice_by_stream, twice},
    };
    add_exec(false);
    add_exec(true);
    for (size_t i = 0; i < CL_COUNT(cases); i++)
        refuse_exec(cases[i].change, cases[i].why);
}

static void add_one_too_many(Cloche__V1__KeptSandbox *m)
{
    static Cloche__V1__KeptExec *list[KEPT_EXECS_MAX + 1];
    for (size_t i = 0; i < CL_COUNT(list); i++)
        list[i] = m->execs[0];
    m->execs = list;
    m->n_execs = CL_COUNT(list);
}

static void test_too_many_commands_are_refused(void **state)
{
    (void)state;
    add_exec(false);
    refuse(add_one_too_many, CL_E_INVALID);
    assert_string_equal(b.err.text, "a record of 257 commands");
}

/* --- bytes --------------------------------------------------------------------------------------
 */

/* Whatever is cut off: what there is without it is no record. */
static void test_a_record_that_was_cut_is_refused(void **state)
{
    (void)state;
    (void)pass(CL_OK);
    size_t whole = b.bytes.len, refused = 0;
    for (size_t n = 0; n < whole; n++) {
        const Cloche__V1__KeptSandbox *m;
        uint8_t *bytes = malloc(n + 1); /* of its own, so that no byte behind it is read unseen */
        memcpy(bytes, b.bytes.data, n);
        cl_arena_free(b.arena);
        assert_int_equal(cl_arena_new(ARENA, &b.arena, NULL), 0);
        refused += kept_parse(bytes, n, b.arena, &m, NULL) < 0;
        free(bytes);
    }
    /* But behind `network`, the last that must be there, are four that may be 0. */
    assert_int_equal(refused, whole - 4);
    (void)parse(b.bytes.data, 0, CL_E_UNIMPL);
    (void)parse(b.bytes.data, whole / 2, CL_E_INVALID);
}

static void test_bytes_that_are_no_record_are_refused(void **state)
{
    (void)state;
    (void)pass(CL_OK);
    memset(b.bytes.data + b.bytes.len - 7, 0xff, 7);
    assert_null(parse(b.bytes.data, b.bytes.len, CL_E_INVALID));
    uint8_t *bytes = calloc(1, KEPT_MAX + 1);
    assert_null(parse(bytes, KEPT_MAX, CL_E_INVALID));
    assert_null(parse(bytes, KEPT_MAX + 1, CL_E_TOOBIG));
    free(bytes);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    static const struct CMUnitTest tests[] = {
        TEST(test_what_is_printed_comes_back),
        TEST(test_the_least_that_there_can_be_comes_back),
        TEST(test_names_may_be_as_long_as_they_get),
        TEST(test_a_record_that_is_too_long_is_not_printed),
        TEST(test_another_version_is_refused_as_that),
        TEST(test_a_record_of_no_sandbox_is_refused),
        TEST(test_names_that_lead_elsewhere_are_refused),
        TEST(test_a_file_needs_its_key),
        TEST(test_a_record_without_its_template_is_refused),
        TEST(test_a_past_that_cannot_be_is_refused),
        TEST(test_commands_come_back),
        TEST(test_commands_that_do_not_fit_are_left_out),
        TEST(test_commands_of_many_parts_fit_their_parser),
        TEST(test_as_many_commands_as_a_sandbox_can_have_come_back),
        TEST(test_commands_that_would_be_refused_are_left_out),
        TEST(test_commands_that_cannot_be_are_refused),
        TEST(test_too_many_commands_are_refused),
        TEST(test_a_record_that_was_cut_is_refused),
        TEST(test_bytes_that_are_no_record_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
