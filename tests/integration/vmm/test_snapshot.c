/* A machine's state: what is saved goes on in fresh processes, and what does not fit is refused. */
#include <errno.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/integration/vmm/guest.h"
#include "tests/unit/vmm/pages.h"

enum { CLONES = 3 };

#define COUNT 0x200000
#define LIMIT 0x200008
#define NEVER INT64_MAX

/* Counts in a register and in memory; at LIMIT it ends: 7 when both agree and other registers are
 * what they were. */
GUEST(counter, "mov $0x1122334455667788, %r12\n xor %ecx, %ecx\n"
               "1: inc %rcx\n mov %rcx, 0x200000\n cmp 0x200008, %rcx\n jb 1b\n"
               "mov $8, %al\n cmp 0x200000, %rcx\n jne 2f\n"
               "movabs $0x1122334455667788, %rdx\n cmp %rdx, %r12\n jne 2f\n"
               "mov $7, %al\n 2: out %al, $0xf4\n 3: jmp 3b\n");

/* Sleeps between ticks of the local APIC's TSC deadline; ends with 9 after LIMIT ticks. */
#define ARM \
    "mov $0x6e0, %ecx\n rdtsc\n shl $32, %rdx\n or %rdx, %rax\n add $5000000, %rax\n" \
    "mov %rax, %rdx\n shr $32, %rdx\n wrmsr\n"
GUEST(ticker, GUEST_MAP_DEVICES
      "lea handler_of_ticks(%rip), %rax\n mov %ax, 0x3400\n movw $0x10, 0x3402\n"
      "movw $0x8e00, 0x3404\n shr $16, %rax\n mov %ax, 0x3406\n movq $0, 0x3408\n"
      "lidt idt_of_ticks(%rip)\n"
      "mov $0xfee00000, %esi\n movl $0x1ff, 0xf0(%rsi)\n movl $0x40040, 0x320(%rsi)\n" ARM
      "sti\n 1: hlt\n mov 0x200000, %rax\n cmp 0x200008, %rax\n jb 1b\n" GUEST_EXIT(
          9) "handler_of_ticks: incq 0x200000\n movl $0, 0xb0(%rsi)\n" ARM "iretq\n"
             "idt_of_ticks: .word 0xfff\n .quad 0x3000\n");

/* Processor 1 counts at 0x2000 in real mode; processor 0 ends with 11 when it has come to LIMIT. */
GUEST(pair, GUEST_MAP_DEVICES
      "movabs $0x00f9eb200006ff66, %rax\n mov %rax, 0x10000\n" /* 1: incl 0x2000; jmp 1b */
      "mov $0xfee00000, %esi\n movl $0x1ff, 0xf0(%rsi)\n"
      "movl $0x1000000, 0x310(%rsi)\n movl $0x4500, 0x300(%rsi)\n"
      "movl $0x1000000, 0x310(%rsi)\n movl $0x4610, 0x300(%rsi)\n"
      "1: mov 0x2000, %eax\n mov %rax, 0x200000\n cmp 0x200008, %rax\n jb 1b\n" GUEST_EXIT(11));

/* In ring 3 (may use ports): counts with a pattern in all of YMM15 and in MXCSR; at LIMIT it ends:
 * 13 when both are as they were.  Its segments are at 0x3000, the pages below 4 MiB its own. */
/* clang-format off */
GUEST(vectors,
      "mov $0x8000, %esp\n"
      "orq $4, 0x9000\n orq $4, 0xa000\n orq $4, 0xb000\n orq $4, 0xb008\n mov %cr3, %rax\n mov %rax, %cr3\n"
      "mov %cr4, %rax\n or $0x40600, %eax\n mov %rax, %cr4\n" /* OSFXSR, OSXMMEXCPT, OSXSAVE */
      "xor %ecx, %ecx\n xor %edx, %edx\n mov $7, %eax\n xsetbv\n"
      "movabs $0x00affa000000ffff, %rax\n mov %rax, 0x3008\n"
      "movabs $0x00cff2000000ffff, %rax\n mov %rax, 0x3010\n lgdt segments(%rip)\n"
      "push $0x13\n push $0x7000\n push $0x3002\n push $0x0b\n lea user(%rip), %rax\n push %rax\n iretq\n"
      "user: lea pattern(%rip), %rsi\n vmovups (%rsi), %ymm15\n ldmxcsr rounding(%rip)\n xor %ecx, %ecx\n"
      "1: inc %rcx\n mov %rcx, 0x200000\n mov $14, %al\n"
      "vxorps (%rsi), %ymm15, %ymm1\n vptest %ymm1, %ymm1\n jnz 2f\n"
      "cmp 0x200008, %rcx\n jb 1b\n"
      "mov $15, %al\n stmxcsr 0x200010\n mov rounding(%rip), %edx\n cmp 0x200010, %edx\n jne 2f\n"
      "mov $13, %al\n 2: out %al, $0xf4\n 3: jmp 3b\n"
      "segments: .word 23\n .quad 0x3000\n"
      "rounding: .long 0x7f80\n" /* towards zero */
      "pattern: .quad 0x0123456789abcdef, 0x1122334455667788, 0x99aabbccddeeff00, 0xfedcba9876543210\n");
