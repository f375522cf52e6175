/* tests/unit/vmm/test_control.c - vmm/control.h. */
#include "vmm/control.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The diagram of vmm/control.h, edge by edge. */
static const struct {
    enum control_phase from;
    enum control_type by;
    enum control_phase to;
} legal[] = {
    {CONTROL_NEW, CONTROL_BOOT, CONTROL_BOOTING},
    {CONTROL_NEW, CONTROL_RESTORE, CONTROL_RESTORED},
    {CONTROL_BOOTING, CONTROL_CMDLINE, CONTROL_BOOTED},
    {CONTROL_BOOTED, CONTROL_START, CONTROL_RUNNING},
    {CONTROL_RESTORED, CONTROL_START, CONTROL_RUNNING},
    {CONTROL_RUNNING, CONTROL_PAUSE, CONTROL_IS_PAUSED},
    {CONTROL_IS_PAUSED, CONTROL_RESUME, CONTROL_RUNNING},
    {CONTROL_IS_PAUSED, CONTROL_SAVE, CONTROL_IS_SAVED},
    {CONTROL_IS_PAUSED, CONTROL_SAVE_CLONE, CONTROL_IS_PAUSED},
    {CONTROL_RUNNING, CONTROL_RECORD, CONTROL_RUNNING},
    {CONTROL_RUNNING, CONTROL_GROW, CONTROL_RUNNING},
    {CONTROL_IS_PAUSED, CONTROL_GROW, CONTROL_IS_PAUSED},
    {CONTROL_RUNNING, CONTROL_BALLOON, CONTROL_RUNNING},
    {CONTROL_IS_PAUSED, CONTROL_BALLOON, CONTROL_IS_PAUSED},
    {CONTROL_BOOTED, CONTROL_STATS, CONTROL_BOOTED},
    {CONTROL_RESTORED, CONTROL_STATS, CONTROL_RESTORED},
    {CONTROL_RUNNING, CONTROL_STATS, CONTROL_RUNNING},
    {CONTROL_IS_PAUSED, CONTROL_STATS, CONTROL_IS_PAUSED},
    {CONTROL_NEW, CONTROL_STOP, CONTROL_HAS_ENDED},
    {CONTROL_BOOTING, CONTROL_STOP, CONTROL_HAS_ENDED},
    {CONTROL_BOOTED, CONTROL_STOP, CONTROL_HAS_ENDED},
    {CONTROL_RESTORED, CONTROL_STOP, CONTROL_HAS_ENDED},
    {CONTROL_RUNNING, CONTROL_STOP, CONTROL_HAS_ENDED},
    {CONTROL_IS_PAUSED, CONTROL_STOP, CONTROL_HAS_ENDED},
    {CONTROL_IS_SAVED, CONTROL_STOP, CONTROL_HAS_ENDED},
};

static enum control_phase legal_next(int phase, int type)
{
    for (size_t i = 0; i < CL_COUNT(legal); i++)
        if ((int)legal[i].from == phase && (int)legal[i].by == type)
            return legal[i].to;
    return CONTROL_PHASE_NONE;
}

static void test_every_pair_of_phase_and_message_does_what_the_diagram_says(void **state)
{
    (void)state;
    for (int phase = -1; phase <= CONTROL_PHASES_NR + 1; phase++) {
        for (int type = -1; type <= CONTROL_EVENTS_END + 1; type++) {
            enum control_phase now = (enum control_phase)phase, next = legal_next(phase, type);
            struct cl_err err = {0};
            int rc = control_step(&now, (enum control_type)type, &err);
            assert_int_equal(rc, next ? 0 : -1);
            assert_int_equal(now, next ? next : (enum control_phase)phase);
            assert_int_equal(err.code, next ? CL_OK : CL_E_STATE);
        }
    }
}

enum { FDS_OF_BOOT = CONTROL_FDS - 1 };
#define DELTA (1U << CONTROL_FD_DELTA)

