/* base/buf.h - a growable byte buffer with a limit.
 *
 * Owns:    its bytes.
 * Limit:   `max`, fixed at init; an append beyond it fails with TOOBIG and changes nothing, so a
 *          peer that never stops sending cannot make us hold more.
 * Thread:  its owner's.
 */
#ifndef CL_BASE_BUF_H
#define CL_BASE_BUF_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

struct cl_buf {
    uint8_t *data; /* owned; the unread bytes are data[0..len) */
    size_t len;
    size_t cap;
    size_t max;
};

void cl_buf_init(struct cl_buf *buf, size_t max);
void cl_buf_fini(struct cl_buf *buf);
int cl_buf_append(struct cl_buf *buf, const void *data, size_t n, struct cl_err *err) CL_MUST;
int cl_buf_printf(struct cl_buf *buf, struct cl_err *err, const char *fmt, ...) CL_MUST
    __attribute__((format(printf, 3, 4)));
/* Room for n more bytes at data + len; the caller writes there and adds to len. */
int cl_buf_reserve(struct cl_buf *buf, size_t n, struct cl_err *err) CL_MUST;
/* Drop the first n bytes (n <= len). */
void cl_buf_consume(struct cl_buf *buf, size_t n);
void cl_buf_clear(struct cl_buf *buf);

#endif
