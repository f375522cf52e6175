/* worker/kept.c - see worker/kept.h. */
#include "worker/kept.h"

#include <openssl/crypto.h>
#include <string.h>

#include "base/mem.h"
#include "proto/unpack.h"
#include "worker/vm_driver.h"
#include "worker/vm_state.h"

/* --- to bytes -----------------------------------------------------------------------------------
 */

struct row {
    Cloche__V1__KeptSandbox m;
    Cloche__V1__SealedFile image, memory;
    Cloche__V1__KeptTemplate template;
    Cloche__V1__KeptCount watch, network;
    struct rest_ticket tickets[2];
    Cloche__V1__KeptStream streams[2 * GUEST_STREAMS_MAX], *list[2 * GUEST_STREAMS_MAX];
};

/* protobuf-c has no word for what it only reads. */
static char *text_of(const char *text)
{
    return (char *)(uintptr_t)text;
}

static void fill_file(Cloche__V1__SealedFile *m, const char *name, struct rest_ticket *ticket)
{
    cloche__v1__sealed_file__init(m);
    m->name = text_of(name);
    m->key.data = ticket->key;
    m->key.len = sizeof ticket->key;
    m->bytes = ticket->bytes;
    m->pieces = ticket->pieces;
    m->memory_bytes = ticket->memory_bytes;
    m->state_bytes = ticket->state_bytes;
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

static void fill_template(struct row *row, const struct template *t)
{
    Cloche__V1__KeptTemplate *m = &row->template;
    cloche__v1__kept_template__init(m);
    rest_get_ticket(t->file, &row->tickets[1]);
    fill_file(&row->memory, t->file_name, &row->tickets[1]);
    m->name = text_of(t->m.name);
    m->driver = text_of(t->driver->name);
    m->is_shared = t->driver->is_shared;
    m->image_key = text_of(t->m.image_key);
    m->snapshot_key = text_of(t->snapshot_key);
    m->memory_mib = t->memory_mib;
    m->vcpus = t->vcpus;
    m->network = t->network;
    m->dials = t->dials;
    m->tsc_khz = t->tsc_khz;
    m->memory = &row->memory;
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
        row->list[i] = &row->streams[i];
    }
}

static void fill(struct row *row, const struct kept_source *s)
{
    Cloche__V1__KeptSandbox *m = &row->m;
    cloche__v1__kept_sandbox__init(m);
    row->tickets[0] = s->machine->image;
    fill_file(&row->image, s->machine->name, &row->tickets[0]);
    fill_template(row, s->machine->template);
    fill_past(row, s->machine->past);
    fill_count(&row->watch, s->watch);
    fill_count(&row->network, s->network);
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
    m->watch = &row->watch;
    m->network = &row->network;
    m->sent_bytes = s->sent_bytes;
    m->received_bytes = s->received_bytes;
    m->flow = s->machine->flow;
}

int kept_print(const struct kept_source *source, struct cl_buf *out, struct cl_err *err)
{
    struct row *row = cl_zalloc(sizeof *row);
    if (!row)
        return cl_fail(err, CL_E_NOMEM, 0, "a record");
    fill(row, source);
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

static bool is_file_name(const char *name, size_t size)
{
    return name[0] && name[0] != '.' && !strchr(name, '/') && strlen(name) < size;
}

static int check_file(const Cloche__V1__SealedFile *m, const char *what, struct cl_err *err)
{
    if (!m || m->key.len != REST_KEY || !is_file_name(m->name, TEMPLATE_FILE_MAX))
        return cl_fail(err, CL_E_INVALID, 0, "a record whose %s has no name or no key", what);
    return 0;
}

static bool is_hex(const char *text)
{
    return strlen(text) == TEMPLATE_HEX - 1 && strspn(text, "0123456789abcdef") == TEMPLATE_HEX - 1;
}

static int check_template(const Cloche__V1__KeptTemplate *t, struct cl_err *err)
{
    if (!t || !is_file_name(t->name, TEMPLATE_NAME_MAX) || !t->driver[0] || !is_hex(t->image_key) ||
        !is_hex(t->snapshot_key) || t->memory_mib == 0 || t->vcpus == 0)
        return cl_fail(err, CL_E_INVALID, 0, "a record without its template");
    return check_file(t->memory, "template's memory", err);
}

static int check(const Cloche__V1__KeptSandbox *m, struct cl_err *err)
{
    const Cloche__V1__Assign *a = m->assign;
    if (m->version != KEPT_VERSION)
        return cl_fail(err, CL_E_UNIMPL, 0, "a record of version %u, where this worker reads %d",
                       m->version, KEPT_VERSION);
    if (!a || a->kind != CLOCHE__V1__UNIT_KIND__UNIT_KIND_SANDBOX || !a->tenant[0] ||
        strlen(a->tenant) >= sizeof((struct vm_state *)0)->tenant || !cl_id_is(a->unit_id, "sbx") ||
        !cl_id_is(a->lease_id, "lease"))
        return cl_fail(err, CL_E_INVALID, 0, "a record of no sandbox");
    if (check_file(m->image, "image", err) < 0 || check_template(m->template_, err) < 0)
        return -1;
    if (strcmp(m->image->name, a->unit_id) != 0)
        return cl_fail(err, CL_E_INVALID, 0, "a record whose image is another's");
    if (m->next_stream == 0 || m->n_streams > CL_COUNT(((struct guest_past *)0)->streams) ||
        !m->watch || !m->network)
        return cl_fail(err, CL_E_INVALID, 0, "a record with too much or too little of its past");
    return 0;
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
        ret_past->streams[i].id = m->streams[i]->id;
        ret_past->streams[i].ends = m->streams[i]->ends;
    }
}

void kept_ticket(const Cloche__V1__SealedFile *m, struct rest_ticket *ret_ticket)
{
    *ret_ticket = (struct rest_ticket){.bytes = m->bytes,
                                       .pieces = m->pieces,
                                       .memory_bytes = m->memory_bytes,
                                       .state_bytes = m->state_bytes};
    memcpy(ret_ticket->key, m->key.data, sizeof ret_ticket->key);
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
