/* vmm/shim/mmu.c - the guest's page tables.
 *
 * The tables are the kernel's own; there are no copies.  Frame numbers of the guest are those of
 * the machine, and a kernel that maps what is not its own hurts itself only: what is behind RAM is
 * the monitor's to answer.  All runs at CPL3, so each present entry needs the bit that lets it:
 * hypercalls set it, tables that the kernel filled before it pinned them get it then, and what is
 * missed gets it when it faults.
 */
#include "vmm/shim/shim.h"

enum { PRESENT = 1, WRITABLE = 2, USER = 4, LARGE = 0x80, ENTRIES = 512, SMALL = 4096 };
#define ACCESSED_DIRTY UINT64_C(0x60)
#define FRAME_MASK UINT64_C(0x000ffffffffff000)
#define PAGE_MASK (~UINT64_C(4095))
#define KERNEL_HALF UINT64_C(0x8000000000000000)

static uint64_t frame_of(uint64_t entry)
{
    return (entry & FRAME_MASK) >> 12;
}

static uint8_t *level_of(uint64_t frame)
{
    return (uint8_t *)common()->levels + frame;
}

/* --- entries ------------------------------------------------------------------------------- */

/* One store of 8 bytes: the processor may read it at any time.  None where it says so already:
 * Linux clears each entry for what is no RAM again and again while it maps the rest, and a store
 * into a table that is in use costs a transition, and KVM's shadow of the table if it comes often.
 */
static void set_entry(uint64_t *at, uint64_t entry)
{
    volatile uint64_t *now = at;
    if (entry & PRESENT)
        entry |= USER;
    if (*now != entry)
        *now = entry;
    else
        shim()->spared++;
}

