/* tests/fuzz/fuzz_agent_gate.c - what a worker can do to the agent's parser and stream table.
 *
 * The input is the byte stream of the channel.  Whatever it holds: no crash, the table stays
 * within its bounds, and no credit exceeds what was granted.
 */
#include <stddef.h>
#include <stdint.h>

#include "agent/gate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_table(const struct gate *gate)
{
    for (size_t i = 0; i < CL_COUNT(gate->streams); i++) {
        const struct gate_stream *s = &gate->streams[i];
        CL_ASSERT(s->kind == GATE_FREE || (s->id > 0 && s->id <= gate->last_id));
        CL_ASSERT(s->recv_credit <= GUEST_WINDOW_INITIAL);
        CL_ASSERT(s->send_credit <= GATE_CREDIT_MAX);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct gate gate;
    gate_init(&gate);
    for (size_t at = 0; at < n;) {
        struct cl_arena *arena = NULL;
        const Cloche__V1__GuestFrame *frame = NULL;
        size_t used = 0;
        enum gate_action action = GATE_IGNORE;
        if (cl_arena_new(GUEST_ARENA_FACTOR * GUEST_COMMAND_MAX, &arena, NULL) < 0)
            return 0;
        int rc =
            guest_frame_parse(data + at, n - at, GUEST_COMMAND_MAX, arena, &frame, &used, NULL);
        if (rc == 0 && frame)
            rc = gate_admit(&gate, frame, &action, NULL);
        if (rc == 0 && action == GATE_IDENTITY)
            gate.identified = true;
        if (rc == 0 && (action == GATE_SIGNAL || action == GATE_RESIZE)) /* as if it had ended */
            gate_close(&gate, frame->stream);
        cl_arena_free(arena);
        check_table(&gate);
        if (rc < 0 || used == 0)
            return 0;
        at += used;
    }
    return 0;
}
