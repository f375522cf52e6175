/* bench/monitors.c - see bench/monitors.h. */
#include "bench/monitors.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/own.h"
#include "base/util.h"

enum {
    WAIT_MS = 60000,
    REST_MS = 30,
    ARGS_MAX = 64,
    ARGS_BYTES = 8192,
    SAID_MAX = 8192,
    /* fds of a child */
    FD_OUT = 1,
    FD_TALK = 3,
    FD_STATE = 4,
    FD_CHANNEL = 5,
    CHILD_FDS = 6,
};

_Noreturn void monitor_give_up(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vfprintf(stderr, fmt, ap);
    va_end(ap);
    (void)fprintf(stderr, "\n");
    (void)fflush(NULL);
    (void)signal(SIGTERM, SIG_IGN);
    (void)kill(0, SIGTERM);
    exit(1);
}

_Noreturn void monitor_die(const char *what)
{
    monitor_give_up("%s: %s", what, strerror(errno));
}

void monitor_group(void)
{
    (void)setpgid(0, 0);
}

void monitor_rest(void)
{
    (void)usleep(REST_MS * 1000);
}

/* --- fds ------------------------------------------------------------------------------------- */

/* spawn() puts a child's fds below MONITOR_FD_MIN: they must come from elsewhere. */
static int move_up(int fd, const char *what)
{
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, MONITOR_FD_MIN);
    if (high < 0)
        monitor_die(what);
    (void)close(fd);
    return high;
}

int monitor_open(const char *path, int flags)
{
    return move_up(open(path, flags | O_CLOEXEC), path);
}

int monitor_memory(const char *name, uint64_t bytes)
{
    int fd = move_up(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING), name);
    if (ftruncate(fd, (off_t)bytes) < 0)
        monitor_die(name);
    return fd;
}

void monitor_seal(int ram)
{
    if (fcntl(ram, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        monitor_die("seal the snapshot");
}

static void pair(int type, int *ret_ours, int *ret_theirs)
{
    int fds[2];
    if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds) < 0)
        monitor_die("socketpair");
    *ret_ours = move_up(fds[0], "socketpair");
    *ret_theirs = move_up(fds[1], "socketpair");
}

/* Who waits for a monitor's words waits for so long. */
static void limit_wait(int fd)
{
    const struct timeval limit = {.tv_sec = WAIT_MS / 1000};
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0)
        monitor_die("SO_RCVTIMEO");
}

static void send_fds(int to, const void *bytes, size_t size, const int *fds, unsigned n)
{
    union {
        struct cmsghdr h;
        char room[CMSG_SPACE(sizeof(int) * CONTROL_FDS)];
    } c = {0};
    struct iovec iov = {(void *)(uintptr_t)bytes, size};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n > 0) {
        h.msg_control = c.room;
        h.msg_controllen = CMSG_SPACE(sizeof(int) * n);
        c.h = (struct cmsghdr){CMSG_LEN(sizeof(int) * n), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(&c.h), fds, sizeof(int) * n);
    }
    if (sendmsg(to, &h, MSG_NOSIGNAL) != (ssize_t)size)
        monitor_die("send to a monitor");
}

/* --- processes ------------------------------------------------------------------------------- */

/* argv[0] with fds[n] as its fd n where that is not -1. */
static pid_t spawn(char *const *argv, const int fds[static CHILD_FDS])
{
    posix_spawn_file_actions_t a;
    pid_t pid;
    extern char **environ;
    if (posix_spawn_file_actions_init(&a) != 0)
        monitor_die("spawn");
    for (int n = 0; n < CHILD_FDS; n++) {
        if (fds[n] >= 0 && posix_spawn_file_actions_adddup2(&a, fds[n], n) != 0)
            monitor_die("spawn");
    }
    if ((errno = posix_spawn(&pid, argv[0], &a, NULL, argv, environ)) != 0)
        monitor_die(argv[0]);
    (void)posix_spawn_file_actions_destroy(&a);
    return pid;
}

/* What the guest of the monitor that we wait for said last on its console, to explain its end. */
static char said[SAID_MAX + 1];
static size_t n_said;

