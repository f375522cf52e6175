/* worker/kept.c - see worker/kept.h. */
#include "worker/kept.h"

#include <openssl/crypto.h>
#include <string.h>

#include "base/id.h"
#include "base/mem.h"
#include "proto/guest_frame.h"
#include "proto/unpack.h"
#include "vmm/control.h"
#include "worker/sealed_file.h"
#include "worker/spool.h"
#include "worker/vm_driver.h"
#include "worker/vm_state.h"

enum { KEPT_LIMIT_S = 25 * 3600 }; /* a command's, with what its guest is given beyond it */

/* --- to bytes -----------------------------------------------------------------------------------
 */

struct row {
    Cloche__V1__KeptSandbox m;
    Cloche__V1__SealedFile image, memory;
    Cloche__V1__KeptTemplate template;
    Cloche__V1__KeptMonitor monitor;
    Cloche__V1__KeptCount watch, network;
    struct rest_ticket tickets[2];
    Cloche__V1__KeptStream streams[2 * GUEST_STREAMS_MAX], *list[2 * GUEST_STREAMS_MAX];
    Cloche__V1__KeptExec *execs[KEPT_EXECS_MAX];
    Cloche__V1__KeptSample samples[USAGE_MAX], *usage[USAGE_MAX];
};

/* protobuf-c has no word for what it only reads. */
static char *text_of(const char *text)
{
    return (char *)(uintptr_t)text;
}

static void fill_count(Cloche__V1__KeptCount *m, const struct watch *watch)
{
    cloche__v1__kept_count__init(m);
    m->came = watch->came;
    m->over = watch->over;
    m->seen = watch->seen;
    m->lost = watch->lost;
    m->told_over = watch->told_over;
    m->told_lost = watch->told_lost;
}

static void fill_monitor(struct row *row, const struct monitor_build *monitor)
{
    Cloche__V1__KeptMonitor *m = &row->monitor;
    cloche__v1__kept_monitor__init(m);
    m->build = text_of(monitor->build);
    m->sha256 = text_of(monitor->sha256);
    m->control_version = CONTROL_VERSION;
    row->template.monitor = m;
}

static void fill_template(struct row *row, const struct template *t)
{
    Cloche__V1__KeptTemplate *m = &row->template;
    cloche__v1__kept_template__init(m);
    rest_get_ticket(t->file, &row->tickets[1]);
    sealed_file_fill(&row->memory, t->file_name, &row->tickets[1]);
    m->name = text_of(t->m.name);
    m->driver = text_of(t->driver->name);
    m->is_shared = t->driver->is_shared;
    m->image_key = text_of(t->m.image_key);
    m->snapshot_key = text_of(t->snapshot_key);
    m->memory_mib = t->memory_mib;
    m->vcpus = t->vcpus;
    m->network = t->network;
    m->dials = t->dials;
    m->cell_env = t->cell_env;
    m->tsc_khz = t->tsc_khz;
    m->memory = &row->memory;
    if (t->monitor.sha256[0])
        fill_monitor(row, &t->monitor);
}

static void fill_past(struct row *row, const struct guest_past *past)
{
    row->m.next_stream = past->next_stream;
    row->m.streams = row->list;
    row->m.n_streams = past->n;
    for (size_t i = 0; i < past->n; i++) {
        cloche__v1__kept_stream__init(&row->streams[i]);
        row->streams[i].id = past->streams[i].id;
        row->streams[i].ends = past->streams[i].ends;
        row->streams[i].send_credit = past->streams[i].send_credit;
        row->streams[i].recv_credit = past->streams[i].recv_credit;
        row->streams[i].consumed = past->streams[i].consumed;
        row->list[i] = &row->streams[i];
    }
}

static void fill_sample(Cloche__V1__KeptSample *m, const struct usage_sample *s)
{
    cloche__v1__kept_sample__init(m);
    m->at_unix_ns = s->at_ns;
    m->span_ns = s->span_ns;
    m->cpu_ns = s->cpu_ns;
    m->memory_used = s->memory_used;
    m->memory_cached = s->memory_cached;
    m->memory_total = s->memory_total;
    m->scratch_used = s->scratch_used;
    m->scratch_total = s->scratch_total;
    m->processes = s->processes;
}