/* The processors' own bits stay, those too that one of them sets meanwhile. */
static void set_entry_but_ad(uint64_t *at, uint64_t entry)
{
    uint64_t old = __atomic_load_n(at, __ATOMIC_SEQ_CST), new;
    entry = (entry & ~ACCESSED_DIRTY) | (entry & PRESENT ? (uint64_t)USER : 0);
    do
        new = entry | (old & ACCESSED_DIRTY);
    while (!__atomic_compare_exchange_n(at, &old, new, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
}

/* Let CPL3 use what is there; what another vCPU has put there meanwhile stays. */
static void open_one(uint64_t *at, uint64_t seen)
{
    (void)__atomic_compare_exchange_n(at, &seen, seen | USER, false, __ATOMIC_SEQ_CST,
                                      __ATOMIC_SEQ_CST);
}

static unsigned index_at(uint64_t va, int level)
{
    return (unsigned)(va >> (12 + 9 * (level - 1))) & (ENTRIES - 1);
}

/* The entry for va at this level of the table in `frame`; NULL when the table is not the guest's
 * RAM: what maps the shim stays as the monitor made it. */
static uint64_t *entry_at(uint64_t frame, uint64_t va, int level)
{
    uint64_t *table = frame_at(frame);
    return is_frame(frame) ? &table[index_at(va, level)] : NULL;
}

/* The last entry on the way to va, and for how much of memory it is; at NULL when there is none. */
struct leaf {
    uint64_t *at;
    uint64_t bytes; /* SMALL, or of a large page */
};

static struct leaf leaf_of(uint64_t va)
{
    uint64_t frame = doors()->kernel_root >> 12;
    for (int level = 4;; level--) {
        uint64_t *entry = entry_at(frame, va, level);
        bool is_large = entry && level < 4 && (*entry & (PRESENT | LARGE)) == (PRESENT | LARGE);
        if (level == 1 || is_large)
            return (struct leaf){entry, UINT64_C(1) << (12 + 9 * (level - 1))};
        if (!entry || !(*entry & PRESENT))
            return (struct leaf){0};
        frame = frame_of(*entry);
    }
}

bool mmu_allows(uint64_t va, bool writes)
{
    const uint64_t rights = PRESENT | USER | (writes ? (uint64_t)WRITABLE : 0);
    const struct leaf leaf = leaf_of(va);
    return leaf.at && (*leaf.at & rights) == rights;
}

uint64_t mmu_physical(uint64_t va)
{
    const struct leaf leaf = leaf_of(va);
    const uint64_t inside = leaf.bytes - 1;
    if (!leaf.at || !(*leaf.at & PRESENT))
        return 0;
    uint64_t gpa = (*leaf.at & FRAME_MASK & ~inside) + (va & inside);
    return is_frame(gpa >> 12) ? gpa : 0;
}

/* All that a table of pages has.  Where one entry was missed the others were, as a rule: the kernel
 * fills the tables of its linear map before it says that they are tables.  One by one each would
 * fault, and KVM, which takes a page's neighbours along, would find none that CPL3 may use. */
static void open_pages(uint64_t *table)
{
    shim()->opened++;
    for (unsigned i = 0; i < ENTRIES; i++) {
        uint64_t value = __atomic_load_n(&table[i], __ATOMIC_SEQ_CST);
        if ((value & (PRESENT | USER)) == PRESENT)
            open_one(&table[i], value);
    }
}

bool mmu_open_path(uint64_t va)
{
    uint64_t frame = doors()->kernel_root >> 12;
    bool opened = false;
    for (int level = 4; level > 0; level--) {
        uint64_t *entry = entry_at(frame, va, level);
        uint64_t value = entry ? __atomic_load_n(entry, __ATOMIC_SEQ_CST) : 0;
        if (!(value & PRESENT))
            return false;
        if (!(value & USER)) {
            if (level == 1)
                open_pages(frame_at(frame));
            else
                open_one(entry, value);
            opened = true;
        }
        if (value & LARGE && level < 4 && level > 1)
            break;
        frame = frame_of(value);
    }
    return opened;
}

/* --- whole tables -------------------------------------------------------------------------- */

static bool is_ours(int level, unsigned i)
{
    return level == 4 && i >= 256 && i < 272; /* Xen's slots */
}

static void open_table(uint64_t frame, int level);

static void open_entry(uint64_t *entry, int level, bool is_user_half)
{
    uint64_t value = __atomic_load_n(entry, __ATOMIC_SEQ_CST);
    if (!(value & PRESENT))
        return;
    if (!(value & USER))
        open_one(entry, value);
    if (level > 1 && !(value & LARGE) && !is_user_half)
        open_table(frame_of(value), level - 1);
}

/* Once for each table, until it is something else.  Tables of user memory have the bit.  Another
 * vCPU that finds the level noted while this goes on may fault where it is not open yet, as
 * anywhere that is missed. */
static void open_table(uint64_t frame, int level)
{
    if (!is_frame(frame) || *level_of(frame) == level)
        return;
    uint64_t *table = frame_at(frame);
    *level_of(frame) = (uint8_t)level;
    for (unsigned i = 0; i < ENTRIES; i++) {
        if (!is_ours(level, i))
            open_entry(&table[i], level, level == 4 && i < 256);
    }
}

/* Xen's slots of a top-level table.  The kernel copies them from table to table, or does not, and a
 * store into a table that is in use costs a transition. */
static void put_slots(uint64_t frame, const uint64_t slots[static SHIM_SLOTS])
{
    volatile uint64_t *at = (uint64_t *)frame_at(frame) + SHIM_SLOT_FIRST;
    for (unsigned i = 0; i < SHIM_SLOTS; i++) {
        if (at[i] != slots[i])
            at[i] = slots[i];
    }
}

/* --- large pages --------------------------------------------------------------------------- */

/* Does this table of pages say what one entry of the table above could: a piece of RAM that nobody
 * may write? */
static bool is_one_page(const uint64_t *table)
{
    uint64_t first = table[0] & ~ACCESSED_DIRTY, frame = frame_of(first);
    if ((first & (PRESENT | WRITABLE | LARGE)) != PRESENT || frame % ENTRIES != 0 ||
        !is_frame(frame) || !is_frame(frame + ENTRIES - 1))
        return false;
    for (uint64_t i = 1; i < ENTRIES; i++) {
        if ((table[i] & ~ACCESSED_DIRTY) != first + (i << 12))
            return false;
    }
    return true;
}

/* A table of level 2; how many of its entries have become pages.  The tables below stay as they are
 * and say the same, so no translation that a processor has is stale. */
static uint64_t enlarge_all(uint64_t *table)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < ENTRIES; i++) {
        uint64_t entry = table[i];
        if ((entry & (PRESENT | LARGE)) != PRESENT || !is_frame(frame_of(entry)))
            continue;
        const uint64_t *below = frame_at(frame_of(entry));
        if (is_one_page(below)) {
            set_entry(&table[i], below[0] | ACCESSED_DIRTY | LARGE);
            n++;
        }
    }
    return n;
}

/* Once, when the kernel has made its code and constants read-only for good.  Linux gives a Xen-PV
 * guest pages of 4 KiB alone, and where KVM has a guest's translations by tables of its own, each
 * of them is a fault in each clone; KVM takes large ones wherever it finds them, and so does Linux
 * where it changes what it may do with its own memory. */
static void enlarge_image(void)
{
    if (common()->n_large > 0)
        return;
    uint64_t frame = doors()->kernel_root >> 12;
    for (int level = 4; level > 2; level--) {
        const uint64_t *entry = entry_at(frame, common()->image, level);
        if (!entry || (*entry & (PRESENT | LARGE)) != PRESENT)
            return;
        frame = frame_of(*entry);
    }
    if (is_frame(frame))
        common()->n_large = enlarge_all(frame_at(frame));
}

