/* cloche-vmm itself, with guests of a few instructions: what it is told, what it answers, what it
 * has given up.  No guardian and no worker: the jail around it is tested with them. */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/integration/vmm/process.h"
#include "vmm/cpuid.h"
#include "vmm/delta.h"

#define COUNT 0x200000
#define LIMIT 0x200008

GUEST(ends, GUEST_EXIT(5));
/* Stores 0 in 64-bit mode, -1 in 32-bit mode: 0x48 is a prefix of `nop`, or `dec %eax`. */
GUEST(mode,
      "mov $0x200000, %ebx\n xor %eax, %eax\n .byte 0x48, 0x90\n mov %eax, (%rbx)\n" GUEST_EXIT(5));
/* Counts until LIMIT and ends with 7. */
GUEST(counts,
      "xor %ecx, %ecx\n 1: inc %rcx\n mov %rcx, 0x200000\n cmp 0x200008, %rcx\n jb 1b\n" GUEST_EXIT(
          7));

/* Counts as long as LIMIT is 0, as it is in memory that nobody wrote, and ends with 7. */
GUEST(goes_on, "1: incq 0x200000\n cmpq $0, 0x200008\n je 1b\n" GUEST_EXIT(7));

/* Ten bytes on the serial line, seven looks at the clock; then it says so, and only loops. */
GUEST(exits, "mov $0x3f8, %edx\n mov $10, %ecx\n mov $'a', %al\n 1: out %al, (%dx)\n dec %ecx\n"
             "jnz 1b\n mov $7, %ecx\n 2: in $0x71, %al\n dec %ecx\n jnz 2b\n"
             "incq 0x200000\n 3: jmp 3b\n");

/* Counts to 1, computes for 2^25 ticks, counts to 2, and waits for what does not come. */
GUEST(rests, "incq 0x200000\n rdtsc\n shl $32, %rdx\n or %rdx, %rax\n lea 0x2000000(%rax), %rbx\n"
             "1: rdtsc\n shl $32, %rdx\n or %rdx, %rax\n cmp %rbx, %rax\n jb 1b\n"
             "incq 0x200000\n cli\n 2: hlt\n jmp 2b\n");

static void start(struct process *p, const uint8_t *code, const uint8_t *end)
{
    process_open(p, code, end);
    guest_poke(&p->guest, LIMIT, UINT64_MAX);
    process_boot(p);
}

static void test_a_guest_runs_to_its_end(void **state)
{
    (void)state;
    struct process p;
    start(&p, guest_ends, guest_ends_end);
    process_hears_end(&p, CONTROL_END_GUEST, "the guest ended itself");
    process_close(&p);
}

static uint64_t count(const struct process *p)
{
    return guest_peek(&p->guest, COUNT);
}

static void test_a_boot_may_ask_for_pvh(void **state)
{
    (void)state;
    for (int pvh = 0; pvh <= 1; pvh++) {
        struct process p;
        process_open(&p, guest_mode, guest_mode_end);
        p.boot_flags = pvh ? CONTROL_BOOT_BY_PVH : 0;
        process_boot(&p);
        process_hears_end(&p, CONTROL_END_GUEST, "the guest ended itself");
        assert_int_equal(count(&p), pvh ? UINT32_MAX : 0);
        process_close(&p);
    }
}

/* Under the filters of the real process. */
static void test_a_boot_may_ask_for_xen_pv(void **state)
{
    (void)state;
    for (int isolated = 0; isolated <= 1; isolated++) {
        struct process p;
        process_open(&p, guest_ends, guest_ends_end);
        p.boot_flags = CONTROL_BOOT_BY_XENPV | CONTROL_BOOT_OWN_RAM;
        p.boot_flags |= isolated ? CONTROL_BOOT_ISOLATED : 0;
        process_boot(&p);
        if (cpuid_host_virtualizes())
            process_hears_end(&p, CONTROL_END_FAILED, "VMX or SVM");
        else
            process_hears_end(&p, CONTROL_END_GUEST, "the guest ended itself");
        process_close(&p);
    }
}

