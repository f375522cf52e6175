/* bench/vmm_bench.c - a monitor's own time, beside QEMU's microvm in the same run.
 *
 * usage: vmm_bench VMM GUEST64 QEMU GUEST_PVH [N]
 *   VMM        build/cloche-vmm        GUEST64    build/vmm_guest64
 *   QEMU       qemu-system-x86_64      GUEST_PVH  build/vmm_guest_pvh
 *
 * The guest says a byte on its serial port and sleeps; that byte is its first exit, a few
 * instructions after its first one.  Memory is a file in RAM, 128 MiB, one vCPU.  Each round does
 * each thing once, so that a machine that gets slower does so for all:
 *   boot      spawn -> first byte, from the kernel
 *   restore   spawn -> first byte, from a snapshot; nothing was prepared
 *   checkout  START -> first byte of a process that has restored and waits
 * Then how many can be made and ended in a second, and what a restored process has for itself.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/conf.h"
#include "base/util.h"
#include "bench/monitors.h"
#include "bench/stats.h"
#include "bench/vmm_guest.h"

enum {
    SAMPLES_MAX = 2000,
    MEM_MIB = 128,
    RATE_SECONDS = 3,
    GUEST_RAM_KIB = 32768 /* a mapping of this size is guest memory, not the monitor's */
};

/* How each is booted and restored; the disk and the initrd of cloche-vmm are read by nobody. */
struct bench {
    struct monitor_spec vmm_boot, vmm_restore, qemu_boot, qemu_restore;
};

static void wait_byte(const struct monitor *r)
{
    char c;
    do
        monitor_read(r, r->console, &c, 1);
    while (c != '\n');
}

static struct monitor vmm_run(const struct monitor_spec *spec)
{
    struct monitor r = vmm_start(spec);
    vmm_tell(&r, CONTROL_START);
    return r;
}

/* From now until the first byte of a machine that `start` makes. */
static uint64_t time_to_byte(struct monitor (*start)(const struct monitor_spec *),
                             const struct monitor_spec *spec)
{
    uint64_t t0 = cl_now_ns();
    struct monitor r = start(spec);
    wait_byte(&r);
    uint64_t took = cl_now_ns() - t0;
    monitor_end(&r);
    return took;
}

/* In memory that nobody has used. */
static uint64_t time_boot(struct monitor (*start)(const struct monitor_spec *),
                          struct monitor_spec spec)
{
    spec.ram = monitor_memory("boot", MEM_MIB * CL_MIB);
    uint64_t took = time_to_byte(start, &spec);
    (void)close(spec.ram);
    return took;
}

static uint64_t time_checkout(const struct monitor_spec *spec)
{
    struct monitor r = vmm_start(spec);
    monitor_rest(); /* it has restored long before */
    uint64_t t0 = cl_now_ns();
    vmm_tell(&r, CONTROL_START);
    wait_byte(&r);
    uint64_t took = cl_now_ns() - t0;
    monitor_end(&r);
    return took;
}

/* --- memory and rate -------------------------------------------------------------------------- */

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
    struct monitor ours[2], qemu[2];
    for (int i = 0; i < 2; i++) {
        ours[i] = vmm_run(&b->vmm_restore);
        wait_byte(&ours[i]);
        qemu[i] = qemu_start(&b->qemu_restore);
        wait_byte(&qemu[i]);
    }
    uint64_t a = private_kib(ours[0].pid), q = private_kib(qemu[0].pid);
    (void)printf("private memory without the guest's: cloche-vmm %llu KiB, QEMU %llu KiB (x%.1f)\n",
                 (unsigned long long)a, (unsigned long long)q, (double)q / (double)(a ? a : 1));
    for (int i = 0; i < 2; i++) {
        monitor_end(&ours[i]);
        monitor_end(&qemu[i]);
    }
}

/* The one who measures and ends them does not wait behind guests that have nothing to do but run;
 * what it starts is ordinary again. */
static void run_first(void)
{
    const struct sched_param ordinary = {.sched_priority = 0};
    if (sched_setscheduler(0, SCHED_OTHER | SCHED_RESET_ON_FORK, &ordinary) < 0 ||
        setpriority(PRIO_PROCESS, 0, -20) < 0)
        (void)fprintf(stderr, "vmm_bench: no right to run first; times contain the guests'\n");
}

/* Make and end, `jobs` of them side by side; each spawns, restores, runs to its first byte and
 * dies. */