/* --- flushing ------------------------------------------------------------------------------ */

static uint64_t this_cpu(void)
{
    return UINT64_C(1) << shim()->cpu;
}

/* A set of vCPUs of the kernel's, of which the first word counts. */
static uint64_t cpus_at(uint64_t address)
{
    return *(const uint64_t *)guest(address);
}

/* --- hypercalls ---------------------------------------------------------------------------- */

struct update {
    uint64_t at, entry;
};
enum { UPDATE_NORMAL = 0, UPDATE_M2P = 1, UPDATE_PRESERVE_AD = 2 };

static int update_one(const struct update *u)
{
    unsigned kind = u->at & 3;
    uint64_t gpa = u->at & ~UINT64_C(7);
    if (kind == UPDATE_M2P) /* it is the identity and stays it */
        return 0;
    if (kind > UPDATE_PRESERVE_AD || !is_frame(gpa >> 12))
        return -XEN_EINVAL;
    uint64_t *at = (uint64_t *)(SHIM_FRAMES_VA + gpa);
    if (kind == UPDATE_PRESERVE_AD)
        set_entry_but_ad(at, u->entry);
    else
        set_entry(at, u->entry);
    return 0;
}

int64_t mmu_update(uint64_t requests, uint64_t n, uint64_t done)
{
    const struct update *updates = guest(requests);
    uint32_t *count = guest(done);
    uint64_t i = 0;
    int rc = 0;
    while (i < n && rc == 0) {
        const struct update one = updates[i++]; /* the list may lie in what it changes */
        rc = update_one(&one);
    }
    if (count)
        *count = (uint32_t)(rc == 0 ? i : i - 1);
    return rc;
}

/* The kernel makes its tables read-only for itself so that Xen can trust them.  Nobody trusts them
 * here, and as long as they are writable none of its own writes to them faults. */
static bool only_protects(uint64_t va, uint64_t old, uint64_t new)
{
    enum { BOTH = PRESENT | WRITABLE };
    return va & KERNEL_HALF && (old & BOTH) == BOTH && (new &BOTH) == PRESENT &&
           frame_of(old) == frame_of(new);
}

/* And writable again when they are tables no longer: so they have been all along. */
static bool only_releases(uint64_t va, uint64_t old, uint64_t new)
{
    const uint64_t rights = PRESENT | WRITABLE, differ = (old ^ new) & ~(ACCESSED_DIRTY | USER);
    return va & KERNEL_HALF && (new &rights) == rights && differ == 0 && is_frame(frame_of(new));
}

/* KVM's shadow of a table outlives the table, and the kernel would pay for it: each of its next
 * stores there is emulated, and while KVM has it among its roots, so is the one instruction that
 * clears the page for its next use, byte by byte, half a millisecond long.  A store that is shorter
 * than an entry tells KVM that this is no table (kvm_mmu_track_write); being locked, it undoes none
 * of another vCPU's.  Tables of pages, level 1, need none: KVM lets them be written, and catches up
 * at the next flush. */
static void release_table(uint64_t va, uint64_t frame)
{
    if (*level_of(frame) != 1) {
        uint16_t *at = guest(va & PAGE_MASK), seen = *at;
        (void)__atomic_compare_exchange_n(at, &seen, seen, false, __ATOMIC_SEQ_CST,
                                          __ATOMIC_SEQ_CST);
        shim()->released++;
    }
    *level_of(frame) = 0;
}

/* public/xen.h: what is flushed, and where: here, on all vCPUs, or on those of a set. */
static void flush_after(uint64_t va, uint64_t flags)
{
    enum { KIND = 3, TLB = 1, PAGE = 2, EVERYWHERE = 4 };
    uint64_t set = flags & ~(uint64_t)(KIND | EVERYWHERE);
    uint64_t cpus = flags & EVERYWHERE ? UINT64_MAX : set != 0 ? cpus_at(set) : this_cpu();
    if ((flags & KIND) == TLB)
        cpu_flush(cpus, FLUSH_ALL);
    else if ((flags & KIND) == PAGE)
        cpu_flush(cpus, va | FLUSH_PAGE);
}

int64_t mmu_update_va(uint64_t va, uint64_t entry, uint64_t flags)
{
    enum { RW = PRESENT | WRITABLE };
    const struct leaf leaf = leaf_of(va);
    uint64_t *at = leaf.at;
    if (!at || leaf.bytes != SMALL)
        return -XEN_EINVAL;
    uint64_t old = *at;
    if (only_protects(va, old, entry))
        return 0;
    if (only_releases(va, old, entry)) {
        release_table(va, frame_of(entry));
        return 0;
    }
    if (va & KERNEL_HALF && (entry & RW) == RW && is_frame(frame_of(entry)))
        *level_of(frame_of(entry)) = 0; /* it is no table any more */
    set_entry(at, entry);
    if (old & PRESENT)
        flush_after(va & PAGE_MASK, flags);
    return 0;
}

