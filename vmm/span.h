/* vmm/span.h - a row of pieces of guest memory that is used up from the front.
 *
 * Owns:    nothing.
 * Borrows: the iovecs, which it changes as it goes, and the guest memory behind them.
 * Thread:  the device lock.
 * The driver may cut a request into any pieces (virtio 1.2 §2.7.4.1), so no device looks at the
 * pieces: it takes a header from the front, hands bulk data to the kernel, puts an answer.
 */
#ifndef CL_VMM_SPAN_H
#define CL_VMM_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/util.h"

struct span {
    struct iovec *iov; /* borrowed; no piece is empty */
    unsigned n;
    size_t bytes; /* the sum of the pieces */
};

/* Move past the first n <= bytes bytes. */
void span_skip(struct span *s, size_t n);
/* Copy n bytes from (or to) the front and move past them; false, and nothing happens, when there
 * are fewer.  What was taken is a copy: it does not change under the caller. */
bool span_take(struct span *s, void *dst, size_t n) CL_MUST;
bool span_put(struct span *s, const void *src, size_t n) CL_MUST;
/* Keep the first n bytes at the most. */
void span_limit(struct span *s, size_t n);
/* Cut the first n <= bytes bytes off as a span of their own; store: room for n pieces, borrowed by
 * it. */
void span_split(struct span *s, size_t n, struct iovec *store, struct span *ret_front);
/* Cut off the last byte and return where it is.  The span must not be empty. */
uint8_t *span_cut_last(struct span *s);

#endif
