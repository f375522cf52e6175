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
 * and of a template that has Python waiting in its snapshot:
 *   fresh    spawn -> the first byte that a cell prints, by way of an Identity
 *   claimed  the same of a clone that has run its template's warm-ups and rested, as a worker's
 *            pool has it: Identity -> first byte; and a cell after that, without one
 *   back to back  the median of 51 Pings, and of as many cells, each sent as soon as the one before
 *            has been answered: with warm caches, which a clone that rests does not have
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/conf.h"
#include "bench/agent.h"
#include "bench/monitors.h"
#include "bench/stats.h"
#include "worker/disk.h"
#include "worker/probe.h"
#include "worker/template.h"
#include "worker/vm_driver.h"

enum { ROUNDS_MAX = 100, SAMPLES_MAX = 3 * ROUNDS_MAX, CMDLINE_ROOM = CONTROL_CMDLINE_MAX + 1 };

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

/* --- two kinds of monitors ------------------------------------------------------------------- */

struct kind {
    struct monitor (*start)(const struct monitor_spec *spec);
    void (*await_running)(const struct monitor *r); /* of a restore */
    void (*rehearse)(const struct monitor *r);      /* NULL: its snapshots know of no pages */
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

static void record_vmm(const struct monitor *r)
{
    vmm_tell(r, CONTROL_RECORD);
}

static const struct kind vmm = {start_vmm, await_vmm, record_vmm, vmm_save};
static const struct kind qemu = {qemu_start, await_qemu, NULL, qemu_save};

/* --- machines -------------------------------------------------------------------------------- */

struct peer {
    const struct kind *kind;
    const struct template_manifest *manifest;
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
    agent_await_hello(&r);
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

/* As a worker does it. */
static void take_snapshot(struct peer *p)
{
    struct monitor_spec spec = p->boot;
    spec.ram = monitor_memory("ram", spec.mem_mib * CL_MIB);
    spec.state = monitor_memory("state", 0);
    spec.scratch = disk_of(spec.scratch);
    struct monitor r = boot(p, &spec);
    agent_say_identity(&r);
    agent_await_identity(&r);
    agent_warm_up(&r, p->manifest, true, p->kind->rehearse);
    p->kind->save(&r, &spec);
    monitor_seal(spec.ram);
    p->restore = spec;
    p->restore.restores = true;
}

/* What a clone is made from, with a disk of its own. */
static struct monitor_spec clone_of(const struct peer *p)
{
    struct monitor_spec spec = p->restore;
    spec.scratch = disk_of(spec.scratch);
    return spec;
}

static struct monitor start_clone(const struct peer *p, const struct monitor_spec *spec,
                                  void (*first_words)(const struct monitor *))
{
    struct monitor r = p->kind->start(spec);
    first_words(&r);
    p->kind->await_running(&r);
    return r;
}

static void end_clone(struct monitor *r, const struct monitor_spec *spec)
{
    monitor_end(r);
    if (spec->scratch >= 0)
        (void)close(spec->scratch);
}

static uint64_t time_ping(const struct monitor *r, uint64_t t0)
{
    agent_say_ping(r);
    agent_await_pong(r);
    return cl_now_ns() - t0;
}

struct restored {
    uint64_t running, answer, identity; /* ns since the spawn */
    uint64_t parked;                    /* ns since the Ping */
};

static struct restored time_restore(const struct peer *p)
{
    struct restored took;
    struct monitor_spec spec = clone_of(p);
    uint64_t t0 = cl_now_ns();
    struct monitor r = start_clone(p, &spec, agent_say_ping);
    took.running = cl_now_ns() - t0;
    agent_await_pong(&r);
    took.answer = cl_now_ns() - t0;
    agent_say_identity(&r);
    agent_await_identity(&r);
    took.identity = cl_now_ns() - t0;
    monitor_rest();
    took.parked = time_ping(&r, cl_now_ns());
    end_clone(&r, &spec);
    return took;
}

struct first_bytes {
    uint64_t fresh;                /* ns since the spawn */
    uint64_t claimed;              /* since the Identity */
    uint64_t cell;                 /* since the cell */
    uint64_t busy_ping, busy_cell; /* since the one or the other, back to back */
};

/* Until the first byte of a cell, ns since t0. */
static uint64_t time_busy_cell(const struct monitor *r, uint64_t t0)
{
    agent_say_cell(r);
    agent_await_byte(r);
    uint64_t took = cl_now_ns() - t0;
    agent_await_end(r);
    return took;
}

static uint64_t time_cell(const struct monitor *r, uint64_t t0)
{
    uint64_t took = time_busy_cell(r, t0);
    monitor_rest();
    return took;
}

static uint64_t back_to_back(uint64_t (*time_one)(const struct monitor *r, uint64_t t0),
                             const struct monitor *r)
{
    uint64_t took[51];
    for (size_t i = 0; i < CL_COUNT(took); i++)
        took[i] = time_one(r, cl_now_ns());
    qsort(took, CL_COUNT(took), sizeof took[0], stats_compare);
    return took[CL_COUNT(took) / 2];
}

static struct first_bytes time_python(const struct peer *p)
{
    struct first_bytes took;
    struct monitor_spec spec = clone_of(p);
    uint64_t t0 = cl_now_ns();
    struct monitor r = start_clone(p, &spec, agent_say_identity);
    agent_await_identity(&r);
    took.fresh = time_cell(&r, t0);
    agent_warm_up(&r, p->manifest, false, NULL);
    monitor_rest();
    t0 = cl_now_ns();
    agent_say_identity(&r);
    agent_await_identity(&r);
    took.claimed = time_cell(&r, t0);
    took.cell = time_cell(&r, cl_now_ns());
    took.busy_ping = back_to_back(time_ping, &r);
    took.busy_cell = back_to_back(time_busy_cell, &r);
    end_clone(&r, &spec);
    return took;
}

/* --- the run --------------------------------------------------------------------------------- */

enum figure {
    VMM_BOOT,
    VMM_RUNNING,
    VMM_ANSWER,
    VMM_IDENTITY,
    VMM_PARKED,
    VMM_FRESH,
    VMM_CLAIMED,
    VMM_CELL,
    VMM_BUSY_PING,
    VMM_BUSY_CELL,
    QEMU_BOOT,
    QEMU_PLAIN,
    QEMU_RUNNING,
    QEMU_ANSWER,
    QEMU_IDENTITY,
    QEMU_PARKED,
    QEMU_FRESH,
    QEMU_CLAIMED,
    QEMU_CELL,
    QEMU_BUSY_PING,
    QEMU_BUSY_CELL,
    FIGURES
};

static const char *const names[FIGURES] = {
    [VMM_BOOT] = "cloche-vmm: boot to Hello",
    [VMM_RUNNING] = "cloche-vmm: restore, until it runs",
    [VMM_ANSWER] = "cloche-vmm: restore to the first answer",
    [VMM_IDENTITY] = "cloche-vmm: restore to the identity",
    [VMM_PARKED] = "cloche-vmm: a parked clone's answer",
    [VMM_FRESH] = "cloche-vmm: Python's first byte, fresh",
    [VMM_CLAIMED] = "cloche-vmm: Python's first byte, claimed",
    [VMM_CELL] = "cloche-vmm: Python's first byte, next cell",
    [VMM_BUSY_PING] = "cloche-vmm: an answer, back to back",
    [VMM_BUSY_CELL] = "cloche-vmm: a cell's byte, back to back",
    [QEMU_BOOT] = "QEMU microvm: boot to Hello",
    [QEMU_PLAIN] = "QEMU microvm: boot to Hello, plain memory",
    [QEMU_RUNNING] = "QEMU microvm: restore, until it runs",
    [QEMU_ANSWER] = "QEMU microvm: restore to the first answer",
    [QEMU_IDENTITY] = "QEMU microvm: restore to the identity",
    [QEMU_PARKED] = "QEMU microvm: a parked clone's answer",
    [QEMU_FRESH] = "QEMU microvm: Python's first byte, fresh",
    [QEMU_CLAIMED] = "QEMU microvm: Python's first byte, claimed",
    [QEMU_CELL] = "QEMU microvm: Python's first byte, next cell",
    [QEMU_BUSY_PING] = "QEMU microvm: an answer, back to back",
    [QEMU_BUSY_CELL] = "QEMU microvm: a cell's byte, back to back",
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

static bool has_python(const struct template_manifest *m)
{
    for (size_t i = 0; i < m->n_contexts; i++) {
        if (m->contexts[i].language == TEMPLATE_PYTHON)
            return true;
    }
    return false;
}

static void keep_first_bytes(enum figure first, const struct peer *p)
{
    if (!has_python(p->manifest))
        return;
    struct first_bytes took = time_python(p);
    keep(first, took.fresh);
    keep(first + 1, took.claimed);
    keep(first + 2, took.cell);
    keep(first + 3, took.busy_ping);
    keep(first + 4, took.busy_cell);
    monitor_rest();
}

static void keep_restores(const struct peer *ours, const struct peer *theirs)
{
    keep_restore(VMM_RUNNING, ours);
    keep_restore(QEMU_RUNNING, theirs);
    keep_first_bytes(VMM_FRESH, ours);
    keep_first_bytes(QEMU_FRESH, theirs);
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
    for (int i = 0; i < FIGURES; i++) {
        if (samples[i].n > 0)
            stats_print(names[i], samples[i].ns, samples[i].n);
    }
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
        .dir = images, .name = name, .public_keys = key, .maker = &maker};
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
    *ours = (struct peer){.kind = &vmm, .manifest = &t->m, .boot = spec_of(t)};
    *theirs = (struct peer){.kind = &qemu, .manifest = &t->m, .boot = ours->boot};
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
