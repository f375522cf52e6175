/* tests/fuzz/fuzz_vmm_shim.c - fuzz bytes as the kernel of a Xen-PV guest, its traps and its
 * interrupts.  First a byte: isolated or shared; then steps:
 *
 *   0 hypercall    number, three values                  6 user        its code runs
 *   1 extended     command, frame, more                  7 time        ticks u32, shift
 *   2 update       frame, index u16, kind, entry         8 device      bits
 *   3 multicall    n, each: number, three values         9 poke        RAM: at u24, n, bytes
 *   4 trap         vector, error, rip, rsp, cr2, flags   10 shared     its page: at u16, n, bytes
 *   5 interrupt    rip, rsp, flags                       11 fill       frame, index u16, n, entry
 *   12 structure   number, operation, four values, which of the arguments is their address
 *   13 instruction its bytes, vector, RAX, RCX, RDX
 *
 * After each step memory must be as rules.h says; at the first that ends the guest it is over.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/err.h"
#include "base/util.h"
#include "tests/fuzz/bytes.h"
#include "tests/fuzz/shim/machine.h"
#include "tests/fuzz/shim/rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STEPS_MAX = 64, FILL_MAX = 32, CALLS_MAX = 4, INSTRUCTION_MAX = 15 };
#define LISTS (MACHINE_LINEAR + FRAME_LISTS * (uint64_t)MACHINE_PAGE)

/* --- values ---------------------------------------------------------------------------------- */

FUZZ_UNSEEN static uint64_t get_u64(struct fuzz_in *in)
{
    uint64_t low = fuzz_get(in, 4);
    return low | (uint64_t)fuzz_get(in, 4) << 32;
}

/* A number, an address of the kernel's in or about its RAM, where lists are, or all bits. */
FUZZ_UNSEEN static uint64_t get_value(struct fuzz_in *in)
{
    enum { SMALL = 63 };
    uint32_t kind = fuzz_get(in, 1);
    switch (kind % 4) {
    case 0:
        return kind / 4 < SMALL ? kind / 4 : SMALL + fuzz_get(in, 1);
    case 1:
        return MACHINE_LINEAR + fuzz_get(in, 3) % (MACHINE_RAM + 2 * MACHINE_PAGE) - MACHINE_PAGE;
    case 2:
        return LISTS + kind / 4 * 8;
    default:
        return get_u64(in);
    }
}

/* A page-table entry, of a frame of RAM or of any. */
FUZZ_UNSEEN static uint64_t get_entry(struct fuzz_in *in)
{
    uint64_t rights = fuzz_get(in, 1), frame = fuzz_get(in, 1);
    if (frame == 0xff)
        frame = get_u64(in);
    return frame << 12 | rights;
}

FUZZ_UNSEEN static void put(uint64_t gpa, const void *bytes, size_t n)
{
    CL_ASSERT(gpa <= MACHINE_RAM && n <= MACHINE_RAM - gpa);
    memcpy(machine_ram() + gpa, bytes, n);
}

/* --- hypercalls ------------------------------------------------------------------------------ */

/* False when it was the guest's end; memory is right in any case. */
static bool run(void (*work)(void *), void *arg)
{
    enum machine_end end = machine_do(work, arg);
    rules_after();
    return end == MACHINE_RUNS;
}

struct call {
    uint64_t number, a[3];
    int64_t result;
};

static void make_call(void *arg)
{
    struct call *c = arg;
    c->result = hypercall(c->a[0], c->a[1], c->a[2], 0, 0, c->number);
}

static bool is_served(uint64_t number)
{
    static const uint64_t served =
        1 << XEN_SET_TRAP_TABLE | 1 << XEN_MMU_UPDATE | 1 << XEN_SET_GDT | 1 << XEN_STACK_SWITCH |
        1 << XEN_FPU_TASKSWITCH | 1 << XEN_SET_DEBUGREG | 1 << XEN_GET_DEBUGREG |
        1 << XEN_UPDATE_DESCRIPTOR | 1 << XEN_MEMORY_OP | 1 << XEN_MULTICALL |
        1 << XEN_UPDATE_VA_MAPPING | 1 << XEN_SET_TIMER | 1 << XEN_VERSION_OP |
        1 << XEN_CONSOLE_IO | 1 << XEN_VM_ASSIST | 1 << XEN_VCPU_OP | 1 << XEN_SET_SEGMENT_BASE |
        1 << XEN_MMUEXT_OP | 1 << XEN_SCHED_OP | 1 << XEN_CALLBACK_OP |
        UINT64_C(1) << XEN_EVENT_CHANNEL_OP | UINT64_C(1) << XEN_PHYSDEV_OP;
    return number < 64 && served >> number & 1;
}

/* All others, grants (20) among them, are not there. */
static void check_result(const struct call *c)
{
    CL_ASSERT(is_served(c->number) || c->result == -XEN_ENOSYS);
    CL_ASSERT(c->result >= -XEN_ENOSYS || c->number == XEN_GET_DEBUGREG ||
              c->number == XEN_CONSOLE_IO || c->number == XEN_MEMORY_OP);
}

