/* bench/machine_bench.c - what a machine of vmm/ costs on this host's KVM, with a guest of two
 * instructions: no jail, no process of its own.
 *
 * usage: machine_bench [RUNS [MEMORY_MIB]]
 * A template is booted and saved; then RUNS clones, one after the other.  The clock of "restore"
 * starts before the VM is created and stops when the main thread has heard of the guest's first
 * instruction, an OUT.  Prints p50 and p99 in microseconds.
 */
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "vmm/vm.h"

enum { ENTRY = 0x100000 };

/* 1: mov 0x200000, %al; test %al, %al; jz 1b; out %al, $0xf4; jmp . */
static const uint8_t code[] = {0x8a, 0x04, 0x25, 0x00, 0x00, 0x20, 0x00, 0x84,
                               0xc0, 0x74, 0xf5, 0xe6, 0xf4, 0xeb, 0xfe};

static void die(const char *what)
{
    (void)fprintf(stderr, "machine_bench: %s\n", what);
    exit(1);
}

static int memory_file(const void *bytes, size_t n)
{
    int fd = memfd_create("bench", MFD_CLOEXEC);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n)
        die("no memory file");
    return fd;
}

static int kernel_file(void)
{
    struct {
        Elf64_Ehdr head;
        Elf64_Phdr segment;
        uint8_t code[sizeof code];
    } file = {
        .head = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB},
                 .e_type = ET_EXEC,
                 .e_machine = EM_X86_64,
                 .e_entry = ENTRY,
                 .e_phoff = sizeof(Elf64_Ehdr),
                 .e_phentsize = sizeof(Elf64_Phdr),
                 .e_phnum = 1},
        .segment = {.p_type = PT_LOAD,
                    .p_offset = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr),
                    .p_paddr = ENTRY,
                    .p_filesz = sizeof code,
                    .p_memsz = sizeof code},
    };
    memcpy(file.code, code, sizeof code);
    return memory_file(&file, sizeof file);
}

/* Boot, save while it spins, and set the byte that lets its clones go on. */
static void make_template(const struct vm_config *config)
{
    struct cl_err err = {0};
    struct vm *vm = NULL;
    if (vm_create(config, &vm, &err) < 0 || vm_boot(vm, &err) < 0 || vm_run(vm, &err) < 0)
        die(err.text);
    (void)usleep(10000);
    if (vm_pause(vm, &err) < 0 || vm_save(vm, config->state_fd, &err) < 0)
        die(err.text);
    vm_free(vm);
    if (pwrite(config->ram_fd, "\1", 1, 0x200000) != 1)
        die("no memory file");
}

static void await_end(struct vm *vm)
{
    struct pollfd fds[VM_POLLFDS];
    struct vm_report report;
    for (vm_report(vm, &report); report.end == VM_RUNS; vm_report(vm, &report)) {
        size_t n = vm_pollfds(vm, fds);
        if (poll(fds, (nfds_t)n, -1) > 0)
            vm_on_poll(vm, fds, n);
    }
    if (report.end != VM_EXIT)
        die("the clone did not go on");
}

static void clone_once(const struct vm_config *config, double *ret_restore, double *ret_destroy)
{
    struct cl_err err = {0};
    struct vm *vm = NULL;
    uint64_t begin = cl_now_ns();
    if (vm_create(config, &vm, &err) < 0 || vm_restore(vm, &err) < 0 || vm_run(vm, &err) < 0)
        die(err.text);
    await_end(vm);
    uint64_t ran = cl_now_ns();
    vm_free(vm);
    *ret_restore = (double)(ran - begin) / 1e3;
    *ret_destroy = (double)(cl_now_ns() - ran) / 1e3;
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static void print(const char *what, double *us, size_t n)
{
    qsort(us, n, sizeof *us, compare);
    (void)printf("%-36s N=%zu p50 %.0f us, p99 %.0f, least %.0f\n", what, n, us[n / 2],
                 us[n * 99 / 100], us[0]);
}

/* Pages of this process alone, in KiB. */
static long private_kib(void)
{
    char line[256];
    long kib = 0, value;
    FILE *f = fopen("/proc/self/smaps_rollup", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Private_Clean: %ld", &value) == 1 ||
            sscanf(line, "Private_Dirty: %ld", &value) == 1)
            kib += value;
    if (f)
        (void)fclose(f);
    return kib;
}

int main(int argc, char **argv)
{
    size_t runs = argc > 1 ? strtoul(argv[1], NULL, 10) : 500;
    double *restore = calloc(runs, sizeof *restore), *destroy = calloc(runs, sizeof *destroy);
    struct vm_config config = {
        .mem_bytes = (argc > 2 ? strtoull(argv[2], NULL, 10) : 128) << 20,
        .vcpus = 1,
        .cmdline = "",
        .kvm_fd = open("/dev/kvm", O_RDWR | O_CLOEXEC),
        .ram_fd = memory_file("", 0),
        .kernel_fd = kernel_file(),
        .initrd_fd = -1,
        .root_fd = -1,
        .scratch_fd = -1,
        .channel_fd = -1,
        .net_fd = -1,
        .delta_fd = -1,
        .console_fd = -1,
        .state_fd = memory_file("", 0),
    };
    if (config.kvm_fd < 0 || !restore || !destroy || runs == 0 ||
        ftruncate(config.ram_fd, (off_t)config.mem_bytes) < 0)
        die("needs /dev/kvm and memory");
    make_template(&config);
    config.restore = config.is_here = true;
    uint64_t begin = cl_now_ns();
    for (size_t i = 0; i < runs; i++)
        clone_once(&config, &restore[i], &destroy[i]);
    double seconds = (double)(cl_now_ns() - begin) / 1e9;
    print("restore to the first instruction", restore, runs);
    print("destroy", destroy, runs);
    (void)printf("%-36s %.0f a second\n", "create, restore, run, destroy", (double)runs / seconds);
    (void)printf("%-36s %ld KiB\n", "private memory afterwards", private_kib());
    free(restore);
    free(destroy);
    return 0;
}