/* clang-format on */

/* Run it until it has counted to `least`, and save it into a new file. */
static int snapshot(struct guest *g, uint64_t least, uint64_t limit)
{
    struct cl_err err = {0};
    uint64_t deadline = cl_now_ns() + 20 * CL_NS_PER_S;
    int state_fd = memfd_create("state", MFD_CLOEXEC);
    assert_true(state_fd >= 0);
    guest_poke(g, LIMIT, NEVER);
    assert_int_equal(vm_run(g->vm, &err), 0);
    while (guest_peek(g, COUNT) < least && cl_now_ns() < deadline)
        (void)usleep(1000);
    assert_int_equal(vm_pause(g->vm, &err), 0);
    assert_true(guest_peek(g, COUNT) >= least);
    guest_poke(g, LIMIT, guest_peek(g, COUNT) + limit);
    if (vm_save(g->vm, state_fd, &err) < 0)
        fail_msg("%s", err.text);
    vm_stop(g->vm);
    return state_fd;
}

extern char **environ;

/* This program again, as a process that restores from fds 103 and 104 (see be_clone). */
static pid_t spawn_clone(int ram_fd, int state_fd, const char *vcpus)
{
    char *argv[] = {(char[]){"test_snapshot"}, strdup(vcpus), NULL};
    posix_spawn_file_actions_t files;
    pid_t pid;
    assert_int_equal(posix_spawn_file_actions_init(&files), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&files, ram_fd, 103), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&files, state_fd, 104), 0);
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", &files, NULL, argv, environ), 0);
    (void)posix_spawn_file_actions_destroy(&files);
    free(argv[1]);
    return pid;
}

/* In the fresh process: run the clone to its end; its exit status is ours. */
static int be_clone(const char *vcpus)
{
    struct guest g;
    struct vm_report report;
    struct cl_err err = {0};
    guest_restore(&g, 103, 104, (unsigned)strtoul(vcpus, NULL, 10));
    if (vm_run(g.vm, &err) < 0)
        return 100;
    guest_await_end(&g, &report);
    if (report.end == VM_FAILED)
        (void)fprintf(stderr, "clone: %s\n", report.err.text);
    guest_close(&g);
    return report.end == VM_EXIT ? (int)report.status : 101;
}

static void expect_clones(const struct guest *g, int state_fd, const char *vcpus, int want)
{
    pid_t pids[CLONES];
    uint64_t count = guest_peek(g, COUNT);
    for (int i = 0; i < CLONES; i++)
        pids[i] = spawn_clone(g->ram_fd, state_fd, vcpus);
    for (int i = 0; i < CLONES; i++) {
        int status = 0;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), want);
    }
    assert_int_equal(guest_peek(g, COUNT), count); /* the template is as it was */
}

static void test_clones_go_on_in_fresh_processes(void **state)
{
    (void)state;
    struct guest g;
    guest_open(&g, guest_counter, guest_counter_end, 1);
    CL_AUTO(cl_closep) int state_fd = snapshot(&g, 1000, 20000);
    expect_clones(&g, state_fd, "1", 7);
    guest_close(&g);
}

static void test_the_timer_of_a_clone_goes_on(void **state)
{
    (void)state;
    struct guest g;
    guest_open(&g, guest_ticker, guest_ticker_end, 1);
    CL_AUTO(cl_closep) int state_fd = snapshot(&g, 5, 10);
    expect_clones(&g, state_fd, "1", 9);
    guest_close(&g);
}

static void test_all_processors_of_a_clone_go_on(void **state)
{
    (void)state;
    struct guest g;
    guest_open(&g, guest_pair, guest_pair_end, 2);
    CL_AUTO(cl_closep) int state_fd = snapshot(&g, 1000, 2000);
    expect_clones(&g, state_fd, "2", 11);
    guest_close(&g);
}

static void test_the_vector_registers_of_a_clone_go_on(void **state)
{
    (void)state;
    struct guest g;
    if (!__builtin_cpu_supports("avx")) {
        (void)printf("this processor has no AVX\n");
        skip();
    }
    guest_open(&g, guest_vectors, guest_vectors_end, 1);
    CL_AUTO(cl_closep) int state_fd = snapshot(&g, 100000, 1000000);
    expect_clones(&g, state_fd, "1", 13);
    guest_close(&g);
}

