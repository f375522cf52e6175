/* mcp/capture.h - the output of a process as a model gets it: the first and the last bytes of each
 * stream, as valid UTF-8, with the totals.
 *
 * What is over the cap is dropped while it arrives, so a guest that prints without end costs the
 * cap and no more.
 * Owns:    its bytes.
 * Thread:  its owner's.  Pure.
 */
#ifndef CL_MCP_CAPTURE_H
#define CL_MCP_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

struct mcp_capture {
    uint8_t *head; /* owned; the first head_n bytes */
    uint8_t *tail; /* owned; a ring of the last ones, tail_cap long */
    size_t head_cap, head_n, tail_cap;
    uint64_t total;   /* bytes that arrived, or were told of */
    uint64_t in_tail; /* bytes ever put into the ring */
};

/* Keep at most cap bytes: half from the start, half from the end.  cap >= 2. */
int mcp_capture_init(struct mcp_capture *c, size_t cap, struct cl_err *err) CL_MUST;
void mcp_capture_fini(struct mcp_capture *c);
void mcp_capture_add(struct mcp_capture *c, const void *data, size_t n);
bool mcp_capture_is_cut(const struct mcp_capture *c);
/* The text: head, a line that says how much is left out, tail.  Bytes that are no UTF-8 become
 * U+FFFD and no character is cut.  The caller frees it (cl_free); NULL when out of memory. */
char *mcp_capture_text(const struct mcp_capture *c) CL_MUST;

/* Any bytes as valid UTF-8 without NUL; U+FFFD for what is none.  `cut_front`, `cut_end`: the
 * bytes are a part of something, so half a character there is left out.  NULL: out of memory. */
char *mcp_text_clean(const uint8_t *data, size_t n, bool cut_front, bool cut_end) CL_MUST;

#endif
