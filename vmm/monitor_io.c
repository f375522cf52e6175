/* vmm/monitor_io.c - see vmm/monitor.h. */
#include "vmm/monitor.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/own.h"
#include "vmm/control.h"
#include "vmm/seccomp.h"
#include "vmm/vm.h"

enum { REST_MS = 100 };

struct monitor {
    int control; /* borrowed */
    enum control_phase phase;
    struct control_message setup; /* the BOOT or RESTORE that it came to be by */
    int fds[CONTROL_FDS];         /* owned; -1 = none */
    struct vm *vm;                /* owned; NULL until it is loaded */
};

/* --- to the worker -------------------------------------------------------------------------- */

/* A worker that is gone or does not read is noticed by poll(). */
static void say(struct monitor *m, const struct control_message *event)
{
    struct iovec iov = {(void *)(uintptr_t)event, sizeof *event};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
    (void)!sendmsg(m->control, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void say_type(struct monitor *m, enum control_type type)
{
    struct control_message event = {.type = type};
    say(m, &event);
}

static void end(struct monitor *m, enum control_end cause, const char *why)
{
    struct control_message event = {.type = CONTROL_ENDED, .ended = {.cause = cause}};
    (void)snprintf(event.ended.text, sizeof event.ended.text, "%s", why);
    m->phase = CONTROL_HAS_ENDED;
    say(m, &event);
}

/* --- commands ------------------------------------------------------------------------------- */

static enum vm_entry entry_of(uint8_t flags)
{
    if (flags & CONTROL_BOOT_BY_XENPV)
        return VM_ENTRY_XENPV;
    return flags & CONTROL_BOOT_BY_PVH ? VM_ENTRY_PVH : VM_ENTRY_ANY;
}

static int load(struct monitor *m, const char *cmdline, struct cl_err *err)
{
    struct vm_config config = {
        .mem_bytes = m->setup.setup.mem_bytes,
        .vcpus = m->setup.setup.vcpus,
        .cmdline = cmdline,
        .kvm_fd = m->fds[CONTROL_FD_KVM],
        .ram_fd = m->fds[CONTROL_FD_RAM],
        .own_ram = m->setup.setup.flags & CONTROL_BOOT_OWN_RAM,
        .kernel_fd = m->fds[CONTROL_FD_KERNEL],
        .initrd_fd = m->fds[CONTROL_FD_INITRD],
        .entry = entry_of(m->setup.setup.flags),
        .is_isolated = m->setup.setup.flags & CONTROL_BOOT_ISOLATED,
        .root_fd = m->fds[CONTROL_FD_ROOT],
        .scratch_fd = m->fds[CONTROL_FD_SCRATCH],
        .channel_fd = m->fds[CONTROL_FD_CHANNEL],
        .console_fd = m->fds[CONTROL_FD_CONSOLE],
        .net_fd = m->fds[CONTROL_FD_NET],
        .state_fd = m->fds[CONTROL_FD_STATE],
        .delta_fd = m->fds[CONTROL_FD_DELTA],
        .restore = !cmdline,
        .is_here = m->setup.setup.flags & CONTROL_RESTORE_HERE,
        .vcpu_filter = &vmm_filters[VMM_THREAD_VCPU],
    };
    memcpy(config.mac, m->setup.setup.mac, sizeof config.mac);
    if (vm_create(&config, &m->vm, err) < 0)
        return -1;
    return cmdline ? vm_boot(m->vm, err) : vm_restore(m->vm, err);
}

static int do_boot(struct monitor *m, const struct control_message *c, struct cl_err *err)
{
    (void)err;
    m->setup = *c;
    return 0;
}

/* All that is left is to open the gate, so that a machine that waits in a pool starts at once.
 * What made it is closed, and the filter is on before a guest has a say in what this thread reads:
 * who takes the process over finds no KVM to make another machine with. */
static int get_ready(struct monitor *m, struct cl_err *err)
{
    static const enum control_fd done[] = {CONTROL_FD_KVM, CONTROL_FD_KERNEL, CONTROL_FD_INITRD};
    for (size_t i = 0; i < CL_COUNT(done); i++)
        cl_closep(&m->fds[done[i]]);
    const bool is_template = m->setup.setup.flags & CONTROL_BOOT_OWN_RAM;
    if (!is_template) /* else a snapshot needs it */
        cl_closep(&m->fds[CONTROL_FD_RAM]);
    if (vm_ready(m->vm, err) < 0)
        return -1;
    int rc = cl_filter_enter(&vmm_filters[is_template ? VMM_THREAD_TEMPLATE : VMM_THREAD_MAIN]);
    return rc < 0 ? cl_fail(err, CL_E_SYS, -rc, "enter the seccomp filter") : 0;
}

static int do_restore(struct monitor *m, const struct control_message *c, struct cl_err *err)
{
    m->setup = *c;
    if (load(m, NULL, err) < 0)
        return -1;
    cl_closep(&m->fds[CONTROL_FD_STATE]);
    cl_closep(&m->fds[CONTROL_FD_DELTA]);
    return get_ready(m, err);
}

static int do_cmdline(struct monitor *m, const struct control_message *c, struct cl_err *err)
{
    return load(m, c->cmdline.text, err) < 0 ? -1 : get_ready(m, err);
}

static void serve(struct monitor *m, int wait_ms)
{
    struct pollfd fds[VM_POLLFDS];
    size_t n = vm_pollfds(m->vm, fds);
    if (poll(fds, n, wait_ms) >= 0)
        vm_on_poll(m->vm, fds, n);
}

/* What a template's program was about to do each of its clones would do before anything else, and
 * each page of it is a fault there.  So it comes to its rest first, if it has one. */
static int pause_at_rest(struct monitor *m, struct cl_err *err)
{
    const uint64_t end = cl_now_ns() + REST_MS * CL_NS_PER_MS;
    for (;;) {
        if (vm_pause(m->vm, err) < 0)
            return -1;
        if (vm_is_idle(m->vm) || cl_now_ns() >= end)
            return 0;
        vm_resume(m->vm);
        serve(m, 1);
    }
}

static int do_pause(struct monitor *m, const struct control_message *c, struct cl_err *err)
{
    (void)c;
    const bool is_template = m->setup.setup.flags & CONTROL_BOOT_OWN_RAM;
    if ((is_template ? pause_at_rest(m, err) : vm_pause(m->vm, err)) < 0)
        return -1;
    say_type(m, CONTROL_PAUSED);
    return 0;
}

/* START and RESUME. */
static int do_go(struct monitor *m, const struct control_message *c, struct cl_err *err)
{
    (void)c, (void)err;
    vm_resume(m->vm);
    say_type(m, CONTROL_UP);
    return 0;
}

/* Between two instructions of the guest. */
static int do_record(struct monitor *m, const struct control_message *c, struct cl_err *err)
{
    (void)c;
    if (vm_pause(m->vm, err) < 0 || vm_record(m->vm, err) < 0)
        return -1;
    vm_resume(m->vm);
    return 0;
}

static int do_save(struct monitor *m, const struct control_message *c, struct cl_err *err)
{
    (void)c;
    if (vm_save(m->vm, m->fds[CONTROL_FD_STATE], err) < 0)
        return -1;
    say_type(m, CONTROL_SAVED);
    return 0;
}

static void say_not_saved(struct monitor *m, const char *why)
{
    struct control_message event = {.type = CONTROL_NOT_SAVED};
    (void)snprintf(event.ended.text, sizeof event.ended.text, "%s", why);
    say(m, &event);
}

static int do_save_clone(struct monitor *m, const struct control_message *c, struct cl_err *err)
{
    (void)c;
    if (vm_save_clone(m->vm, m->fds[CONTROL_FD_DELTA], m->fds[CONTROL_FD_STATE], err) < 0)
        say_not_saved(m, err->text);
    else
        say_type(m, CONTROL_SAVED);
    cl_closep(&m->fds[CONTROL_FD_DELTA]);
    cl_closep(&m->fds[CONTROL_FD_STATE]);
    return 0;
}

/* The size of a disk changes between two instructions of the guest. */
static int do_grow(struct monitor *m, const struct control_message *c, struct cl_err *err)
{
    (void)c;
    if (m->phase == CONTROL_IS_PAUSED)
        return vm_grow_scratch(m->vm, err);
    if (vm_pause(m->vm, err) < 0 || vm_grow_scratch(m->vm, err) < 0)
        return -1;
    vm_resume(m->vm);
    return 0;
}

static int do_balloon(struct monitor *m, const struct control_message *c, struct cl_err *err)
{
    (void)err;
    vm_set_balloon(m->vm, c->balloon.bytes);
    return 0;
}

static uint64_t ns_of(const struct timeval *tv)
{
    return (uint64_t)tv->tv_sec * CL_NS_PER_S + (uint64_t)tv->tv_usec * CL_NS_PER_US;
}

static int do_stats(struct monitor *m, const struct control_message *c, struct cl_err *err)
{
    (void)c;
    struct rusage u;
    if (getrusage(RUSAGE_SELF, &u) < 0)
        return cl_fail(err, CL_E_SYS, errno, "getrusage");
    struct control_message event = {.type = CONTROL_STATS_ARE,
                                    .stats = {.cpu_ns = ns_of(&u.ru_utime) + ns_of(&u.ru_stime),
                                              .peak_bytes = (uint64_t)u.ru_maxrss * CL_KIB,
                                              .free_bytes = vm_freed_bytes(m->vm)}};
    vm_count(m->vm, &event.stats.counts);
    say(m, &event);
    return 0;
}

static int do_stop(struct monitor *m, const struct control_message *c, struct cl_err *err)
{
    (void)c, (void)err;
    end(m, CONTROL_END_STOPPED, "stopped");
    return 0;
}

typedef int command_fn(struct monitor *m, const struct control_message *c, struct cl_err *err);

static command_fn *const commands[CONTROL_COMMANDS_NR] = {
    [CONTROL_BOOT] = do_boot,
    [CONTROL_RESTORE] = do_restore,
    [CONTROL_CMDLINE] = do_cmdline,
    [CONTROL_START] = do_go,
    [CONTROL_PAUSE] = do_pause,
    [CONTROL_RESUME] = do_go,
    [CONTROL_RECORD] = do_record,
    [CONTROL_SAVE] = do_save,
    [CONTROL_GROW] = do_grow,
    [CONTROL_BALLOON] = do_balloon,
    [CONTROL_STATS] = do_stats,
    [CONTROL_STOP] = do_stop,
    [CONTROL_SAVE_CLONE] = do_save_clone,
};

/* --- from the worker ------------------------------------------------------------------------ */

struct received {
    struct control_message raw;
    size_t n;
    int fds[CONTROL_FDS];
    unsigned n_fds;
    bool cut; /* more fds than any message has */
};

/* Its end is aligned, so it may hold one more than it is for. */
union rights {
    char bytes[CMSG_SPACE(CONTROL_FDS * sizeof(int))];
    struct cmsghdr align;
};

static void take_rights(struct msghdr *h, struct received *r)
{
    const struct cmsghdr *c = CMSG_FIRSTHDR(h);
    r->cut = (h->msg_flags & MSG_CTRUNC) != 0;
    if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
        return;
    size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    r->cut |= n > CONTROL_FDS;
    r->n_fds = (unsigned)CL_MIN(n, (size_t)CONTROL_FDS);
    memcpy(r->fds, CMSG_DATA(c), r->n_fds * sizeof(int));
}

/* One datagram; 1, 0 when there is none, -1 when the worker is gone. */
static int receive(struct monitor *m, struct received *r)
{
    union rights rights;
    struct iovec iov = {&r->raw, sizeof r->raw};
    struct msghdr h = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = rights.bytes,
                       .msg_controllen = sizeof rights.bytes};
    ssize_t n = recvmsg(m->control, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_TRUNC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return -1;
    *r = (struct received){.raw = r->raw, .n = (size_t)n};
    take_rights(&h, r);
    return 1;
}

/* Each under its name; control_parse() saw that there are as many as are named. */
static void keep_fds(struct monitor *m, uint32_t named, const struct received *r)
{
    unsigned next = 0;
    for (unsigned i = 0; i < CONTROL_FDS && r->n_fds > 0; i++)
        if (named & 1U << i)
            m->fds[i] = r->fds[next++];
}

static int obey(struct monitor *m, const struct received *r, struct cl_err *err)
{
    struct control_message c;
    enum control_phase next = m->phase;
    if (r->cut)
        return cl_fail(err, CL_E_PEER, 0, "control: more than %d fds", CONTROL_FDS);
    if (control_parse(&r->raw, r->n, r->n_fds, &c, err) < 0 ||
        control_step(&next, (enum control_type)c.type, err) < 0)
        return -1;
    keep_fds(m, control_fds(&c), r);
    if (commands[c.type](m, &c, err) < 0)
        return cl_wrap(err, "%s", control_type_name((enum control_type)c.type));
    m->phase = next;
    return 0;
}

static void on_control(struct monitor *m)
{
    struct received r;
    struct cl_err err = {0};
    int rc = receive(m, &r);
    if (rc < 0)
        end(m, CONTROL_END_STOPPED, "the worker is gone");
    else if (rc > 0 && obey(m, &r, &err) < 0)
        end(m, CONTROL_END_FAILED, err.text);
}

/* --- the machine ---------------------------------------------------------------------------- */

static void check_end(struct monitor *m)
{
    static const char *const says[] = {
        [VM_OFF] = "the guest switched itself off",
        [VM_RESET] = "the guest asked for a reset, or crashed",
        [VM_EXIT] = "the guest ended itself",
        [VM_PANIC] = "the guest's kernel panicked",
        [VM_FAILED] = "KVM could not go on",
        [VM_STOPPED] = "stopped",
    };
    struct vm_report report;
    char text[CONTROL_TEXT_MAX + 1];
    vm_report(m->vm, &report);
    if (report.end == VM_RUNS)
        return;
    (void)snprintf(text, sizeof text, "%s%s%s", says[report.end], report.err.text[0] ? ": " : "",
                   report.err.text);
    end(m, report.end == VM_FAILED ? CONTROL_END_FAILED : CONTROL_END_GUEST, text);
}

static void turn(struct monitor *m)
{
    struct pollfd fds[1 + VM_POLLFDS] = {{.fd = m->control, .events = POLLIN}};
    size_t n = m->vm ? vm_pollfds(m->vm, fds + 1) : 0;
    if (poll(fds, 1 + n, -1) < 0)
        return; /* a signal */
    if (m->vm) {
        vm_on_poll(m->vm, fds + 1, n);
        check_end(m);
    }
    if (fds[0].revents && m->phase != CONTROL_HAS_ENDED)
        on_control(m);
}

void monitor_run(int control_fd)
{
    static struct monitor m; /* the one object of the process */
    m = (struct monitor){.control = control_fd, .phase = CONTROL_NEW};
    for (int i = 0; i < CONTROL_FDS; i++)
        m.fds[i] = -1;
    while (m.phase != CONTROL_HAS_ENDED)
        turn(&m);
}
