/* tests/integration/vmm/clone_main.c - a stock kernel, saved while it runs, goes on in clones.
 *
 * usage: vmm_clone [--xenpv [--isolated]] MEMORY_MIB VCPUS VMLINUX INITRD CLONES
 * The initrd's /init is `ticks`.  Boots, saves at tick 10, then restores CLONES machines one after
 * the other, the first after a nap.  Each must say the tick that comes next, and a clock that went
 * on from there. Prints its figures; exit status 1 when a clone did not go on.  No jail: for tests
 * only.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "vmm/counts.h"
#include "vmm/vm.h"

enum { SAVE_AT = 10, WAIT_S = 120, CLOCK_SLACK_MS = 1000, NAP_S = 3 };

#define CMDLINE \
    "panic=-1 quiet cryptomgr.notests random.trust_cpu=on no_timer_check lsm= " \
    "ipv6.disable=1 numa=off nowatchdog 8250.nr_uarts=1 pci=off mitigations=off"

static void die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

static void die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)fprintf(stderr, "vmm_clone: ");
    (void)vfprintf(stderr, fmt, ap);
    (void)fprintf(stderr, "\n");
    va_end(ap);
    exit(1);
}

/* A machine and the near end of its console. */
struct machine {
    struct vm *vm;
    char name[32];
    int near;
    char line[256];
    size_t n;
};

static int open_file(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0)
        die("%s: %m", path);
    return fd;
}

/* Clone `number`, or the template: -1. */
static void start(struct machine *m, struct vm_config config, int number)
{
    struct cl_err err = {0};
    int pipes[2];
    *m = (struct machine){.name = "the template"};
    if (number >= 0)
        (void)snprintf(m->name, sizeof m->name, "clone %d", number);
    if (pipe2(pipes, O_CLOEXEC | O_NONBLOCK) < 0)
        die("pipe: %m");
    m->near = pipes[0];
    config.console_fd = pipes[1];
    if (vm_create(&config, &m->vm, &err) < 0 ||
        (config.restore ? vm_restore(m->vm, &err) : vm_boot(m->vm, &err)) < 0 ||
        vm_run(m->vm, &err) < 0)
        die("%s", err.text);
}

static void end(struct machine *m)
{
    vm_free(m->vm);
    (void)close(m->near);
}

/* Does it sleep, or run in circles?  Each counter, and what a second adds to it. */
static void tell_what_it_does(struct vm *vm)
{
    struct vm_counts before = {0}, after = {0};
    vm_count(vm, &before);
    (void)sleep(1);
    vm_count(vm, &after);
    for (int i = 0; i < COUNTS_NR; i++) {
        if (after.of[i] != 0)
            (void)fprintf(stderr, "%s: %" PRIu64 ", +%" PRIu64 " in a second\n",
                          vm_count_name((enum vm_count)i), after.of[i], after.of[i] - before.of[i]);
    }
}

/* Serves the machine until something happens, or for a second: then false. */
static bool serve_a_while(struct machine *m)
{
    struct vm_report report;
    struct pollfd fds[VM_POLLFDS + 1];
    size_t n = vm_pollfds(m->vm, fds);
    fds[n] = (struct pollfd){.fd = m->near, .events = POLLIN};
    bool is_idle = poll(fds, (nfds_t)(n + 1), 1000) == 0;
    if (!is_idle)
        vm_on_poll(m->vm, fds, n);
    vm_report(m->vm, &report);
    if (report.end != VM_RUNS)
        die("the guest ended (%d) %s", (int)report.end, report.err.text);
    return !is_idle;
}

/* The next byte of the console.  It is patient by its own seconds: where the host itself is stopped
 * for minutes, as a virtual machine may be, the guest has had none of them either. */
static char next_byte(struct machine *m)
{
    int idle_s = 0;
    for (char c;;) {
        if (read(m->near, &c, 1) == 1)
            return c;
        idle_s += !serve_a_while(m);
        if (idle_s == WAIT_S) {
            tell_what_it_does(m->vm);
            die("%s: nothing on the console for %d s", m->name, WAIT_S);
        }
    }
}