/* A console that nobody reads would stop its guest. */
static void take_console(const struct monitor *r)
{
    if (n_said > SAID_MAX / 2) {
        n_said -= SAID_MAX / 2;
        memmove(said, said + SAID_MAX / 2, n_said);
    }
    ssize_t got = recv(r->console, said + n_said, SAID_MAX - n_said, MSG_DONTWAIT);
    n_said += got > 0 ? (size_t)got : 0;
    said[n_said] = '\0';
}

/* True when `fd` can be read; false when it was the console alone. */
static bool await_readable(const struct monitor *r, int fd)
{
    struct pollfd p[] = {{.fd = fd, .events = POLLIN}, {.fd = r->console, .events = POLLIN}};
    if (poll(p, fd == r->console ? 1 : 2, WAIT_MS) <= 0)
        monitor_give_up("nothing for %d s; the console of %d: '%s'", WAIT_MS / 1000, (int)r->pid,
                        said);
    if (p[1].revents)
        take_console(r);
    return p[0].revents != 0;
}

void monitor_read(const struct monitor *r, int fd, void *ret_bytes, size_t n)
{
    for (size_t done = 0; done < n;) {
        if (!await_readable(r, fd))
            continue;
        ssize_t got = read(fd, (char *)ret_bytes + done, n - done);
        if (got <= 0)
            monitor_give_up("a monitor's end; the console of %d: '%s'", (int)r->pid, said);
        done += (size_t)got;
    }
}

void monitor_end(struct monitor *r)
{
    int status;
    n_said = 0;
    said[0] = '\0';
    (void)kill(r->pid, SIGKILL);
    if (waitpid(r->pid, &status, 0) < 0)
        monitor_die("wait");
    cl_closep(&r->talk);
    cl_closep(&r->console);
    cl_closep(&r->channel);
}

/* --- cloche-vmm ------------------------------------------------------------------------------ */

static void tell(const struct monitor *r, const struct control_message *m, const int *fds,
                 unsigned n)
{
    send_fds(r->talk, m, sizeof *m, fds, n);
}

void vmm_tell(const struct monitor *r, enum control_type type)
{
    const struct control_message m = {.type = type};
    tell(r, &m, NULL, 0);
}

void vmm_await(const struct monitor *r, enum control_type type)
{
    struct control_message m;
    struct cl_err err = {0};
    do {
        ssize_t n = recv(r->talk, &m, sizeof m, 0);
        if (n <= 0 || control_parse_event(&m, (size_t)n, &m, &err) < 0)
            monitor_give_up("cloche-vmm says nothing more: %s", n < 0 ? strerror(errno) : err.text);
        if (m.type == CONTROL_ENDED)
            monitor_give_up("cloche-vmm: %s", m.ended.text);
    } while (m.type != type);
}

static void tell_setup(const struct monitor *r, const struct monitor_spec *s, int channel,
                       int console)
{
    int gifts[CONTROL_FDS];
    memset(gifts, 0xff, sizeof gifts); /* -1: no network card, for one */
    gifts[CONTROL_FD_KVM] = s->kvm;
    gifts[CONTROL_FD_RAM] = s->ram;
    gifts[CONTROL_FD_STATE] = s->state;
    gifts[CONTROL_FD_ROOT] = s->root;
    gifts[CONTROL_FD_CHANNEL] = channel;
    gifts[CONTROL_FD_SCRATCH] = s->scratch;
    gifts[CONTROL_FD_CONSOLE] = console;
    if (!s->restores) {
        gifts[CONTROL_FD_KERNEL] = s->kernel;
        gifts[CONTROL_FD_INITRD] = s->initrd;
    }
    struct control_message m = {
        .type = s->restores ? CONTROL_RESTORE : CONTROL_BOOT,
        .setup = {.version = CONTROL_VERSION,
                  .vcpus = 1,
                  .mem_bytes = s->mem_mib * CL_MIB,
                  .flags = (s->restores ? CONTROL_RESTORE_HERE : CONTROL_BOOT_OWN_RAM) | s->entry}};
    int fds[CONTROL_FDS];
    unsigned n = 0;
    for (unsigned i = 0; i < CONTROL_FDS; i++) {
        if (gifts[i] < 0)
            continue;
        m.setup.fds |= 1U << i;
        fds[n++] = gifts[i];
    }
    tell(r, &m, fds, n);
}