struct extended {
    uint32_t command, pad;
    uint64_t frame; /* or a linear address */
    uint64_t more;  /* a source frame, how many, or a set of vCPUs */
};
enum {
    PIN_L1 = 0,
    PIN_L2 = 1,
    PIN_L3 = 2,
    PIN_L4 = 3,
    UNPIN = 4,
    NEW_ROOT = 5,
    FLUSH_HERE = 6,
    FLUSH_PAGE_HERE = 7,
    FLUSH_CPUS = 8,
    FLUSH_PAGE_CPUS = 9,
    FLUSH_EVERYWHERE = 10,
    FLUSH_PAGE_EVERYWHERE = 11,
    FLUSH_CACHE = 12,
    SET_LDT = 13,
    NEW_USER_ROOT = 15,
    CLEAR_PAGE = 16,
    COPY_PAGE = 17,
};

/* One table is never both views: what is in one for the kernel, user code would have. */
int mmu_new_root(uint64_t frame)
{
    if (shim()->is_isolated && frame << 12 == doors()->user_root)
        return -XEN_EINVAL;
    open_table(frame, 4);
    put_slots(frame, common()->slots);
    doors()->kernel_root = frame << 12;
    load_root(frame << 12);
    return 0;
}

/* The table of the user half that the kernel has beside its root, 0 when it has none: in an
 * isolated guest, that of the user view. */
static int new_user_root(uint64_t frame)
{
    if (!shim()->is_isolated)
        return 0;
    if (!is_frame(frame) || frame << 12 == doors()->kernel_root)
        return -XEN_EINVAL;
    if (frame != 0) {
        open_table(frame, 4);
        put_slots(frame, common()->user_slots);
    }
    doors()->user_root = frame << 12;
    return 0;
}

static int copy_page(uint64_t to, uint64_t from)
{
    if (!is_frame(from))
        return -XEN_EINVAL;
    __builtin_memcpy(frame_at(to), frame_at(from), 4096);
    return 0;
}

/* Commands on a frame of RAM. */
static int on_frame(const struct extended *x)
{
    if (!is_frame(x->frame))
        return -XEN_EINVAL;
    switch (x->command) {
    case UNPIN: /* release_table() has yet to know a table of pages */
        if (*level_of(x->frame) != 1)
            *level_of(x->frame) = 0;
        return 0;
    case NEW_ROOT:
        return mmu_new_root(x->frame);
    case CLEAR_PAGE:
        __builtin_memset(frame_at(x->frame), 0, 4096);
        return 0;
    case COPY_PAGE:
        return copy_page(x->frame, x->more);
    case PIN_L1: /* tables of user memory, as a rule, by the thousand */
        *level_of(x->frame) = 1;
        return 0;
    case PIN_L4: /* a process begins, as the kernel's own start does with its last step */
        enlarge_image();
        __attribute__((fallthrough));
    case PIN_L2:
    case PIN_L3:
        open_table(x->frame, (int)x->command + 1);
        return 0;
    default:
        return -XEN_ENOSYS;
    }
}

/* Where a flush is to be. */
static uint64_t cpus_of(const struct extended *x)
{
    if (x->command == FLUSH_CPUS || x->command == FLUSH_PAGE_CPUS)
        return cpus_at(x->more);
    return x->command <= FLUSH_PAGE_HERE ? this_cpu() : UINT64_MAX;
}

static int do_extended(const struct extended *x)
{
    switch (x->command) {
    case FLUSH_HERE:
    case FLUSH_CPUS:
    case FLUSH_EVERYWHERE:
        cpu_flush(cpus_of(x), FLUSH_ALL);
        return 0;
    case FLUSH_PAGE_HERE:
    case FLUSH_PAGE_CPUS:
    case FLUSH_PAGE_EVERYWHERE:
        cpu_flush(cpus_of(x), (x->frame & PAGE_MASK) | FLUSH_PAGE);
        return 0;
    case FLUSH_CACHE:
        return 0;
    case NEW_USER_ROOT:
        return new_user_root(x->frame);
    case SET_LDT:
        return x->more == 0 ? 0 : -XEN_ENOSYS; /* no entries */
    default:
        return on_frame(x);
    }
}

int64_t mmu_extended(uint64_t ops, uint64_t n)
{
    const struct extended *x = guest(ops);
    int rc = 0;
    for (uint64_t i = 0; i < n && rc == 0; i++) {
        const struct extended one = x[i]; /* the list may lie in what it changes */
        rc = do_extended(&one);
    }
    return rc;
}
