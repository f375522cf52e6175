/* base/text.h - numbers and hostile text for people's terminals.
 *
 * Owns:    nothing.
 * Thread:  any.
 * Pure.
 */
#ifndef CL_BASE_TEXT_H
#define CL_BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

enum { CL_TEXT_BYTES = 32 };

/* "512 MiB", "3 KiB", "17 B". */
void cl_text_bytes(uint64_t bytes, char out[static CL_TEXT_BYTES]);
/* A copy for a terminal: control characters (of ASCII and, in UTF-8, C1) are replaced; cut to fit.
 * `out` may be `s`. */
void cl_text_clean(const char *s, char *out, size_t size);

#endif