static void tell_cmdline(const struct monitor *r, const char *cmdline)
{
    struct control_message m = {.type = CONTROL_CMDLINE};
    int n = snprintf(m.cmdline.text, sizeof m.cmdline.text, "%s", cmdline);
    if (n < 0 || n > CONTROL_CMDLINE_MAX)
        monitor_give_up("a kernel command line of %d bytes", n);
    m.cmdline.bytes = (uint32_t)n;
    tell(r, &m, NULL, 0);
}

struct monitor vmm_start(const struct monitor_spec *spec)
{
    struct monitor r;
    int theirs, channel, console;
    char control[] = "3", *argv[] = {(char *)(uintptr_t)spec->program, control, NULL};
    pair(SOCK_SEQPACKET, &r.talk, &theirs);
    limit_wait(r.talk);
    pair(SOCK_STREAM, &r.channel, &channel);
    pair(SOCK_STREAM, &r.console, &console);
    if (fcntl(channel, F_SETFL, O_NONBLOCK) < 0 || fcntl(console, F_SETFL, O_NONBLOCK) < 0)
        monitor_die("non-blocking sockets");
    r.pid = spawn(argv, (int[CHILD_FDS]){-1, -1, -1, [FD_TALK] = theirs, -1, -1});
    tell_setup(&r, spec, channel, console);
    if (!spec->restores)
        tell_cmdline(&r, spec->cmdline);
    (void)close(theirs);
    (void)close(channel);
    (void)close(console);
    return r;
}

void vmm_save(struct monitor *r, const struct monitor_spec *spec)
{
    (void)spec; /* it was told where to when it started */
    vmm_tell(r, CONTROL_PAUSE);
    vmm_await(r, CONTROL_PAUSED);
    vmm_tell(r, CONTROL_SAVE);
    vmm_await(r, CONTROL_SAVED);
    monitor_end(r);
}

/* --- QEMU ------------------------------------------------------------------------------------ */

static void qmp(const struct monitor *r, const char *text)
{
    send_fds(r->talk, text, strlen(text), NULL, 0);
}

void qemu_await(const struct monitor *r, const char *word)
{
    static char text[65536];
    size_t n = 0;
    text[0] = '\0';
    while (!strstr(text, word)) {
        ssize_t got = recv(r->talk, text + n, sizeof text - 1 - n, 0);
        if (got <= 0)
            monitor_give_up("QEMU says nothing after: %s", text);
        n += (size_t)got;
        text[n] = '\0';
        if (strstr(text, "\"error\""))
            monitor_give_up("QEMU refuses: %s", text);
    }
}

struct args {
    const char *argv[ARGS_MAX];
    size_t n, used;
    char bytes[ARGS_BYTES];
};

static void add(struct args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct args *a, const char *fmt, ...)
{
    va_list ap;
    char *at = a->bytes + a->used;
    va_start(ap, fmt);
    int n = vsnprintf(at, sizeof a->bytes - a->used, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof a->bytes - a->used || a->n >= ARGS_MAX - 1)
        monitor_give_up("too many arguments for QEMU");
    a->used += (size_t)n + 1;
    a->argv[a->n++] = at;
}

static void add_option(struct args *a, const char *option, const char *value)
{
    add(a, "%s", option);
    add(a, "%s", value);
}

/* Fds that are ours, by their paths: it opens them as it starts. */
static void add_disk(struct args *a, const char *name, int fd, bool writable)
{
    if (fd < 0)
        return;
    add(a, "-drive");
    add(a, "id=%s,file=/proc/%d/fd/%d,format=raw,if=none,file.locking=off,%s", name, (int)getpid(),
        fd, writable ? "cache=unsafe" : "readonly=on");
    add(a, "-device");
    add(a, "virtio-blk-device,drive=%s,serial=%s", name, name);
}

static void add_memory(struct args *a, const struct monitor_spec *s)
{
    add(a, "-m");
    add(a, "%u", s->mem_mib);
    if (s->ram < 0)
        return;
    add(a, "-object");
    add(a, "memory-backend-file,id=ram,size=%uM,mem-path=/proc/%d/fd/%d,share=%s", s->mem_mib,
        (int)getpid(), s->ram, s->restores ? "off" : "on");
}