static bool counts_on(const struct process *p)
{
    uint64_t from = count(p);
    for (int i = 0; i < 200 && count(p) == from; i++)
        (void)usleep(10000);
    return count(p) != from;
}

static void test_it_pauses_resumes_tells_figures_and_stops(void **state)
{
    (void)state;
    struct process p;
    start(&p, guest_counts, guest_counts_end);
    assert_true(counts_on(&p));
    process_tell(&p, CONTROL_PAUSE);
    process_hears(&p, CONTROL_PAUSED);
    uint64_t at = count(&p);
    (void)usleep(50000);
    assert_int_equal(count(&p), at);
    process_tell(&p, CONTROL_STATS);
    struct control_message m = process_hear(&p);
    assert_int_equal(m.type, CONTROL_STATS_ARE);
    assert_true(m.stats.cpu_ns > 0 && m.stats.peak_bytes > 0);
    process_tell(&p, CONTROL_RESUME);
    process_hears(&p, CONTROL_UP);
    assert_true(counts_on(&p));
    process_tell(&p, CONTROL_STOP);
    process_hears_end(&p, CONTROL_END_STOPPED, "stopped");
    process_close(&p);
}

static void test_it_tells_why_the_guest_was_left(void **state)
{
    (void)state;
    struct process p;
    start(&p, guest_exits, guest_exits_end);
    for (int i = 0; i < 2000 && count(&p) == 0; i++)
        (void)usleep(1000);
    assert_int_equal(count(&p), 1);
    process_tell(&p, CONTROL_PAUSE);
    process_hears(&p, CONTROL_PAUSED);
    process_tell(&p, CONTROL_STATS);
    const struct control_message m = process_hear(&p);
    const struct vm_counts *counts = &m.stats.counts;
    for (int i = 0; i < COUNT_KVM_FIRST; i++)
        assert_true(counts->known >> i & 1);
    assert_int_equal(counts->of[COUNT_EXIT_SERIAL], 10);
    assert_int_equal(counts->of[COUNT_EXIT_PORTS], 7);
    assert_in_range(counts->of[COUNT_EXIT_CALLED], 2, 10); /* at the gate first, then to pause */
    for (int i = COUNT_EXIT_ROOT; i < COUNT_EXIT_SERIAL; i++)
        assert_int_equal(counts->of[i], 0);
    if (counts->known >> COUNT_KVM_EXITS & 1)
        assert_true(counts->of[COUNT_KVM_EXITS] >= 17);
    process_tell(&p, CONTROL_STOP);
    process_hears_end(&p, CONTROL_END_STOPPED, "stopped");
    process_close(&p);
}

static void grow(struct process *p, uint64_t bytes)
{
    struct control_message m = {.type = CONTROL_GROW, .grow = {.disk_bytes = bytes}};
    assert_int_equal(ftruncate(p->scratch_fd, (off_t)bytes), 0);
    process_tell_with(p, &m, NULL, 0);
}

static void test_its_disk_grows_while_it_runs_and_while_it_does_not(void **state)
{
    (void)state;
    struct process p;
    start(&p, guest_counts, guest_counts_end);
    grow(&p, 2 * CL_MIB);
    process_tell(&p, CONTROL_PAUSE);
    process_hears(&p, CONTROL_PAUSED);
    grow(&p, 3 * CL_MIB);
    process_tell(&p, CONTROL_RESUME);
    process_hears(&p, CONTROL_UP);
    assert_true(counts_on(&p));
    process_tell(&p, CONTROL_STOP);
    process_hears_end(&p, CONTROL_END_STOPPED, "stopped");
    process_close(&p);
}

