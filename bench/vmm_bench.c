/* bench/vmm_bench.c - a monitor's own time, beside QEMU's microvm in the same run.
 *
 * usage: vmm_bench VMM GUEST64 QEMU GUEST_PVH [N]
 *   VMM        build/cloche-vmm        GUEST64    build/vmm_guest64
 *   QEMU       qemu-system-x86_64      GUEST_PVH  build/vmm_guest_pvh
 *
 * The guest says bytes on its serial port and nothing else; its first byte is its first exit, a few
 * instructions after its first one.  Memory is a file in RAM, 128 MiB, one vCPU.  Each round does
 * each thing once, so that a machine that gets slower does so for all: boot      spawn -> first
 * byte, from the kernel restore   spawn -> first byte, from a snapshot; nothing was prepared
 *   checkout  START -> first byte of a process that has restored and waits
 * Then how many can be made and ended in a second, and what a restored process has for itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/conf.h"
#include "base/own.h"
#include "base/util.h"
#include "bench/stats.h"
#include "vmm/control.h"

enum {
    SAMPLES_MAX = 2000,
    MEM_MIB = 128,
    BYTE_WAIT_MS = 30000,
    REST_MS = 30, /* between runs, so that one's end is not the next one's start */
    RATE_SECONDS = 4,
    QEMU_ARGS = 48,
    GUEST_RAM_KIB = 32768 /* a mapping of this size is guest memory, not the monitor's */
};

/* Monitors that were started must not outlive us: they are in our process group. */
_Noreturn static void give_up(void)
{
    (void)signal(SIGTERM, SIG_IGN);
    (void)kill(0, SIGTERM);
    exit(1);
}

_Noreturn static void die(const char *what)
{
    (void)fprintf(stderr, "vmm_bench: %s: %s\n", what, strerror(errno));
    give_up();
}

/* --- a process and its guest's voice --------------------------------------------------------- */

struct run {
    pid_t pid;
    int talk;    /* ours: control socket, or QMP */
    int console; /* ours: what the guest says */
    int channel; /* ours: the agent's channel, unused */
};

struct bench {
    const char *vmm, *guest64, *qemu, *guest_pvh;
    int kvm, root;  /* root: a disk and an initrd that nobody reads */
    int ram, state; /* the snapshot of cloche-vmm */
    int qemu_ram, qemu_state;
};

static void wait_byte(const struct run *r)
{
    char c;
    struct pollfd p = {.fd = r->console, .events = POLLIN};
    do {
        if (poll(&p, 1, BYTE_WAIT_MS) <= 0 || read(r->console, &c, 1) != 1)
            die("the guest says nothing");
    } while (c != '\n');
}

static void end_run(struct run *r)
{
    int status;
    (void)kill(r->pid, SIGKILL);
    if (waitpid(r->pid, &status, 0) < 0)
        die("wait");
    cl_closep(&r->talk);
    cl_closep(&r->console);
    cl_closep(&r->channel);
}

static void rest(void)
{
    (void)usleep(REST_MS * 1000);
}

/* argv[0] with talk as fd 3 and, for QEMU, the console as stdout. */
static pid_t spawn(char *const *argv, int talk, int console, int state)
{
    posix_spawn_file_actions_t a;
    pid_t pid;
    extern char **environ;
    if (posix_spawn_file_actions_init(&a) != 0 ||
        posix_spawn_file_actions_adddup2(&a, talk, 3) != 0 ||
        (console >= 0 && posix_spawn_file_actions_adddup2(&a, console, 1) != 0) ||
        (state >= 0 && posix_spawn_file_actions_adddup2(&a, state, 4) != 0) ||
        posix_spawn(&pid, argv[0], &a, NULL, argv, environ) != 0)
        die(argv[0]);
    (void)posix_spawn_file_actions_destroy(&a);
    return pid;
}

