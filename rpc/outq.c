/* rpc/outq.c - see rpc/outq.h. */
#include "rpc/outq.h"

#include <string.h>

#include "base/mem.h"
#include "rpc/call.h"
#include "rpc/grpc_wire.h"
#include "rpc/gzip.h"

struct outq_item {
    struct outq_item *next; /* owned */
    size_t len, off;
    uint8_t data[];
};

static struct outq_item *item_new(const struct outq *q, size_t len, struct cl_err *err)
{
    if (len > RPC_OUT_MAX || q->bytes > RPC_OUT_MAX - len) {
        (void)cl_fail(err, CL_E_TOOBIG, 0, "more than %d bytes wait to be sent", RPC_OUT_MAX);
        return NULL;
    }
    struct outq_item *item = cl_zalloc(sizeof *item + len);
    if (!item) {
        (void)cl_fail(err, CL_E_NOMEM, 0, "message of %zu bytes", len);
        return NULL;
    }
    item->len = len;
    return item;
}

static void append(struct outq *q, struct outq_item *item)
{
    if (q->tail)
        q->tail->next = item;
    else
        q->head = item;
    q->tail = item;
    q->bytes += item->len;
}

/* The item in gzip form when that is smaller; NULL when it is not, or memory is short. */
static struct outq_item *compressed(const struct outq *q, const struct outq_item *plain)
{
    struct cl_buf buf;
    struct outq_item *item = NULL;
    size_t n = plain->len - GW_PREFIX;
    cl_buf_init(&buf, RPC_OUT_MAX);
    if (gzip_deflate(plain->data + GW_PREFIX, n, &buf, NULL) == 0 && buf.len < n)
        item = item_new(q, GW_PREFIX + buf.len, NULL);
    if (item) {
        gw_prefix_write(item->data, true, (uint32_t)buf.len);
        memcpy(item->data + GW_PREFIX, buf.data, buf.len);
    }
    cl_buf_fini(&buf);
    return item;
}

int outq_push(struct outq *q, const ProtobufCMessage *msg, bool gzip, struct cl_err *err)
{
    size_t n = protobuf_c_message_get_packed_size(msg);
    struct outq_item *item = item_new(q, GW_PREFIX + n, err);
    if (!item)
        return -1;
    gw_prefix_write(item->data, false, (uint32_t)n);
    (void)protobuf_c_message_pack(msg, item->data + GW_PREFIX);
    struct outq_item *small = gzip && n > 0 ? compressed(q, item) : NULL;
    if (small) {
        cl_free(item);
        item = small;
    }
    append(q, item);
    return 0;
}

int outq_push_raw(struct outq *q, const void *data, size_t n, struct cl_err *err)
{
    struct outq_item *item = item_new(q, n, err);
    if (!item)
        return -1;
    memcpy(item->data, data, n);
    append(q, item);
    return 0;
}

static void pop(struct outq *q)
{
    struct outq_item *item = q->head;
    q->head = item->next;
    if (!q->head)
        q->tail = NULL;
    cl_free(item);
}

size_t outq_take(struct outq *q, uint8_t *dst, size_t n)
{
    size_t taken = 0;
    while (q->head && taken < n) {
        struct outq_item *item = q->head;
        size_t part = CL_MIN(n - taken, item->len - item->off);
        memcpy(dst + taken, item->data + item->off, part);
        item->off += part;
        taken += part;
        if (item->off == item->len)
            pop(q);
    }
    q->bytes -= taken;
    return taken;
}

void outq_drop_unsent(struct outq *q)
{
    struct outq_item *begun = q->head && q->head->off > 0 ? q->head : NULL;
    struct outq_item *item = begun ? begun->next : q->head;
    while (item) {
        struct outq_item *next = item->next;
        q->bytes -= item->len;
        cl_free(item);
        item = next;
    }
    if (begun)
        begun->next = NULL;
    q->head = q->tail = begun;
}

void outq_fini(struct outq *q)
{
    while (q->head)
        pop(q);
    q->bytes = 0;
}