static struct control_message boot(void)
{
    return (struct control_message){.type = CONTROL_BOOT,
                                    .setup = {.version = CONTROL_VERSION,
                                              .vcpus = 2,
                                              .mem_bytes = 256 * CL_MIB,
                                              .fds = ((1U << CONTROL_FDS) - 1) & ~DELTA,
                                              .mac = {2, 0, 0, 0, 0, 1}}};
}

static int parse(const struct control_message *m, unsigned n_fds)
{
    struct control_message out;
    struct cl_err err = {0};
    int rc = control_parse(m, sizeof *m, n_fds, &out, &err);
    assert_int_equal(err.code, rc < 0 ? CL_E_PEER : CL_OK);
    if (rc == 0)
        assert_memory_equal(&out, m, sizeof out);
    return rc;
}

static void test_a_whole_setup_is_taken(void **state)
{
    (void)state;
    struct control_message m = boot();
    assert_int_equal(parse(&m, FDS_OF_BOOT), 0);
    m.setup.fds &= ~(1U << CONTROL_FD_SCRATCH | 1U << CONTROL_FD_CONSOLE);
    assert_int_equal(parse(&m, FDS_OF_BOOT - 2), 0);
    m.type = CONTROL_RESTORE;
    m.setup.fds &= ~(1U << CONTROL_FD_KERNEL | 1U << CONTROL_FD_INITRD);
    assert_int_equal(parse(&m, FDS_OF_BOOT - 4), 0);
    m.setup.fds |= DELTA;
    assert_int_equal(parse(&m, FDS_OF_BOOT - 3), 0);
}

static void test_a_clone_is_saved_into_two_files(void **state)
{
    (void)state;
    struct control_message m = {.type = CONTROL_SAVE_CLONE};
    assert_int_equal(control_fds(&m), 1U << CONTROL_FD_STATE | DELTA);
    for (unsigned n = 0; n <= CONTROL_FDS; n++)
        assert_int_equal(parse(&m, n), n == 2 ? 0 : -1);
}

static void test_a_setup_that_lacks_an_fd_is_refused(void **state)
{
    (void)state;
    for (unsigned fd = 0; fd < FDS_OF_BOOT; fd++) {
        struct control_message m = boot();
        bool optional = fd == CONTROL_FD_SCRATCH || fd == CONTROL_FD_CONSOLE;
        m.setup.fds &= ~(1U << fd);
        assert_int_equal(parse(&m, FDS_OF_BOOT - 1), optional ? 0 : -1);
        assert_int_equal(parse(&m, FDS_OF_BOOT), -1); /* one more than it names */
    }
}

static void test_a_setup_with_too_much_is_refused(void **state)
{
    (void)state;
    struct control_message m = boot();
    m.setup.fds |= 1U << CONTROL_FDS;
    assert_int_equal(parse(&m, FDS_OF_BOOT + 1), -1);
    m = boot();
    m.setup.fds |= DELTA; /* a boot has no memory of before */
    assert_int_equal(parse(&m, FDS_OF_BOOT + 1), -1);
    m = boot();
    m.type = CONTROL_RESTORE; /* needs no kernel */
    assert_int_equal(parse(&m, FDS_OF_BOOT), -1);
    m = boot();
    m.setup.vcpus = CONTROL_VCPUS_MAX + 1;
    assert_int_equal(parse(&m, FDS_OF_BOOT), -1);
    m = boot();
    m.setup.mem_bytes = (CONTROL_MEM_MAX_MIB + CONTROL_MEM_STEP_MIB) * CL_MIB;
    assert_int_equal(parse(&m, FDS_OF_BOOT), -1);
    m.setup.mem_bytes = 256 * CL_MIB + 4096;
    assert_int_equal(parse(&m, FDS_OF_BOOT), -1);
    m = boot();
    m.setup.version++;
    assert_int_equal(parse(&m, FDS_OF_BOOT), -1);
}

