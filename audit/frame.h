/* audit/frame.h - what producers and cloche-audit say to each other over their unix socket.
 *
 * A frame is a little-endian u32 length of what follows, a type byte, and fixed fields.
 * Owns:    nothing; a parsed frame points into the bytes that were parsed.
 * Thread:  any.
 * Pure.
 */
#ifndef CL_AUDIT_FRAME_H
#define CL_AUDIT_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "audit/record.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/util.h"

enum {
    AUDIT_FRAME_HEADER = 4,
    AUDIT_FRAME_MAX = AUDIT_FIELDS_MAX + 256,
    AUDIT_PROTOCOL = 1,
};

enum audit_frame_type {
    AUDIT_F_HELLO = 1,    /* producer: number = epoch, text = source */
    AUDIT_F_RECORD = 2,   /* producer: all of record's fields */
    AUDIT_F_WELCOME = 65, /* writer */
    AUDIT_F_ACK = 66,     /* writer: written up to `number` */
    AUDIT_F_STATE = 67,   /* writer: number = 1 takes records, 0 refuses; text = why */
    AUDIT_F_HEAD =
        68, /* writer: number = seq, text = hash of the host stream's newest checkpoint */
};

struct audit_frame {
    enum audit_frame_type type;
    uint8_t protocol; /* HELLO, WELCOME */
    uint64_t number;  /* RECORD: the producer's number */
    const char *text; /* not terminated; RECORD: the tenant, empty = the host */
    size_t text_n;
    /* RECORD only */
    uint64_t wall_ns;
    enum audit_event event;
    enum audit_assurance assurance;
    const char *fields;
    size_t fields_n;
};

int audit_frame_pack(struct cl_buf *out, const struct audit_frame *frame,
                     struct cl_err *err) CL_MUST;
/* *ret_used = 0 while no whole frame is there; PEER when it is malformed. */
int audit_frame_parse(const uint8_t *data, size_t n, struct audit_frame *ret, size_t *ret_used,
                      struct cl_err *err) CL_MUST;

#endif
