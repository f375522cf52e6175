/* tests/fuzz/shim/rules.c - see rules.h. */
#include "tests/fuzz/shim/rules.h"

#include <stdbool.h>
#include <string.h>

#include "base/err.h"
#include "base/util.h"
#include "tests/fuzz/bytes.h"
#include "tests/fuzz/shim/machine.h"

enum { PRESENT = 1, USER = 4, WORDS = MACHINE_PAGE / 8, RAM_WORDS = MACHINE_RAM / 8 };
enum { RANGES_MAX = 64, LIST_MAX = 48, PROTECTION = 13 };
#define BIT(n) (UINT64_C(1) << (n))
#define ALWAYS UINT64_MAX

struct range {
    uint64_t gpa, bytes;
};

/* What may change in RAM besides the kernel's struct vcpu_info. */
struct allowed {
    uint64_t calls; /* a bit for each hypercall that is made, RULES_TRAP and RULES_INTERRUPT */
    struct range ranges[RANGES_MAX];
    unsigned n_ranges;
    uint64_t any_words; /* so many words anywhere: entries of page tables */
    bool opens;         /* entries get USER */
    bool forgets;       /* a CLI or STI becomes a NOP */
    bool anything;      /* arguments that change while they are used: no prediction */
    struct range list;  /* of such arguments */
};

static struct {
    uint64_t ram[RAM_WORDS];
    struct shim_state state;
    struct shim_common common;
    uint8_t levels[MACHINE_PAGE];
    struct xen_shared_info info;
    struct shim_doors doors;
} was;
static struct allowed may;

/* --- what a hypercall says ------------------------------------------------------------------- */

static void allow_gpa(uint64_t gpa, uint64_t bytes)
{
    if (may.n_ranges == RANGES_MAX)
        may.anything = true;
    else if (gpa < MACHINE_RAM)
        may.ranges[may.n_ranges++] = (struct range){gpa, bytes};
}

/* Of an address of the kernel's, which may begin or end outside of RAM. */
static void allow(uint64_t linear, uint64_t bytes)
{
    uint64_t gpa = machine_gpa(linear);
    if (gpa == UINT64_MAX && machine_gpa(linear + bytes - 1) != UINT64_MAX)
        allow_gpa(0, linear + bytes - MACHINE_LINEAR);
    allow_gpa(gpa, bytes);
}

/* A word that the shim will find there; 0 where there is none. */
static uint64_t peek(uint64_t linear, unsigned bytes)
{
    uint64_t gpa = machine_gpa(linear), word = 0;
    if (gpa < MACHINE_RAM - sizeof word)
        memcpy(&word, machine_ram() + gpa, bytes);
    return word;
}

static void take_list(uint64_t linear, uint64_t n, uint64_t each)
{
    if (n > LIST_MAX || may.list.bytes > 0)
        may.anything = true;
    may.list = (struct range){machine_gpa(linear), n * each};
}

static void allow_updates(const uint64_t a[static 3])
{
    enum { EACH = 16 };
    take_list(a[0], a[1], EACH);
    for (uint64_t i = 0; i < a[1] && i < LIST_MAX; i++)
        allow_gpa(peek(a[0] + i * EACH, 8) & ~UINT64_C(7), 8);
    allow(a[2], sizeof(uint32_t));
}

static void allow_extended(const uint64_t a[static 3])
{
    enum { EACH = 24, PIN_L2 = 1, PIN_L4 = 3, NEW_ROOT = 5, NEW_USER_ROOT = 15 };
    enum { CLEAR_PAGE = 16, COPY_PAGE = 17 };
    take_list(a[0], a[1], EACH);
    for (uint64_t i = 0; i < a[1] && i < LIST_MAX; i++) {
        uint64_t command = peek(a[0] + i * EACH, 4), frame = peek(a[0] + i * EACH + 8, 8);
        bool is_root = command == NEW_ROOT || command == NEW_USER_ROOT;
        if (is_root && frame < MACHINE_FRAMES)
            allow_gpa(frame * MACHINE_PAGE + SHIM_SLOT_FIRST * 8, SHIM_SLOTS * 8);
        may.opens |= is_root || (command >= PIN_L2 && command <= PIN_L4);
        if ((command == CLEAR_PAGE || command == COPY_PAGE) && frame < MACHINE_FRAMES)
            allow_gpa(frame * MACHINE_PAGE, MACHINE_PAGE);
    }
}

