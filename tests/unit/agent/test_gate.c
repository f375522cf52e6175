/* tests/unit/agent/test_gate.c - agent/gate.h. */
#include "agent/gate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static Cloche__V1__GuestExec exec_body;
static Cloche__V1__GuestFileOp file_body;
static Cloche__V1__GuestSignal signal_body;
static Cloche__V1__GuestReset reset_body;
static Cloche__V1__GuestPing ping_body;
static Cloche__V1__GuestPong pong_body;
static Cloche__V1__GuestClock clock_body;

static Cloche__V1__GuestContextOp context_body;
static Cloche__V1__GuestCell cell_body;
static Cloche__V1__GuestDial dial_body;
static Cloche__V1__GuestDialed dialed_body;
static Cloche__V1__GuestHungUp hung_up_body;

static int init_bodies(void **state)
{
    (void)state;
    cloche__v1__guest_context_op__init(&context_body);
    cloche__v1__guest_cell__init(&cell_body);
    cloche__v1__guest_dial__init(&dial_body);
    cloche__v1__guest_dialed__init(&dialed_body);
    cloche__v1__guest_hung_up__init(&hung_up_body);
    cloche__v1__guest_exec__init(&exec_body);
    cloche__v1__guest_file_op__init(&file_body);
    cloche__v1__guest_signal__init(&signal_body);
    cloche__v1__guest_reset__init(&reset_body);
    cloche__v1__guest_ping__init(&ping_body);
    cloche__v1__guest_pong__init(&pong_body);
    cloche__v1__guest_clock__init(&clock_body);
    return 0;
}

/* The action, or -1 when the gate calls it a breach. */
static int admit(struct gate *gate, const Cloche__V1__GuestFrame *frame)
{
    enum gate_action action;
    struct cl_err err = {0};
    if (gate_admit(gate, frame, &action, &err) == 0)
        return (int)action;
    assert_int_equal(err.code, CL_E_PEER);
    return -1;
}

static int admit_exec(struct gate *gate, uint64_t stream)
{
    GUEST_FRAME(frame, stream, EXEC, exec, &exec_body);
    return admit(gate, &frame);
}

static int admit_data(struct gate *gate, uint64_t stream, Cloche__V1__GuestChannel channel,
                      size_t n, bool eof)
{
    static uint8_t bytes[GUEST_DATA_MAX + 1];
    Cloche__V1__GuestData data;
    cloche__v1__guest_data__init(&data);
    data.channel = channel;
    data.bytes.data = bytes;
    data.bytes.len = n;
    data.eof = eof;
    GUEST_FRAME(frame, stream, DATA, data, &data);
    return admit(gate, &frame);
}

static int admit_window(struct gate *gate, uint64_t stream, uint32_t bytes)
{
    Cloche__V1__GuestWindow window;
    cloche__v1__guest_window__init(&window);
    window.bytes = bytes;
    GUEST_FRAME(frame, stream, WINDOW, window, &window);
    return admit(gate, &frame);
}

static const Cloche__V1__GuestChannel STDIN = CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_STDIN;
static const Cloche__V1__GuestChannel FILE_DATA = CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_FILE;
static const Cloche__V1__GuestChannel SOCKET = CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_SOCKET;

static void test_nothing_runs_before_the_identity(void **state)
{
    (void)state;
    struct gate gate;
    gate_init(&gate);
    assert_int_equal(admit_exec(&gate, 1), -1);
    GUEST_FRAME(file, 1, FILE_OP, file_op, &file_body);
    assert_int_equal(admit(&gate, &file), -1);
    GUEST_FRAME(ping, 0, PING, ping, &ping_body);
    assert_int_equal(admit(&gate, &ping), GATE_PING);
}

static int admit_hold(struct gate *gate, uint64_t stream)
{
    Cloche__V1__GuestHold hold = CLOCHE__V1__GUEST_HOLD__INIT;
    GUEST_FRAME(frame, stream, HOLD, hold, &hold);
    return admit(gate, &frame);
}