static void fill_usage(struct row *row, const struct machine_kept *machine)
{
    row->m.usage = row->usage;
    row->m.n_usage = machine->usage.n;
    for (size_t i = 0; i < machine->usage.n; i++) {
        fill_sample(&row->samples[i], &machine->usage.samples[i]);
        row->usage[i] = &row->samples[i];
    }
    row->m.usage_open_ns = machine->usage_open_ns;
    row->m.usage_cpu_ns = machine->usage_cpu_ns;
}

static void fill(struct row *row, const struct kept_source *s)
{
    Cloche__V1__KeptSandbox *m = &row->m;
    cloche__v1__kept_sandbox__init(m);
    row->tickets[0] = s->machine->image;
    sealed_file_fill(&row->image, s->machine->name, &row->tickets[0]);
    fill_template(row, s->machine->template);
    fill_past(row, s->machine->past);
    fill_count(&row->watch, s->watch);
    fill_count(&row->network, s->network);
    fill_usage(row, s->machine);
    m->version = KEPT_VERSION;
    m->assign = (Cloche__V1__Assign *)(uintptr_t)s->assign;
    m->image = &row->image;
    m->template_ = &row->template;
    m->disk_bytes = s->machine->disk_bytes;
    m->scratch_bytes = s->machine->scratch_bytes;
    m->expires_unix_ns = s->expires_unix_ns;
    m->paused_for_idle = s->paused_for_idle;
    m->goes_on = s->goes_on;
    m->code_started = s->machine->code_started;
    m->cpu_ns = s->machine->cpu_ns;
    m->unwatched = text_of(s->machine->unwatched);
    m->calls = text_of(s->machine->calls);
    m->watch = &row->watch;
    m->network = &row->network;
    m->sent_bytes = s->sent_bytes;
    m->received_bytes = s->received_bytes;
    m->flow = s->machine->flow;
}

static int check_exec(const Cloche__V1__KeptSandbox *m, const Cloche__V1__KeptExec *e,
                      struct cl_err *err) CL_MUST;

/* Of what the commands may take. */
struct room {
    size_t bytes, elements;
};

static bool fits(const Cloche__V1__KeptSandbox *m, const Cloche__V1__KeptExec *e, struct room *room)
{
    enum { TAG = 8 }; /* with a length, at most */
    if (check_exec(m, e, NULL) < 0)
        return false; /* who reads it would refuse all of it */
    size_t bytes = protobuf_c_message_get_packed_size(&e->base) + TAG;
    size_t elements = e->start->n_labels + e->start->command->n_argv + e->start->command->n_env;
    if (bytes > room->bytes || elements > room->elements)
        return false;
    room->bytes -= bytes;
    room->elements -= elements;
    return true;
}

/* Those that run first, then the newest of the others; in their order. */
static void fill_execs(struct row *row, const struct kept_source *s)
{
    bool chosen[KEPT_EXECS_MAX] = {false};
    size_t n = CL_MIN(s->n_execs, (size_t)KEPT_EXECS_MAX);
    size_t taken = protobuf_c_message_get_packed_size(&row->m.base);
    struct room room = {KEPT_MAX - CL_MIN(taken, (size_t)KEPT_MAX), KEPT_ELEMENTS_MAX};
    for (int ended = 0; ended < 2; ended++)
        for (size_t i = n; i-- > 0;)
            if ((s->execs[i]->result != NULL) == (ended != 0))
                chosen[i] = fits(&row->m, s->execs[i], &room);
    row->m.execs = row->execs;
    for (size_t i = 0; i < n; i++)
        if (chosen[i])
            row->execs[row->m.n_execs++] = s->execs[i];
}

int kept_print(const struct kept_source *source, struct cl_buf *out, struct cl_err *err)
{
    struct row *row = cl_zalloc(sizeof *row);
    if (!row)
        return cl_fail(err, CL_E_NOMEM, 0, "a record");
    fill(row, source);
    fill_execs(row, source);
    size_t n = protobuf_c_message_get_packed_size(&row->m.base);
    int rc = n > KEPT_MAX ? cl_fail(err, CL_E_TOOBIG, 0, "a record of %zu bytes", n)
                          : cl_buf_reserve(out, n, err);
    if (rc == 0)
        out->len += protobuf_c_message_pack(&row->m.base, out->data + out->len);
    OPENSSL_cleanse(row->tickets, sizeof row->tickets);
    cl_free(row);
    return rc;
}

