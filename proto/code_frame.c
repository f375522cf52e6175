/* proto/code_frame.c - see proto/code_frame.h. */
#include "proto/code_frame.h"

#include <string.h>

static uint32_t get_le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

int code_head_parse(const uint8_t data[static CODE_FRAME_HEAD], struct code_head *ret_head,
                    struct cl_err *err)
{
    static const struct {
        uint32_t min, max;
    } lengths[] = {
        [CODE_READY] = {0, 0},
        [CODE_RESULT] = {0, CODE_RESULT_MAX},
        [CODE_ERROR] = {0, CODE_ERROR_MAX},
        [CODE_ENDED] = {CODE_ENDED_LEN, CODE_ENDED_LEN},
        [CODE_BEGUN] = {0, 0},
    };
    uint32_t len = get_le32(data);
    uint8_t kind = data[4];
    if (kind < CODE_READY || kind >= CL_COUNT(lengths))
        return cl_fail(err, CL_E_PEER, 0, "the interpreter sent a frame of kind %u", kind);
    if (len < lengths[kind].min || len > lengths[kind].max)
        return cl_fail(err, CL_E_PEER, 0, "the interpreter sent %u bytes in a frame of kind %u",
                       len, kind);
    *ret_head = (struct code_head){.kind = (enum code_frame_kind)kind, .len = len};
    return 0;
}

void code_head_write(const struct code_head *head, uint8_t out[static CODE_FRAME_HEAD])
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(head->len >> (8 * i));
    out[4] = (uint8_t)head->kind;
}

/* Fill `small` up to `want` bytes; true once it is full, and empty again for the next. */
static bool gather(struct code_reader *r, size_t want, const uint8_t *data, size_t n, size_t *used)
{
    size_t step = CL_MIN(want - r->have, n - *used);
    memcpy(r->small + r->have, data + *used, step);
    r->have += step;
    *used += step;
    if (r->have < want)
        return false;
    r->have = 0;
    return true;
}

static int take_ended(struct code_reader *r, struct code_piece *piece, struct cl_err *err)
{
    if (r->small[0] < CODE_OK || r->small[0] > CODE_INTERRUPTED)
        return cl_fail(err, CL_E_PEER, 0, "the interpreter ended a cell with outcome %u",
                       r->small[0]);
    piece->outcome = (enum code_outcome)r->small[0];
    piece->status = (int32_t)get_le32(r->small + 1);
    return 0;
}

int code_reader_next(struct code_reader *r, const uint8_t *data, size_t n, size_t *ret_used,
                     struct code_piece *ret_piece, struct cl_err *err)
{
    struct code_piece piece = {0};
    size_t used = 0;
    if (!r->in_frame) {
        if (gather(r, CODE_FRAME_HEAD, data, n, &used)) {
            if (code_head_parse(r->small, &r->head, err) < 0)
                return -1;
            r->in_frame = true;
            r->left = r->head.len;
            piece.first = true;
        }
    }
    if (r->in_frame && r->head.kind == CODE_ENDED) {
        if (gather(r, CODE_ENDED_LEN, data, n, &used)) {
            if (take_ended(r, &piece, err) < 0)
                return -1;
            piece.head = &r->head;
            piece.first = piece.last = true;
            r->in_frame = false;
        }
    } else if (r->in_frame && (piece.first || used < n)) {
        piece.head = &r->head;
        piece.data = data + used;
        piece.n = CL_MIN((size_t)r->left, n - used);
        used += piece.n;
        r->left -= (uint32_t)piece.n;
        piece.last = r->left == 0;
        r->in_frame = !piece.last;
    }
    *ret_used = used;
    *ret_piece = piece;
    return 0;
}
