/* tests/integration/vmm/process.c - see process.h. */
#include "tests/integration/vmm/process.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { CONTROL_AT = 4, WAIT_MS = 20000 };

static int memory_file(uint64_t bytes)
{
    int fd = memfd_create("file", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    return fd;
}

void process_spawn(struct process *p)
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

void process_tell_with(struct process *p, const struct control_message *m, const int *fds, size_t n)
{
    union {
        char bytes[CMSG_SPACE((CONTROL_FDS + 1) * sizeof(int))]; /* one too many */
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

void process_tell(struct process *p, enum control_type type)
{
    process_tell_with(p, &(struct control_message){.type = type}, NULL, 0);
}

struct control_message process_hear(struct process *p)
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

void process_hears(struct process *p, enum control_type type)
{
    struct control_message m = process_hear(p);
    if (m.type != type)
        fail_msg("heard '%s' (%s), not '%s'", control_type_name((enum control_type)m.type),
                 m.type == CONTROL_ENDED ? m.ended.text : "", control_type_name(type));
}

void process_hears_end(struct process *p, enum control_end cause, const char *text)
{
    struct control_message m = process_hear(p);
    int status;
    assert_int_equal(m.type, CONTROL_ENDED);
    if (m.ended.cause != cause || !strstr(m.ended.text, text))
        fail_msg("ended by %u: %s", m.ended.cause, m.ended.text);
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void process_add_card(struct process *p)
{
    p->wire = 0; /* opened with the setup */
}

/* One end stays here, the other goes with the setup. */
static int open_pair(int type, int *ret_near)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    *ret_near = pair[0];
    return pair[1];
}

struct gifts {
    uint32_t named;
    int fds[CONTROL_FDS];
    size_t n;
};

static void give(struct gifts *g, enum control_fd name, int fd)
{
    g->named |= 1U << name;
    g->fds[g->n++] = fd;
}

void process_send_setup(struct process *p, enum control_type type)
{
    struct gifts g = {0};
    struct control_message m = {.type = type,
                                .setup = {.version = CONTROL_VERSION,
                                          .vcpus = 1,
                                          .mem_bytes = GUEST_MEM,
                                          .flags = CONTROL_RESTORE_HERE}};
    int root = memory_file(4096), wire = -1, channel = open_pair(SOCK_STREAM, &p->channel);
    give(&g, CONTROL_FD_KVM, p->guest.kvm_fd);
    give(&g, CONTROL_FD_RAM, p->guest.ram_fd);
    give(&g, CONTROL_FD_STATE, p->state_fd);
    give(&g, CONTROL_FD_ROOT, root);
    give(&g, CONTROL_FD_CHANNEL, channel);
    give(&g, CONTROL_FD_SCRATCH, p->scratch_fd);
    if (type == CONTROL_BOOT) {
        m.setup.flags = p->boot_flags;
        give(&g, CONTROL_FD_KERNEL, p->guest.kernel_fd);
        give(&g, CONTROL_FD_INITRD, root);
    }
    if (p->wire >= 0) {
        static const uint8_t mac[CONTROL_MAC_BYTES] = {2, 0, 0, 0, 0, 1};
        wire = open_pair(SOCK_SEQPACKET, &p->wire);
        give(&g, CONTROL_FD_NET, wire);
        memcpy(m.setup.mac, mac, sizeof mac);
    }
    if (type == CONTROL_RESTORE && p->delta_fd > 0)
        give(&g, CONTROL_FD_DELTA, p->delta_fd);
    m.setup.fds = g.named;
    process_tell_with(p, &m, g.fds, g.n);
    (void)close(channel);
    (void)close(root);
    if (wire >= 0)
        (void)close(wire);
}

void process_open(struct process *p, const uint8_t *code, const uint8_t *end)
{
    *p =
        (struct process){.state_fd = memory_file(0), .scratch_fd = memory_file(CL_MIB), .wire = -1};
    guest_open(&p->guest, code, end, 1);
    process_spawn(p);
}

void process_boot(struct process *p)
{
    process_send_setup(p, CONTROL_BOOT);
    process_tell(p, CONTROL_CMDLINE);
    process_tell(p, CONTROL_START);
    process_hears(p, CONTROL_UP);
}

void process_close(struct process *p)
{
    (void)close(p->control);
    if (p->channel > 0)
        (void)close(p->channel);
    if (p->wire > 0)
        (void)close(p->wire);
    (void)close(p->state_fd);
    (void)close(p->scratch_fd);
    guest_close(&p->guest);
}