static void test_a_snapshot_goes_on_in_fresh_processes(void **state)
{
    (void)state;
    struct process p;
    start(&p, guest_counts, guest_counts_end);
    assert_true(counts_on(&p));
    process_tell(&p, CONTROL_PAUSE);
    process_tell(&p, CONTROL_SAVE);
    process_hears(&p, CONTROL_PAUSED);
    process_hears(&p, CONTROL_SAVED);
    process_tell(&p, CONTROL_RESUME); /* its RAM is a template now */
    process_hears_end(&p, CONTROL_END_FAILED, "'resume' while saved");
    (void)close(p.control);
    (void)close(p.channel);
    uint64_t at = count(&p);
    guest_poke(&p.guest, LIMIT, at + 1000);
    for (int i = 0; i < 2; i++) {
        process_spawn(&p);
        process_send_setup(&p, CONTROL_RESTORE);
        process_tell(&p, CONTROL_START);
        process_hears(&p, CONTROL_UP);
        process_hears_end(&p, CONTROL_END_GUEST, "the guest ended itself");
        assert_int_equal(count(&p), at); /* a clone writes to copies */
        (void)close(p.control);
        (void)close(p.channel);
    }
    p.control = p.channel = -1;
    process_close(&p);
}

static uint64_t cpu_ns(struct process *p)
{
    process_tell(p, CONTROL_STATS);
    struct control_message m = process_hear(p);
    assert_int_equal(m.type, CONTROL_STATS_ARE);
    return m.stats.cpu_ns;
}

/* A guest whose memory is in no file, once it has run for a while. */
static void start_apart(struct process *p)
{
    process_open(p, guest_goes_on, guest_goes_on_end);
    p->boot_flags = CONTROL_BOOT_OWN_RAM;
    process_boot(p);
    uint64_t begin = cpu_ns(p);
    for (int i = 0; i < 2000 && cpu_ns(p) < begin + 20 * CL_NS_PER_MS; i++)
        (void)usleep(10000);
    assert_int_equal(count(p), 0);
    process_tell(p, CONTROL_PAUSE);
    process_hears(p, CONTROL_PAUSED);
}

static void test_memory_of_its_own_is_in_the_file_once_it_is_saved(void **state)
{
    (void)state;
    struct process p;
    struct stat st;
    start_apart(&p);
    guest_poke(&p.guest, GUEST_MEM - 8, 1); /* of a file that was something else */
    process_tell(&p, CONTROL_SAVE);
    process_hears(&p, CONTROL_SAVED);
    (void)close(p.control);
    (void)close(p.channel);
    uint64_t at = count(&p);
    assert_true(at > 0);
    assert_int_equal(guest_peek(&p.guest, GUEST_MEM - 8), 0);
    assert_int_equal(fstat(p.guest.ram_fd, &st), 0);
    assert_int_equal(st.st_size, GUEST_MEM);
    assert_true(st.st_blocks * 512 < (blkcnt_t)(GUEST_MEM / 4));
    guest_poke(&p.guest, LIMIT, 1);
    process_spawn(&p);
    process_send_setup(&p, CONTROL_RESTORE);
    process_tell(&p, CONTROL_START);
    process_hears(&p, CONTROL_UP);
    process_hears_end(&p, CONTROL_END_GUEST, "the guest ended itself");
    assert_int_equal(count(&p), at);
    process_close(&p);
}

static void test_what_becomes_a_snapshot_comes_to_its_rest_first(void **state)
{
    (void)state;
    struct process p;
    process_open(&p, guest_rests, guest_rests_end);
    p.boot_flags = CONTROL_BOOT_OWN_RAM;
    process_boot(&p);
    process_tell(&p, CONTROL_PAUSE);
    process_hears(&p, CONTROL_PAUSED);
    process_tell(&p, CONTROL_SAVE);
    process_hears(&p, CONTROL_SAVED);
    assert_int_equal(count(&p), 2);
    process_close(&p);
}

static void test_memory_that_cannot_be_written_is_no_snapshot(void **state)
{
    (void)state;
    static const int seals[] = {F_SEAL_SHRINK, F_SEAL_GROW};
    for (size_t i = 0; i < CL_COUNT(seals); i++) {
        struct process p;
        start_apart(&p);
        assert_int_equal(fcntl(p.guest.ram_fd, F_ADD_SEALS, seals[i]), 0);
        process_tell(&p, CONTROL_SAVE);
        process_hears_end(&p, CONTROL_END_FAILED, "save: make the file of guest memory anew");
        process_close(&p);
    }
}

/* Spawn a process, and restore what p's files say. */
static void restore(struct process *p)
{
    process_spawn(p);
    process_send_setup(p, CONTROL_RESTORE);
    process_tell(p, CONTROL_START);
    process_hears(p, CONTROL_UP);
}