/* User code's are none: entry.S makes them the kernel's. */
static bool do_call(struct call *c)
{
    shim()->user = 0;
    rules_before_hypercall(c->number, c->a);
    if (!run(make_call, c))
        return false;
    check_result(c);
    return true;
}

FUZZ_UNSEEN static void get_call(struct fuzz_in *in, struct call *ret_call)
{
    ret_call->number = fuzz_get(in, 1);
    for (unsigned i = 0; i < 3; i++)
        ret_call->a[i] = get_value(in);
}

static bool step_hypercall(struct fuzz_in *in)
{
    struct call c;
    get_call(in, &c);
    return do_call(&c);
}

/* A hypercall with words in memory. */
static bool step_structure(struct fuzz_in *in)
{
    struct call c = {.number = fuzz_get(in, 1)};
    uint64_t words[4];
    c.a[0] = fuzz_get(in, 1);
    for (unsigned i = 0; i < CL_COUNT(words); i++)
        words[i] = get_value(in);
    c.a[fuzz_get(in, 1) % 3] = LISTS;
    put(FRAME_LISTS * MACHINE_PAGE, words, sizeof words);
    return do_call(&c);
}

/* The slots of the view that this frame begins. */
static bool has_slots(uint64_t frame, const uint64_t slots[static SHIM_SLOTS])
{
    size_t at = frame * MACHINE_PAGE + SHIM_SLOT_FIRST * sizeof *slots;
    return memcmp(machine_ram() + at, slots, SHIM_SLOTS * sizeof *slots) == 0;
}

static bool step_extended(struct fuzz_in *in)
{
    enum { NEW_ROOT = 5, NEW_USER_ROOT = 15 };
    uint64_t op[3];
    for (unsigned i = 0; i < CL_COUNT(op); i++)
        op[i] = fuzz_get(in, 1);
    struct call c = {.number = XEN_MMUEXT_OP, .a = {LISTS, 1, 0}};
    put(FRAME_LISTS * MACHINE_PAGE, op, sizeof op);
    if (!do_call(&c))
        return false;
    if (c.result == 0 && op[0] == NEW_ROOT)
        CL_ASSERT(has_slots(op[1], common()->slots) && doors()->kernel_root >> 12 == op[1]);
    if (c.result == 0 && op[0] == NEW_USER_ROOT && shim()->is_isolated)
        CL_ASSERT((op[1] == 0 || has_slots(op[1], common()->user_slots)) &&
                  doors()->user_root >> 12 == op[1]);
    return true;
}

static bool step_update(struct fuzz_in *in)
{
    uint64_t frame = fuzz_get(in, 1), index = fuzz_get(in, 2) % 512, kind = fuzz_get(in, 1) % 8;
    const uint64_t update[2] = {frame * MACHINE_PAGE + index * 8 + kind, get_entry(in)};
    struct call c = {.number = XEN_MMU_UPDATE, .a = {LISTS, 1, LISTS + 64}};
    put(FRAME_LISTS * MACHINE_PAGE, update, sizeof update);
    return do_call(&c);
}

static bool step_multicall(struct fuzz_in *in)
{
    struct {
        uint64_t number, result, a[6];
    } list[CALLS_MAX] = {0};
    unsigned n = fuzz_get(in, 1) % CALLS_MAX + 1;
    for (unsigned i = 0; i < n; i++) {
        struct call c;
        get_call(in, &c);
        list[i].number = c.number;
        memcpy(list[i].a, c.a, sizeof c.a);
    }
    put(FRAME_LISTS * MACHINE_PAGE, list, sizeof list);
    struct call all = {.number = XEN_MULTICALL, .a = {LISTS, n, 0}};
    return do_call(&all);
}

/* --- traps and interrupts -------------------------------------------------------------------- */

static void make_trap(void *arg)
{
    trap(arg);
}

/* Either the kernel's entry, or where it was, an instruction later at most. */
static void check_frame(const struct frame *before, const struct frame *f, bool was_user)
{
    bool bounced = f->rsp != before->rsp && f->flags == (FLAG_IF | 2) && f->cs == SHIM_CS3 &&
                   f->ss == SHIM_DS3;
    bool stays = f->cs == before->cs && f->ss == before->ss &&
                 f->flags == (before->flags | FLAG_IF) && f->rip - before->rip <= INSTRUCTION_MAX;
    CL_ASSERT(bounced || stays);
    CL_ASSERT(!was_user || (bounced && !shim()->user));
}

FUZZ_UNSEEN static void get_frame(struct fuzz_in *in, struct frame *ret_frame)
{
    uint64_t *registers = &ret_frame->r15;
    for (unsigned i = 0; i < offsetof(struct frame, vector) / 8; i++)
        registers[i] = i;
    ret_frame->rip = get_value(in);
    ret_frame->rsp = get_value(in);
    ret_frame->flags = fuzz_get(in, 4);
    ret_frame->cs = SHIM_CS3;
    ret_frame->ss = SHIM_DS3;
}

