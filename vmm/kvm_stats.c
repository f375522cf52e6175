/* vmm/kvm_stats.c - see vmm/kvm_stats.h. */
#include "vmm/kvm_stats.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/own.h"
#include "vmm/kvm.h"

enum { TABLE_MAX = 16 << 10 }; /* twice what Linux 6.18 has; a larger one is not read */

/* As arch/x86/kvm names them. */
static const char *const names[KVM_STATS_NR] = {
    [COUNT_KVM_EXITS - COUNT_KVM_FIRST] = "exits",
    [COUNT_KVM_FAULTS - COUNT_KVM_FIRST] = "pf_taken",
    [COUNT_KVM_MAPPED - COUNT_KVM_FIRST] = "pf_fixed",
    [COUNT_KVM_GUEST_FAULTS - COUNT_KVM_FIRST] = "pf_guest",
    [COUNT_KVM_EMULATED - COUNT_KVM_FIRST] = "insn_emulation",
    [COUNT_KVM_HALTS - COUNT_KVM_FIRST] = "halt_exits",
    [COUNT_KVM_INTERRUPTS - COUNT_KVM_FIRST] = "irq_injections",
    [COUNT_KVM_HOST_INTERRUPTS - COUNT_KVM_FIRST] = "irq_exits",
    [COUNT_KVM_FLUSHES - COUNT_KVM_FIRST] = "tlb_flush",
    [COUNT_KVM_PAGE_FLUSHES - COUNT_KVM_FIRST] = "invlpg",
    [COUNT_KVM_HYPERCALLS - COUNT_KVM_FIRST] = "hypercalls",
};

static int read_at(int fd, void *to, size_t n, uint64_t at, struct cl_err *err)
{
    ssize_t got;
    do
        got = pread(fd, to, n, (off_t)at);
    while (got < 0 && errno == EINTR);
    return got == (ssize_t)n ? 0 : cl_fail(err, CL_E_SYS, got < 0 ? errno : 0, "KVM's statistics");
}

/* A row, and behind it its name. */
static void find(struct kvm_stats *stats, const struct kvm_stats_header *h, const uint8_t *row)
{
    struct kvm_stats_desc d;
    memcpy(&d, row, sizeof d);
    bool is_sum = (d.flags & KVM_STATS_TYPE_MASK) == KVM_STATS_TYPE_CUMULATIVE;
    for (size_t i = 0; i < KVM_STATS_NR && is_sum; i++) {
        if (strncmp((const char *)row + sizeof d, names[i], h->name_size) == 0)
            stats->at[i] = h->data_offset + d.offset;
    }
}

static int read_table(struct kvm_stats *stats, struct cl_err *err)
{
    struct kvm_stats_header h;
    uint8_t table[TABLE_MAX];
    if (read_at(stats->fd, &h, sizeof h, 0, err) < 0)
        return -1;
    size_t row_bytes = sizeof(struct kvm_stats_desc) + h.name_size;
    if (h.num_desc > sizeof table / row_bytes)
        return cl_fail(err, CL_E_UNIMPL, 0, "KVM's statistics: %u rows of %zu bytes", h.num_desc,
                       row_bytes);
    if (read_at(stats->fd, table, h.num_desc * row_bytes, h.desc_offset, err) < 0)
        return -1;
    for (size_t i = 0; i < h.num_desc; i++)
        find(stats, &h, table + i * row_bytes);
    return 0;
}

int kvm_stats_open(int kvm_fd, int vcpu_fd, struct kvm_stats *ret_stats, struct cl_err *err)
{
    *ret_stats = (struct kvm_stats){.fd = -1};
    if (kvm_extension(kvm_fd, KVM_CAP_BINARY_STATS_FD) == 0)
        return 0;
    struct kvm_stats stats = {.fd = ioctl(vcpu_fd, KVM_GET_STATS_FD, 0UL)};
    if (stats.fd < 0)
        return cl_fail(err, CL_E_SYS, errno, "KVM_GET_STATS_FD");
    if (read_table(&stats, err) < 0) {
        kvm_stats_close(&stats);
        return -1;
    }
    *ret_stats = stats;
    return 0;
}

void kvm_stats_close(struct kvm_stats *stats)
{
    cl_closep(&stats->fd);
}

void kvm_stats_add(const struct kvm_stats *stats, struct vm_counts *sums)
{
    for (size_t i = 0; i < KVM_STATS_NR; i++) {
        uint64_t n;
        if (stats->at[i] && read_at(stats->fd, &n, sizeof n, stats->at[i], NULL) == 0)
            vm_counts_add(sums, (enum vm_count)(COUNT_KVM_FIRST + i), n);
    }
}
