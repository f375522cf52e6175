/* bench/boot_peers.c - a stock kernel and the agent in cloche-vmm and in QEMU's microvm, in one
 * run.
 *
 * usage: boot_peers VMM QEMU IMAGES TEMPLATE [N [ENTRY]]
 *   VMM     build/cloche-vmm          IMAGES    folder of images and signing.pub
 *   QEMU    qemu-system-x86_64[-microvm]        (bench/boot_peers.sh knows them all)
 *   ENTRY   native (default): both by KVM, which must run a stock kernel: hardware, or the lab
 *           xenpv, xenpv-shared: cloche-vmm by Xen PV, isolated or not; QEMU by emulation
 *
 * Both get the same kernel, initrd, disks, memory size and template's command line, each with the
 * words that its driver adds.  Neither is jailed; cloche-vmm keeps its own filters.  The N rounds
 * (10) do each thing in turn, so that a machine that gets slower does so for all:
 *   boot     spawn -> the agent's Hello, into memory that can become a snapshot; and of QEMU with
 *            plain memory too, its fastest way, which cannot be saved
 *   restore  spawn -> the agent's first answer, to a Ping that waits in its channel; nothing was
 *            prepared.  Then an Identity is sent: spawn -> its acknowledgement
 *   parked   a Ping to a clone that has done all that and rested -> its answer
 */
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/conf.h"
#include "base/mem.h"
#include "bench/monitors.h"
#include "bench/stats.h"
#include "proto/guest_frame.h"
#include "worker/disk.h"
#include "worker/probe.h"
#include "worker/template.h"
#include "worker/vm_driver.h"

enum {
    ROUNDS_MAX = 100,
    SAMPLES_MAX = 3 * ROUNDS_MAX,
    CMDLINE_ROOM = CONTROL_CMDLINE_MAX + 1,
    FRAME_ROOM = 4096
};

/* How ours enters the kernel, and theirs runs it. */
struct entry {
    const char *name;
    uint8_t flags;       /* enum control_boot */
    bool emulates;       /* QEMU does not use KVM */
    const char *cmdline; /* what ours adds: `entries` of worker/kvm_io.c */
    double want_boot;    /* QEMU's boot in ours */
};

static const struct entry entries[] = {
    {"native", 0, false, "clocksource=kvm-clock reboot=t", 1},
    {"xenpv", CONTROL_BOOT_BY_XENPV | CONTROL_BOOT_ISOLATED, true, "clocksource=xen", 1 / 0.7},
    {"xenpv-shared", CONTROL_BOOT_BY_XENPV, true, "clocksource=xen", 1 / 0.7},
};

/* --- the agent ------------------------------------------------------------------------------- */

static void say(const struct monitor *r, const Cloche__V1__GuestFrame *frame)
{
    struct cl_err err = {0};
    struct cl_buf buf;
    cl_buf_init(&buf, FRAME_ROOM);
    if (guest_frame_pack(&buf, frame, FRAME_ROOM, &err) < 0)
        monitor_give_up("%s", err.text);
    if (write(r->channel, buf.data, buf.len) != (ssize_t)buf.len)
        monitor_die("write to the agent");
    cl_buf_fini(&buf);
}

/* The agent's next frame, which must be of this kind. */
static void hear(const struct monitor *r, Cloche__V1__GuestFrame__BodyCase want)
{
    uint8_t bytes[GUEST_FRAME_HEADER + FRAME_ROOM];
    uint32_t n;
    const Cloche__V1__GuestFrame *frame = NULL;
    size_t used;
    struct cl_arena *arena;
    struct cl_err err = {0};
    monitor_read(r, r->channel, bytes, GUEST_FRAME_HEADER);
    memcpy(&n, bytes, sizeof n);
    if (n > FRAME_ROOM)
        monitor_give_up("the agent sent a frame of %u bytes", n);
    monitor_read(r, r->channel, bytes + GUEST_FRAME_HEADER, n);
    if (cl_arena_new(GUEST_ARENA_FACTOR * FRAME_ROOM, &arena, &err) < 0 ||
        guest_frame_parse(bytes, GUEST_FRAME_HEADER + n, FRAME_ROOM, arena, &frame, &used, &err) <
            0)
        monitor_give_up("%s", err.text);
    if (!frame || frame->body_case != want)
        monitor_give_up("the agent said something else than body %d", (int)want);
    if (want == CLOCHE__V1__GUEST_FRAME__BODY_IDENTITY_DONE && frame->identity_done->error[0])
        monitor_give_up("the agent: %s", frame->identity_done->error);
    cl_arena_free(arena);
}

