/* proto/code_frame.h - what an interpreter says about its cell: frames on fd 3 of a runner
 * (agent/runners), and on the channel EVENTS of a cell's stream.
 *
 *   4 bytes little-endian length of the payload, 1 byte kind, payload
 *
 *   READY   empty: it takes code
 *   BEGUN   empty: it has the code of a cell, and an interrupt is that cell's
 *   RESULT  a CellResult of code.proto
 *   ERROR   a CellError of code.proto
 *   ENDED   1 byte outcome (CODE_OK ...), 4 bytes little-endian exit status
 *
 * The other way there are lines: "run COUNT BYTES\n" or "warm COUNT BYTES\n" and that much code,
 * "env BYTES\n" and that much NAME=VALUE before it for each variable of that cell, "seed HEX\n".
 *
 * Pure: no I/O, no log.  The frames come from user code's own process: whatever they hold, the
 * reader stays within its bounds, and hands large payloads on in pieces rather than hold them.
 */
#ifndef CL_PROTO_CODE_FRAME_H
#define CL_PROTO_CODE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

enum {
    CODE_FRAME_HEAD = 5,
    /* Of a CellResult.  A liar that sends more loses its interpreter; without the bound one cell
     * could fill the worker, which holds a result until it is whole. */
    CODE_RESULT_MAX = 3 * 1024 * 1024 + 65536,
    CODE_ERROR_MAX = 256 * 1024,
    CODE_ENDED_LEN = 5,
};

enum code_frame_kind { CODE_READY = 1, CODE_RESULT, CODE_ERROR, CODE_ENDED, CODE_BEGUN };
enum code_outcome { CODE_OK = 1, CODE_FAILED, CODE_INTERRUPTED };

struct code_head {
    enum code_frame_kind kind;
    uint32_t len; /* of the payload */
};

/* PEER for a kind that does not exist or a length that its kind cannot have. */
int code_head_parse(const uint8_t data[static CODE_FRAME_HEAD], struct code_head *ret_head,
                    struct cl_err *err) CL_MUST;
void code_head_write(const struct code_head *head, uint8_t out[static CODE_FRAME_HEAD]);

/* Cuts a byte stream into pieces of frames. */
struct code_reader {
    uint8_t small[CODE_FRAME_HEAD]; /* a head, or the payload of ENDED, until it is whole */
    size_t have;
    bool in_frame;
    struct code_head head;
    uint32_t left; /* of the payload */
};

struct code_piece {
    const struct code_head *head; /* NULL = nothing yet; borrowed from the reader */
    bool first, last;             /* of its frame */
    const uint8_t *data;          /* RESULT, ERROR: borrowed from the input */
    size_t n;
    enum code_outcome outcome; /* ENDED */
    int32_t status;
};

/* Take the next piece off data[0..n); *ret_used bytes are dealt with.  A frame with an empty
 * payload is one piece. */
int code_reader_next(struct code_reader *reader, const uint8_t *data, size_t n, size_t *ret_used,
                     struct code_piece *ret_piece, struct cl_err *err) CL_MUST;

#endif