static void allow_vcpu(const uint64_t a[static 3])
{
    enum { REGISTER_INFO = 10, REGISTER_TIME = 13 };
    if (a[0] == REGISTER_INFO)
        allow_gpa(peek(a[2], 8) * MACHINE_PAGE + peek(a[2] + 8, 4), sizeof(struct xen_vcpu_info));
    if (a[0] == REGISTER_TIME)
        allow(peek(a[2], 8), sizeof(struct xen_time_info));
}

static void allow_memory(const uint64_t a[static 3])
{
    enum { MEMORY_MAP = 9, M2P_MAPPING = 12, ENTRY = 20 };
    if (a[0] == MEMORY_MAP) {
        allow(a[1], sizeof(uint32_t));
        allow(peek(a[1] + 8, 8), ENTRY);
    }
    if (a[0] == M2P_MAPPING)
        allow(a[1], 24);
}

static void allow_call(uint64_t number, const uint64_t a[static 3])
{
    may.calls |= number < RULES_INTERRUPT ? BIT(number) : 0;
    switch (number) {
    case XEN_MMU_UPDATE:
        allow_updates(a);
        break;
    case XEN_UPDATE_VA_MAPPING:
        may.any_words++;
        break;
    case XEN_MMUEXT_OP:
        allow_extended(a);
        break;
    case XEN_VERSION_OP:
        allow(a[1], 16);
        break;
    case XEN_MEMORY_OP:
        allow_memory(a);
        break;
    case XEN_VCPU_OP:
        allow_vcpu(a);
        break;
    case XEN_EVENT_CHANNEL_OP:
        allow(a[1], 12);
        break;
    default: /* nothing but the console's ring */
        break;
    }
    if (number == XEN_SCHED_OP || number == XEN_EVENT_CHANNEL_OP)
        allow_gpa(common()->console_frame * MACHINE_PAGE + offsetof(struct xen_console, out_cons),
                  4);
    if (number == XEN_SCHED_OP)
        may.calls |= BIT(RULES_INTERRUPT);
}

static void allow_multicall(const uint64_t a[static 3])
{
    enum { EACH = 64, RESULT = 8, ARGUMENTS = 16 };
    for (uint64_t i = 0; i < a[1] && i < LIST_MAX; i++) {
        uint64_t at = a[0] + i * EACH, number = peek(at, 8), inner[3];
        for (unsigned k = 0; k < 3; k++)
            inner[k] = peek(at + ARGUMENTS + 8 * k, 8);
        if (number != XEN_MULTICALL)
            allow_call(number, inner);
        allow(at + RESULT, 8);
    }
    may.anything |= a[1] > 1; /* one call may write the next */
    may.calls = a[1] > 1 ? ALWAYS : may.calls;
}

/* --- before ---------------------------------------------------------------------------------- */

static const uint8_t *levels(void)
{
    return (const uint8_t *)(SHIM_VA + MACHINE_LEVELS);
}

FUZZ_UNSEEN static void remember(void)
{
    may = (struct allowed){0};
    memcpy(was.ram, machine_ram(), sizeof was.ram);
    was.state = *shim();
    was.common = *common();
    memcpy(was.levels, levels(), sizeof was.levels);
    was.info = *shared_info();
    was.doors = *doors();
}

void rules_before_hypercall(uint64_t number, const uint64_t a[static 3])
{
    remember();
    may.calls = number == XEN_MULTICALL ? BIT(XEN_MULTICALL) : 0;
    if (number == XEN_MULTICALL)
        allow_multicall(a);
    else
        allow_call(number, a);
}