static int admit_release(struct gate *gate)
{
    Cloche__V1__GuestRelease release = CLOCHE__V1__GUEST_RELEASE__INIT;
    GUEST_FRAME(frame, 0, RELEASE, release, &release);
    return admit(gate, &frame);
}

static void test_held_only_the_release_may_come(void **state)
{
    (void)state;
    struct gate gate;
    gate_init(&gate);
    gate.identified = true;
    assert_int_equal(admit_release(&gate), -1);
    gate_init(&gate);
    gate.identified = true;
    assert_int_equal(admit_hold(&gate, 3), -1);
    gate_init(&gate);
    gate.identified = true;
    assert_int_equal(admit_hold(&gate, 0), GATE_HOLD);
    assert_int_equal(admit_exec(&gate, 1), -1);
    assert_int_equal(admit_hold(&gate, 0), -1);
    assert_int_equal(admit_release(&gate), GATE_RELEASE);
    assert_int_equal(admit_exec(&gate, 1), GATE_EXEC);
    assert_int_equal(admit_hold(&gate, 0), GATE_HOLD);
    assert_int_equal(admit_release(&gate), GATE_RELEASE);
}

static void test_stream_numbers_only_grow(void **state)
{
    (void)state;
    struct gate gate;
    gate_init(&gate);
    gate.identified = true;
    assert_int_equal(admit_exec(&gate, 0), -1);
    assert_int_equal(admit_exec(&gate, 5), GATE_EXEC);
    assert_int_equal(admit_exec(&gate, 5), -1);
    assert_int_equal(admit_exec(&gate, 4), -1);
    gate_close(&gate, 5);
    assert_int_equal(admit_exec(&gate, 5), -1);
    assert_int_equal(admit_exec(&gate, UINT64_MAX), GATE_EXEC);
}

static void test_the_table_is_bounded(void **state)
{
    (void)state;
    struct gate gate;
    gate_init(&gate);
    gate.identified = true;
    for (uint64_t id = 1; id <= GATE_STREAMS_MAX; id++)
        assert_int_equal(admit_exec(&gate, id), GATE_EXEC);
    assert_int_equal(admit_exec(&gate, 65), GATE_BUSY);
    gate_close(&gate, 3);
    assert_int_equal(admit_exec(&gate, 66), GATE_EXEC);
}

static void test_data_over_the_credit_is_a_breach(void **state)
{
    (void)state;
    struct gate gate;
    gate_init(&gate);
    gate.identified = true;
    assert_int_equal(admit_exec(&gate, 1), GATE_EXEC);
    for (int i = 0; i < GUEST_WINDOW_INITIAL / GUEST_DATA_MAX; i++)
        assert_int_equal(admit_data(&gate, 1, STDIN, GUEST_DATA_MAX, false), GATE_DATA);
    assert_int_equal(admit_data(&gate, 1, STDIN, 1, false), -1);
    assert_int_equal(admit_data(&gate, 1, STDIN, 0, true), GATE_DATA);
    assert_int_equal(admit_data(&gate, 1, STDIN, 0, true), -1);
}

static void test_data_has_its_channel_and_size(void **state)
{
    (void)state;
    struct gate gate;
    gate_init(&gate);
    gate.identified = true;
    assert_int_equal(admit_exec(&gate, 1), GATE_EXEC);
    GUEST_FRAME(file, 2, FILE_OP, file_op, &file_body);
    assert_int_equal(admit(&gate, &file), GATE_FILE);
    assert_int_equal(admit_data(&gate, 1, FILE_DATA, 1, false), -1);
    assert_int_equal(admit_data(&gate, 2, STDIN, 1, false), -1);
    assert_int_equal(admit_data(&gate, 2, FILE_DATA, 1, false), GATE_DATA);
    assert_int_equal(admit_data(&gate, 1, STDIN, GUEST_DATA_MAX + 1, false), -1);
}