static void pair(int type, int *ret_ours, int *ret_theirs)
{
    int fds[2];
    if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds) < 0)
        die("socketpair");
    /* spawn() puts the child's ends at 3 and 4: they must come from elsewhere */
    *ret_ours = fcntl(fds[0], F_DUPFD_CLOEXEC, 10);
    *ret_theirs = fcntl(fds[1], F_DUPFD_CLOEXEC, 10);
    (void)close(fds[0]);
    (void)close(fds[1]);
}

static int memory_file(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 10);
    (void)close(fd);
    if (high < 0)
        die("memfd");
    return high;
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
        die("send to a monitor");
}

/* --- cloche-vmm ---------------------------------------------------------------------------------
 */

static void tell(const struct run *r, const struct control_message *m, const int *fds, unsigned n)
{
    send_fds(r->talk, m, sizeof *m, fds, n);
}

static void tell_type(const struct run *r, enum control_type type)
{
    const struct control_message m = {.type = type};
    tell(r, &m, NULL, 0);
}

static void await(const struct run *r, enum control_type type)
{
    struct control_message m;
    struct cl_err err = {0};
    do {
        ssize_t n = recv(r->talk, &m, sizeof m, 0);
        if (n <= 0 || control_parse_event(&m, (size_t)n, &m, &err) < 0 || m.type == CONTROL_ENDED) {
            (void)fprintf(stderr, "vmm_bench: cloche-vmm: %s\n",
                          n > 0 && m.type == CONTROL_ENDED ? m.ended.text : err.text);
            give_up();
        }
    } while (m.type != type);
}

/* A process that has been told what to be; START is the next word. */
static struct run vmm_start(const struct bench *b, enum control_type how, int kernel)
{
    struct run r;
    int theirs, channel, console;
    char arg3[] = "3", *argv[] = {(char *)(uintptr_t)b->vmm, arg3, NULL};
    pair(SOCK_SEQPACKET, &r.talk, &theirs);
    pair(SOCK_STREAM, &r.channel, &channel);
    pair(SOCK_STREAM, &r.console, &console);
    r.pid = spawn(argv, theirs, -1, -1);
    int fds[CONTROL_FDS] = {b->kvm, b->ram, b->state, b->root, channel, console, kernel, b->root};
    struct control_message m = {
        .type = how,
        .setup = {.version = CONTROL_VERSION, .vcpus = 1, .mem_bytes = MEM_MIB * CL_MIB}};
    m.setup.fds = 1u << CONTROL_FD_KVM | 1u << CONTROL_FD_RAM | 1u << CONTROL_FD_STATE |
                  1u << CONTROL_FD_ROOT | 1u << CONTROL_FD_CHANNEL | 1u << CONTROL_FD_CONSOLE;
    if (kernel >= 0)
        m.setup.fds |= 1u << CONTROL_FD_KERNEL | 1u << CONTROL_FD_INITRD;
    tell(&r, &m, fds, kernel >= 0 ? 8 : 6);
    if (how == CONTROL_BOOT)
        tell(&r,
             &(struct control_message){.type = CONTROL_CMDLINE,
                                       .cmdline = {.bytes = 1, .text = "x"}},
             NULL, 0);
    (void)close(theirs);
    (void)close(channel);
    (void)close(console);
    return r;
}

static int open_high(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), high = fcntl(fd, F_DUPFD_CLOEXEC, 20);
    (void)close(fd);
    if (high < 0)
        die(path);
    return high;
}

static void fresh_memory(int fd)
{
    if (ftruncate(fd, 0) < 0 || ftruncate(fd, (off_t)(MEM_MIB * CL_MIB)) < 0)
        die("size the guest's memory");
}

static uint64_t vmm_boot(struct bench *b)
{
    int kernel = open_high(b->guest64), ram = b->ram;
    b->ram = memory_file("boot");
    fresh_memory(b->ram);
    uint64_t t0 = cl_now_ns();
    struct run r = vmm_start(b, CONTROL_BOOT, kernel);
    tell_type(&r, CONTROL_START);
    wait_byte(&r);
    uint64_t took = cl_now_ns() - t0;
    end_run(&r);
    (void)close(kernel);
    (void)close(b->ram);
    b->ram = ram;
    return took;
}

