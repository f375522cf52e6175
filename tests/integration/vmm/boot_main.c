/* tests/integration/vmm/boot_main.c - boot a kernel in a machine of vmm/, its console on stdout.
 *
 * usage: vmm_boot [--pvh | --xenpv [--isolated]] MEMORY_MIB VCPUS CMDLINE VMLINUX INITRD
 *                 [ROOT [SCRATCH]]
 * --pvh enters the kernel by PVH, --xenpv by Xen PV, not by its 64-bit entry.
 * An agent that speaks is the end, after its guest has given 64 MiB to the balloon.
 * Exit status: 0 that, or switched off; 3 reset, 4 panic, 5 failed, 7 the balloon is not filled,
 * else that of the exit port.  No jail: for tests only.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"
#include "vmm/counts.h"
#include "vmm/vm.h"

/* Linux sends 256 pages at once, which is a kick; that it reports free pages takes a few, too. */
enum {
    BALLOON_MIB = 64,
    BALLOON_KICKS = BALLOON_MIB,
    BALLOON_STEP_MS = 50,
    BALLOON_STEPS = 1200,
    NOT_FILLED = 7,
};

static int open_or_die(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0) {
        perror(path);
        exit(2);
    }
    return fd;
}

static int memory_or_die(uint64_t bytes)
{
    int fd = memfd_create("guest", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0) {
        perror("guest memory");
        exit(2);
    }
    return fd;
}

/* The machine's end of the agent's channel; ours goes to *ret_near. */
static int channel_or_die(int *ret_near)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
        perror("socketpair");
        exit(2);
    }
    *ret_near = pair[0];
    return pair[1];
}

static struct vm_config config_of(int argc, char **argv, int *ret_near)
{
    struct vm_config c = {
        .mem_bytes = strtoull(argv[1], NULL, 10) << 20,
        .vcpus = (unsigned)strtoul(argv[2], NULL, 10),
        .cmdline = argv[3],
        .kvm_fd = open_or_die("/dev/kvm", O_RDWR),
        .kernel_fd = open_or_die(argv[4], O_RDONLY),
        .initrd_fd = open_or_die(argv[5], O_RDONLY),
        .root_fd = argc > 6 ? open_or_die(argv[6], O_RDONLY) : -1,
        .scratch_fd = argc > 7 ? open_or_die(argv[7], O_RDWR) : -1,
        .channel_fd = channel_or_die(ret_near),
        .net_fd = -1,
        .delta_fd = -1,
        .console_fd = STDOUT_FILENO,
        .state_fd = -1,
    };
    c.ram_fd = memory_or_die(c.mem_bytes);
    return c;
}

/* True when `near` can be read, or it is time; false when the guest ended. */
static bool serve(struct vm *vm, int near, int timeout_ms, struct vm_report *ret_report)
{
    struct pollfd fds[VM_POLLFDS + 1];
    do {
        size_t n = vm_pollfds(vm, fds);
        fds[n] = (struct pollfd){.fd = near, .events = POLLIN};
        int ready = poll(fds, (nfds_t)(n + 1), timeout_ms);
        if (ready > 0)
            vm_on_poll(vm, fds, n);
        if (ready == 0 || fds[n].revents & POLLIN)
            return true;
        vm_report(vm, ret_report);
    } while (ret_report->end == VM_RUNS);
    return false;
}

static uint64_t balloon_kicks(struct vm *vm)
{
    struct vm_counts counts = {0};
    vm_count(vm, &counts);
    return counts.of[COUNT_KICK_BALLOON];
}

/* Its driver hears of the new configuration and fills the balloon. */
static bool fills_balloon(struct vm *vm, struct vm_report *report)
{
    uint64_t want = balloon_kicks(vm) + BALLOON_KICKS;
    vm_set_balloon(vm, BALLOON_MIB * CL_MIB);
    for (int i = 0; i < BALLOON_STEPS && balloon_kicks(vm) < want; i++)
        if (!serve(vm, -1, BALLOON_STEP_MS, report))
            return false;
    return balloon_kicks(vm) >= want;
}

static int status_of(const struct vm_report *report)
{
    static const int status[] = {
        [VM_OFF] = 0, [VM_RESET] = 3, [VM_PANIC] = 4, [VM_FAILED] = 5, [VM_STOPPED] = 6};
    if (report->end == VM_FAILED)
        (void)fprintf(stderr, "vmm_boot: %s\n", report->err.text);
    return report->end == VM_EXIT ? (int)report->status : status[report->end];
}

/* The next argument is this one: taken. */
static bool take(int *argc, char ***argv, const char *what)
{
    if (*argc < 2 || strcmp((*argv)[1], what) != 0)
        return false;
    (*argc)--;
    (*argv)++;
    return true;
}

int main(int argc, char **argv)
{
    struct cl_err err = {0};
    struct vm_report report;
    enum vm_entry entry = take(&argc, &argv, "--pvh")     ? VM_ENTRY_PVH
                          : take(&argc, &argv, "--xenpv") ? VM_ENTRY_XENPV
                                                          : VM_ENTRY_ANY;
    bool is_isolated = entry == VM_ENTRY_XENPV && take(&argc, &argv, "--isolated");
    if (argc < 6) {
        (void)fprintf(stderr, "usage: vmm_boot [--pvh | --xenpv [--isolated]] MEMORY_MIB VCPUS "
                              "CMDLINE VMLINUX INITRD [ROOT [SCRATCH]]\n");
        return 2;
    }
    int near;
    uint64_t begin = cl_now_ns();
    struct vm_config config = config_of(argc, argv, &near);
    config.entry = entry;
    config.is_isolated = is_isolated;
    CL_AUTO(vm_freep) struct vm *vm = NULL;
    if (vm_create(&config, &vm, &err) < 0 || vm_boot(vm, &err) < 0 || vm_run(vm, &err) < 0) {
        (void)fprintf(stderr, "vmm_boot: %s\n", err.text);
        return 2;
    }
    uint64_t running = cl_now_ns();
    bool spoke = serve(vm, near, -1, &report);
    uint64_t end = cl_now_ns();
    bool fills = spoke && fills_balloon(vm, &report);
    vm_stop(vm);
    (void)fprintf(stderr, "vmm_boot: %.1f ms to the first instruction, %s after %.1f ms\n",
                  (double)(running - begin) / 1e6, spoke ? "the agent spoke" : "the guest ended",
                  (double)(end - begin) / 1e6);
    if (spoke && !fills)
        (void)fprintf(stderr, "vmm_boot: it has not given %d MiB to its balloon\n", BALLOON_MIB);
    return fills ? 0 : spoke ? NOT_FILLED : status_of(&report);
}