/* --- and back -----------------------------------------------------------------------------------
 */

static int check_template(const Cloche__V1__KeptTemplate *t, struct cl_err *err)
{
    if (!t || !sealed_file_is_name(t->name, TEMPLATE_NAME_MAX) || !t->driver[0] ||
        !sealed_file_is_hex(t->image_key) || !sealed_file_is_hex(t->snapshot_key) ||
        t->memory_mib == 0 || t->vcpus == 0)
        return cl_fail(err, CL_E_INVALID, 0, "a record without its template");
    if (t->monitor &&
        (!sealed_file_is_hex(t->monitor->sha256) || strlen(t->monitor->build) >= MONITOR_BUILD))
        return cl_fail(err, CL_E_INVALID, 0, "a record of a monitor that has no name");
    return sealed_file_check(t->memory, "template's memory", err);
}

static const Cloche__V1__KeptStream *find_stream(const Cloche__V1__KeptSandbox *m, uint64_t id)
{
    const Cloche__V1__KeptStream *found = NULL;
    for (size_t i = 0; i < m->n_streams; i++) {
        if (m->streams[i]->id != id)
            continue;
        if (found)
            return NULL; /* which? */
        found = m->streams[i];
    }
    return found;
}

static bool is_window(const Cloche__V1__KeptStream *s)
{
    return s->send_credit <= GUEST_WINDOW_INITIAL && s->recv_credit <= GUEST_WINDOW_INITIAL &&
           s->consumed <= GUEST_WINDOW_INITIAL - s->recv_credit;
}

/* It runs on a stream of its guest, or its end is known. */
static bool is_going_or_over(const Cloche__V1__KeptSandbox *m, const Cloche__V1__KeptExec *e)
{
    if (e->result)
        return e->limit_ns == 0 && e->result->outcome &&
               protobuf_c_enum_descriptor_get_value(&cloche__v1__outcome__descriptor,
                                                    (int)e->result->outcome) &&
               protobuf_c_enum_descriptor_get_value(&cloche__v1__reason__descriptor,
                                                    (int)e->result->reason) &&
               strlen(e->result->message) < CL_ERR_TEXT;
    const Cloche__V1__KeptStream *s = find_stream(m, e->stream);
    return e->limit_ns > 0 && e->limit_ns <= KEPT_LIMIT_S * CL_NS_PER_S && s && !s->ends &&
           is_window(s);
}

static bool is_output(const Cloche__V1__KeptOutput *m, bool closed)
{
    if (!m || m->key.len != SPOOL_KEY || m->n_streams != SPOOL_STREAMS)
        return false;
    uint64_t left = m->cap;
    for (size_t i = 0; i < SPOOL_STREAMS; i++) {
        const Cloche__V1__KeptBytes *s = m->streams[i];
        if (s->kept > s->bytes || s->kept > left || s->bytes > INT64_MAX ||
            s->sha256.len != spool_digest_size(s->bytes, closed))
            return false;
        left -= s->kept;
    }
    return m->cap <= INT64_MAX;
}

static int check_exec(const Cloche__V1__KeptSandbox *m, const Cloche__V1__KeptExec *e,
                      struct cl_err *err)
{
    if (!e->start || !cl_id_is(e->start->exec_id, "exec") || !e->start->command ||
        e->start->command->n_argv == 0)
        return cl_fail(err, CL_E_INVALID, 0, "a record of a command that is none");
    if (e->stream == 0 || e->stream >= m->next_stream || !is_going_or_over(m, e))
        return cl_fail(err, CL_E_INVALID, 0, "a record of a command that neither runs nor ended");
    if (!is_output(e->output, e->result != NULL))
        return cl_fail(err, CL_E_INVALID, 0, "a record of output that cannot be");
    return 0;
}

/* Each is there once. */
static int check_execs(const Cloche__V1__KeptSandbox *m, struct cl_err *err)
{
    if (m->n_execs > KEPT_EXECS_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "a record of %zu commands", m->n_execs);
    for (size_t i = 0; i < m->n_execs; i++) {
        const Cloche__V1__KeptExec *e = m->execs[i];
        if (check_exec(m, e, err) < 0)
            return -1;
        for (size_t k = 0; k < i; k++)
            if (m->execs[k]->stream == e->stream ||
                strcmp(m->execs[k]->start->exec_id, e->start->exec_id) == 0)
                return cl_fail(err, CL_E_INVALID, 0, "a record that has a command twice");
    }
    return 0;
}