/* The next whole line `tick N MS`; others are passed on. */
static unsigned long next_tick(struct machine *m, long long *ret_ms)
{
    for (;;) {
        unsigned long tick;
        size_t n = 0;
        for (char c; (c = next_byte(m)) != '\n' && n < sizeof m->line - 1;)
            m->line[n++] = c;
        m->line[n] = '\0';
        if (sscanf(m->line, "tick %lu %lld", &tick, ret_ms) == 2)
            return tick;
        (void)printf("console: %s\n", m->line);
    }
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static void clone_once(struct vm_config config, int number, unsigned long after, long long after_ms,
                       double *ret_ms)
{
    struct machine m;
    long long ms;
    uint64_t begin = cl_now_ns();
    start(&m, config, number);
    unsigned long tick = next_tick(&m, &ms);
    *ret_ms = (double)(cl_now_ns() - begin) / 1e6;
    if (tick > after + 2) /* a line that was under way when the machine was saved is cut */
        die("the clone says tick %lu, its template had said %lu", tick, after);
    /* Not the nap; what the clone itself took, on a slow machine seconds, it may well show. */
    if (ms < after_ms || (double)(ms - after_ms) > *ret_ms + CLOCK_SLACK_MS)
        die("the clone's clock says %lld ms, its template's said %lld", ms, after_ms);
    for (int i = 0; i < 5; i++) {
        if (next_tick(&m, &ms) != ++tick)
            die("the clone skips a tick");
    }
    end(&m);
}

/* What was saved of an isolated guest is no other guest's state, nor the reverse. */
static void refuse_the_other_mode(struct vm_config config)
{
    struct cl_err err = {0};
    struct vm *vm;
    config.is_isolated = !config.is_isolated;
    if (vm_create(&config, &vm, &err) < 0)
        die("%s", err.text);
    if (vm_restore(vm, &err) == 0)
        die("a clone in the other mode");
    vm_free(vm);
}

int main(int argc, char **argv)
{
    struct cl_err err = {0};
    struct machine m;
    long long ms = 0;
    bool is_xenpv = argc > 1 && strcmp(argv[1], "--xenpv") == 0;
    argc -= is_xenpv;
    argv += is_xenpv;
    bool is_isolated = is_xenpv && argc > 1 && strcmp(argv[1], "--isolated") == 0;
    argc -= is_isolated;
    argv += is_isolated;
    if (argc != 6)
        die("usage: vmm_clone [--xenpv [--isolated]] MEMORY_MIB VCPUS VMLINUX INITRD CLONES");
    int clones = (int)strtol(argv[5], NULL, 10);
    struct vm_config config = {
        .mem_bytes = strtoull(argv[1], NULL, 10) << 20,
        .vcpus = (unsigned)strtoul(argv[2], NULL, 10),
        .cmdline = is_xenpv ? "console=hvc0 " CMDLINE : "console=ttyS0 " CMDLINE,
        .entry = is_xenpv ? VM_ENTRY_XENPV : VM_ENTRY_ANY,
        .is_isolated = is_isolated,
        .kvm_fd = open_file("/dev/kvm", O_RDWR),
        .ram_fd = memfd_create("guest", MFD_CLOEXEC),
        .kernel_fd = open_file(argv[3], O_RDONLY),
        .initrd_fd = open_file(argv[4], O_RDONLY),
        .root_fd = -1,
        .scratch_fd = -1,
        .channel_fd = -1,
        .net_fd = -1,
        .delta_fd = -1,
        .state_fd = memfd_create("state", MFD_CLOEXEC),
    };
    if (config.ram_fd < 0 || ftruncate(config.ram_fd, (off_t)config.mem_bytes) < 0)
        die("guest memory: %m");
    uint64_t begin = cl_now_ns();
    start(&m, config, -1);
    while (next_tick(&m, &ms) < SAVE_AT)
        ;
    (void)printf("boot to tick %d: %.0f ms\n", SAVE_AT, (double)(cl_now_ns() - begin) / 1e6);
    begin = cl_now_ns();
    if (vm_pause(m.vm, &err) < 0 || vm_save(m.vm, config.state_fd, &err) < 0)
        die("%s", err.text);
    (void)printf("pause and save: %.2f ms\n", (double)(cl_now_ns() - begin) / 1e6);
    end(&m);
    (void)sleep(NAP_S);
    config.restore = true;
    if (is_xenpv)
        refuse_the_other_mode(config);
    double *took = calloc((size_t)clones, sizeof *took);
    for (int i = 0; took && i < clones; i++)
        clone_once(config, i, SAVE_AT, ms, &took[i]);
    if (took && clones > 0) {
        qsort(took, (size_t)clones, sizeof *took, compare);
        (void)printf("restore to the next line: N=%d p50 %.1f ms, least %.1f, most %.1f\n", clones,
                     took[clones / 2], took[0], took[clones - 1]);
    }
    free(took);
    return 0;
}