static void vmm_snapshot(struct bench *b)
{
    int kernel = open_high(b->guest64);
    fresh_memory(b->ram);
    struct run r = vmm_start(b, CONTROL_BOOT, kernel);
    tell_type(&r, CONTROL_START);
    await(&r, CONTROL_UP);
    wait_byte(&r);
    tell_type(&r, CONTROL_PAUSE);
    await(&r, CONTROL_PAUSED);
    tell_type(&r, CONTROL_SAVE);
    await(&r, CONTROL_SAVED);
    end_run(&r);
    (void)close(kernel);
    if (fcntl(b->ram, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        die("seal the snapshot");
}

static uint64_t vmm_restore(const struct bench *b)
{
    uint64_t t0 = cl_now_ns();
    struct run r = vmm_start(b, CONTROL_RESTORE, -1);
    tell_type(&r, CONTROL_START);
    wait_byte(&r);
    uint64_t took = cl_now_ns() - t0;
    end_run(&r);
    return took;
}

static uint64_t vmm_checkout(const struct bench *b)
{
    struct run r = vmm_start(b, CONTROL_RESTORE, -1);
    rest(); /* it has restored long before */
    uint64_t t0 = cl_now_ns();
    tell_type(&r, CONTROL_START);
    wait_byte(&r);
    uint64_t took = cl_now_ns() - t0;
    end_run(&r);
    return took;
}

/* --- QEMU
 * ------------------------------------------------------------------------------------------ */

static void qmp(const struct run *r, const char *text)
{
    send_fds(r->talk, text, strlen(text), NULL, 0);
}

static void qmp_await(const struct run *r, const char *word)
{
    static char text[65536];
    size_t n = 0;
    text[0] = '\0';
    while (!strstr(text, word)) {
        ssize_t got = recv(r->talk, text + n, sizeof text - 1 - n, 0);
        if (got <= 0)
            die("QEMU is gone");
        n += (size_t)got;
        text[n] = '\0';
        if (strstr(text, "\"error\"")) {
            (void)fprintf(stderr, "vmm_bench: QEMU refuses: %s\n", text);
            give_up();
        }
    }
}

/* qtest and research say: the least that microvm can be. */
static struct run qemu_start(const struct bench *b, bool restores, int ram, int state)
{
    struct run r = {.channel = -1};
    int theirs, console;
    char object[160];
    (void)snprintf(object, sizeof object,
                   "memory-backend-file,id=ram,size=%dM,mem-path=/proc/%d/fd/%d,share=%s", MEM_MIB,
                   (int)getpid(), ram, restores ? "off" : "on");
    const char *args[QEMU_ARGS] = {
        b->qemu,
        "-M",
        "microvm,accel=kvm,rtc=on,acpi=on,pit=off,pic=off,memory-backend=ram",
        "-cpu",
        "host",
        "-smp",
        "1",
        "-m",
        "128",
        "-object",
        object,
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
        "-serial",
        "stdio",
        "-kernel",
        b->guest_pvh,
        "-chardev",
        "socket,id=mon,fd=3",
        "-mon",
        "chardev=mon,mode=control",
        restores ? "-incoming" : NULL,
        "defer",
        NULL};
    pair(SOCK_STREAM, &r.talk, &theirs);
    pair(SOCK_STREAM, &r.console, &console);
    if (restores)
        qmp(&r, "{\"execute\":\"qmp_capabilities\"}\n"
                "{\"execute\":\"migrate-set-capabilities\",\"arguments\":{\"capabilities\":"
                "[{\"capability\":\"x-ignore-shared\",\"state\":true}]}}\n"
                "{\"execute\":\"migrate-incoming\",\"arguments\":{\"uri\":\"fd:4\"}}\n");
    r.pid = spawn((char *const *)(uintptr_t)args, theirs, console, state);
    (void)close(theirs);
    (void)close(console);
    return r;
}

static uint64_t qemu_boot(const struct bench *b)
{
    int ram = memory_file("qemu-boot");
    fresh_memory(ram);
    uint64_t t0 = cl_now_ns();
    struct run r = qemu_start(b, false, ram, -1);
    wait_byte(&r);
    uint64_t took = cl_now_ns() - t0;
    end_run(&r);
    (void)close(ram);
    return took;
}

/* Without `stop`: a machine that was saved running runs when it is restored. */
static void qemu_snapshot(const struct bench *b)
{
    fresh_memory(b->qemu_ram);
    static const char getfd[] = "{\"execute\":\"getfd\",\"arguments\":{\"fdname\":\"state\"}}\n";
    struct run r = qemu_start(b, false, b->qemu_ram, -1);
    wait_byte(&r);
    qmp(&r, "{\"execute\":\"qmp_capabilities\"}\n"
            "{\"execute\":\"migrate-set-capabilities\",\"arguments\":{\"capabilities\":"
            "[{\"capability\":\"x-ignore-shared\",\"state\":true},"
            "{\"capability\":\"events\",\"state\":true}]}}\n");
    send_fds(r.talk, getfd, sizeof getfd - 1, &b->qemu_state, 1);
    qmp(&r, "{\"execute\":\"migrate\",\"arguments\":{\"uri\":\"fd:state\"}}\n");
    qmp_await(&r, "\"completed\"");
    end_run(&r);
}

static uint64_t qemu_restore(const struct bench *b)
{
    if (lseek(b->qemu_state, 0, SEEK_SET) < 0)
        die("rewind the state");
    uint64_t t0 = cl_now_ns();
    struct run r = qemu_start(b, true, b->qemu_ram, b->qemu_state);
    wait_byte(&r);
    uint64_t took = cl_now_ns() - t0;
    end_run(&r);
    return took;
}

/* --- memory and rate
 * --------------------------------------------------------------------------------- */

/* KiB that belong to this process alone, guest memory left out. */
static uint64_t private_kib(pid_t pid)
{
    char path[64], line[512];
    unsigned long from, to, kib, sum = 0;
    bool is_ram = false;
    (void)snprintf(path, sizeof path, "/proc/%d/smaps", (int)pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            is_ram = (to - from) / 1024 >= GUEST_RAM_KIB;
        if (!is_ram && (sscanf(line, "Private_Clean: %lu", &kib) == 1 ||
                        sscanf(line, "Private_Dirty: %lu", &kib) == 1))
            sum += kib;
    }
    if (f)
        (void)fclose(f);
    return sum;
}

/* Two of each live, as on a host: a program's text is private only while it has one process. */
static void print_memory(const struct bench *b)
{
    struct run ours[2], qemu[2];
    for (int i = 0; i < 2; i++) {
        ours[i] = vmm_start(b, CONTROL_RESTORE, -1);
        tell_type(&ours[i], CONTROL_START);
        wait_byte(&ours[i]);
        (void)lseek(b->qemu_state, 0, SEEK_SET);
        qemu[i] = qemu_start(b, true, b->qemu_ram, b->qemu_state);
        wait_byte(&qemu[i]);
    }
    uint64_t a = private_kib(ours[0].pid), q = private_kib(qemu[0].pid);
    (void)printf("private memory without the guest's: cloche-vmm %llu KiB, QEMU %llu KiB (x%.1f)\n",
                 (unsigned long long)a, (unsigned long long)q, (double)q / (double)(a ? a : 1));
    for (int i = 0; i < 2; i++) {
        end_run(&ours[i]);
        end_run(&qemu[i]);
    }
}

/* Make and end, `jobs` of them side by side; each spawns, restores, runs to its first byte and
 * dies. */
static void print_rate(const struct bench *b)
{
    int jobs = (int)sysconf(_SC_NPROCESSORS_ONLN) * 2, counts[2];
    uint64_t until = cl_now_ns() + RATE_SECONDS * CL_NS_PER_S;
    unsigned done = 0, all = 0;
    if (pipe2(counts, O_CLOEXEC) < 0)
        die("pipe");
    for (int i = 0; i < jobs; i++) {
        if (fork() == 0) {
            for (done = 0; cl_now_ns() < until; done++)
                (void)vmm_restore(b);
            _exit(write(counts[1], &done, sizeof done) == (ssize_t)sizeof done ? 0 : 1);
        }
    }
    for (int i = 0; i < jobs; i++) {
        if (read(counts[0], &done, sizeof done) != (ssize_t)sizeof done || wait(NULL) < 0)
            die("a worker of the rate");
        all += done;
    }
    (void)printf("create + first byte + destroy: %.0f a second, %.0f a core (%d at a time, %d s)\n",
                 (double)all / RATE_SECONDS, (double)all / RATE_SECONDS / (jobs / 2.0), jobs,
                 RATE_SECONDS);
}

/* --- the run
 * -------------------------------------------------------------------------------------------- */

enum { VMM_BOOT, VMM_RESTORE, VMM_CHECKOUT, QEMU_BOOT, QEMU_RESTORE, FIGURES };
static const char *const names[FIGURES] = {"cloche-vmm: boot", "cloche-vmm: restore",
                                           "cloche-vmm: checkout", "QEMU microvm: boot",
                                           "QEMU microvm: restore"};

static uint64_t measure(struct bench *b, int what)
{
    switch (what) {
    case VMM_BOOT:
        return vmm_boot(b);
    case VMM_RESTORE:
        return vmm_restore(b);
    case VMM_CHECKOUT:
        return vmm_checkout(b);
    case QEMU_BOOT:
        return qemu_boot(b);
    default:
        return qemu_restore(b);
    }
}

static void prepare(struct bench *b)
{
    b->kvm = fcntl(open("/dev/kvm", O_RDWR | O_CLOEXEC), F_DUPFD_CLOEXEC, 10);
    if (b->kvm < 0)
        die("/dev/kvm");
    b->ram = memory_file("ram");
    b->state = memory_file("state");
    b->root = memory_file("root");
    b->qemu_ram = memory_file("qemu-ram");
    b->qemu_state = memory_file("qemu-state");
    if (ftruncate(b->root, (off_t)CL_MIB) < 0)
        die("size the disk");
    vmm_snapshot(b);
    qemu_snapshot(b);
}

int main(int argc, char **argv)
{
    static uint64_t ns[FIGURES][SAMPLES_MAX];
    uint64_t n = 50;
    if (argc < 5 || argc > 6 || (argc == 6 && cl_parse_u64(argv[5], &n, NULL) < 0) || n == 0 ||
        n > SAMPLES_MAX) {
        (void)fprintf(stderr, "usage: vmm_bench VMM GUEST64 QEMU GUEST_PVH [N]\n");
        return 2;
    }
    (void)setpgid(0, 0);
    struct bench b = {.vmm = argv[1], .guest64 = argv[2], .qemu = argv[3], .guest_pvh = argv[4]};
    stats_machine();
    prepare(&b);
    for (uint64_t i = 0; i < n; i++) {
        for (int what = 0; what < FIGURES; what++) {
            ns[what][i] = measure(&b, what);
            rest();
        }
    }
    for (int what = 0; what < FIGURES; what++)
        stats_print(names[what], ns[what], n);
    (void)printf("restore: QEMU / cloche-vmm = %.1f (p50)\n",
                 (double)ns[QEMU_RESTORE][n / 2] / (double)ns[VMM_RESTORE][n / 2]);
    print_memory(&b);
    print_rate(&b);
    return 0;
}