static void test_a_saved_machine_can_go_on_itself(void **state)
{
    (void)state;
    struct guest g;
    struct cl_err err = {0};
    struct vm_report report;
    CL_AUTO(cl_closep) int state_fd = memfd_create("state", MFD_CLOEXEC);
    guest_open(&g, guest_counter, guest_counter_end, 1);
    guest_poke(&g, LIMIT, NEVER);
    assert_int_equal(vm_run(g.vm, &err), 0);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(vm_pause(g.vm, &err), 0);
        assert_int_equal(vm_save(g.vm, state_fd, &err), 0);
        vm_resume(g.vm);
    }
    guest_poke(&g, LIMIT, 1);
    guest_await_end(&g, &report);
    assert_int_equal(report.end, VM_EXIT);
    assert_int_equal(report.status, 7);
    guest_close(&g);
}

/* Counts at two places, and writes what is there at a third, for ever. */
GUEST(three_places, "1: incq 0x200000\n incq 0x300000\n movq $0, 0x340000\n jmp 1b\n");

static void run_a_while(struct vm *vm)
{
    struct cl_err err = {0};
    vm_resume(vm);
    (void)usleep(50000);
    assert_int_equal(vm_pause(vm, &err), 0);
}

/* Where a file is mapped privately, from /proc/self/maps. */
static uint64_t private_mapping(int fd)
{
    struct stat st;
    char line[512];
    uint64_t at = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    assert_int_equal(fstat(fd, &st), 0);
    while (at == 0 && fgets(line, sizeof line, maps)) {
        unsigned long start, inode;
        if (sscanf(line, "%lx-%*x rw-p %*x %*s %lu", &start, &inode) == 2 && inode == st.st_ino)
            at = start;
    }
    (void)fclose(maps);
    assert_true(at != 0);
    return at;
}

/* Between the record and the save it writes three pages, and nothing of the code before them. */
static void test_a_clone_has_what_it_will_write_before_it_runs(void **state)
{
    (void)state;
    struct guest g, clone;
    struct cl_err err = {0};
    struct vm *vm;
    CL_AUTO(cl_closep) int state_fd = memfd_create("state", MFD_CLOEXEC);
    if (!host_copies_ahead())
        skip();
    guest_open(&g, guest_three_places, guest_three_places_end, 1);
    struct vm_config config = guest_config(&g, 1);
    config.own_ram = true;
    assert_int_equal(vm_record(g.vm, &err), -1); /* the file is its memory */
    assert_int_equal(err.code, CL_E_STATE);
    assert_int_equal(vm_create(&config, &vm, &err), 0);
    assert_int_equal(vm_boot(vm, &err), 0);
    assert_int_equal(vm_ready(vm, &err), 0);
    run_a_while(vm);
    assert_int_equal(vm_record(vm, &err), 0);
    run_a_while(vm);
    assert_int_equal(vm_save(vm, state_fd, &err), 0);
    vm_free(vm);
    uint64_t count = guest_peek(&g, COUNT);
    assert_true(count > 0);
    guest_restore(&clone, g.ram_fd, state_fd, 1);
    uint64_t base = private_mapping(g.ram_fd);
    for (uint64_t at = 0x180000; at < 0x380000; at += 4096)
        assert_int_equal(is_copied(base + at), at == 0x200000 || at == 0x300000 || at == 0x340000);
    assert_int_equal(vm_ready(clone.vm, &err), 0);
    run_a_while(clone.vm);
    assert_true(*(const volatile uint64_t *)(uintptr_t)(base + COUNT) > count);
    assert_int_equal(guest_peek(&g, COUNT), count);
    guest_close(&clone);
    guest_close(&g);
}

/* --- states that do not fit ---------------------------------------------------------------- */

/* Restore bytes into a machine of this shape, on a host that the state may be of or is; its error's
 * code, CL_OK when it is taken. */
static enum cl_code restore_at(const struct guest *g, const uint8_t *bytes, size_t n,
                               unsigned vcpus, uint64_t mem_bytes, bool is_here)
{
    struct cl_err err = {0};
    CL_AUTO(cl_closep) int fd = memfd_create("state", MFD_CLOEXEC);
    assert_int_equal(write(fd, bytes, n), n);
    struct vm_config config = {.mem_bytes = mem_bytes,
                               .vcpus = vcpus,
                               .kvm_fd = g->kvm_fd,
                               .ram_fd = g->ram_fd,
                               .kernel_fd = -1,
                               .initrd_fd = -1,
                               .root_fd = -1,
                               .scratch_fd = -1,
                               .channel_fd = -1,
                               .net_fd = -1,
                               .delta_fd = -1,
                               .console_fd = -1,
                               .state_fd = fd,
                               .restore = true,
                               .is_here = is_here};
    CL_AUTO(vm_freep) struct vm *vm = NULL;
    return vm_create(&config, &vm, &err) < 0 || vm_restore(vm, &err) < 0 ? err.code : CL_OK;
}

