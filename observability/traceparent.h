/* observability/traceparent.h - the W3C trace context of a call: which trace it belongs to, and
 * which span of it asked.
 *
 * Source:  W3C Trace Context, section 3.2 (traceparent).  `tracestate` is not read.
 * Thread:  any.  Pure.
 */
#ifndef CL_OBSERVABILITY_TRACEPARENT_H
#define CL_OBSERVABILITY_TRACEPARENT_H

#include <stdbool.h>

enum {
    TRACEPARENT_TEXT = 56, /* version, trace, span, flags: 55 characters and NUL */
    TRACEPARENT_TRACE = 3, /* where the trace's id begins: 32 hexadecimal digits */
    TRACEPARENT_SPAN = 36, /* where the span's does: 16 */
    TRACE_ID_HEX = 32,
    SPAN_ID_HEX = 16,
};

/* The header as version 00 writes it, whatever later version it came in.  False for NULL and for
 * what is none, which is to be treated as if nothing had come (section 3.2.2.5): *out is then "".
 */
bool traceparent_read(const char *text, char out[static TRACEPARENT_TEXT]);

#endif
