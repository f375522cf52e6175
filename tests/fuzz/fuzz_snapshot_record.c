/* The record of a template's snapshot: any bytes, no crash, no leak, and what is accepted is of its
 * key, has files with names of their own folder, and comes back when it is written. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "worker/sealed_file.h"
#include "worker/snapshot_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char key[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

static void check_same(const struct snapshot_file *a, const struct snapshot_file *b)
{
    CL_ASSERT(strcmp(a->name, b->name) == 0);
    CL_ASSERT(memcmp(&a->ticket, &b->ticket, sizeof a->ticket) == 0);
}

static void use(struct snapshot_record *r)
{
    struct cl_buf bytes;
    struct snapshot_record again;
    struct cl_err err = {0};
    CL_ASSERT(strcmp(r->key, key) == 0 && sealed_file_is_hex(r->snapshot_key));
    CL_ASSERT(sealed_file_is_name(r->ram.name, sizeof r->ram.name));
    CL_ASSERT(!r->disk.name[0] || sealed_file_is_name(r->disk.name, sizeof r->disk.name));
    cl_buf_init(&bytes, SNAPSHOT_RECORD_MAX);
    if (snapshot_record_print(r, &bytes, &err) == 0 &&
        snapshot_record_parse(bytes.data, bytes.len, key, &again, &err) == 0) {
        check_same(&r->ram, &again.ram);
        check_same(&r->disk, &again.disk);
        CL_ASSERT(r->tsc_khz == again.tsc_khz && r->dials == again.dials &&
                  r->holds == again.holds && r->cell_env == again.cell_env);
    } else {
        CL_ASSERT(err.code == CL_E_NOMEM);
    }
    cl_buf_fini(&bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct snapshot_record r;
    struct cl_err err = {0};
    if (snapshot_record_parse(data, size, key, &r, &err) == 0)
        use(&r);
    else
        CL_ASSERT(err.code != CL_OK);
    return 0;
}
