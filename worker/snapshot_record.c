/* worker/snapshot_record.c - see worker/snapshot_record.h. */
#include "worker/snapshot_record.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "proto/unpack.h"
#include "worker/digest.h"
#include "worker/sealed_file.h"

void snapshot_record_key(const struct template *t, const struct snapshot_recipe *recipe,
                         char ret_key[static TEMPLATE_HEX])
{
    char text[512];
    int n = snprintf(text, sizeof text, "1%c%s%c%s%c%s%c%s%c%d", 0, t->boot_key, 0, t->m.sha256, 0,
                     t->monitor.sha256, 0, recipe->worker, 0, recipe->watch);
    CL_ASSERT(n > 0 && (size_t)n < sizeof text);
    digest_hex(text, (size_t)n, ret_key);
}

int snapshot_record_print(struct snapshot_record *record, struct cl_buf *out, struct cl_err *err)
{
    Cloche__V1__CachedSnapshot m = CLOCHE__V1__CACHED_SNAPSHOT__INIT;
    Cloche__V1__SealedFile ram, disk;
    sealed_file_fill(&ram, record->ram.name, &record->ram.ticket);
    sealed_file_fill(&disk, record->disk.name, &record->disk.ticket);
    m.version = SNAPSHOT_RECORD_VERSION;
    m.key = record->key;
    m.snapshot_key = record->snapshot_key;
    m.tsc_khz = record->tsc_khz;
    m.ram = &ram;
    m.disk = record->disk.name[0] ? &disk : NULL;
    m.dials = record->dials;
    m.holds = record->holds;
    m.cell_env = record->cell_env;
    size_t n = protobuf_c_message_get_packed_size(&m.base);
    if (cl_buf_reserve(out, n, err) < 0)
        return -1;
    out->len += protobuf_c_message_pack(&m.base, out->data + out->len);
    return 0;
}

static void take_file(const Cloche__V1__SealedFile *m, struct snapshot_file *ret_file)
{
    (void)snprintf(ret_file->name, sizeof ret_file->name, "%s", m->name);
    sealed_file_ticket(m, &ret_file->ticket);
}

static int check(const Cloche__V1__CachedSnapshot *m, const char *key, struct cl_err *err)
{
    if (m->version != SNAPSHOT_RECORD_VERSION)
        return cl_fail(err, CL_E_UNIMPL, 0,
                       "a snapshot's record of version %u, where this worker reads %d", m->version,
                       SNAPSHOT_RECORD_VERSION);
    if (strcmp(m->key, key) != 0 || !sealed_file_is_hex(m->snapshot_key))
        return cl_fail(err, CL_E_INVALID, 0, "a record of another snapshot");
    if (sealed_file_check(m->ram, "RAM", err) < 0)
        return -1;
    return m->disk ? sealed_file_check(m->disk, "disk", err) : 0;
}

int snapshot_record_parse(const uint8_t *bytes, size_t n, const char *key,
                          struct snapshot_record *ret_record, struct cl_err *err)
{
    struct cl_arena *arena;
    const ProtobufCMessage *msg = NULL;
    *ret_record = (struct snapshot_record){.key = ""};
    if (n > SNAPSHOT_RECORD_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "a snapshot's record of %zu bytes", n);
    if (cl_arena_new((size_t)4 * SNAPSHOT_RECORD_MAX, &arena, err) < 0)
        return -1;
    int rc = pb_unpack(&cloche__v1__cached_snapshot__descriptor, bytes, n, arena, &msg, err);
    const Cloche__V1__CachedSnapshot *m = (const Cloche__V1__CachedSnapshot *)msg;
    if (rc == 0)
        rc = check(m, key, err);
    if (rc == 0) {
        (void)snprintf(ret_record->key, sizeof ret_record->key, "%s", m->key);
        (void)snprintf(ret_record->snapshot_key, sizeof ret_record->snapshot_key, "%s",
                       m->snapshot_key);
        ret_record->tsc_khz = m->tsc_khz;
        ret_record->dials = m->dials;
        ret_record->holds = m->holds;
        ret_record->cell_env = m->cell_env;
        take_file(m->ram, &ret_record->ram);
        if (m->disk)
            take_file(m->disk, &ret_record->disk);
    }
    cl_arena_free(arena);
    return rc;
}
