/* e2b/text.h - output of a guest, in pieces, as text of JSON.
 *
 * A piece may end in the middle of a character: its bytes wait for the next one.  What is no UTF-8
 * becomes U+FFFD.
 *
 * Owns:    nothing.
 * Thread:  any.  Pure.
 */
#ifndef CL_E2B_TEXT_H
#define CL_E2B_TEXT_H

#include <jansson.h>
#include <stdint.h>

#include "base/util.h"

struct e2b_text {
    uint8_t held[3];
    size_t n;
};

/* The text of the piece, with what was held; NULL when memory is out. */
json_t *e2b_text_add(struct e2b_text *t, const void *data, size_t n);
/* What is still held can become nothing any more; NULL = nothing is. */
json_t *e2b_text_end(struct e2b_text *t);
/* All of it at once. */
json_t *e2b_text_json(const void *data, size_t n);

#endif
