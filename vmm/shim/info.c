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
    *entry = (struct map_entry){0, shim()->frames << 12, RAM};
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
    uint64_t frames = shim()->frames;
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

/* --- the processor ------------------------------------------------------------------------- */

struct register_info {
    uint64_t frame;
    uint32_t offset, pad;
};

/* The kernel moves its struct vcpu_info out of the shared page: to anywhere in its RAM, so over its
 * old place or over these arguments, too. */
static int64_t move_vcpu_info(const struct register_info *r)
{
    enum { PAGE = 4096 };
    const struct xen_vcpu_info now = *vcpu_info();
    uint64_t frame = r->frame, offset = r->offset;
    if (!is_frame(frame) || offset % 8 != 0 || offset > PAGE - sizeof now)
        return -XEN_EINVAL;
    struct xen_vcpu_info *to = (void *)((uint8_t *)frame_at(frame) + offset);
    *to = now;
    shim()->vcpu_info = (uint64_t)to;
    shim()->times[SHIM_TIME_VCPU] = (frame << 12) + offset + offsetof(struct xen_vcpu_info, time);
    return 0;
}

/* A copy of the time for the vDSO, which user code reads without a system call; at 0, no more. */
static int64_t copy_time(const uint64_t *address)
{
    const struct xen_time_info now = vcpu_info()->time;
    uint64_t gpa = 0, at = *address;
    if (at != 0) {
        gpa = mmu_physical(at);
        if (gpa == 0)
            return -XEN_EINVAL;
        *(struct xen_time_info *)guest(at) = now;
    }
    shim()->times[SHIM_TIME_VDSO] = gpa;
    return 0;
}

struct singleshot {
    uint64_t at_ns;
    uint32_t flags;
};

static int64_t set_singleshot(const struct singleshot *timer)
{
    timer_set(timer->at_ns);
    return 0;
}

int64_t vcpu_op(uint64_t op, uint64_t vcpu, uint64_t arg)
{
    enum {
        IS_UP = 3,
        REGISTER_RUNSTATE = 5,
        STOP_PERIODIC = 7,
        SET_SINGLESHOT = 8,
        STOP_SINGLESHOT = 9,
        REGISTER_INFO = 10,
        REGISTER_TIME = 13
    };
    if (vcpu != 0)
        return -XEN_ENOENT;
    switch (op) {
    case IS_UP:
        return 1;
    case REGISTER_RUNSTATE: /* of time that others took: it stays 0 */
    case STOP_PERIODIC:
        return 0;
    case SET_SINGLESHOT:
        return set_singleshot(guest(arg));
    case STOP_SINGLESHOT:
        timer_set(0);
        return 0;
    case REGISTER_INFO:
        return move_vcpu_info(guest(arg));
    case REGISTER_TIME:
        return copy_time(guest(arg));
    default:
        return -XEN_ENOSYS;
    }
}
