/* audit/frame.c - see audit/frame.h.
 *
 * Body: type u8, protocol u8, number u64, text length u8, text; a RECORD goes on with wall_ns u64,
 * event u8, assurance u8, and its fields take the rest.
 */
#include "audit/frame.h"

#include <string.h>

enum { FIXED = 1 + 1 + 8 + 1, RECORD_FIXED = 8 + 1 + 1, TEXT_MAX = 255 };

_Static_assert(AUDIT_EVENT_NR < 256, "an event fits its byte");

int audit_frame_pack(struct cl_buf *out, const struct audit_frame *f, struct cl_err *err)
{
    bool record = f->type == AUDIT_F_RECORD;
    size_t text_n = CL_MIN(f->text_n, (size_t)TEXT_MAX);
    size_t len = FIXED + text_n + (record ? RECORD_FIXED + f->fields_n : 0);
    if (len > AUDIT_FRAME_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "audit frame of %zu bytes", len);
    if (cl_buf_reserve(out, AUDIT_FRAME_HEADER + len, err) < 0)
        return -1;
    uint8_t *p = out->data + out->len;
    uint32_t len32 = (uint32_t)len; /* x86-64: little endian, here and below */
    memcpy(p, &len32, 4);
    p[4] = (uint8_t)f->type;
    p[5] = AUDIT_PROTOCOL;
    memcpy(p + 6, &f->number, 8);
    p[14] = (uint8_t)text_n;
    if (text_n > 0)
        memcpy(p + 15, f->text, text_n);
    if (record) {
        uint8_t *r = p + 15 + text_n;
        memcpy(r, &f->wall_ns, 8);
        r[8] = (uint8_t)f->event;
        r[9] = (uint8_t)f->assurance;
        memcpy(r + RECORD_FIXED, f->fields, f->fields_n);
    }
    out->len += AUDIT_FRAME_HEADER + len;
    return 0;
}

static int parse_record(const uint8_t *p, size_t n, struct audit_frame *f, struct cl_err *err)
{
    if (n < RECORD_FIXED)
        return cl_fail(err, CL_E_PEER, 0, "audit record frame too short");
    memcpy(&f->wall_ns, p, 8);
    if (p[8] >= AUDIT_EVENT_NR || p[9] >= AUDIT_ASSURANCE_NR)
        return cl_fail(err, CL_E_PEER, 0, "audit record of event %d, assurance %d", p[8], p[9]);
    f->event = (enum audit_event)p[8];
    f->assurance = (enum audit_assurance)p[9];
    f->fields = (const char *)p + RECORD_FIXED;
    f->fields_n = n - RECORD_FIXED;
    if (!audit_fields_is_canonical(f->fields, f->fields_n))
        return cl_fail(err, CL_E_PEER, 0, "audit record with fields that are not canonical");
    return 0;
}

int audit_frame_parse(const uint8_t *data, size_t n, struct audit_frame *ret, size_t *ret_used,
                      struct cl_err *err)
{
    uint32_t len;
    *ret_used = 0;
    if (n < AUDIT_FRAME_HEADER)
        return 0;
    memcpy(&len, data, 4);
    if (len < FIXED || len > AUDIT_FRAME_MAX)
        return cl_fail(err, CL_E_PEER, 0, "audit frame of %u bytes", len);
    if (n - AUDIT_FRAME_HEADER < len)
        return 0;
    const uint8_t *p = data + AUDIT_FRAME_HEADER;
    struct audit_frame f = {.type = (enum audit_frame_type)p[0], .protocol = p[1], .text_n = p[10]};
    memcpy(&f.number, p + 2, 8);
    if (f.text_n > len - FIXED)
        return cl_fail(err, CL_E_PEER, 0, "audit frame with a text over its end");
    f.text = (const char *)p + FIXED;
    size_t rest = len - FIXED - f.text_n;
    switch (f.type) {
    case AUDIT_F_RECORD:
        if (parse_record(p + FIXED + f.text_n, rest, &f, err) < 0)
            return -1;
        break;
    case AUDIT_F_HELLO:
    case AUDIT_F_WELCOME:
    case AUDIT_F_ACK:
    case AUDIT_F_STATE:
    case AUDIT_F_HEAD:
        if (rest > 0)
            return cl_fail(err, CL_E_PEER, 0, "audit frame of type %d with %zu bytes too many",
                           (int)f.type, rest);
        break;
    default: /* a byte of the peer, not one of the enum */
        return cl_fail(err, CL_E_PEER, 0, "audit frame of unknown type %d", p[0]);
    }
    *ret = f;
    *ret_used = AUDIT_FRAME_HEADER + len;
    return 0;
}