static void say_ping(const struct monitor *r)
{
    Cloche__V1__GuestPing ping = CLOCHE__V1__GUEST_PING__INIT;
    GUEST_FRAME(frame, 0, PING, ping, &ping);
    say(r, &frame);
}

static void say_identity(const struct monitor *r)
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
    identity.machine_id = machine_id;
    GUEST_FRAME(frame, 0, IDENTITY, identity, &identity);
    say(r, &frame);
}

/* --- two kinds of monitors ------------------------------------------------------------------- */

struct kind {
    struct monitor (*start)(const struct monitor_spec *spec);
    void (*await_running)(const struct monitor *r); /* of a restore */
    void (*save)(struct monitor *r, const struct monitor_spec *spec);
};

static struct monitor start_vmm(const struct monitor_spec *spec)
{
    struct monitor r = vmm_start(spec);
    vmm_tell(&r, CONTROL_START);
    return r;
}

static void await_vmm(const struct monitor *r)
{
    vmm_await(r, CONTROL_UP);
}

static void await_qemu(const struct monitor *r)
{
    qemu_await(r, "\"RESUME\"");
}

static const struct kind vmm = {start_vmm, await_vmm, vmm_save};
static const struct kind qemu = {qemu_start, await_qemu, qemu_save};

/* --- machines -------------------------------------------------------------------------------- */

struct peer {
    const struct kind *kind;
    struct monitor_spec boot, restore;
    char cmdline[CMDLINE_ROOM];
};

static int disk_of(int source)
{
    struct cl_err err = {0};
    int fd, high;
    if (source < 0)
        return -1;
    if (disk_make("/tmp", source, DISK_DEFAULT_MIB * CL_MIB, &fd, &err) < 0)
        monitor_give_up("%s", err.text);
    high = fcntl(fd, F_DUPFD_CLOEXEC, MONITOR_FD_MIN);
    (void)close(fd);
    return high;
}

/* A machine that boots into these files and says Hello. */
static struct monitor boot(const struct peer *p, const struct monitor_spec *spec)
{
    struct monitor r = p->kind->start(spec);
    hear(&r, CLOCHE__V1__GUEST_FRAME__BODY_HELLO);
    return r;
}

/* In a disk and memory that nobody has used. */
static uint64_t time_boot(const struct peer *p, bool plain)
{
    struct monitor_spec spec = p->boot;
    spec.ram = plain ? -1 : monitor_memory("boot", spec.mem_mib * CL_MIB);
    spec.scratch = disk_of(spec.scratch);
    uint64_t t0 = cl_now_ns();
    struct monitor r = boot(p, &spec);
    uint64_t took = cl_now_ns() - t0;
    monitor_end(&r);
    (void)close(spec.scratch);
    if (!plain)
        (void)close(spec.ram);
    return took;
}

/* As a worker does it, but for the warm-ups. */
static void take_snapshot(struct peer *p)
{
    struct monitor_spec spec = p->boot;
    spec.ram = monitor_memory("ram", spec.mem_mib * CL_MIB);
    spec.state = monitor_memory("state", 0);
    spec.scratch = disk_of(spec.scratch);
    struct monitor r = boot(p, &spec);
    say_identity(&r);
    hear(&r, CLOCHE__V1__GUEST_FRAME__BODY_IDENTITY_DONE);
    p->kind->save(&r, &spec);
    p->restore = spec;
    p->restore.restores = true;
}

struct restored {
    uint64_t running, answer, identity; /* ns since the spawn */
    uint64_t parked;                    /* ns since the Ping */
};

static struct restored time_restore(const struct peer *p)
{
    struct restored took;
    struct monitor_spec spec = p->restore;
    spec.scratch = disk_of(spec.scratch);
    uint64_t t0 = cl_now_ns();
    struct monitor r = p->kind->start(&spec);
    say_ping(&r);
    p->kind->await_running(&r);
    took.running = cl_now_ns() - t0;
    hear(&r, CLOCHE__V1__GUEST_FRAME__BODY_PONG);
    took.answer = cl_now_ns() - t0;
    say_identity(&r);
    hear(&r, CLOCHE__V1__GUEST_FRAME__BODY_IDENTITY_DONE);
    took.identity = cl_now_ns() - t0;
    monitor_rest();
    t0 = cl_now_ns();
    say_ping(&r);
    hear(&r, CLOCHE__V1__GUEST_FRAME__BODY_PONG);
    took.parked = cl_now_ns() - t0;
    monitor_end(&r);
    (void)close(spec.scratch);
    return took;
}