static void test_a_card_has_an_address_of_its_own(void **state)
{
    (void)state;
    struct control_message m = boot();
    m.setup.fds &= ~(1U << CONTROL_FD_NET);
    assert_int_equal(parse(&m, FDS_OF_BOOT - 1), -1); /* an address and no card */
    memset(m.setup.mac, 0, sizeof m.setup.mac);
    assert_int_equal(parse(&m, FDS_OF_BOOT - 1), 0);
    m = boot();
    m.setup.mac[0] = 3; /* of a group */
    assert_int_equal(parse(&m, FDS_OF_BOOT), -1);
    memset(m.setup.mac, 0, sizeof m.setup.mac);
    assert_int_equal(parse(&m, FDS_OF_BOOT), -1);
    m = boot();
    m.setup.zero[4] = 1;
    assert_int_equal(parse(&m, FDS_OF_BOOT), -1);
}

static void test_a_balloon_has_a_limit(void **state)
{
    (void)state;
    struct control_message m = {.type = CONTROL_BALLOON,
                                .balloon = {.bytes = CONTROL_MEM_MAX_MIB * CL_MIB}};
    assert_int_equal(parse(&m, 0), 0);
    m.balloon.bytes++;
    assert_int_equal(parse(&m, 0), -1);
}

static void test_a_boot_can_ask_for_a_way_to_boot(void **state)
{
    (void)state;
    struct control_message m = boot();
    m.setup.flags = CONTROL_BOOT_BY_PVH;
    assert_int_equal(parse(&m, FDS_OF_BOOT), 0);
    m.setup.flags = CONTROL_BOOT_BY_PVH | CONTROL_BOOT_OWN_RAM;
    assert_int_equal(parse(&m, FDS_OF_BOOT), 0);
    m.setup.flags = CONTROL_BOOT_BY_XENPV | CONTROL_BOOT_OWN_RAM;
    assert_int_equal(parse(&m, FDS_OF_BOOT), 0);
    m.setup.flags = CONTROL_BOOT_BY_XENPV | CONTROL_BOOT_BY_PVH;
    assert_int_equal(parse(&m, FDS_OF_BOOT), -1);
    m.setup.flags = CONTROL_BOOT_BY_XENPV | CONTROL_BOOT_ISOLATED | CONTROL_BOOT_OWN_RAM;
    assert_int_equal(parse(&m, FDS_OF_BOOT), 0);
    m.setup.flags = CONTROL_BOOT_ISOLATED;
    assert_int_equal(parse(&m, FDS_OF_BOOT), -1);
    m.setup.flags = CONTROL_BOOT_BY_PVH | CONTROL_BOOT_ISOLATED;
    assert_int_equal(parse(&m, FDS_OF_BOOT), -1);
    m.setup.flags = CONTROL_RESTORE_HERE;
    assert_int_equal(parse(&m, FDS_OF_BOOT), -1);
    m.setup.flags = UINT8_MAX;
    assert_int_equal(parse(&m, FDS_OF_BOOT), -1);
    m.setup.flags = CONTROL_BOOT_BY_PVH;
    m.type = CONTROL_RESTORE;
    m.setup.fds &= ~(1U << CONTROL_FD_KERNEL | 1U << CONTROL_FD_INITRD);
    assert_int_equal(parse(&m, FDS_OF_BOOT - 2), -1);
    m.setup.flags = CONTROL_BOOT_BY_XENPV | CONTROL_BOOT_OWN_RAM;
    assert_int_equal(parse(&m, FDS_OF_BOOT - 2), -1);
    m.setup.flags = CONTROL_BOOT_BY_XENPV; /* a clone has no ring 0 either */
    assert_int_equal(parse(&m, FDS_OF_BOOT - 2), 0);
    m.setup.flags = CONTROL_BOOT_BY_XENPV | CONTROL_BOOT_ISOLATED;
    assert_int_equal(parse(&m, FDS_OF_BOOT - 2), 0);
    m.setup.flags = CONTROL_BOOT_ISOLATED;
    assert_int_equal(parse(&m, FDS_OF_BOOT - 2), -1);
    m.setup.flags = CONTROL_RESTORE_HERE;
    assert_int_equal(parse(&m, FDS_OF_BOOT - 2), 0);
    m.setup.flags = CONTROL_RESTORE_HERE << 1;
    assert_int_equal(parse(&m, FDS_OF_BOOT - 2), -1);
}

