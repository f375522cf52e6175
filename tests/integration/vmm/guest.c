/* tests/integration/vmm/guest.c - see guest.h. */
#include "tests/integration/vmm/guest.h"

#include <elf.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "vmm/cpuid.h"

enum { WAIT_S = 20 };

int guest_skip(void)
{
    int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        (void)printf("skipped: /dev/kvm: %m\n");
        return 77;
    }
    (void)close(fd);
    return 0;
}

int guest_skip_xenpv(void)
{
    if (cpuid_host_virtualizes()) {
        (void)printf("skipped: Xen PV is for hosts without VMX and SVM so far\n");
        return 77;
    }
    return guest_skip();
}

static int memory_file(uint64_t bytes)
{
    int fd = memfd_create("guest", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    return fd;
}

struct note {
    Elf64_Nhdr head;
    char owner[4];
    uint64_t value;
};

static struct note note_of(uint32_t type, uint64_t value)
{
    return (struct note){{4, sizeof value, type}, "Xen", value};
}

/* An ELF file of one segment, the code at GUEST_AT, with notes that say that PVH enters it there,
 * and Xen PV, too. */
static int elf_file(const uint8_t *code, size_t n, uint64_t entry)
{
    enum { ENTRY = 1, VIRT_BASE = 3, INIT_P2M = 15, MOD_START_PFN = 16, PHYS32_ENTRY = 18 };
    struct {
        Elf64_Ehdr head;
        Elf64_Phdr segments[2];
        struct note notes[5];
    } file = {
        .head = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                 .e_type = ET_EXEC,
                 .e_machine = EM_X86_64,
                 .e_version = EV_CURRENT,
                 .e_entry = entry,
                 .e_phoff = sizeof(Elf64_Ehdr),
                 .e_phentsize = sizeof(Elf64_Phdr),
                 .e_phnum = 2},
        .segments = {{.p_type = PT_LOAD,
                      .p_offset = sizeof file,
                      .p_paddr = GUEST_AT,
                      .p_filesz = n,
                      .p_memsz = n},
                     {.p_type = PT_NOTE,
                      .p_offset = sizeof file.head + sizeof file.segments,
                      .p_filesz = sizeof file.notes,
                      .p_align = 4}},
        .notes = {note_of(PHYS32_ENTRY, GUEST_AT), note_of(ENTRY, GUEST_LINEAR + GUEST_AT),
                  note_of(VIRT_BASE, GUEST_LINEAR), note_of(INIT_P2M, UINT64_C(1) << 39),
                  note_of(MOD_START_PFN, 1)},
    };
    int fd = memory_file(0);
    assert_int_equal(write(fd, &file, sizeof file), sizeof file);
    assert_int_equal(write(fd, code, n), n);
    return fd;
}

struct vm_config guest_config(const struct guest *g, unsigned vcpus)
{
    return (struct vm_config){.mem_bytes = GUEST_MEM,
                              .vcpus = vcpus,
                              .cmdline = "",
                              .kvm_fd = g->kvm_fd,
                              .ram_fd = g->ram_fd,
                              .kernel_fd = g->kernel_fd,
                              .initrd_fd = -1,
                              .root_fd = -1,
                              .scratch_fd = -1,
                              .channel_fd = -1,
                              .net_fd = -1,
                              .delta_fd = -1,
                              .console_fd = g->console_fd,
                              .state_fd = -1};
}

