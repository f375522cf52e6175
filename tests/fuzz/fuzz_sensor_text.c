/* What user code chose - paths, names, addresses, arguments - as the agent puts it into a frame. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "agent/sensor_text.h"
#include "proto/guest_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whatever was called how often: one event of it fits a frame, and its sum is theirs. */
static void check_calls(const uint8_t *data, size_t size)
{
    static struct sensor_calls calls;
    static struct sensor_calls_text text;
    Cloche__V1__GuestEvent event;
    uint64_t total = 0;
    for (size_t i = 0; i < SENSOR_CALLS_MAX; i++) /* a byte is how many bits of a count are set */
        calls.times[i] = i < size ? ((uint64_t)1 << data[i] % 48) - 1 : 0;
    sensor_describe_calls(&calls, size, &text, &event);
    CL_ASSERT(event.n_calls <= SENSOR_CALLS_TOLD + 1);
    for (size_t i = 0; i < event.n_calls; i++)
        total += event.calls[i]->times;
    CL_ASSERT(total == sensor_calls_total(&calls));
    CL_ASSERT(cloche__v1__guest_event__get_packed_size(&event) < GUEST_FRAME_MAX / 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sensor_text text;
    Cloche__V1__GuestEvent event, *list[] = {&event};
    Cloche__V1__GuestEvents body = CLOCHE__V1__GUEST_EVENTS__INIT;
    check_calls(data, size);
    sensor_describe(data, size, &text, &event);
    CL_ASSERT(event.n_argv <= SENSOR_ARGV_MAX && strlen(event.path) < sizeof text.path &&
              strlen(event.to) < sizeof text.to);
    CL_ASSERT(cloche__v1__guest_event__get_packed_size(&event) <= SENSOR_TEXT_MAX);
    body.events = list;
    body.n_events = 1;
    GUEST_FRAME(frame, 0, EVENTS, events, &body);
    /* The worker ends the VM of an agent whose frame it cannot read. */
    struct cl_err err = {0};
    struct cl_buf packed;
    struct cl_arena *arena;
    const Cloche__V1__GuestFrame *back = NULL;
    size_t used;
    cl_buf_init(&packed, 2 * (size_t)GUEST_FRAME_MAX);
    int rc = guest_frame_pack(&packed, &frame, GUEST_FRAME_MAX, &err);
    CL_ASSERT(rc == 0 || err.code == CL_E_NOMEM);
    if (rc == 0 && cl_arena_new(GUEST_ARENA_FACTOR * GUEST_FRAME_MAX, &arena, &err) == 0) {
        rc = guest_frame_parse(packed.data, packed.len, GUEST_FRAME_MAX, arena, &back, &used, &err);
        CL_ASSERT(rc < 0 ? err.code == CL_E_NOMEM : back && back->events->n_events == 1);
        cl_arena_free(arena);
    }
    cl_buf_fini(&packed);
    return 0;
}
