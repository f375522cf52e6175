/* vmm/state.c - see state.h.  The host is little-endian (x86-64 only), as the format is. */
#include "vmm/state.h"

#include <string.h>

static const uint8_t magic[8] = {'C', 'L', 'V', 'M', 'S', 'T', 'A', 'T'};

void state_put_bytes(struct state_writer *w, const void *src, size_t n)
{
    if (w->full || n > w->cap - w->len) {
        w->full = true;
        return;
    }
    if (n > 0)
        memcpy(w->data + w->len, src, n);
    w->len += n;
}

void state_put_u8(struct state_writer *w, uint8_t v)
{
    state_put_bytes(w, &v, sizeof v);
}

void state_put_u16(struct state_writer *w, uint16_t v)
{
    state_put_bytes(w, &v, sizeof v);
}

void state_put_u32(struct state_writer *w, uint32_t v)
{
    state_put_bytes(w, &v, sizeof v);
}

void state_put_u64(struct state_writer *w, uint64_t v)
{
    state_put_bytes(w, &v, sizeof v);
}

void state_writer_init(struct state_writer *w, uint8_t *data, size_t cap,
                       const struct state_head *head)
{
    *w = (struct state_writer){.data = data, .cap = cap};
    state_put_bytes(w, magic, sizeof magic);
    state_put_u32(w, STATE_VERSION);
    state_put_bytes(w, head->baseline, sizeof head->baseline);
    state_put_u64(w, head->mem_bytes);
    state_put_u32(w, head->vcpus);
}

void state_begin(struct state_writer *w, enum state_section type)
{
    CL_ASSERT(!w->open);
    state_put_u32(w, type);
    state_put_u32(w, 0); /* state_end() knows */
    w->body = w->len;
    w->open = true;
}

void state_end(struct state_writer *w)
{
    CL_ASSERT(w->open);
    uint32_t bytes = (uint32_t)(w->len - w->body);
    if (!w->full)
        memcpy(w->data + w->body - sizeof bytes, &bytes, sizeof bytes);
    w->open = false;
}

int state_finish(const struct state_writer *w, size_t *ret_n, struct cl_err *err)
{
    CL_ASSERT(!w->open);
    if (w->full)
        return cl_fail(err, CL_E_TOOBIG, 0, "machine state is larger than %zu bytes", w->cap);
    *ret_n = w->len;
    return 0;
}

void state_get_bytes(struct state_reader *r, void *dst, size_t n)
{
    r->bad = r->bad || n > r->end - r->at;
    if (r->bad) {
        memset(dst, 0, n);
        return;
    }
    memcpy(dst, r->data + r->at, n);
    r->at += n;
}

uint8_t state_get_u8(struct state_reader *r)
{
    uint8_t v;
    state_get_bytes(r, &v, sizeof v);
    return v;
}

uint16_t state_get_u16(struct state_reader *r)
{
    uint16_t v;
    state_get_bytes(r, &v, sizeof v);
    return v;
}

uint32_t state_get_u32(struct state_reader *r)
{
    uint32_t v;
    state_get_bytes(r, &v, sizeof v);
    return v;
}

uint64_t state_get_u64(struct state_reader *r)
{
    uint64_t v;
    state_get_bytes(r, &v, sizeof v);
    return v;
}

size_t state_left(const struct state_reader *r)
{
    return r->end - r->at;
}

int state_reader_init(struct state_reader *r, const uint8_t *data, size_t len,
                      struct state_head *ret_head, struct cl_err *err)
{
    uint8_t seen[sizeof magic];
    if (len < STATE_HEAD_BYTES)
        return cl_fail(err, CL_E_INVALID, 0, "machine state of %zu bytes is cut", len);
    *r = (struct state_reader){.data = data, .len = len, .end = STATE_HEAD_BYTES};
    state_get_bytes(r, seen, sizeof seen);
    uint32_t version = state_get_u32(r);
    if (memcmp(seen, magic, sizeof magic) != 0)
        return cl_fail(err, CL_E_INVALID, 0, "not a machine state");
    if (version != STATE_VERSION)
        return cl_fail(err, CL_E_INVALID, 0, "machine state of version %u; want %d", version,
                       STATE_VERSION);
    state_get_bytes(r, ret_head->baseline, sizeof ret_head->baseline);
    ret_head->mem_bytes = state_get_u64(r);
    ret_head->vcpus = state_get_u32(r);
    return 0;
}

int state_enter(struct state_reader *r, enum state_section type, struct cl_err *err)
{
    CL_ASSERT(r->type == STATE_NONE);
    r->end = r->len;
    uint32_t found = state_get_u32(r);
    uint32_t bytes = state_get_u32(r);
    if (r->bad || found != type)
        return cl_fail(err, CL_E_INVALID, 0, "machine state: section %u where %d belongs", found,
                       (int)type);
    if (bytes > r->len - r->at)
        return cl_fail(err, CL_E_INVALID, 0, "machine state: section %d of %u bytes is cut",
                       (int)type, bytes);
    r->end = r->at + bytes;
    r->type = type;
    return 0;
}

int state_leave(struct state_reader *r, struct cl_err *err)
{
    CL_ASSERT(r->type != STATE_NONE);
    if (r->bad || r->at != r->end)
        return cl_fail(err, CL_E_INVALID, 0, "machine state: section %d is %s", (int)r->type,
                       r->bad ? "too short" : "too long");
    r->type = STATE_NONE;
    return 0;
}

int state_reader_finish(const struct state_reader *r, struct cl_err *err)
{
    if (r->bad || r->type != STATE_NONE || r->at != r->len)
        return cl_fail(err, CL_E_INVALID, 0, "machine state: %zu bytes are left over",
                       r->len - r->at);
    return 0;
}