static void leave(struct process *p)
{
    (void)close(p->control);
    (void)close(p->channel);
}

static void pause_it(struct process *p)
{
    process_tell(p, CONTROL_PAUSE);
    process_hears(p, CONTROL_PAUSED);
}

static int memory_of(uint64_t bytes)
{
    int fd = memfd_create("clone", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    return fd;
}

static void save_clone(struct process *p, int state_fd, int delta_fd)
{
    const int fds[] = {state_fd, delta_fd};
    process_tell_with(p, &(struct control_message){.type = CONTROL_SAVE_CLONE}, fds, 2);
}

/* Where the delta has the bytes of this guest address. */
static off_t place_in(int delta_fd, uint64_t address)
{
    static struct delta_block block;
    uint32_t page = (uint32_t)(address / RUNS_PAGE);
    for (off_t at = 0; pread(delta_fd, &block, sizeof block, at) == (ssize_t)sizeof block;) {
        at += (off_t)sizeof block;
        for (uint32_t i = 0; i < block.n; i++) {
            struct page_run run = block.runs[i];
            if (page >= run.first && page - run.first < run.pages)
                return at + (off_t)(page - run.first) * RUNS_PAGE + (off_t)(address % RUNS_PAGE);
            at += (off_t)run.pages * RUNS_PAGE;
        }
    }
    fail_msg("the clone did not change %#llx", (unsigned long long)address);
    return 0;
}

static uint64_t count_in(int delta_fd)
{
    uint64_t n = 0;
    assert_int_equal(pread(delta_fd, &n, sizeof n, place_in(delta_fd, COUNT)), sizeof n);
    return n;
}

/* It may be saved again and again; the newest state and delta are enough to go on elsewhere. */
static void test_a_clone_is_saved_and_goes_on_here_and_elsewhere(void **state)
{
    (void)state;
    enum { TIMES = 3 };
    const uint64_t one = 1;
    struct process p;
    struct stat st;
    start_apart(&p);
    process_tell(&p, CONTROL_SAVE);
    process_hears(&p, CONTROL_SAVED);
    leave(&p);
    uint64_t before = count(&p), template = before;
    for (int i = 0; i < TIMES; i++) {
        restore(&p);
        (void)usleep(20000);
        pause_it(&p);
        int state_fd = memory_of(0), delta_fd = memory_of(0);
        save_clone(&p, state_fd, delta_fd);
        process_hears(&p, CONTROL_SAVED);
        uint64_t first = count_in(delta_fd);
        assert_true(first > before);
        process_tell(&p, CONTROL_RESUME); /* here */
        process_hears(&p, CONTROL_UP);
        (void)usleep(20000);
        pause_it(&p);
        save_clone(&p, state_fd, delta_fd);
        process_hears(&p, CONTROL_SAVED);
        before = count_in(delta_fd);
        assert_true(before > first);
        assert_int_equal(fstat(delta_fd, &st), 0);
        assert_true(st.st_size < (off_t)(64 * CL_KIB)); /* what it wrote, not what it has */
        leave(&p);
        (void)close(p.state_fd);
        if (p.delta_fd > 0)
            (void)close(p.delta_fd);
        p.state_fd = state_fd;
        p.delta_fd = delta_fd;
    }
    assert_int_equal(count(&p), template);
    assert_int_equal(pwrite(p.delta_fd, &one, sizeof one, place_in(p.delta_fd, LIMIT)), sizeof one);
    restore(&p); /* elsewhere */
    process_hears_end(&p, CONTROL_END_GUEST, "the guest ended itself");
    (void)close(p.delta_fd);
    process_close(&p);
}

static void test_a_clone_that_cannot_be_saved_goes_on(void **state)
{
    (void)state;
    struct process p;
    start_apart(&p);
    process_tell(&p, CONTROL_SAVE);
    process_hears(&p, CONTROL_SAVED);
    leave(&p);
    restore(&p);
    pause_it(&p);
    int state_fd = memory_of(0), delta_fd = memory_of(4096);
    assert_int_equal(fcntl(delta_fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    save_clone(&p, state_fd, delta_fd);
    struct control_message m = process_hear(&p);
    assert_int_equal(m.type, CONTROL_NOT_SAVED);
    assert_non_null(strstr(m.ended.text, "changed guest memory anew"));
    process_tell(&p, CONTROL_RESUME);
    process_hears(&p, CONTROL_UP);
    process_tell(&p, CONTROL_STOP);
    process_hears_end(&p, CONTROL_END_STOPPED, "stopped");
    (void)close(state_fd);
    (void)close(delta_fd);
    process_close(&p);
}

static void test_a_machine_that_booted_is_no_clone(void **state)
{
    (void)state;
    struct process p;
    start_apart(&p);
    int state_fd = memory_of(0), delta_fd = memory_of(0);
    save_clone(&p, state_fd, delta_fd);
    struct control_message m = process_hear(&p);
    assert_int_equal(m.type, CONTROL_NOT_SAVED);
    assert_non_null(strstr(m.ended.text, "no clone"));
    (void)close(state_fd);
    (void)close(delta_fd);
    process_close(&p);
}

static void test_a_state_that_is_none_is_refused(void **state)
{
    (void)state;
    struct process p;
    process_open(&p, guest_ends, guest_ends_end);
    assert_int_equal(pwrite(p.state_fd, "CLVMSTAT nonsense", 17, 0), 17);
    process_send_setup(&p, CONTROL_RESTORE);
    process_hears_end(&p, CONTROL_END_FAILED, "restore: ");
    process_close(&p);
}

static void test_what_is_out_of_order_ends_it(void **state)
{
    (void)state;
    struct process p;
    process_open(&p, guest_ends, guest_ends_end);
    process_tell(&p, CONTROL_START);
    process_hears_end(&p, CONTROL_END_FAILED, "'start' while new");
    process_close(&p);
}

static void test_fds_that_no_setup_names_end_it(void **state)
{
    (void)state;
    struct process p;
    process_open(&p, guest_ends, guest_ends_end);
    int fds[CONTROL_FDS];
    for (int i = 0; i < CONTROL_FDS; i++)
        fds[i] = p.state_fd;
    process_tell_with(&p, &(struct control_message){.type = CONTROL_STOP}, fds, CONTROL_FDS);
    process_hears_end(&p, CONTROL_END_FAILED, "11 fds came with 'stop'");
    process_close(&p);
}

static void test_more_fds_than_there_are_names_for_end_it(void **state)
{
    (void)state;
    enum { TOO_MANY = CONTROL_FDS + 1 };
    struct process p;
    int fds[TOO_MANY];
    process_open(&p, guest_ends, guest_ends_end);
    for (int i = 0; i < TOO_MANY; i++)
        fds[i] = p.state_fd;
    process_tell_with(&p, &(struct control_message){.type = CONTROL_STOP}, fds, TOO_MANY);
    process_hears_end(&p, CONTROL_END_FAILED, "more than 11 fds");
    process_close(&p);
}

static void test_a_boot_without_kvm_says_so(void **state)
{
    (void)state;
    struct process p;
    process_open(&p, guest_ends, guest_ends_end);
    (void)close(p.guest.kvm_fd);
    p.guest.kvm_fd = fcntl(p.guest.ram_fd, F_DUPFD_CLOEXEC, 0);
    process_send_setup(&p, CONTROL_BOOT);
    process_tell(&p, CONTROL_CMDLINE);
    process_hears_end(&p, CONTROL_END_FAILED, "cmdline: the file is not /dev/kvm");
    process_close(&p);
}

static void test_a_state_that_cannot_be_written_is_no_snapshot(void **state)
{
    (void)state;
    struct process p;
    process_open(&p, guest_counts, guest_counts_end);
    assert_int_equal(fcntl(p.state_fd, F_ADD_SEALS, F_SEAL_GROW), 0);
    guest_poke(&p.guest, LIMIT, UINT64_MAX);
    process_boot(&p);
    process_tell(&p, CONTROL_PAUSE);
    process_hears(&p, CONTROL_PAUSED);
    process_tell(&p, CONTROL_SAVE);
    process_hears_end(&p, CONTROL_END_FAILED, "save: write the machine's state");
    process_close(&p);
}

static void test_a_disk_does_not_shrink(void **state)
{
    (void)state;
    struct process p;
    start(&p, guest_counts, guest_counts_end);
    grow(&p, CONTROL_SECTOR);
    process_hears_end(&p, CONTROL_END_FAILED, "grow: the scratch disk does not grow");
    process_close(&p);
}

static void test_it_ends_with_its_worker(void **state)
{
    (void)state;
    struct process p;
    int status;
    start(&p, guest_counts, guest_counts_end);
    (void)close(p.control);
    p.control = -1;
    assert_int_equal(waitpid(p.pid, &status, 0), p.pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    process_close(&p);
}

static int count_lines(const char *path, const char *line)
{
    char text[256];
    int n = 0;
    FILE *f = fopen(path, "re");
    while (f && fgets(text, sizeof text, f))
        n += strncmp(text, line, strlen(line)) == 0;
    if (f)
        (void)fclose(f);
    return n;
}

/* How many threads there are, each with a filter; the host's kernel may have added one. */
static int count_filtered(pid_t pid)
{
    char path[300];
    int n = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (e->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof path, "/proc/%d/task/%s/status", (int)pid, e->d_name);
        assert_int_equal(count_lines(path, "Seccomp:\t2\n"), 1);
        assert_int_equal(count_lines(path, "NoNewPrivs:\t1\n"), 1);
        n++;
    }
    if (dir)
        (void)closedir(dir);
    return n;
}

static void test_each_thread_is_filtered_and_kvm_is_closed(void **state)
{
    (void)state;
    struct process p;
    char path[64], target[64];
    start(&p, guest_counts, guest_counts_end);
    assert_true(counts_on(&p)); /* the vCPU's thread is in its guest */
    assert_true(count_filtered(p.pid) >= 2);
    for (int fd = 3; fd < 20; fd++) {
        (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)p.pid, fd);
        ssize_t n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        assert_string_not_equal(target, "/dev/kvm");
    }
    process_tell(&p, CONTROL_STOP);
    process_hears_end(&p, CONTROL_END_STOPPED, "stopped");
    process_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_guest_runs_to_its_end),
        cmocka_unit_test(test_a_boot_may_ask_for_pvh),
        cmocka_unit_test(test_a_boot_may_ask_for_xen_pv),
        cmocka_unit_test(test_it_pauses_resumes_tells_figures_and_stops),
        cmocka_unit_test(test_it_tells_why_the_guest_was_left),
        cmocka_unit_test(test_its_disk_grows_while_it_runs_and_while_it_does_not),
        cmocka_unit_test(test_a_snapshot_goes_on_in_fresh_processes),
        cmocka_unit_test(test_memory_of_its_own_is_in_the_file_once_it_is_saved),
        cmocka_unit_test(test_what_becomes_a_snapshot_comes_to_its_rest_first),
        cmocka_unit_test(test_memory_that_cannot_be_written_is_no_snapshot),
        cmocka_unit_test(test_a_clone_is_saved_and_goes_on_here_and_elsewhere),
        cmocka_unit_test(test_a_clone_that_cannot_be_saved_goes_on),
        cmocka_unit_test(test_a_machine_that_booted_is_no_clone),
        cmocka_unit_test(test_a_state_that_is_none_is_refused),
        cmocka_unit_test(test_what_is_out_of_order_ends_it),
        cmocka_unit_test(test_fds_that_no_setup_names_end_it),
        cmocka_unit_test(test_more_fds_than_there_are_names_for_end_it),
        cmocka_unit_test(test_a_boot_without_kvm_says_so),
        cmocka_unit_test(test_a_state_that_cannot_be_written_is_no_snapshot),
        cmocka_unit_test(test_a_disk_does_not_shrink),
        cmocka_unit_test(test_it_ends_with_its_worker),
        cmocka_unit_test(test_each_thread_is_filtered_and_kvm_is_closed),
    };
    int skip = guest_skip();
    return skip ? skip : cmocka_run_group_tests(tests, NULL, NULL);
}