/* The same, and both have one answer. */
static enum cl_code restore(const struct guest *g, const uint8_t *bytes, size_t n, unsigned vcpus,
                            uint64_t mem_bytes)
{
    enum cl_code code = restore_at(g, bytes, n, vcpus, mem_bytes, false);
    assert_int_equal(restore_at(g, bytes, n, vcpus, mem_bytes, true), code);
    return code;
}

enum {
    STATE_ROOM = 65536,
    HEAD_BASELINE_AT = 12,
    HEAD_BYTES = 56,
    VENDOR_AT = HEAD_BYTES + 8 + 16, /* of the section's first leaf, 0: EBX */
};

/* The state of a machine that counts; its guest is open afterwards. */
static size_t save_counter(struct guest *g, uint8_t bytes[static STATE_ROOM])
{
    guest_open(g, guest_counter, guest_counter_end, 1);
    CL_AUTO(cl_closep) int state_fd = snapshot(g, 10, 10);
    ssize_t n = pread(state_fd, bytes, STATE_ROOM, 0);
    assert_true(n > HEAD_BYTES && n < STATE_ROOM);
    return (size_t)n;
}

static void test_a_state_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    struct guest g;
    uint8_t bytes[STATE_ROOM];
    size_t n = save_counter(&g, bytes);
    assert_int_equal(restore(&g, bytes, n, 1, GUEST_MEM), CL_OK);
    assert_int_equal(restore(&g, bytes, n, 2, GUEST_MEM), CL_E_INVALID);
    assert_int_equal(restore(&g, bytes, n, 1, GUEST_MEM / 2), CL_E_INVALID);
    bytes[HEAD_BASELINE_AT] ^= 1;
    assert_int_equal(restore(&g, bytes, n, 1, GUEST_MEM), CL_E_INVALID);
    bytes[HEAD_BASELINE_AT] ^= 1;
    bytes[n] = 0;
    assert_int_equal(restore(&g, bytes, n + 1, 1, GUEST_MEM), CL_E_INVALID);
    guest_close(&g);
}

/* Whose processor counts: the host's, unless the state is of this host, and then it is the one that
 * the state's baseline is of. */
static void test_the_processor_of_a_state_is_believed_here_only(void **state)
{
    (void)state;
    struct guest g;
    uint8_t bytes[STATE_ROOM];
    size_t n = save_counter(&g, bytes);
    bytes[VENDOR_AT] ^= 1;
    assert_int_equal(restore_at(&g, bytes, n, 1, GUEST_MEM, false), CL_OK);
    assert_int_equal(restore_at(&g, bytes, n, 1, GUEST_MEM, true), CL_E_INVALID);
    guest_close(&g);
}

static void test_a_state_that_was_cut_is_refused(void **state)
{
    (void)state;
    struct guest g;
    uint8_t bytes[STATE_ROOM];
    size_t n = save_counter(&g, bytes);
    for (size_t cut = 0; cut < n; cut += 1 + n / 64)
        assert_int_equal(restore(&g, bytes, cut, 1, GUEST_MEM), CL_E_INVALID);
    guest_close(&g);
}

/* Any byte may be wrong: the answer is yes or no, and the host stays as it is. */
static void test_a_damaged_state_harms_nobody(void **state)
{
    (void)state;
    struct guest g;
    uint8_t bytes[STATE_ROOM];
    size_t n = save_counter(&g, bytes);
    for (size_t at = 0; at < n; at += 1 + n / 128) {
        bytes[at] ^= 0xff;
        for (int is_here = 0; is_here <= 1; is_here++) {
            enum cl_code code = restore_at(&g, bytes, n, 1, GUEST_MEM, is_here);
            assert_true(code == CL_OK || code == CL_E_INVALID || code == CL_E_SYS);
        }
        bytes[at] ^= 0xff;
    }
    guest_close(&g);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clones_go_on_in_fresh_processes),
        cmocka_unit_test(test_the_timer_of_a_clone_goes_on),
        cmocka_unit_test(test_all_processors_of_a_clone_go_on),
        cmocka_unit_test(test_the_vector_registers_of_a_clone_go_on),
        cmocka_unit_test(test_a_saved_machine_can_go_on_itself),
        cmocka_unit_test(test_a_clone_has_what_it_will_write_before_it_runs),
        cmocka_unit_test(test_a_state_that_does_not_fit_is_refused),
        cmocka_unit_test(test_the_processor_of_a_state_is_believed_here_only),
        cmocka_unit_test(test_a_state_that_was_cut_is_refused),
        cmocka_unit_test(test_a_damaged_state_harms_nobody),
    };
    if (argc > 1)
        return be_clone(argv[1]);
    int skip = guest_skip();
    return skip ? skip : cmocka_run_group_tests(tests, NULL, NULL);
}