static void test_only_a_setup_brings_fds(void **state)
{
    (void)state;
    struct control_message m = {.type = CONTROL_START};
    assert_int_equal(parse(&m, 0), 0);
    assert_int_equal(parse(&m, 1), -1);
}

static void test_a_command_line_ends_where_it_says(void **state)
{
    (void)state;
    struct control_message m = {.type = CONTROL_CMDLINE, .cmdline = {.bytes = 5, .text = "quiet"}};
    assert_int_equal(parse(&m, 0), 0);
    m.cmdline.bytes = 4;
    assert_int_equal(parse(&m, 0), -1);
    m.cmdline.bytes = 6;
    assert_int_equal(parse(&m, 0), -1);
    memset(m.cmdline.text, 'x', sizeof m.cmdline.text);
    m.cmdline.bytes = sizeof m.cmdline.text;
    assert_int_equal(parse(&m, 0), -1); /* no NUL */
    m.cmdline.text[--m.cmdline.bytes] = '\0';
    assert_int_equal(parse(&m, 0), 0);
}

static void test_a_disk_has_whole_sectors_and_a_limit(void **state)
{
    (void)state;
    struct control_message m = {.type = CONTROL_GROW, .grow = {.disk_bytes = CL_GIB}};
    assert_int_equal(parse(&m, 0), 0);
    m.grow.disk_bytes = CL_GIB + 1;
    assert_int_equal(parse(&m, 0), -1);
    m.grow.disk_bytes = CONTROL_DISK_MAX_MIB * CL_MIB + CONTROL_SECTOR;
    assert_int_equal(parse(&m, 0), -1);
    m.grow.disk_bytes = 0;
    assert_int_equal(parse(&m, 0), -1);
}

static void test_no_message_has_another_size(void **state)
{
    (void)state;
    static const uint8_t bytes[sizeof(struct control_message) + 1];
    struct control_message out;
    for (size_t n = 0; n <= sizeof bytes; n++) {
        assert_int_equal(control_parse(bytes, n, 0, &out, NULL), -1);
        assert_int_equal(control_parse_event(bytes, n, &out, NULL), -1);
    }
}

static void test_a_direction_has_its_own_messages(void **state)
{
    (void)state;
    for (uint32_t type = 0; type < 64; type++) {
        struct control_message m = {.type = type}, out;
        m.ended.cause = CONTROL_END_GUEST;
        bool is_event = type >= CONTROL_UP && type < CONTROL_EVENTS_END;
        assert_int_equal(control_parse_event(&m, sizeof m, &out, NULL), is_event ? 0 : -1);
        if (type >= CONTROL_COMMANDS_NR)
            assert_int_equal(control_parse(&m, sizeof m, 0, &out, NULL), -1);
    }
}

static void test_a_hostile_text_becomes_printable(void **state)
{
    (void)state;
    struct control_message m = {.type = CONTROL_ENDED, .ended = {.cause = CONTROL_END_FAILED}}, out;
    memset(m.ended.text, 0x1b, sizeof m.ended.text);
    assert_int_equal(control_parse_event(&m, sizeof m, &out, NULL), 0);
    assert_int_equal(strlen(out.ended.text), CONTROL_TEXT_MAX);
    assert_int_equal(strspn(out.ended.text, " "), CONTROL_TEXT_MAX);
    m.ended.cause = 0;
    assert_int_equal(control_parse_event(&m, sizeof m, &out, NULL), -1);
}