static void test_credit_cannot_overflow(void **state)
{
    (void)state;
    struct gate gate;
    gate_init(&gate);
    gate.identified = true;
    assert_int_equal(admit_exec(&gate, 1), GATE_EXEC);
    assert_int_equal(admit_window(&gate, 1, 1000), GATE_CREDIT);
    assert_int_equal(gate_find(&gate, 1)->send_credit, GUEST_WINDOW_INITIAL + 1000);
    assert_int_equal(admit_window(&gate, 1, UINT32_MAX), -1);
    assert_int_equal(admit_window(&gate, 1, GATE_CREDIT_MAX - GUEST_WINDOW_INITIAL - 1000),
                     GATE_CREDIT);
    assert_int_equal(admit_window(&gate, 1, 1), -1);
}

static void test_frames_for_closed_streams_are_stale(void **state)
{
    (void)state;
    struct gate gate;
    gate_init(&gate);
    gate.identified = true;
    assert_int_equal(admit_exec(&gate, 1), GATE_EXEC);
    GUEST_FRAME(reset, 1, RESET, reset, &reset_body);
    assert_int_equal(admit(&gate, &reset), GATE_RESET);
    assert_int_equal(admit(&gate, &reset), GATE_IGNORE);
    assert_int_equal(admit_data(&gate, 1, STDIN, 10, false), GATE_IGNORE);
    assert_int_equal(admit_window(&gate, 1, 10), GATE_IGNORE);
    assert_int_equal(admit_window(&gate, 2, 10), -1);
    assert_int_equal(admit_window(&gate, 0, 10), -1);
}

static void test_bodies_stay_in_their_place(void **state)
{
    (void)state;
    struct gate gate;
    gate_init(&gate);
    gate.identified = true;
    GUEST_FRAME(pong, 0, PONG, pong, &pong_body);
    assert_int_equal(admit(&gate, &pong), -1);
    GUEST_FRAME(ping, 1, PING, ping, &ping_body);
    assert_int_equal(admit(&gate, &ping), -1);
    GUEST_FRAME(clock, 0, CLOCK, clock, &clock_body);
    assert_int_equal(admit(&gate, &clock), GATE_CLOCK);
    clock.stream = 1;
    assert_int_equal(admit(&gate, &clock), -1);
    GUEST_FRAME(file, 1, FILE_OP, file_op, &file_body);
    assert_int_equal(admit(&gate, &file), GATE_FILE);
    GUEST_FRAME(signal, 1, SIGNAL, signal, &signal_body);
    assert_int_equal(admit(&gate, &signal), -1);
    assert_int_equal(admit_exec(&gate, 2), GATE_EXEC);
    signal.stream = 2;
    assert_int_equal(admit(&gate, &signal), GATE_SIGNAL);
}

static void test_code_takes_streams_but_no_data(void **state)
{
    (void)state;
    struct gate gate;
    gate_init(&gate);
    GUEST_FRAME(cell, 1, CELL, cell, &cell_body);
    assert_int_equal(admit(&gate, &cell), -1); /* before the identity */
    gate.identified = true;
    assert_int_equal(admit(&gate, &cell), GATE_CELL);
    GUEST_FRAME(op, 2, CONTEXT_OP, context_op, &context_body);
    assert_int_equal(admit(&gate, &op), GATE_CONTEXT);
    assert_int_equal(admit_data(&gate, 1, STDIN, 1, false), -1);
    GUEST_FRAME(signal, 1, SIGNAL, signal, &signal_body);
    assert_int_equal(admit(&gate, &signal), -1);
    GUEST_FRAME(reset, 1, RESET, reset, &reset_body);
    assert_int_equal(admit(&gate, &reset), GATE_RESET);
}

static int admit_dial(struct gate *gate, uint64_t stream)
{
    GUEST_FRAME(frame, stream, DIAL, dial, &dial_body);
    return admit(gate, &frame);
}

