/* tests/fuzz/fuzz_vmm_xenpv_load.c - a file as the kernel of a Xen-PV guest: one that is accepted
 * lies in its RAM, is entered where it is mapped, by tables that lead to nothing else, and finds
 * what Xen promises; of the shim's area the tables show nothing but its three slots. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"
#include "vmm/shim/xen.h"
#include "vmm/xenpv_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PRESENT = 1, LARGE = 0x80, ENTRIES = 512, LAST_LEVEL = 1 };
#define MEM (UINT64_C(12) << 20)
#define FRAME UINT64_C(0x000ffffffffff000)

static struct guest_mem mem;
static int kernel_fd = -1;

static void start(const uint8_t *data, size_t size)
{
    if (kernel_fd < 0) {
        kernel_fd = memfd_create("kernel", MFD_CLOEXEC);
        CL_ASSERT(kernel_fd >= 0 && gm_alloc(MEM, &mem, NULL) == 0);
    }
    CL_ASSERT(madvise(mem.base, MEM, MADV_DONTNEED) == 0); /* zeros again */
    CL_ASSERT(ftruncate(kernel_fd, (off_t)size) == 0 &&
              pwrite(kernel_fd, data, size, 0) == (ssize_t)size);
}

static uint64_t read_entry(uint64_t table, uint64_t i)
{
    uint64_t entry;
    CL_ASSERT(gm_read(&mem, (struct gpa){table + i * sizeof entry}, &entry, sizeof entry) == 0);
    return entry;
}

static uint64_t gpa_of(uint64_t root, uint64_t va)
{
    uint64_t at = root;
    for (int level = 4; level >= LAST_LEVEL; level--) {
        uint64_t entry = read_entry(at, va >> (12 + 9 * (level - 1)) & (ENTRIES - 1));
        CL_ASSERT(entry & PRESENT && (level == LAST_LEVEL || !(entry & LARGE)));
        at = entry & FRAME;
    }
    return at + va % XENPV_PAGE;
}

/* Each table of the kernel's own leads to RAM in front of the area. */
static void check_tables(uint64_t table, int level, uint64_t area)
{
    CL_ASSERT(table < area && table % XENPV_PAGE == 0);
    for (uint64_t i = 0; i < ENTRIES; i++) {
        uint64_t entry = read_entry(table, i);
        bool is_slot = level == 4 && i - SHIM_SLOT_FIRST < SHIM_SLOTS;
        if (!(entry & PRESENT) || is_slot)
            continue;
        CL_ASSERT((entry & FRAME) < area);
        if (level > LAST_LEVEL)
            check_tables(entry & FRAME, level - 1, area);
    }
}

static void check_slots(uint64_t root, uint64_t area)
{
    struct shim_common s;
    CL_ASSERT(gm_read(&mem, (struct gpa){area + SHIM_COMMON}, &s, sizeof s) == 0);
    CL_ASSERT(s.frames * XENPV_PAGE == area);
    for (uint64_t i = 0; i < SHIM_SLOTS; i++) {
        uint64_t entry = read_entry(root, SHIM_SLOT_FIRST + i);
        CL_ASSERT(entry == s.slots[i] && (entry & FRAME) >= area && (entry & FRAME) < MEM);
    }
}

static void check_start(const struct xenpv_entry *entry, uint64_t area)
{
    struct xen_start_info info;
    CL_ASSERT(gm_read(&mem, (struct gpa){gpa_of(entry->root, entry->rsi)}, &info, sizeof info) ==
              0);
    CL_ASSERT(strcmp(info.magic, "xen-3.0-x86_64") == 0 && info.nr_pages * XENPV_PAGE == area);
    CL_ASSERT(memchr(info.cmdline, 0, sizeof info.cmdline));
    CL_ASSERT(gpa_of(entry->root, info.pt_base) == entry->root);
    CL_ASSERT(info.console_frame * XENPV_PAGE < area && info.store_frame * XENPV_PAGE < area);
    CL_ASSERT((info.first_p2m_frame + info.nr_p2m_frames) * XENPV_PAGE <= area);
    uint64_t p2m = gpa_of(entry->root, info.p2m);
    CL_ASSERT(p2m == info.first_p2m_frame * XENPV_PAGE && read_entry(p2m, 1) == 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct kvm_cpuid_table cpuid = {.nent = 1, .entries = {{.function = 1}}};
    struct xenpv_entry entries[XENPV_VCPUS_MAX] = {0};
    struct xenpv xenpv = {0};
    struct cl_err err = {0};
    start(data, size);
    const struct xenpv_input input = {.kernel_fd = kernel_fd,
                                      .initrd_fd = -1,
                                      .cmdline = "fuzz",
                                      .cpuids = &cpuid,
                                      .vcpus = 1,
                                      .is_isolated = size % 2,
                                      .tsc_khz = 2000000};
    int rc = xenpv_load(&mem, &input, &xenpv, entries, &err);
    CL_ASSERT(rc <= XENPV_PLACES && (rc >= 0) == (err.code == CL_OK));
    CL_ASSERT(rc >= 0 || (!xenpv.on && entries[0].root == 0));
    if (rc < 0)
        return 0;
    CL_ASSERT(xenpv.on && xenpv.area < MEM && entries[0].root < xenpv.area);
    check_tables(entries[0].root, 4, xenpv.area);
    check_slots(entries[0].root, xenpv.area);
    CL_ASSERT(gpa_of(entries[0].root, entries[0].rip) < xenpv.area);
    CL_ASSERT(gpa_of(entries[0].root, entries[0].rsp - 8) < xenpv.area);
    CL_ASSERT(entries[0].on_syscall - SHIM_VA < XENPV_PAGE);
    check_start(&entries[0], xenpv.area);
    return 0;
}
