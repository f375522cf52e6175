/* vmm/shim/info.c - what the kernel asks of its hypervisor, its memory and its processor. */
#include "vmm/shim/shim.h"

static void put_text(uint64_t at, const char *text)
{
    char *to = guest(at);
    do {
        *to++ = *text;
    } while (*text++);
}

struct feature_info {
    uint32_t submap, bits;
};

int64_t version_op(uint64_t op, uint64_t arg)
{
    enum { VERSION = 0, EXTRA = 1, PLATFORM = 5, FEATURES = 6, PAGE_SIZE = 7 };
    static const uint32_t features = 1U << XENFEAT_PAE_PGDIR_ABOVE_4GB |
                                     1U << XENFEAT_MMU_PT_UPDATE_PRESERVE_AD |
                                     1U << XENFEAT_GNTTAB_MAP_AVAIL_BITS;
    struct feature_info *info = guest(arg);
    switch (op) {
    case VERSION:
        return XEN_MAJOR << 16 | XEN_MINOR;
    case EXTRA:
        put_text(arg, ".0-cloche");
        return 0;
    case PLATFORM: /* where the hypervisor's addresses begin */
        *(uint64_t *)guest(arg) = UINT64_C(0xffff800000000000);
        return 0;
    case FEATURES:
        info->bits = info->submap == 0 ? features : 0;
        return 0;
    case PAGE_SIZE:
        return 4096;
    default:
        return -XEN_ENOSYS;
    }
}

/* --- memory -------------------------------------------------------------------------------- */

struct m2p_mapping {
    uint64_t first, end, max_frame;
};

struct map_entry { /* of an e820 map: 20 bytes */
    uint64_t start, bytes;
    uint32_t type;
} __attribute__((packed));

struct memory_map {
    uint32_t n, pad;
    uint64_t buffer;
};

static int64_t put_map(struct memory_map *map)
{
    enum { RAM = 1 };
    struct map_entry *entry = guest(map->buffer);
    if (map->n < 1)
        return -XEN_EINVAL;
    *entry = (struct map_entry){0, common()->frames << 12, RAM};
    map->n = 1;
    return 0;
}

int64_t memory_op(uint64_t op, uint64_t arg)
{
    enum {
        MAX_FRAME = 2,
        CURRENT_RESERVATION = 3,
        MAXIMUM_RESERVATION = 4,
        MEMORY_MAP = 9,
        M2P_MAPPING = 12
    };
    uint64_t frames = common()->frames;
    switch (op) {
    case MAX_FRAME:
        return (int64_t)(frames - 1);
    case CURRENT_RESERVATION:
    case MAXIMUM_RESERVATION:
        return (int64_t)frames;
    case MEMORY_MAP:
        return put_map(guest(arg));
    case M2P_MAPPING:
        *(struct m2p_mapping *)guest(arg) =
            (struct m2p_mapping){SHIM_M2P_VA, SHIM_M2P_VA + frames * 8, frames - 1};
        return 0;
    default:
        return -XEN_ENOSYS;
    }
}

/* --- where the kernel wants what of its processor -----------------------------------------------
 */

struct register_info {
    uint64_t frame;
    uint32_t offset, pad;
};

/* The kernel moves a struct vcpu_info out of the shared page: to anywhere in its RAM, so over its
 * old place or over these arguments, too.  An event that another vCPU raised meanwhile is in the
 * old one: as Xen does, all are looked at. */
int64_t set_vcpu_info(struct shim_state *s, uint64_t arg)
{
    enum { PAGE = 4096 };
    const struct register_info r = *(const struct register_info *)guest(arg);
    const struct xen_vcpu_info now = *(const struct xen_vcpu_info *)s->vcpu_info;
    if (!is_frame(r.frame) || r.offset % 8 != 0 || r.offset > PAGE - sizeof now)
        return -XEN_EINVAL;
    struct xen_vcpu_info *to = (void *)((uint8_t *)frame_at(r.frame) + r.offset);
    *to = now;
    __atomic_store_n(&s->vcpu_info, (uint64_t)to, __ATOMIC_SEQ_CST);
    __atomic_store_n(&to->pending_sel, UINT64_MAX, __ATOMIC_SEQ_CST);
    __atomic_store_n(&to->upcall_pending, 1, __ATOMIC_SEQ_CST);
    s->times[SHIM_TIME_VCPU] = (r.frame << 12) + r.offset + offsetof(struct xen_vcpu_info, time);
    return 0;
}

/* A copy of the time for the vDSO, which user code reads without a system call; at 0, no more. */
int64_t set_time_copy(struct shim_state *s, uint64_t arg)
{
    const struct xen_time_info now = ((const struct xen_vcpu_info *)s->vcpu_info)->time;
    uint64_t gpa = 0, at = *(const uint64_t *)guest(arg);
    if (at != 0) {
        gpa = mmu_physical(at);
        if (gpa == 0)
            return -XEN_EINVAL;
        *(struct xen_time_info *)guest(at) = now;
    }
    s->times[SHIM_TIME_VDSO] = gpa;
    return 0;
}