/* At most two frames of the kernel's: the exception, and an event that interrupts it. */
void rules_before_frame(unsigned what, const struct frame *f)
{
    enum { FRAMES = 2 * 8 * 8 + 16 };
    remember();
    may.calls = BIT(what);
    may.opens = true;
    may.forgets = what == RULES_TRAP && f->vector == PROTECTION && !shim()->user;
    allow((shim()->user ? shim()->kernel_sp : f->rsp) - FRAMES, FRAMES);
}

/* --- RAM ------------------------------------------------------------------------------------- */

static bool overlaps(const struct range *r, uint64_t gpa)
{
    return gpa + 8 > r->gpa && gpa < r->gpa + r->bytes;
}

/* Old or new place of the kernel's struct vcpu_info. */
static bool is_vcpu_info(uint64_t gpa, uint64_t at)
{
    struct range r = {at - SHIM_FRAMES_VA, sizeof(struct xen_vcpu_info)};
    return at >= SHIM_FRAMES_VA && overlaps(&r, gpa);
}

/* The one byte that is another. */
static bool is_forgotten(uint64_t before, uint64_t after)
{
    enum { CLI = 0xfa, STI = 0xfb, NOP = 0x90 };
    unsigned shift = (unsigned)__builtin_ctzll(before ^ after) & ~7U;
    uint8_t was_byte = (uint8_t)(before >> shift), is_byte = (uint8_t)(after >> shift);
    return (before ^ after) >> shift <= UINT8_MAX && (was_byte == CLI || was_byte == STI) &&
           is_byte == NOP;
}

static bool is_allowed(uint64_t gpa, uint64_t before, uint64_t after)
{
    if (may.anything || is_vcpu_info(gpa, was.state.vcpu_info) ||
        is_vcpu_info(gpa, shim()->vcpu_info))
        return true;
    if (may.opens && before & PRESENT && after == (before | USER))
        return true;
    if (may.forgets && is_forgotten(before, after)) {
        may.forgets = false;
        return true;
    }
    for (unsigned i = 0; i < may.n_ranges; i++) {
        if (overlaps(&may.ranges[i], gpa))
            return true;
    }
    return may.any_words > 0 && may.any_words-- > 0;
}

FUZZ_UNSEEN static void check_page(unsigned frame)
{
    const uint64_t *before = was.ram + frame * WORDS,
                   *after = (const uint64_t *)machine_ram() + frame * WORDS;
    for (unsigned i = 0; i < WORDS; i++) {
        uint64_t gpa = frame * MACHINE_PAGE + i * 8;
        if (before[i] != after[i])
            CL_ASSERT(is_allowed(gpa, before[i], after[i]));
    }
}

FUZZ_UNSEEN static void check_ram(void)
{
    bool changed[MACHINE_FRAMES];
    for (unsigned i = 0; i < MACHINE_FRAMES; i++) {
        changed[i] = memcmp(was.ram + i * WORDS, machine_ram() + i * MACHINE_PAGE, MACHINE_PAGE);
        bool has_list = may.list.gpa < (i + 1) * MACHINE_PAGE &&
                        may.list.gpa + may.list.bytes > i * (uint64_t)MACHINE_PAGE;
        may.anything |= changed[i] && has_list;
    }
    for (unsigned i = 0; i < MACHINE_FRAMES; i++) {
        if (changed[i])
            check_page(i);
    }
}

/* --- the state ------------------------------------------------------------------------------- */

#define CALL(name) BIT(XEN_##name)
#define TRAP BIT(RULES_TRAP)
#define IRQ BIT(RULES_INTERRUPT)
#define FIELD(name, by) \
    { \
        offsetof(struct shim_state, name), sizeof(((struct shim_state *)0)->name), by \
    }

