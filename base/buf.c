/* base/buf.c - see base/buf.h. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { BUF_FIRST = 256 };

void cl_buf_init(struct cl_buf *buf, size_t max)
{
    *buf = (struct cl_buf){.max = max};
}

void cl_buf_fini(struct cl_buf *buf)
{
    cl_free(buf->data);
    *buf = (struct cl_buf){.max = buf->max};
}

int cl_buf_reserve(struct cl_buf *buf, size_t n, struct cl_err *err)
{
    if (n > buf->max || buf->len > buf->max - n)
        return cl_fail(err, CL_E_TOOBIG, 0, "buffer of %zu + %zu bytes, at most %zu", buf->len, n,
                       buf->max);
    size_t need = buf->len + n;
    if (need <= buf->cap)
        return 0;
    size_t cap = CL_MIN(CL_MAX(CL_MAX(need, buf->cap * 2), (size_t)BUF_FIRST), buf->max);
    uint8_t *p = cl_realloc(buf->data, cap);
    if (!p)
        return cl_fail(err, CL_E_NOMEM, 0, "buffer of %zu bytes", cap);
    buf->data = p;
    buf->cap = cap;
    return 0;
}

int cl_buf_append(struct cl_buf *buf, const void *data, size_t n, struct cl_err *err)
{
    if (n == 0)
        return 0;
    if (cl_buf_reserve(buf, n, err) < 0)
        return -1;
    memcpy(buf->data + buf->len, data, n);
    buf->len += n;
    return 0;
}

int cl_buf_printf(struct cl_buf *buf, struct cl_err *err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        return cl_fail(err, CL_E_INVALID, 0, "format");
    if (cl_buf_reserve(buf, (size_t)n + 1, err) < 0)
        return -1;
    va_start(ap, fmt);
    (void)vsnprintf((char *)buf->data + buf->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    buf->len += (size_t)n;
    return 0;
}

void cl_buf_consume(struct cl_buf *buf, size_t n)
{
    CL_ASSERT(n <= buf->len);
    buf->len -= n;
    if (buf->len > 0)
        memmove(buf->data, buf->data + n, buf->len);
}

void cl_buf_clear(struct cl_buf *buf)
{
    buf->len = 0;
}