static int open_kvm(void)
{
    int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void open_guest_in(struct guest *g, int kernel_fd, unsigned vcpus, enum vm_entry entry,
                          bool is_isolated, uint64_t mem_bytes)
{
    struct cl_err err = {0};
    *g = (struct guest){.ram_fd = memory_file(mem_bytes),
                        .console_fd = memory_file(0),
                        .kvm_fd = open_kvm(),
                        .kernel_fd = kernel_fd};
    struct vm_config config = guest_config(g, vcpus);
    config.mem_bytes = mem_bytes;
    config.entry = entry;
    config.is_isolated = is_isolated;
    if (vm_create(&config, &g->vm, &err) < 0 || vm_boot(g->vm, &err) < 0)
        fail_msg("%s", err.text);
}

static void open_guest(struct guest *g, int kernel_fd, unsigned vcpus, enum vm_entry entry)
{
    open_guest_in(g, kernel_fd, vcpus, entry, false, GUEST_MEM);
}

void guest_open(struct guest *g, const uint8_t *code, const uint8_t *end, unsigned vcpus)
{
    open_guest(g, elf_file(code, (size_t)(end - code), GUEST_AT), vcpus, VM_ENTRY_ANY);
}

void guest_open_pvh(struct guest *g, const uint8_t *code, const uint8_t *end, bool forced)
{
    open_guest(g, elf_file(code, (size_t)(end - code), forced ? GUEST_AT : 0), 1,
               forced ? VM_ENTRY_PVH : VM_ENTRY_ANY);
}

void guest_open_xenpv(struct guest *g, const uint8_t *code, const uint8_t *end)
{
    open_guest(g, elf_file(code, (size_t)(end - code), GUEST_AT), 1, VM_ENTRY_XENPV);
}

void guest_open_xenpv_of_2(struct guest *g, const uint8_t *code, const uint8_t *end)
{
    open_guest(g, elf_file(code, (size_t)(end - code), GUEST_AT), 2, VM_ENTRY_XENPV);
}

void guest_open_isolated(struct guest *g, const uint8_t *code, const uint8_t *end)
{
    open_guest_in(g, elf_file(code, (size_t)(end - code), GUEST_AT), 1, VM_ENTRY_XENPV, true,
                  GUEST_MEM);
}

void guest_open_xenpv_large(struct guest *g, const uint8_t *code, const uint8_t *end)
{
    open_guest_in(g, elf_file(code, (size_t)(end - code), GUEST_AT), 1, VM_ENTRY_XENPV, false,
                  GUEST_MUCH_MEM);
}

void guest_open_file(struct guest *g, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail_msg("%s: %m", path);
    open_guest(g, fd, 1, VM_ENTRY_ANY);
}

void guest_restore(struct guest *g, int ram_fd, int state_fd, unsigned vcpus)
{
    struct cl_err err = {0};
    *g = (struct guest){
        .ram_fd = ram_fd, .console_fd = memory_file(0), .kvm_fd = open_kvm(), .kernel_fd = -1};
    struct vm_config config = guest_config(g, vcpus);
    config.restore = config.is_here = true;
    config.state_fd = state_fd;
    if (vm_create(&config, &g->vm, &err) < 0 || vm_restore(g->vm, &err) < 0)
        fail_msg("%s", err.text);
    g->ram_fd = -1;
}

void guest_close(struct guest *g)
{
    vm_free(g->vm);
    cl_closep(&g->ram_fd);
    cl_closep(&g->console_fd);
    cl_closep(&g->kvm_fd);
    cl_closep(&g->kernel_fd);
}

void guest_await_end(struct guest *g, struct vm_report *ret_report)
{
    struct pollfd fds[VM_POLLFDS];
    uint64_t deadline = cl_now_ns() + WAIT_S * CL_NS_PER_S;
    for (vm_report(g->vm, ret_report); ret_report->end == VM_RUNS; vm_report(g->vm, ret_report)) {
        size_t n = vm_pollfds(g->vm, fds);
        if (poll(fds, (nfds_t)n, 1000) > 0)
            vm_on_poll(g->vm, fds, n);
        if (cl_now_ns() > deadline)
            fail_msg("the guest has not ended after %d s", WAIT_S);
    }
    vm_stop(g->vm);
}

uint64_t guest_peek(const struct guest *g, uint64_t at)
{
    uint64_t value;
    assert_int_equal(pread(g->ram_fd, &value, sizeof value, (off_t)at), sizeof value);
    return value;
}

void guest_poke(const struct guest *g, uint64_t at, uint64_t value)
{
    assert_int_equal(pwrite(g->ram_fd, &value, sizeof value, (off_t)at), sizeof value);
}

void guest_printed(const struct guest *g, char *out, size_t size)
{
    ssize_t n = pread(g->console_fd, out, size - 1, 0);
    assert_true(n >= 0);
    out[n] = '\0';
}