/* Who may change what; what nobody may is the monitor's or the assembler's. */
static const struct {
    size_t at, bytes;
    uint64_t by;
} fields[] = {
    FIELD(user, TRAP | IRQ),
    FIELD(kernel_sp, CALL(STACK_SWITCH)),
    FIELD(kernel_gs, CALL(SET_SEGMENT_BASE) | TRAP),
    FIELD(user_gs, CALL(SET_SEGMENT_BASE) | TRAP | IRQ),
    FIELD(vcpu_info, CALL(VCPU_OP)),
    FIELD(on_event, CALL(CALLBACK_OP)),
    FIELD(on_syscall, CALL(CALLBACK_OP)),
    FIELD(cr2, ALWAYS),
    FIELD(idle_sp, CALL(SCHED_OP)),
    FIELD(ax, 0),
    FIELD(ip, 0),
    FIELD(cs, 0),
    FIELD(flags, 0),
    FIELD(sp, 0),
    FIELD(is_isolated, 0),
    FIELD(woken, CALL(SCHED_OP) | IRQ),
    FIELD(cpu, 0),
    FIELD(n_cpuid, 0),
    FIELD(finds_faults, 0),
    FIELD(cr4, TRAP),
    FIELD(dr6, CALL(SET_DEBUGREG) | TRAP | IRQ),
    FIELD(timer_ns, CALL(SET_TIMER) | CALL(VCPU_OP) | IRQ),
    FIELD(armed_ns, CALL(SET_TIMER) | CALL(VCPU_OP) | IRQ),
    FIELD(virqs, CALL(EVENT_CHANNEL_OP)),
    FIELD(traps, CALL(SET_TRAP_TABLE)),
    FIELD(times, CALL(VCPU_OP)),
    FIELD(start, 0),
    FIELD(is_up, 0), /* the only vCPU stays up */
    FIELD(polls, CALL(SCHED_OP)),
    FIELD(use, CALL(SCHED_OP) | IRQ),
    FIELD(flush, 0),
};

/* Of what all vCPUs have in common, ports are the kernel's. */
static void check_common(void)
{
    enum { SHIMS_AT = offsetof(struct shim_common, mail_lock) };
    CL_ASSERT(memcmp(&was.common, common(), SHIMS_AT) == 0);
    CL_ASSERT(may.calls & CALL(CONSOLE_IO) || common()->mail_lock == 0); /* its text may fault */
    CL_ASSERT(may.calls & CALL(EVENT_CHANNEL_OP) ||
              memcmp(was.common.channels, common()->channels, sizeof was.common.channels) == 0);
}

FUZZ_UNSEEN static void check_fields(void)
{
    const uint8_t *before = (const uint8_t *)&was.state, *after = (const uint8_t *)shim();
    for (size_t i = 0; i < CL_COUNT(fields); i++) {
        if (!(fields[i].by & may.calls))
            CL_ASSERT(memcmp(before + fields[i].at, after + fields[i].at, fields[i].bytes) == 0);
    }
    CL_ASSERT(may.calls & (CALL(MMUEXT_OP) | CALL(UPDATE_VA_MAPPING)) ||
              memcmp(was.levels, levels(), sizeof was.levels) == 0);
    CL_ASSERT(may.calls & CALL(MMUEXT_OP) || memcmp(&was.doors, doors(), sizeof was.doors) == 0);
}

/* Where the kernel's struct vcpu_info may be: as the monitor put it, or whole in a frame of RAM. */
static void check_vcpu_info(uint64_t at)
{
    uint64_t gpa = at - SHIM_FRAMES_VA;
    CL_ASSERT(at == SHIM_VA + SHIM_SHARED_INFO ||
              (at >= SHIM_FRAMES_VA && gpa < MACHINE_RAM && gpa % 8 == 0 &&
               gpa % MACHINE_PAGE + sizeof(struct xen_vcpu_info) <= MACHINE_PAGE));
    CL_ASSERT(at == SHIM_VA + SHIM_SHARED_INFO ||
              shim()->times[SHIM_TIME_VCPU] == gpa + offsetof(struct xen_vcpu_info, time));
}

