/* bench/agent.c - see bench/agent.h. */
#include "bench/agent.h"

#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "proto/guest_frame.h"
#include "worker/warmup.h"

enum {
    SAY_MAX = 65536,
    HEAR_MAX = GUEST_FRAME_HEADER + 65536,
};

typedef Cloche__V1__GuestFrame frame_of_guest;

/* --- frames ---------------------------------------------------------------------------------- */

/* One that is heard; it lives until the next. */
struct heard {
    uint8_t bytes[HEAR_MAX];
    struct cl_arena *arena;
};

static struct heard heard;
static uint64_t streams; /* numbers of streams, never the same twice */

static void say(const struct monitor *r, const frame_of_guest *frame)
{
    struct cl_err err = {0};
    struct cl_buf buf;
    cl_buf_init(&buf, SAY_MAX);
    if (guest_frame_pack(&buf, frame, SAY_MAX, &err) < 0)
        monitor_give_up("%s", err.text);
    if (write(r->channel, buf.data, buf.len) != (ssize_t)buf.len)
        monitor_die("write to the agent");
    cl_buf_fini(&buf);
}

static const frame_of_guest *hear(const struct monitor *r)
{
    uint32_t n;
    const frame_of_guest *frame = NULL;
    size_t used;
    struct cl_err err = {0};
    cl_arena_free(heard.arena);
    heard.arena = NULL;
    monitor_read(r, r->channel, heard.bytes, GUEST_FRAME_HEADER);
    memcpy(&n, heard.bytes, sizeof n);
    if (n > HEAR_MAX - GUEST_FRAME_HEADER)
        monitor_give_up("the agent sent a frame of %u bytes", n);
    monitor_read(r, r->channel, heard.bytes + GUEST_FRAME_HEADER, n);
    if (cl_arena_new(GUEST_ARENA_FACTOR * (size_t)HEAR_MAX, &heard.arena, &err) < 0 ||
        guest_frame_parse(heard.bytes, GUEST_FRAME_HEADER + n, HEAR_MAX, heard.arena, &frame, &used,
                          &err) < 0)
        monitor_give_up("%s", err.text);
    if (!frame)
        monitor_give_up("the agent sent half a frame");
    return frame;
}

static const frame_of_guest *hear_body(const struct monitor *r,
                                       Cloche__V1__GuestFrame__BodyCase want)
{
    const frame_of_guest *frame = hear(r);
    if (frame->body_case != want)
        monitor_give_up("the agent said body %d, not %d", (int)frame->body_case, (int)want);
    return frame;
}

/* The last frame of a stream that says nothing else that matters here. */
static const frame_of_guest *hear_last(const struct monitor *r,
                                       Cloche__V1__GuestFrame__BodyCase want)
{
    const frame_of_guest *frame;
    do
        frame = hear(r);
    while (frame->body_case != want);
    return frame;
}

/* --- the connection -------------------------------------------------------------------------- */

void agent_await_hello(const struct monitor *r)
{
    (void)hear_body(r, CLOCHE__V1__GUEST_FRAME__BODY_HELLO);
}

void agent_say_ping(const struct monitor *r)
{
    Cloche__V1__GuestPing ping = CLOCHE__V1__GUEST_PING__INIT;
    GUEST_FRAME(frame, 0, PING, ping, &ping);
    say(r, &frame);
}

void agent_await_pong(const struct monitor *r)
{
    (void)hear_body(r, CLOCHE__V1__GUEST_FRAME__BODY_PONG);
}

void agent_say_identity(const struct monitor *r)
{
    static char hostname[] = "peer", machine_id[] = "0123456789abcdef0123456789abcdef";
    uint8_t entropy[32];
    Cloche__V1__GuestIdentity identity = CLOCHE__V1__GUEST_IDENTITY__INIT;
    if (getrandom(entropy, sizeof entropy, 0) != (ssize_t)sizeof entropy)
        monitor_die("getrandom");
    identity.entropy.data = entropy;
    identity.entropy.len = sizeof entropy;
    identity.wall_clock_ns = cl_wall_ns();
    identity.hostname = hostname;
    identity.watch = true; /* as a worker asks */
    identity.machine_id = machine_id;
    GUEST_FRAME(frame, 0, IDENTITY, identity, &identity);
    say(r, &frame);
}

void agent_await_identity(const struct monitor *r)
{
    const frame_of_guest *frame = hear_body(r, CLOCHE__V1__GUEST_FRAME__BODY_IDENTITY_DONE);
    if (frame->identity_done->error[0])
        monitor_give_up("the agent: %s", frame->identity_done->error);
}