bool kept_is_id(const char *unit_id)
{
    return cl_id_is(unit_id, "sbx") || cl_id_is(unit_id, "snp");
}

bool kept_is(const Cloche__V1__Assign *a)
{
    return cl_id_is(a->unit_id, "sbx") ? a->kind == CLOCHE__V1__UNIT_KIND__UNIT_KIND_SANDBOX
           : cl_id_is(a->unit_id, "snp")
               ? a->kind == CLOCHE__V1__UNIT_KIND__UNIT_KIND_SNAPSHOT && a->ttl_ns > 0
               : false;
}

static int check(const Cloche__V1__KeptSandbox *m, struct cl_err *err)
{
    const Cloche__V1__Assign *a = m->assign;
    if (m->version != KEPT_VERSION)
        return cl_fail(err, CL_E_UNIMPL, 0, "a record of version %u, where this worker reads %d",
                       m->version, KEPT_VERSION);
    if (!a || !a->tenant[0] || strlen(a->tenant) >= sizeof((struct vm_state *)0)->tenant ||
        !kept_is(a) || !cl_id_is(a->lease_id, "lease"))
        return cl_fail(err, CL_E_INVALID, 0, "a record of no sandbox");
    if (sealed_file_check(m->image, "image", err) < 0 || check_template(m->template_, err) < 0)
        return -1;
    if (strcmp(m->image->name, a->unit_id) != 0)
        return cl_fail(err, CL_E_INVALID, 0, "a record whose image is another's");
    if (m->next_stream == 0 || m->n_streams > CL_COUNT(((struct guest_past *)0)->streams) ||
        !m->watch || !m->network || m->n_usage > USAGE_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "a record with too much or too little of its past");
    return check_execs(m, err);
}

int kept_parse(const uint8_t *bytes, size_t n, struct cl_arena *arena,
               const Cloche__V1__KeptSandbox **ret_kept, struct cl_err *err)
{
    const ProtobufCMessage *msg;
    *ret_kept = NULL;
    if (n > KEPT_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "a record of %zu bytes", n);
    if (pb_unpack(&cloche__v1__kept_sandbox__descriptor, bytes, n, arena, &msg, err) < 0)
        return cl_wrap(err, "a record");
    *ret_kept = (const Cloche__V1__KeptSandbox *)msg;
    return check(*ret_kept, err);
}

void kept_past(const Cloche__V1__KeptSandbox *m, struct guest_past *ret_past)
{
    *ret_past = (struct guest_past){.next_stream = m->next_stream, .n = m->n_streams};
    for (size_t i = 0; i < m->n_streams; i++) {
        const Cloche__V1__KeptStream *s = m->streams[i];
        ret_past->streams[i] = (struct guest_past_stream){.id = s->id,
                                                          .ends = s->ends,
                                                          .send_credit = s->send_credit,
                                                          .recv_credit = s->recv_credit,
                                                          .consumed = s->consumed};
    }
}

size_t kept_usage(const Cloche__V1__KeptSandbox *m, struct usage_sample *ret_samples)
{
    for (size_t i = 0; i < m->n_usage; i++) {
        const Cloche__V1__KeptSample *s = m->usage[i];
        ret_samples[i] = (struct usage_sample){.at_ns = s->at_unix_ns,
                                               .span_ns = s->span_ns,
                                               .cpu_ns = s->cpu_ns,
                                               .memory_used = s->memory_used,
                                               .memory_cached = s->memory_cached,
                                               .memory_total = s->memory_total,
                                               .scratch_used = s->scratch_used,
                                               .scratch_total = s->scratch_total,
                                               .processes = s->processes};
    }
    return m->n_usage;
}

void kept_watch(const Cloche__V1__KeptCount *m, struct watch *ret_watch)
{
    *ret_watch = (struct watch){.came = m->came,
                                .over = m->over,
                                .seen = m->seen,
                                .lost = m->lost,
                                .told_over = m->told_over,
                                .told_lost = m->told_lost};
}