static int parse_stats(struct control_message *m, struct control_message *ret)
{
    struct cl_err err = {0};
    m->type = CONTROL_STATS_ARE;
    int rc = control_parse_event(m, sizeof *m, ret, &err);
    assert_int_equal(err.code, rc < 0 ? CL_E_PEER : CL_OK);
    return rc;
}

static void test_statistics_are_taken_as_far_as_they_are_known(void **state)
{
    (void)state;
    struct control_message m = {.stats = {.cpu_ns = 7, .counts = {.known = 5}}}, out;
    for (int i = 0; i < COUNTS_MAX; i++)
        m.stats.counts.of[i] = 100 + (uint64_t)i;
    assert_int_equal(parse_stats(&m, &out), 0);
    for (int i = 0; i < COUNTS_MAX; i++)
        assert_int_equal(out.stats.counts.of[i], i == 0 || i == 2 ? 100 + i : 0);
    m.stats.counts.known = UINT64_C(1) << COUNTS_NR;
    assert_int_equal(parse_stats(&m, &out), -1);
}

static void test_statistics_that_cannot_be_are_refused(void **state)
{
    (void)state;
    const struct control_message good = {.stats = {.counts = {.known = 1}}};
    struct control_message m = good, out;
    uint64_t *figures[] = {&m.stats.cpu_ns, &m.stats.peak_bytes, &m.stats.free_bytes,
                           &m.stats.counts.of[0]};
    for (size_t i = 0; i < CL_COUNT(figures); i++) {
        m = good;
        *figures[i] = CONTROL_STAT_MAX - 1;
        assert_int_equal(parse_stats(&m, &out), 0);
        *figures[i] = CONTROL_STAT_MAX;
        assert_int_equal(parse_stats(&m, &out), -1);
        *figures[i] = UINT64_MAX;
        assert_int_equal(parse_stats(&m, &out), -1);
    }
    m = good;
    m.stats.counts.of[1] = UINT64_MAX; /* not known, so nobody looks at it */
    assert_int_equal(parse_stats(&m, &out), 0);
    assert_int_equal(out.stats.counts.of[1], 0);
}

static void test_each_counter_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (int i = 0; i < COUNTS_NR; i++) {
        const char *name = vm_count_name((enum vm_count)i);
        assert_true(strchr(name, '.') && strlen(name) < 32);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(name, vm_count_name((enum vm_count)j));
    }
    assert_string_equal(vm_count_name(COUNTS_NR), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_pair_of_phase_and_message_does_what_the_diagram_says),
        cmocka_unit_test(test_a_whole_setup_is_taken),
        cmocka_unit_test(test_a_clone_is_saved_into_two_files),
        cmocka_unit_test(test_a_setup_that_lacks_an_fd_is_refused),
        cmocka_unit_test(test_a_setup_with_too_much_is_refused),
        cmocka_unit_test(test_a_card_has_an_address_of_its_own),
        cmocka_unit_test(test_a_balloon_has_a_limit),
        cmocka_unit_test(test_a_boot_can_ask_for_a_way_to_boot),
        cmocka_unit_test(test_only_a_setup_brings_fds),
        cmocka_unit_test(test_a_command_line_ends_where_it_says),
        cmocka_unit_test(test_a_disk_has_whole_sectors_and_a_limit),
        cmocka_unit_test(test_no_message_has_another_size),
        cmocka_unit_test(test_a_direction_has_its_own_messages),
        cmocka_unit_test(test_a_hostile_text_becomes_printable),
        cmocka_unit_test(test_statistics_are_taken_as_far_as_they_are_known),
        cmocka_unit_test(test_statistics_that_cannot_be_are_refused),
        cmocka_unit_test(test_each_counter_has_a_name_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