/* --- the run --------------------------------------------------------------------------------- */

enum figure {
    VMM_BOOT,
    VMM_RUNNING,
    VMM_ANSWER,
    VMM_IDENTITY,
    VMM_PARKED,
    QEMU_BOOT,
    QEMU_PLAIN,
    QEMU_RUNNING,
    QEMU_ANSWER,
    QEMU_IDENTITY,
    QEMU_PARKED,
    FIGURES
};

static const char *const names[FIGURES] = {
    [VMM_BOOT] = "cloche-vmm: boot to Hello",
    [VMM_RUNNING] = "cloche-vmm: restore, until it runs",
    [VMM_ANSWER] = "cloche-vmm: restore to the first answer",
    [VMM_IDENTITY] = "cloche-vmm: restore to the identity",
    [VMM_PARKED] = "cloche-vmm: a parked clone's answer",
    [QEMU_BOOT] = "QEMU microvm: boot to Hello",
    [QEMU_PLAIN] = "QEMU microvm: boot to Hello, plain memory",
    [QEMU_RUNNING] = "QEMU microvm: restore, until it runs",
    [QEMU_ANSWER] = "QEMU microvm: restore to the first answer",
    [QEMU_IDENTITY] = "QEMU microvm: restore to the identity",
    [QEMU_PARKED] = "QEMU microvm: a parked clone's answer",
};

struct samples {
    uint64_t ns[SAMPLES_MAX];
    size_t n;
};

static struct samples samples[FIGURES];

static void keep(enum figure figure, uint64_t ns)
{
    struct samples *s = &samples[figure];
    s->ns[s->n++] = ns;
    (void)printf("%s: %.1f ms\n", names[figure], (double)ns / 1e6);
}

static void keep_boot(enum figure figure, const struct peer *p, bool plain)
{
    keep(figure, time_boot(p, plain));
    monitor_rest();
}

static void keep_restore(enum figure first, const struct peer *p)
{
    struct restored took = time_restore(p);
    keep(first, took.running);
    keep(first + 1, took.answer);
    keep(first + 2, took.identity);
    keep(first + 3, took.parked);
    monitor_rest();
}

static void keep_restores(const struct peer *ours, const struct peer *theirs)
{
    keep_restore(VMM_RUNNING, ours);
    keep_restore(QEMU_RUNNING, theirs);
}

/* A restore takes a fraction of a boot: after each boot there is one of each. */
static void play_round(const struct peer *ours, const struct peer *theirs)
{
    keep_boot(VMM_BOOT, ours, false);
    keep_restores(ours, theirs);
    keep_boot(QEMU_BOOT, theirs, false);
    keep_restores(ours, theirs);
    keep_boot(QEMU_PLAIN, theirs, true);
    keep_restores(ours, theirs);
}

/* After stats_print(), which sorts. */
static double p50(enum figure figure)
{
    return (double)samples[figure].ns[samples[figure].n / 2];
}

static void print_ratio(const char *what, enum figure of, enum figure to, double want)
{
    double ratio = p50(of) / p50(to);
    (void)printf("%-58s %6.2f (p50; wanted %g: %s)\n", what, ratio, want,
                 ratio >= want ? "met" : "MISSED");
}

static void print_all(const struct entry *entry)
{
    for (int i = 0; i < FIGURES; i++)
        stats_print(names[i], samples[i].ns, samples[i].n);
    print_ratio("boot: QEMU / cloche-vmm", QEMU_BOOT, VMM_BOOT, entry->want_boot);
    print_ratio("boot: QEMU with plain memory / cloche-vmm", QEMU_PLAIN, VMM_BOOT,
                entry->want_boot);
    print_ratio("cloche-vmm: boot / restore to the first answer", VMM_BOOT, VMM_ANSWER, 10);
    print_ratio("restore to the first answer: QEMU / cloche-vmm", QEMU_ANSWER, VMM_ANSWER, 2);
    print_ratio("restore to the identity: QEMU / cloche-vmm", QEMU_IDENTITY, VMM_IDENTITY, 2);
}

