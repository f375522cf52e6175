/* vmm/shim/trap.c - exceptions: the shim's own business, or the kernel's. */
#include "vmm/shim/shim.h"

enum { DEBUG = 1, INVALID_OPCODE = 6, PROTECTION = 13, PAGE_FAULT = 14 };
enum { WORDS = 8 }; /* the longest frame that the kernel gets */
enum { FAULT_PRESENT = 1, FAULT_USER = 4 };
#define FLAG_TF UINT64_C(0x100)
/* IF and IOPL: those that the processor has are not the kernel's business. */
#define FLAGS_DROPPED UINT64_C(0x3200)

_Noreturn void give_up(uint32_t why, uint64_t ip, uint64_t address)
{
    mail()->trap = why;
    mail()->ip = ip;
    mail()->address = address;
    for (;;)
        write_port(SHIM_PORT, SHIM_GIVE_UP);
}

static void push(uint64_t *sp, uint64_t word)
{
    *sp -= sizeof word;
    *(uint64_t *)guest(*sp) = word;
}

/* To the kernel's stack when user code was interrupted. */
static uint64_t switch_stack(struct frame *f)
{
    struct shim_state *s = shim();
    if (!s->user)
        return f->rsp & ~UINT64_C(15);
    s->user = 0;
    s->user_gs = read_gs_base();
    write_gs_base(s->kernel_gs);
    return s->kernel_sp & ~UINT64_C(15);
}

void bounce(struct frame *f, uint64_t handler, bool has_error, bool masks)
{
    struct xen_vcpu_info *v = vcpu_info();
    uint64_t cs = shim()->user ? 0xe000 | (f->cs & 0xff) : XEN_CS_KERNEL;
    uint64_t sp = switch_stack(f);
    (void)mmu_open_path(sp - 1); /* here it may not fault: its own frame would be lost */
    (void)mmu_open_path(sp - WORDS * sizeof sp);
    push(&sp, XEN_DS);
    push(&sp, f->rsp);
    push(&sp, (f->flags & ~FLAGS_DROPPED) | (v->upcall_mask ? 0 : FLAG_IF));
    push(&sp, cs | (uint64_t)v->upcall_mask << 32);
    push(&sp, f->rip);
    if (has_error)
        push(&sp, f->error);
    push(&sp, f->r11);
    push(&sp, f->rcx);
    f->rip = handler;
    f->cs = SHIM_CS3;
    f->flags = FLAG_IF | 2;
    f->rsp = sp;
    f->ss = SHIM_DS3;
    if (masks)
        v->upcall_mask = 1;
}

static bool is_in_shim(uint64_t ip)
{
    return ip >= SHIM_VA && ip < SHIM_FRAMES_VA;
}

/* What the kernel need not know of. */
static bool serve(struct frame *f)
{
    if (f->vector == PAGE_FAULT && f->error & FAULT_PRESENT && mmu_open_path(shim()->cr2))
        return true;
    if (is_in_shim(f->rip))
        give_up((uint32_t)f->vector, f->rip, shim()->cr2);
    return (f->vector == PROTECTION && emulate_privileged(f)) ||
           (f->vector == INVALID_OPCODE && emulate_cpuid(f));
}

static bool has_error(uint64_t vector)
{
    return vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21;
}

/* An event that is pending interrupts what the frame goes on with. */
static void deliver_event(struct frame *f)
{
    const struct xen_vcpu_info *v = vcpu_info();
    if (v->upcall_pending && !v->upcall_mask && !is_in_shim(f->rip))
        bounce(f, shim()->on_event, false, true);
}

static void hand_over(struct frame *f)
{
    struct shim_state *s = shim();
    const struct shim_trap *t = &s->traps[f->vector % SHIM_TRAPS];
    if (t->handler == 0)
        give_up((uint32_t)f->vector, f->rip, s->cr2);
    if (f->vector == DEBUG)
        s->dr6 = f->flags & FLAG_TF ? DR6_NOTHING | DR6_STEP : DR6_NOTHING;
    if (f->vector == PAGE_FAULT) {
        vcpu_info()->cr2 = s->cr2;
        f->error &= s->user ? ~UINT64_C(0) : ~(uint64_t)FAULT_USER;
    }
    bounce(f, t->handler, has_error(f->vector), t->masks != 0);
}

void trap(struct frame *f)
{
    if (f->vector == PAGE_FAULT && shim()->finds_faults)
        shim()->cr2 = fault_address(f);
    f->flags |= FLAG_IF; /* the processor's, which no IRETQ of CPL3 can change */
    if (shim()->user || !serve(f))
        hand_over(f);
    deliver_event(f);
}

/* --- interrupts ---------------------------------------------------------------------------- */

static bool is_canonical(uint64_t address)
{
    return (int64_t)address >> 47 == 0 || (int64_t)address >> 47 == -1;
}

/* User code that ran to the end of its half, and was interrupted there, has not had its #GP yet;
 * CPL0 must not have it instead. */
static void fault_at_the_end(struct frame *f)
{
    f->vector = PROTECTION;
    f->error = 0;
    hand_over(f);
}

static bool is_about_to_wait(uint64_t ip)
{
    return ip >= (uint64_t)may_wait && ip < (uint64_t)waited;
}

/* Where the shim is interrupted it looks for events itself before it leaves; unless it has just
 * done so, and for that the interrupt comes again later.  User code is in the shim, too, where
 * SYSCALL has led it to its door. */
bool interrupt(struct frame *f)
{
    bool in_user_view = f->error != 0;
    cpu_settle();
    event_devices();
    timer_due();
    shim()->woken = 1;
    if ((f->cs & 3) == 0 || is_about_to_wait(f->rip)) {
        f->rip = (uint64_t)waited;
        f->cs = SHIM_CS3;
        f->ss = SHIM_DS3;
        f->flags = FLAG_IF | 2;
        f->rsp = shim()->idle_sp;
    } else if (is_in_shim(f->rip)) {
        timer_remind();
    } else {
        if (!is_canonical(f->rip))
            fault_at_the_end(f);
        deliver_event(f);
    }
    f->flags |= FLAG_IF;
    return in_user_view && shim()->user;
}