static void check_channels(const struct shim_state *s)
{
    for (unsigned i = 0; i < SHIM_CHANNELS; i++)
        CL_ASSERT(common()->channels[i].kind <= CHANNEL_REMOTE && common()->channels[i].cpu == 0);
    for (unsigned i = 0; i < SHIM_VIRQS; i++)
        CL_ASSERT(s->virqs[i] < SHIM_CHANNELS);
    for (unsigned i = 0; i < SHIM_VIRQS; i++)
        CL_ASSERT(s->virqs[i] == 0 || common()->channels[s->virqs[i]].kind == CHANNEL_VIRQ);
}

static void check_state(const struct shim_state *s)
{
    static const struct shim_state zeros;
    CL_ASSERT(s->user <= 1);
    check_vcpu_info(s->vcpu_info);
    check_channels(s);
    CL_ASSERT(s->timer_ns == 0 || (s->armed_ns != 0 && s->armed_ns <= s->timer_ns));
    CL_ASSERT(s->timer_ns == 0 || machine_awaits_timer());
    for (unsigned i = 0; i < SHIM_TRAPS; i++)
        CL_ASSERT(s->traps[i].masks <= 1);
    CL_ASSERT(s->times[SHIM_TIME_VDSO] < MACHINE_RAM);
    CL_ASSERT(memcmp(s + 1, &zeros, 64) == 0); /* nothing is behind it */
}

static void check_doors(void)
{
    const struct shim_doors *d = doors();
    CL_ASSERT(d->kernel_root < MACHINE_RAM && d->kernel_root % MACHINE_PAGE == 0);
    CL_ASSERT(d->user_root < MACHINE_RAM && d->user_root % MACHINE_PAGE == 0);
    CL_ASSERT(shim()->is_isolated ? d->user_root != d->kernel_root : d->user_root == 0);
    CL_ASSERT(memcmp(d->exit, was.doors.exit, sizeof d->exit) == 0);
    const size_t frames = SHIM_DOORS - SHIM_FRAMES, rest = MACHINE_PAGE - frames - sizeof *d;
    CL_ASSERT(memcmp((const void *)(SHIM_VA + SHIM_FRAMES), machine_area() + SHIM_FRAMES, frames) ==
              0);
    CL_ASSERT(memcmp(d + 1, machine_area() + SHIM_DOORS + sizeof *d, rest) == 0);
}

static void check_levels(void)
{
    enum { ROOT = 4 };
    for (unsigned i = 0; i < MACHINE_FRAMES; i++)
        CL_ASSERT(levels()[i] <= ROOT);
    static const uint8_t zeros[MACHINE_PAGE];
    CL_ASSERT(memcmp(levels() + MACHINE_FRAMES, zeros, MACHINE_PAGE - MACHINE_FRAMES) == 0);
}

/* The page that the kernel shares: pending ports of the first word, and its vCPU. */
static void check_info(void)
{
    const struct xen_shared_info *info = shared_info();
    bool is_there = shim()->vcpu_info == (uint64_t)info || was.state.vcpu_info == (uint64_t)info;
    size_t time = offsetof(struct xen_vcpu_info, time),
           pending = offsetof(struct xen_shared_info, pending);
    size_t from = is_there ? time : 0;
    const uint8_t *before = (const uint8_t *)&was.info, *after = (const uint8_t *)info;
    CL_ASSERT(memcmp(before + from, after + from, pending - from) == 0);
    CL_ASSERT(memcmp(&was.info.pending[1], &info->pending[1], sizeof info->pending - 8) == 0);
    CL_ASSERT(memcmp(&was.info.mask[1], &info->mask[1],
                     sizeof *info - offsetof(struct xen_shared_info, mask[1])) == 0);
}

FUZZ_UNSEEN void rules_after(void)
{
    check_ram();
    check_fields();
    check_common();
    check_state(shim());
    check_doors();
    check_levels();
    check_info();
}
