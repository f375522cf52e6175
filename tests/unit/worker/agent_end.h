/* tests/unit/worker/agent_end.h - an agent's end of a channel: what it says and what has come. */
#ifndef CL_TESTS_UNIT_WORKER_AGENT_END_H
#define CL_TESTS_UNIT_WORKER_AGENT_END_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "proto/guest_frame.h"

static inline void agent_say(int fd, const Cloche__V1__GuestFrame *frame)
{
    struct cl_buf buf;
    cl_buf_init(&buf, GUEST_FRAME_MAX);
    assert_int_equal(guest_frame_pack(&buf, frame, GUEST_FRAME_MAX, NULL), 0);
    assert_int_equal(write(fd, buf.data, buf.len), (ssize_t)buf.len);
    cl_buf_fini(&buf);
}

static inline void agent_say_held(int fd)
{
    Cloche__V1__GuestHeld body = CLOCHE__V1__GUEST_HELD__INIT;
    GUEST_FRAME(frame, 0, HELD, held, &body);
    agent_say(fd, &frame);
}

static inline void agent_say_pong(int fd)
{
    Cloche__V1__GuestPong body = CLOCHE__V1__GUEST_PONG__INIT;
    GUEST_FRAME(frame, 0, PONG, pong, &body);
    agent_say(fd, &frame);
}

/* Each frame that has come; only whole ones may have.  A frame dies with its call. */
static inline void agent_hear(int fd, void (*each)(const Cloche__V1__GuestFrame *frame))
{
    static uint8_t bytes[1 << 16];
    ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    for (size_t at = 0, used; n > 0 && at < (size_t)n; at += used) {
        struct cl_arena *arena;
        const Cloche__V1__GuestFrame *f;
        assert_int_equal(cl_arena_new(1 << 20, &arena, NULL), 0);
        assert_int_equal(guest_frame_parse(bytes + at, (size_t)n - at, GUEST_COMMAND_MAX, arena, &f,
                                           &used, NULL),
                         0);
        assert_non_null(f);
        each(f);
        cl_arena_free(arena);
    }
}

#endif