static void print_rate(const struct bench *b, int jobs)
{
    const int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int counts[2];
    uint64_t until = cl_now_ns() + RATE_SECONDS * CL_NS_PER_S;
    unsigned done = 0, all = 0;
    if (pipe2(counts, O_CLOEXEC) < 0)
        monitor_die("pipe");
    for (int i = 0; i < jobs; i++) {
        if (fork() == 0) {
            run_first();
            for (done = 0; time_to_byte(vmm_run, &b->vmm_restore) > 0 && cl_now_ns() < until;)
                done++; /* in time */
            _exit(write(counts[1], &done, sizeof done) == (ssize_t)sizeof done ? 0 : 1);
        }
    }
    for (int i = 0; i < jobs; i++) {
        if (read(counts[0], &done, sizeof done) != (ssize_t)sizeof done || wait(NULL) < 0)
            monitor_die("a worker of the rate");
        all += done;
    }
    (void)close(counts[0]);
    (void)close(counts[1]);
    (void)printf("create + first byte + destroy: %.0f a second, %.0f a core (%d at a time, %d s)\n",
                 (double)all / RATE_SECONDS, (double)all / RATE_SECONDS / cores, jobs,
                 RATE_SECONDS);
}

/* An end waits for the kernel's grace periods: with few at a time the processors are idle for a
 * third of it. */
static void print_rates(const struct bench *b)
{
    enum { JOBS_MAX = 16 };
    const int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    for (int a_core = 1; a_core <= JOBS_MAX; a_core *= 2)
        print_rate(b, cores * a_core);
}

/* --- the run --------------------------------------------------------------------------------- */

enum { VMM_BOOT, VMM_RESTORE, VMM_CHECKOUT, QEMU_BOOT, QEMU_RESTORE, FIGURES };
static const char *const names[FIGURES] = {"cloche-vmm: boot", "cloche-vmm: restore",
                                           "cloche-vmm: checkout", "QEMU microvm: boot",
                                           "QEMU microvm: restore"};

static uint64_t measure(const struct bench *b, int what)
{
    switch (what) {
    case VMM_BOOT:
        return time_boot(vmm_run, b->vmm_boot);
    case VMM_RESTORE:
        return time_to_byte(vmm_run, &b->vmm_restore);
    case VMM_CHECKOUT:
        return time_checkout(&b->vmm_restore);
    case QEMU_BOOT:
        return time_boot(qemu_start, b->qemu_boot);
    default:
        return time_to_byte(qemu_start, &b->qemu_restore);
    }
}

/* A snapshot of a machine that said its first byte; *ret_restore is how to restore it. */
static void take_snapshot(struct monitor_spec boot,
                          struct monitor (*start)(const struct monitor_spec *),
                          void (*save)(struct monitor *, const struct monitor_spec *),
                          struct monitor_spec *ret_restore)
{
    boot.ram = monitor_memory("ram", MEM_MIB * CL_MIB);
    boot.state = monitor_memory("state", 0);
    struct monitor r = start(&boot);
    wait_byte(&r);
    save(&r, &boot);
    if (pwrite(boot.ram, "\1", 1, VMM_GUEST_RESTORED) != 1)
        monitor_die("tell the guest that it was saved");
    monitor_seal(boot.ram);
    *ret_restore = boot;
    ret_restore->restores = true;
}

static void prepare(struct bench *b, char **programs)
{
    static const struct monitor_spec none = {.mem_mib = MEM_MIB,
                                             .cmdline = "x",
                                             .kvm = -1,
                                             .kernel = -1,
                                             .initrd = -1,
                                             .root = -1,
                                             .scratch = -1,
                                             .ram = -1,
                                             .state = -1};
    b->vmm_boot = b->qemu_boot = none;
    b->vmm_boot.program = programs[0];
    b->vmm_boot.kvm = monitor_open("/dev/kvm", O_RDWR);
    b->vmm_boot.kernel = monitor_open(programs[1], O_RDONLY);
    b->vmm_boot.root = b->vmm_boot.initrd = monitor_memory("root", CL_MIB);
    b->vmm_boot.state = monitor_memory("state", 0);
    b->qemu_boot.program = programs[2];
    b->qemu_boot.kernel = monitor_open(programs[3], O_RDONLY);
    take_snapshot(b->vmm_boot, vmm_run, vmm_save, &b->vmm_restore);
    take_snapshot(b->qemu_boot, qemu_start, qemu_save, &b->qemu_restore);
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
    monitor_group();
    struct bench b;
    stats_machine();
    run_first();
    prepare(&b, argv + 1);
    for (uint64_t i = 0; i < n; i++) {
        for (int what = 0; what < FIGURES; what++) {
            ns[what][i] = measure(&b, what);
            monitor_rest();
        }
    }
    for (int what = 0; what < FIGURES; what++)
        stats_print(names[what], ns[what], n);
    (void)printf("restore: QEMU / cloche-vmm = %.1f (p50)\n",
                 (double)ns[QEMU_RESTORE][n / 2] / (double)ns[VMM_RESTORE][n / 2]);
    print_memory(&b);
    print_rates(&b);
    return 0;
}
