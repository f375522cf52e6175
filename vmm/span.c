/* vmm/span.c - see span.h. */
#include "vmm/span.h"

#include <string.h>

#include "base/err.h"

void span_skip(struct span *s, size_t n)
{
    CL_ASSERT(n <= s->bytes);
    s->bytes -= n;
    while (n > 0) {
        size_t step = CL_MIN(n, s->iov->iov_len);
        s->iov->iov_base = (uint8_t *)s->iov->iov_base + step;
        s->iov->iov_len -= step;
        n -= step;
        if (s->iov->iov_len == 0) {
            s->iov++;
            s->n--;
        }
    }
}

bool span_take(struct span *s, void *dst, size_t n)
{
    if (n > s->bytes)
        return false;
    for (uint8_t *to = dst; n > 0;) {
        size_t step = CL_MIN(n, s->iov->iov_len);
        memcpy(to, s->iov->iov_base, step);
        span_skip(s, step);
        to += step;
        n -= step;
    }
    __asm__ volatile("" ::: "memory"); /* as in gm_read(): never look again */
    return true;
}

bool span_put(struct span *s, const void *src, size_t n)
{
    if (n > s->bytes)
        return false;
    for (const uint8_t *from = src; n > 0;) {
        size_t step = CL_MIN(n, s->iov->iov_len);
        memcpy(s->iov->iov_base, from, step);
        span_skip(s, step);
        from += step;
        n -= step;
    }
    return true;
}

void span_limit(struct span *s, size_t n)
{
    while (s->bytes > n) {
        struct iovec *last = &s->iov[s->n - 1];
        size_t cut = CL_MIN(s->bytes - n, last->iov_len);
        last->iov_len -= cut;
        s->bytes -= cut;
        if (last->iov_len == 0)
            s->n--;
    }
}

void span_split(struct span *s, size_t n, struct iovec *store, struct span *ret_front)
{
    *ret_front = (struct span){.iov = store, .bytes = n};
    while (n > 0) {
        struct iovec piece = {s->iov->iov_base, CL_MIN(n, s->iov->iov_len)};
        store[ret_front->n++] = piece;
        span_skip(s, piece.iov_len);
        n -= piece.iov_len;
    }
}

uint8_t *span_cut_last(struct span *s)
{
    CL_ASSERT(s->bytes > 0);
    const struct iovec *last = &s->iov[s->n - 1];
    uint8_t *at = (uint8_t *)last->iov_base + last->iov_len - 1;
    span_limit(s, s->bytes - 1);
    return at;
}