static bool do_trap(struct frame *f)
{
    bool was_user = shim()->user;
    const struct frame before = *f;
    rules_before_frame(RULES_TRAP, f);
    if (!run(make_trap, f))
        return false;
    check_frame(&before, f, was_user);
    return true;
}

static bool step_trap(struct fuzz_in *in)
{
    struct frame f;
    uint32_t vector = fuzz_get(in, 1) % 22, error = fuzz_get(in, 1) % 32;
    get_frame(in, &f);
    f.vector = vector;
    f.error = error;
    shim()->cr2 = get_value(in);
    return do_trap(&f);
}

static bool step_instruction(struct fuzz_in *in)
{
    enum { INVALID_OPCODE = 6, PROTECTION = 13 };
    const uint64_t at = MACHINE_LINEAR + FRAME_CODE * (uint64_t)MACHINE_PAGE, bytes = get_u64(in);
    struct frame f = {.rip = at, .rsp = at, .cs = SHIM_CS3, .ss = SHIM_DS3};
    f.vector = fuzz_get(in, 1) % 2 ? INVALID_OPCODE : PROTECTION;
    f.rax = get_value(in);
    f.rcx = get_value(in);
    f.rdx = get_value(in);
    put(FRAME_CODE * MACHINE_PAGE, &bytes, sizeof bytes);
    return do_trap(&f);
}

struct irq {
    struct frame f;
    bool in_user_view;
};

static void make_interrupt(void *arg)
{
    struct irq *irq = arg;
    irq->in_user_view = interrupt(&irq->f);
}

static bool step_interrupt(struct fuzz_in *in)
{
    struct irq irq = {.f = {.vector = SHIM_IRQ_VECTOR}};
    bool was_user = shim()->user;
    get_frame(in, &irq.f);
    irq.f.error = was_user && shim()->is_isolated;
    rules_before_frame(RULES_INTERRUPT, &irq.f);
    machine_take_interrupt();
    if (!run(make_interrupt, &irq))
        return false;
    CL_ASSERT(irq.in_user_view == (irq.f.error && shim()->user));
    CL_ASSERT(irq.f.cs == SHIM_CS3 && irq.f.ss == SHIM_DS3 && irq.f.flags & FLAG_IF);
    return true;
}

/* --- what the kernel and the world do besides ------------------------------------------------ */

static bool step_user(struct fuzz_in *in)
{
    (void)in;
    shim()->user = 1;
    return true;
}

static bool step_time(struct fuzz_in *in)
{
    uint64_t ticks = fuzz_get(in, 4);
    machine_pass(ticks << fuzz_get(in, 1) % 28);
    return true;
}

static bool step_device(struct fuzz_in *in)
{
    struct shim_mail *mail = (struct shim_mail *)(SHIM_VA + SHIM_MAIL);
    mail->devices |= fuzz_get(in, 2);
    return true;
}

FUZZ_UNSEEN static void poke(uint8_t *to, size_t bytes, uint64_t at, struct fuzz_in *in)
{
    size_t n = fuzz_get(in, 1);
    at %= bytes;
    n = CL_MIN(n, in->left);
    n = CL_MIN(n, bytes - at);
    memcpy(to + at, in->data, n);
    in->data += n;
    in->left -= n;
}

static bool step_poke(struct fuzz_in *in)
{
    uint64_t at = fuzz_get(in, 3);
    poke(machine_ram(), MACHINE_RAM, at, in);
    return true;
}

static bool step_shared(struct fuzz_in *in)
{
    uint64_t at = fuzz_get(in, 2);
    poke((uint8_t *)shared_info(), sizeof *shared_info(), at, in);
    return true;
}

static bool step_fill(struct fuzz_in *in)
{
    uint64_t frame = fuzz_get(in, 1) % MACHINE_FRAMES, index = fuzz_get(in, 2) % 512;
    uint64_t n = fuzz_get(in, 1) % FILL_MAX, entry = get_entry(in);
    for (uint64_t i = index; i < 512 && i - index < n; i++)
        put(frame * MACHINE_PAGE + i * sizeof entry, &entry, sizeof entry);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool (*const steps[])(struct fuzz_in *) = {
        step_hypercall, step_extended, step_update,    step_multicall,  step_trap,
        step_interrupt, step_user,     step_time,      step_device,     step_poke,
        step_shared,    step_fill,     step_structure, step_instruction};
    struct fuzz_in in = {data, size};
    machine_start(fuzz_get(&in, 1) & 1);
    for (unsigned i = 0; i < STEPS_MAX && in.left > 0; i++) {
        if (!steps[fuzz_get(&in, 1) % CL_COUNT(steps)](&in))
            break;
    }
    return 0;
}
