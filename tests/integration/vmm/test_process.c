/* cloche-vmm itself, with guests of a few instructions: what it is told, what it answers, what it
 * has given up.  No guardian and no worker: the jail around it is tested with them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/integration/vmm/guest.h"
#include "vmm/control.h"

#define COUNT 0x200000
#define LIMIT 0x200008

enum { CONTROL_AT = 4, WAIT_MS = 20000 };

GUEST(ends, GUEST_EXIT(5));
/* Counts until LIMIT and ends with 7. */
GUEST(counts,
      "xor %ecx, %ecx\n 1: inc %rcx\n mov %rcx, 0x200000\n cmp 0x200008, %rcx\n jb 1b\n" GUEST_EXIT(
          7));

struct process {
    struct guest guest; /* for its kernel and RAM files */
    pid_t pid;
    int control, channel, state_fd, scratch_fd;
};

static int memory_file(uint64_t bytes)
{
    int fd = memfd_create("file", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    return fd;
}

static void spawn(struct process *p)
{
    int pair[2];
    char *argv[] = {(char *)(uintptr_t)CLOCHE_VMM, (char *)(uintptr_t) "4", NULL}, *env[] = {NULL};
    posix_spawn_file_actions_t actions;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    int high = fcntl(pair[1], F_DUPFD_CLOEXEC, 100);
    assert_int_equal(posix_spawn_file_actions_adddup2(&actions, high, CONTROL_AT), 0);
    assert_int_equal(posix_spawn_file_actions_addclosefrom_np(&actions, CONTROL_AT + 1), 0);
    assert_int_equal(posix_spawn(&p->pid, CLOCHE_VMM, &actions, NULL, argv, env), 0);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(pair[1]);
    (void)close(high);
    p->control = pair[0];
}

static void tell_with(struct process *p, const struct control_message *m, const int *fds, size_t n)
{
    union {
        char bytes[CMSG_SPACE(CONTROL_FDS * sizeof(int))];
        struct cmsghdr align;
    } rights = {0};
    struct iovec iov = {(void *)(uintptr_t)m, sizeof *m};
    struct msghdr h = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = n ? rights.bytes : NULL,
                       .msg_controllen = n ? CMSG_SPACE(n * sizeof(int)) : 0};
    if (n) {
        *CMSG_FIRSTHDR(&h) = (struct cmsghdr){.cmsg_len = CMSG_LEN(n * sizeof(int)),
                                              .cmsg_level = SOL_SOCKET,
                                              .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&h)), fds, n * sizeof(int));
    }
    assert_int_equal(sendmsg(p->control, &h, MSG_NOSIGNAL), sizeof *m);
}

static void tell(struct process *p, enum control_type type)
{
    tell_with(p, &(struct control_message){.type = type}, NULL, 0);
}

static struct control_message hear(struct process *p)
{
    struct control_message raw, m = {0};
    struct cl_err err = {0};
    struct pollfd fd = {.fd = p->control, .events = POLLIN};
    if (poll(&fd, 1, WAIT_MS) != 1)
        fail_msg("cloche-vmm says nothing for %d ms", WAIT_MS);
    ssize_t n = recv(p->control, &raw, sizeof raw, 0);
    if (n < 0 || control_parse_event(&raw, (size_t)n, &m, &err) < 0)
        fail_msg("cloche-vmm: %zd bytes: %s", n, err.text);
    return m;
}

static void hears(struct process *p, enum control_type type)
{
    struct control_message m = hear(p);
    if (m.type != type)
        fail_msg("heard '%s' (%s), not '%s'", control_type_name((enum control_type)m.type),
                 m.type == CONTROL_ENDED ? m.ended.text : "", control_type_name(type));
}