/* --- streams --------------------------------------------------------------------------------- */

static void run_command(const struct monitor *r, char *const *argv)
{
    Cloche__V1__GuestExec exec = CLOCHE__V1__GUEST_EXEC__INIT;
    exec.argv = (char **)(uintptr_t)argv;
    while (argv[exec.n_argv])
        exec.n_argv++;
    exec.no_stdin = true;
    exec.user = CLOCHE__V1__GUEST_USER__GUEST_USER_USER;
    exec.seccomp = CLOCHE__V1__GUEST_SECCOMP_TIER__GUEST_SECCOMP_TIER_STANDARD;
    GUEST_FRAME(frame, ++streams, EXEC, exec, &exec);
    say(r, &frame);
    const Cloche__V1__GuestExecEnded *end =
        hear_last(r, CLOCHE__V1__GUEST_FRAME__BODY_EXEC_ENDED)->exec_ended;
    if (end->end != CLOCHE__V1__GUEST_END__GUEST_END_EXITED || end->exit_code != 0)
        monitor_give_up("%s failed (%d) %s", argv[0], end->exit_code, end->error);
}

static void start_context(const struct monitor *r, const struct template_context *c)
{
    Cloche__V1__GuestContextOp op = CLOCHE__V1__GUEST_CONTEXT_OP__INIT;
    op.kind = CLOCHE__V1__GUEST_CONTEXT_KIND__GUEST_CONTEXT_KIND_CREATE;
    op.id = (char *)(uintptr_t)c->id;
    op.language = (Cloche__V1__GuestLanguage)c->language;
    GUEST_FRAME(frame, ++streams, CONTEXT_OP, context_op, &op);
    say(r, &frame);
    const Cloche__V1__GuestContextResult *result =
        hear_last(r, CLOCHE__V1__GUEST_FRAME__BODY_CONTEXT_RESULT)->context_result;
    if (result->error_number != 0)
        monitor_give_up("context %s: %s", c->id, result->error);
}

static void say_code(const struct monitor *r, const char *context, const char *code, bool warm_up)
{
    Cloche__V1__GuestCell cell = CLOCHE__V1__GUEST_CELL__INIT;
    cell.id = (char *)(uintptr_t)context;
    cell.code = (char *)(uintptr_t)code;
    cell.warm_up = warm_up;
    GUEST_FRAME(frame, ++streams, CELL, cell, &cell);
    say(r, &frame);
}

static void run_cell(const struct monitor *r, const struct template_context *c, const char *code)
{
    say_code(r, c->id, code, true);
    agent_await_end(r);
}

static void take_step(const struct monitor *r, const struct warmup_step *step,
                      void (*rehearse)(const struct monitor *r))
{
    switch (step->kind) {
    case WARMUP_COMMAND:
        run_command(r, step->command->argv);
        break;
    case WARMUP_CONTEXT:
        start_context(r, step->context);
        break;
    case WARMUP_PRELOAD:
        run_cell(r, step->context, step->context->preload);
        break;
    case WARMUP_CELL:
        run_cell(r, step->context, step->context->warm_up);
        break;
    case WARMUP_REHEARSE:
        rehearse(r);
        break;
    case WARMUP_IDENTITY:
        agent_say_identity(r);
        agent_await_identity(r);
        break;
    }
}

void agent_warm_up(const struct monitor *r, const struct template_manifest *m, bool boot,
                   void (*rehearse)(const struct monitor *r))
{
    struct warmup_step step;
    for (size_t i = 0; warmup_step(m, boot, i, &step); i++) {
        if (step.kind == WARMUP_REHEARSE && !rehearse)
            return;
        take_step(r, &step, rehearse);
    }
}

void agent_say_cell(const struct monitor *r)
{
    say_code(r, "python", "print(sum(range(1000)))", false);
}

void agent_await_byte(const struct monitor *r)
{
    const frame_of_guest *frame = hear_last(r, CLOCHE__V1__GUEST_FRAME__BODY_DATA);
    if (frame->data->bytes.len == 0 || frame->data->bytes.data[0] != '4') /* of 499500 */
        monitor_give_up("a cell's first output is not its sum");
}

void agent_await_end(const struct monitor *r)
{
    const Cloche__V1__GuestCellEnded *end =
        hear_last(r, CLOCHE__V1__GUEST_FRAME__BODY_CELL_ENDED)->cell_ended;
    if (end->end != CLOCHE__V1__GUEST_CELL_END__GUEST_CELL_END_OK)
        monitor_give_up("a cell ended with %d: %s", (int)end->end, end->error);
}