static void test_a_dial_opens_a_stream_of_bytes_both_ways(void **state)
{
    (void)state;
    struct gate gate;
    gate_init(&gate);
    assert_int_equal(admit_dial(&gate, 1), -1); /* before the identity */
    gate.identified = true;
    assert_int_equal(admit_dial(&gate, 0), -1);
    assert_int_equal(admit_dial(&gate, 1), GATE_DIAL);
    assert_int_equal(admit_dial(&gate, 1), -1);
    assert_int_equal(gate_find(&gate, 1)->kind, GATE_KIND_DIAL);
    assert_int_equal(admit_data(&gate, 1, SOCKET, 10, false), GATE_DATA); /* at once */
    assert_int_equal(gate_find(&gate, 1)->recv_credit, GUEST_WINDOW_INITIAL - 10);
    assert_int_equal(admit_window(&gate, 1, 10), GATE_CREDIT);
    assert_int_equal(admit_data(&gate, 1, STDIN, 1, false), -1);
    assert_int_equal(admit_data(&gate, 1, FILE_DATA, 1, false), -1);
    assert_int_equal(admit_data(&gate, 1, SOCKET, 10, true), GATE_DATA);
    assert_int_equal(admit_window(&gate, 1, 10), GATE_CREDIT); /* the other way goes on */
    assert_int_equal(admit_data(&gate, 1, SOCKET, 0, true), -1);
}

static void test_a_dial_is_no_exec_and_nothing_else_is_a_dial(void **state)
{
    (void)state;
    struct gate gate;
    gate_init(&gate);
    gate.identified = true;
    assert_int_equal(admit_dial(&gate, 1), GATE_DIAL);
    GUEST_FRAME(signal, 1, SIGNAL, signal, &signal_body);
    assert_int_equal(admit(&gate, &signal), -1);
    GUEST_FRAME(dialed, 1, DIALED, dialed, &dialed_body);
    assert_int_equal(admit(&gate, &dialed), -1);
    GUEST_FRAME(hung_up, 1, HUNG_UP, hung_up, &hung_up_body);
    assert_int_equal(admit(&gate, &hung_up), -1);
    assert_int_equal(admit_exec(&gate, 2), GATE_EXEC);
    assert_int_equal(admit_data(&gate, 2, SOCKET, 1, false), -1);
    GUEST_FRAME(cell, 3, CELL, cell, &cell_body);
    assert_int_equal(admit(&gate, &cell), GATE_CELL);
    assert_int_equal(admit_data(&gate, 3, SOCKET, 1, false), -1);
    GUEST_FRAME(reset, 1, RESET, reset, &reset_body);
    assert_int_equal(admit(&gate, &reset), GATE_RESET);
    assert_int_equal(admit_data(&gate, 1, SOCKET, 1, false), GATE_IGNORE);
}

static void test_a_dial_takes_its_place_in_the_table(void **state)
{
    (void)state;
    struct gate gate;
    gate_init(&gate);
    gate.identified = true;
    for (uint64_t id = 1; id <= GATE_STREAMS_MAX; id++)
        assert_int_equal(admit_dial(&gate, id), GATE_DIAL);
    assert_int_equal(admit_dial(&gate, 65), GATE_BUSY);
    assert_int_equal(admit_data(&gate, 65, SOCKET, 1, false), GATE_IGNORE);
    gate_close(&gate, 64);
    assert_int_equal(admit_dial(&gate, 66), GATE_DIAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_code_takes_streams_but_no_data),
        cmocka_unit_test(test_nothing_runs_before_the_identity),
        cmocka_unit_test(test_held_only_the_release_may_come),
        cmocka_unit_test(test_stream_numbers_only_grow),
        cmocka_unit_test(test_the_table_is_bounded),
        cmocka_unit_test(test_data_over_the_credit_is_a_breach),
        cmocka_unit_test(test_data_has_its_channel_and_size),
        cmocka_unit_test(test_credit_cannot_overflow),
        cmocka_unit_test(test_frames_for_closed_streams_are_stale),
        cmocka_unit_test(test_bodies_stay_in_their_place),
        cmocka_unit_test(test_a_dial_opens_a_stream_of_bytes_both_ways),
        cmocka_unit_test(test_a_dial_is_no_exec_and_nothing_else_is_a_dial),
        cmocka_unit_test(test_a_dial_takes_its_place_in_the_table),
    };
    return cmocka_run_group_tests(tests, init_bodies, NULL);
}