static void hears_end(struct process *p, enum control_end cause, const char *text)
{
    struct control_message m = hear(p);
    int status;
    assert_int_equal(m.type, CONTROL_ENDED);
    if (m.ended.cause != cause || !strstr(m.ended.text, text))
        fail_msg("ended by %u: %s", m.ended.cause, m.ended.text);
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Setup as a worker sends it; kernel and initrd only for a boot. */
static void send_setup(struct process *p, enum control_type type)
{
    int pair[2], root = memory_file(4096);
    bool boot = type == CONTROL_BOOT;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    p->channel = pair[0];
    struct control_message m = {
        .type = type,
        .setup = {.version = CONTROL_VERSION,
                  .vcpus = 1,
                  .mem_bytes = GUEST_MEM,
                  .fds = 1U << CONTROL_FD_KVM | 1U << CONTROL_FD_RAM | 1U << CONTROL_FD_STATE |
                         1U << CONTROL_FD_ROOT | 1U << CONTROL_FD_CHANNEL |
                         1U << CONTROL_FD_SCRATCH |
                         (boot ? 1U << CONTROL_FD_KERNEL | 1U << CONTROL_FD_INITRD : 0)}};
    const int fds[] = {p->guest.kvm_fd, p->guest.ram_fd, p->state_fd,        root,
                       pair[1],         p->scratch_fd,   p->guest.kernel_fd, root};
    tell_with(p, &m, fds, boot ? 8 : 6);
    (void)close(pair[1]);
    (void)close(root);
}

static void open_guest(struct process *p, const uint8_t *code, const uint8_t *end)
{
    *p = (struct process){.state_fd = memory_file(0), .scratch_fd = memory_file(CL_MIB)};
    guest_open(&p->guest, code, end, 1);
    spawn(p);
}

static void start(struct process *p, const uint8_t *code, const uint8_t *end)
{
    open_guest(p, code, end);
    guest_poke(&p->guest, LIMIT, UINT64_MAX);
    send_setup(p, CONTROL_BOOT);
    tell(p, CONTROL_CMDLINE);
    tell(p, CONTROL_START);
    hears(p, CONTROL_UP);
}

static void close_process(struct process *p)
{
    (void)close(p->control);
    if (p->channel > 0)
        (void)close(p->channel);
    (void)close(p->state_fd);
    (void)close(p->scratch_fd);
    guest_close(&p->guest);
}

static void test_a_guest_runs_to_its_end(void **state)
{
    (void)state;
    struct process p;
    start(&p, guest_ends, guest_ends_end);
    hears_end(&p, CONTROL_END_GUEST, "the guest ended itself");
    close_process(&p);
}

static uint64_t count(const struct process *p)
{
    return guest_peek(&p->guest, COUNT);
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
    tell(&p, CONTROL_PAUSE);
    hears(&p, CONTROL_PAUSED);
    uint64_t at = count(&p);
    (void)usleep(50000);
    assert_int_equal(count(&p), at);
    tell(&p, CONTROL_STATS);
    struct control_message m = hear(&p);
    assert_int_equal(m.type, CONTROL_STATS_ARE);
    assert_true(m.stats.cpu_ns > 0 && m.stats.peak_bytes > 0);
    tell(&p, CONTROL_RESUME);
    hears(&p, CONTROL_UP);
    assert_true(counts_on(&p));
    tell(&p, CONTROL_STOP);
    hears_end(&p, CONTROL_END_STOPPED, "stopped");
    close_process(&p);
}

static void grow(struct process *p, uint64_t bytes)
{
    struct control_message m = {.type = CONTROL_GROW, .grow = {.disk_bytes = bytes}};
    assert_int_equal(ftruncate(p->scratch_fd, (off_t)bytes), 0);
    tell_with(p, &m, NULL, 0);
}

static void test_its_disk_grows_while_it_runs_and_while_it_does_not(void **state)
{
    (void)state;
    struct process p;
    start(&p, guest_counts, guest_counts_end);
    grow(&p, 2 * CL_MIB);
    tell(&p, CONTROL_PAUSE);
    hears(&p, CONTROL_PAUSED);
    grow(&p, 3 * CL_MIB);
    tell(&p, CONTROL_RESUME);
    hears(&p, CONTROL_UP);
    assert_true(counts_on(&p));
    tell(&p, CONTROL_STOP);
    hears_end(&p, CONTROL_END_STOPPED, "stopped");
    close_process(&p);
}

static void test_a_snapshot_goes_on_in_fresh_processes(void **state)
{
    (void)state;
    struct process p;
    start(&p, guest_counts, guest_counts_end);
    assert_true(counts_on(&p));
    tell(&p, CONTROL_PAUSE);
    tell(&p, CONTROL_SAVE);
    hears(&p, CONTROL_PAUSED);
    hears(&p, CONTROL_SAVED);
    tell(&p, CONTROL_RESUME); /* its RAM is a template now */
    hears_end(&p, CONTROL_END_FAILED, "'resume' while saved");
    (void)close(p.control);
    (void)close(p.channel);
    uint64_t at = count(&p);
    guest_poke(&p.guest, LIMIT, at + 1000);
    for (int i = 0; i < 2; i++) {
        spawn(&p);
        send_setup(&p, CONTROL_RESTORE);
        tell(&p, CONTROL_START);
        hears(&p, CONTROL_UP);
        hears_end(&p, CONTROL_END_GUEST, "the guest ended itself");
        assert_int_equal(count(&p), at); /* a clone writes to copies */
        (void)close(p.control);
        (void)close(p.channel);
    }
    p.control = p.channel = -1;
    close_process(&p);
}

static void test_a_state_that_is_none_is_refused(void **state)
{
    (void)state;
    struct process p;
    open_guest(&p, guest_ends, guest_ends_end);
    assert_int_equal(pwrite(p.state_fd, "CLVMSTAT nonsense", 17, 0), 17);
    send_setup(&p, CONTROL_RESTORE);
    hears_end(&p, CONTROL_END_FAILED, "restore: ");
    close_process(&p);
}

static void test_what_is_out_of_order_ends_it(void **state)
{
    (void)state;
    struct process p;
    open_guest(&p, guest_ends, guest_ends_end);
    tell(&p, CONTROL_START);
    hears_end(&p, CONTROL_END_FAILED, "'start' while new");
    close_process(&p);
}

static void test_fds_that_no_setup_names_end_it(void **state)
{
    (void)state;
    struct process p;
    open_guest(&p, guest_ends, guest_ends_end);
    int fds[CONTROL_FDS];
    for (int i = 0; i < CONTROL_FDS; i++)
        fds[i] = p.state_fd;
    tell_with(&p, &(struct control_message){.type = CONTROL_STOP}, fds, CONTROL_FDS);
    hears_end(&p, CONTROL_END_FAILED, "9 fds came with 'stop'");
    close_process(&p);
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
    close_process(&p);
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
    tell(&p, CONTROL_STOP);
    hears_end(&p, CONTROL_END_STOPPED, "stopped");
    close_process(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_guest_runs_to_its_end),
        cmocka_unit_test(test_it_pauses_resumes_tells_figures_and_stops),
        cmocka_unit_test(test_its_disk_grows_while_it_runs_and_while_it_does_not),
        cmocka_unit_test(test_a_snapshot_goes_on_in_fresh_processes),
        cmocka_unit_test(test_a_state_that_is_none_is_refused),
        cmocka_unit_test(test_what_is_out_of_order_ends_it),
        cmocka_unit_test(test_fds_that_no_setup_names_end_it),
        cmocka_unit_test(test_it_ends_with_its_worker),
        cmocka_unit_test(test_each_thread_is_filtered_and_kvm_is_closed),
    };
    int skip = guest_skip();
    return skip ? skip : cmocka_run_group_tests(tests, NULL, NULL);
}
