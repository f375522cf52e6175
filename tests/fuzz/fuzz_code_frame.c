/* tests/fuzz/fuzz_code_frame.c - what user code can write to its interpreter's fd 3.
 *
 * The first byte says how large the blocks are that the agent happens to read.  Whatever follows:
 * no crash; pieces of a frame add up to its length; each result and error is then unpacked as the
 * worker does, within its memory.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "cloche/v1/code.pb-c.h"
#include "proto/code_frame.h"
#include "proto/unpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* As worker/cell_io.c: frames again, whole this time. */
static void unpack_whole(const uint8_t *data, size_t n)
{
    while (n >= CODE_FRAME_HEAD) {
        struct code_head head;
        struct cl_arena *arena;
        const ProtobufCMessage *m;
        if (code_head_parse(data, &head, NULL) < 0 || n - CODE_FRAME_HEAD < head.len)
            return;
        if ((head.kind == CODE_RESULT || head.kind == CODE_ERROR) &&
            cl_arena_new((size_t)PB_ARENA_FACTOR * CODE_RESULT_MAX, &arena, NULL) == 0) {
            (void)!pb_unpack(head.kind == CODE_RESULT ? &cloche__v1__cell_result__descriptor
                                                      : &cloche__v1__cell_error__descriptor,
                             data + CODE_FRAME_HEAD, head.len, arena, &m, NULL);
            cl_arena_free(arena);
        }
        data += CODE_FRAME_HEAD + head.len;
        n -= CODE_FRAME_HEAD + head.len;
    }
}

/* One block as it was read; false on a breach. */
static bool read_block(struct code_reader *reader, const uint8_t *data, size_t n, uint64_t *sum)
{
    for (size_t at = 0; at < n;) {
        struct code_piece piece;
        size_t used;
        if (code_reader_next(reader, data + at, n - at, &used, &piece, NULL) < 0)
            return false;
        CL_ASSERT(used > 0 && used <= n - at);
        at += used;
        if (!piece.head)
            continue;
        CL_ASSERT(piece.n == 0 || (piece.data >= data && piece.data + piece.n <= data + n));
        *sum = (piece.first ? 0 : *sum) + piece.n;
        CL_ASSERT(!piece.last || piece.head->kind == CODE_ENDED || *sum == piece.head->len);
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct code_reader reader = {0};
    uint64_t sum = 0;
    if (n < 2)
        return 0;
    size_t step = (size_t)data[0] + 1;
    unpack_whole(data + 1, n - 1);
    for (size_t at = 1; at < n; at += step)
        if (!read_block(&reader, data + at, CL_MIN(step, n - at), &sum))
            return 0;
    return 0;
}