static struct template *open_template(const char *images, const char *name)
{
    static const struct vm_driver none = {.name = "bench"};
    static const struct template_maker maker = {.driver = &none, .vmm_build = "", .cpu = ""};
    char key[4096];
    struct template *t;
    struct cl_err err = {0};
    (void)snprintf(key, sizeof key, "%s/signing.pub", images);
    const struct template_request request = {
        .dir = images, .name = name, .public_key = key, .maker = &maker};
    if (template_open(&request, &t, &err) < 0)
        monitor_give_up("%s", err.text);
    return t;
}

/* What both are made from; what differs between the two is left open. */
static struct monitor_spec spec_of(const struct template *t)
{
    return (struct monitor_spec){
        .cmdline = t->m.cmdline,
        .mem_mib = t->memory_mib,
        .agent = true,
        .kvm = -1,
        .kernel = fcntl(t->kernel_fd, F_DUPFD_CLOEXEC, MONITOR_FD_MIN),
        .initrd = fcntl(t->initrd_fd, F_DUPFD_CLOEXEC, MONITOR_FD_MIN),
        .root = fcntl(t->rootfs_fd, F_DUPFD_CLOEXEC, MONITOR_FD_MIN),
        .scratch = t->scratch_fd < 0 ? -1 : fcntl(t->scratch_fd, F_DUPFD_CLOEXEC, MONITOR_FD_MIN),
        .ram = -1,
        .state = -1,
    };
}

static void add_words(struct peer *p, const char *words)
{
    (void)snprintf(p->cmdline, sizeof p->cmdline, "%s %s", p->boot.cmdline, words);
    p->boot.cmdline = p->cmdline;
}

static void prepare(char **argv, const struct template *t, const struct entry *entry,
                    struct peer *ours, struct peer *theirs)
{
    const struct probe_programs programs = {.vmm = argv[1], .qemu = argv[2]};
    struct host_probe probe;
    char words[64];
    host_probe(&programs, &probe);
    (void)printf("%s, %s; %s, %s\ntemplate %s, %u MiB, 1 vCPU\n", probe.qemu_build,
                 entry->emulates ? "emulating" : "by KVM", probe.vmm_build, entry->name, t->m.name,
                 t->memory_mib);
    *ours = (struct peer){.kind = &vmm, .boot = spec_of(t)};
    *theirs = (struct peer){.kind = &qemu, .boot = ours->boot};
    ours->boot.program = argv[1];
    ours->boot.kvm = monitor_open("/dev/kvm", O_RDWR);
    ours->boot.state = monitor_memory("no state", 0);
    ours->boot.entry = entry->flags;
    theirs->boot.program = argv[2];
    theirs->boot.emulates = entry->emulates;
    (void)snprintf(words, sizeof words, "tsc_early_khz=%llu", (unsigned long long)probe.tsc_khz);
    add_words(theirs, words);
    add_words(ours, entry->cmdline);
    take_snapshot(ours);
    take_snapshot(theirs);
    (void)printf("snapshots are made\n");
}

static const struct entry *find_entry(const char *name)
{
    for (size_t i = 0; i < CL_COUNT(entries); i++) {
        if (strcmp(entries[i].name, name) == 0)
            return &entries[i];
    }
    return NULL;
}

int main(int argc, char **argv)
{
    uint64_t n = 10;
    static struct peer ours, theirs;
    const struct entry *entry = find_entry(argc == 7 ? argv[6] : "native");
    if (argc < 5 || argc > 7 || (argc > 5 && cl_parse_u64(argv[5], &n, NULL) < 0) || n == 0 ||
        n > ROUNDS_MAX || !entry) {
        (void)fprintf(stderr, "usage: boot_peers VMM QEMU IMAGES TEMPLATE "
                              "[N [native | xenpv | xenpv-shared]]\n");
        return 2;
    }
    monitor_group();
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* what was measured is seen though the rest fails */
    stats_machine();
    struct template *t = open_template(argv[3], argv[4]);
    prepare(argv, t, entry, &ours, &theirs);
    for (size_t i = 0; i < n; i++)
        play_round(&ours, &theirs);
    print_all(entry);
    template_unref(t);
    return 0;
}
