/* rpc/metadata.c - see rpc/metadata.h. */
#include "rpc/metadata.h"

#include <string.h>

#include "base/mem.h"
#include "base/own.h"
#include "rpc/call.h"
#include "rpc/grpc_wire.h"

struct entry {
    uint16_t name_len, value_len;
};

enum {
    PAIR_OVERHEAD = 32, /* RFC 9113 §6.5.2 */
    BYTES_MAX = RPC_METADATA_MAX + RPC_METADATA_PAIRS * ((int)sizeof(struct entry) + 2),
};

void metadata_init(struct metadata *md)
{
    *md = (struct metadata){0};
    cl_buf_init(&md->bytes, BYTES_MAX);
}

void metadata_fini(struct metadata *md)
{
    cl_buf_fini(&md->bytes);
}

static int add(struct metadata *md, struct metadata_pair p, struct cl_err *err)
{
    size_t size = p.name_len + p.value_len + PAIR_OVERHEAD;
    if (md->pairs == RPC_METADATA_PAIRS || p.name_len > RPC_METADATA_MAX ||
        p.value_len > RPC_METADATA_MAX || size > RPC_METADATA_MAX - md->size)
        return cl_fail(err, CL_E_TOOBIG, 0, "metadata over %d bytes or %d pairs", RPC_METADATA_MAX,
                       RPC_METADATA_PAIRS);
    struct entry e = {(uint16_t)p.name_len, (uint16_t)p.value_len};
    if (cl_buf_reserve(&md->bytes, sizeof e + p.name_len + p.value_len + 2, err) < 0)
        return -1;
    uint8_t *at = md->bytes.data + md->bytes.len;
    memcpy(at, &e, sizeof e);
    at += sizeof e;
    memcpy(at, p.name, p.name_len);
    at[p.name_len] = '\0';
    at += p.name_len + 1;
    memcpy(at, p.value, p.value_len);
    at[p.value_len] = '\0';
    md->bytes.len += sizeof e + p.name_len + p.value_len + 2;
    md->size += size;
    md->pairs++;
    return 0;
}

/* One base64 element of a received "-bin" value. */
static int add_binary(struct metadata *md, struct metadata_pair p, struct cl_err *err)
{
    uint8_t raw[RPC_METADATA_MAX];
    size_t n;
    if (p.value_len > sizeof raw ||
        !gw_base64_decode((const uint8_t *)p.value, p.value_len, raw, &n))
        return cl_fail(err, CL_E_INVALID, 0, "metadata '%.40s' is not base64", p.name);
    return add(md, (struct metadata_pair){p.name, (const char *)raw, p.name_len, n}, err);
}

int metadata_add_received(struct metadata *md, struct metadata_pair p, struct cl_err *err)
{
    if (!gw_is_binary_name(p.name, p.name_len))
        return add(md, p, err);
    const char *end = p.value + p.value_len;
    for (const char *at = p.value;;) {
        while (at < end && *at == ' ')
            at++;
        const char *comma = at < end ? memchr(at, ',', (size_t)(end - at)) : NULL;
        struct metadata_pair one = p;
        one.value = at;
        one.value_len = (size_t)((comma ? comma : end) - at);
        if (add_binary(md, one, err) < 0)
            return -1;
        if (!comma)
            return 0;
        at = comma + 1;
    }
}

int metadata_add_outgoing(struct metadata *md, const char *name, const char *value,
                          struct cl_err *err)
{
    if (!gw_is_metadata_name(name))
        return cl_fail(err, CL_E_INVALID, 0, "'%.40s' is not a metadata name", name);
    size_t name_len = strlen(name), n = strlen(value);
    if (!gw_is_binary_name(name, name_len)) {
        if (!gw_is_metadata_value(value))
            return cl_fail(err, CL_E_INVALID, 0, "metadata '%.40s' is not printable ASCII", name);
        return add(md, (struct metadata_pair){name, value, name_len, n}, err);
    }
    CL_AUTO(cl_freep) char *text = cl_zalloc(gw_base64_size(n));
    if (!text)
        return cl_fail(err, CL_E_NOMEM, 0, "metadata '%.40s'", name);
    size_t len = gw_base64_encode((const uint8_t *)value, n, text);
    return add(md, (struct metadata_pair){name, text, name_len, len}, err);
}

int metadata_copy(struct metadata *md, struct metadata_pair pair, struct cl_err *err)
{
    return add(md, pair, err);
}

bool metadata_next(const struct metadata *md, size_t *at, struct metadata_pair *ret_pair)
{
    struct entry e;
    if (*at >= md->bytes.len)
        return false;
    const char *p = (const char *)md->bytes.data + *at;
    memcpy(&e, p, sizeof e);
    p += sizeof e;
    *ret_pair = (struct metadata_pair){p, p + e.name_len + 1, e.name_len, e.value_len};
    *at += sizeof e + e.name_len + e.value_len + 2u;
    return true;
}

const char *metadata_get(const struct metadata *md, const char *name, size_t *ret_len)
{
    struct metadata_pair p;
    for (size_t at = 0; metadata_next(md, &at, &p);) {
        if (strcmp(p.name, name) != 0)
            continue;
        if (ret_len)
            *ret_len = p.value_len;
        return p.value;
    }
    return NULL;
}

void metadata_remove(struct metadata *md, const char *name)
{
    struct metadata_pair p;
    size_t start = 0;
    for (size_t at = 0; metadata_next(md, &at, &p); start = at) {
        if (strcmp(p.name, name) != 0)
            continue;
        md->pairs--;
        md->size -= p.name_len + p.value_len + PAIR_OVERHEAD;
        memmove(md->bytes.data + start, md->bytes.data + at, md->bytes.len - at);
        md->bytes.len -= at - start;
        at = start;
    }
}