static void add_agent(struct args *a)
{
    add_option(a, "-device", "virtio-serial-device");
    add(a, "-chardev");
    add(a, "socket,id=agent,fd=%d", FD_CHANNEL);
    add_option(a, "-device", "virtserialport,chardev=agent,name=cloche.agent");
}

static void add_kernel(struct args *a, const struct monitor_spec *s)
{
    add(a, "-kernel");
    add(a, "/proc/%d/fd/%d", (int)getpid(), s->kernel);
    if (s->initrd >= 0) {
        add(a, "-initrd");
        add(a, "/proc/%d/fd/%d", (int)getpid(), s->initrd);
        add_option(a, "-append", s->cmdline);
    }
}

/* The least that microvm can be. */
static void qemu_args(struct args *a, const struct monitor_spec *s)
{
    static const char *const fixed[] = {"-smp",     "1",    "-nodefaults", "-no-user-config",
                                        "-display", "none", "-no-reboot",  "-serial",
                                        "stdio"};
    add(a, "%s", s->program);
    add(a, "-M");
    add(a, "microvm,rtc=on,acpi=on,pit=off,pic=off%s", s->ram >= 0 ? ",memory-backend=ram" : "");
    add_option(a, "-accel", s->emulates ? "tcg,thread=single" : "kvm");
    /* Not what a KVM of a host of the other make cannot set. */
    add_option(a, "-cpu", s->emulates ? "max" : "host,arch-capabilities=off");
    for (size_t i = 0; i < CL_COUNT(fixed); i++)
        add(a, "%s", fixed[i]);
    add_memory(a, s);
    add_disk(a, "root", s->root, false);
    add_disk(a, "scratch", s->scratch, true);
    if (s->agent)
        add_agent(a);
    add(a, "-chardev");
    add(a, "socket,id=mon,fd=%d", FD_TALK);
    add_option(a, "-mon", "chardev=mon,mode=control");
    if (s->restores) /* without the kernel, which it would read and not need */
        add_option(a, "-incoming", "defer");
    else
        add_kernel(a, s);
}

static const char restore_commands[] =
    "{\"execute\":\"qmp_capabilities\"}\n"
    "{\"execute\":\"migrate-set-capabilities\",\"arguments\":{\"capabilities\":"
    "[{\"capability\":\"x-ignore-shared\",\"state\":true}]}}\n"
    "{\"execute\":\"migrate-incoming\",\"arguments\":{\"uri\":\"fd:4\"}}\n";
_Static_assert(FD_STATE == 4, "restore_commands names it");

struct monitor qemu_start(const struct monitor_spec *spec)
{
    struct monitor r = {.channel = -1};
    struct args args = {0};
    int theirs, console, channel = -1;
    qemu_args(&args, spec);
    pair(SOCK_STREAM, &r.talk, &theirs);
    limit_wait(r.talk);
    pair(SOCK_STREAM, &r.console, &console);
    if (spec->agent)
        pair(SOCK_STREAM, &r.channel, &channel);
    if (spec->restores) {
        qmp(&r, restore_commands);
        if (lseek(spec->state, 0, SEEK_SET) < 0)
            monitor_die("rewind the state");
    }
    r.pid = spawn(
        (char *const *)(uintptr_t)args.argv,
        (int[CHILD_FDS]){-1, [FD_OUT] = console, -1, [FD_TALK] = theirs,
                         [FD_STATE] = spec->restores ? spec->state : -1, [FD_CHANNEL] = channel});
    (void)close(theirs);
    (void)close(console);
    cl_closep(&channel);
    return r;
}

void qemu_save(struct monitor *r, const struct monitor_spec *spec)
{
    static const char getfd[] = "{\"execute\":\"getfd\",\"arguments\":{\"fdname\":\"state\"}}\n";
    qmp(r, "{\"execute\":\"qmp_capabilities\"}\n"
           "{\"execute\":\"migrate-set-capabilities\",\"arguments\":{\"capabilities\":"
           "[{\"capability\":\"x-ignore-shared\",\"state\":true},"
           "{\"capability\":\"events\",\"state\":true}]}}\n");
    send_fds(r->talk, getfd, sizeof getfd - 1, &spec->state, 1);
    qmp(r, "{\"execute\":\"migrate\",\"arguments\":{\"uri\":\"fd:state\"}}\n");
    qemu_await(r, "\"completed\"");
    monitor_end(r);
}
