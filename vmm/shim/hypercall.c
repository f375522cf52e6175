/* vmm/shim/hypercall.c - which hypercall goes where, and the small ones. */
#include "vmm/shim/shim.h"

enum { PHYSDEV_SET_IOPL = 6 }; /* public/physdev.h */

void set_trap(struct shim_state *s, uint64_t vector, const struct xen_trap *trap)
{
    if (vector < SHIM_TRAPS)
        s->traps[vector] =
            (struct shim_trap){trap->address, (trap->flags & XEN_TRAP_MASKS_EVENTS) != 0};
}

static int64_t set_trap_table(uint64_t table)
{
    for (const struct xen_trap *t = guest(table); t->address != 0; t++)
        set_trap(shim(), t->vector, t);
    return 0;
}

static int64_t set_segment_base(uint64_t which, uint64_t base)
{
    enum { FS = 0, GS_USER = 1, GS_KERNEL = 2, GS_USER_SELECTOR = 3 };
    struct shim_state *s = shim();
    switch (which) {
    case FS:
        write_fs_base(base);
        return 0;
    case GS_USER:
        s->user_gs = base;
        return 0;
    case GS_KERNEL:
        s->kernel_gs = base;
        write_gs_base(base);
        return 0;
    case GS_USER_SELECTOR: /* the null selector, whose base is 0; there are no others */
        s->user_gs = 0;
        return 0;
    default:
        return -XEN_EINVAL;
    }
}

struct callback {
    uint16_t type, flags;
    uint32_t pad;
    uint64_t address;
};

/* The failsafe callback is for selectors that cannot be loaded, which nobody here loads. */
static int64_t callback_op(uint64_t op, uint64_t arg)
{
    enum { REGISTER = 0, EVENT = 0, FAILSAFE = 1, SYSCALL = 2 };
    const struct callback *c = guest(arg);
    if (op != REGISTER)
        return -XEN_ENOSYS;
    switch (c->type) {
    case EVENT:
        shim()->on_event = c->address;
        return 0;
    case SYSCALL:
        shim()->on_syscall = c->address;
        return 0;
    case FAILSAFE:
        return 0;
    default: /* SYSENTER and SYSCALL of 32-bit code, NMI */
        return -XEN_ENOSYS;
    }
}

/* There are no breakpoints; what is told is that an instruction was stepped over. */
enum { STATUS_REGISTER = 6 };

static int64_t set_debug_register(uint64_t which, uint64_t value)
{
    if (which == STATUS_REGISTER)
        shim()->dr6 = value;
    return 0;
}

struct call {
    uint64_t number, result, arguments[6];
};

static int64_t multicall(uint64_t list, uint64_t n)
{
    struct call *calls = guest(list);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t *a = calls[i].arguments;
        bool nested = calls[i].number == XEN_MULTICALL; /* without it a list of itself never ends */
        calls[i].result = nested
                              ? (uint64_t)-XEN_EINVAL
                              : (uint64_t)hypercall(a[0], a[1], a[2], a[3], a[4], calls[i].number);
    }
    return 0;
}

int64_t hypercall(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t number)
{
    (void)d, (void)e; /* of foreign domains */
    switch (number) {
    case XEN_MMU_UPDATE:
        return mmu_update(a, b, c);
    case XEN_UPDATE_VA_MAPPING:
        return mmu_update_va(a, b, c);
    case XEN_MMUEXT_OP:
        return mmu_extended(a, b);
    case XEN_MULTICALL:
        return multicall(a, b);
    case XEN_STACK_SWITCH:
        shim()->kernel_sp = b;
        return 0;
    case XEN_SET_SEGMENT_BASE:
        return set_segment_base(a, b);
    case XEN_EVENT_CHANNEL_OP:
        return event_op(a, b);
    case XEN_SCHED_OP:
        return sched_op(a, b);
    case XEN_VCPU_OP:
        return vcpu_op(a, b, c);
    case XEN_SET_TIMER:
        timer_set(a);
        return 0;
    case XEN_VERSION_OP:
        return version_op(a, b);
    case XEN_CONSOLE_IO:
        return console_io(a, b, c);
    case XEN_SET_TRAP_TABLE:
        return set_trap_table(a);
    case XEN_CALLBACK_OP:
        return callback_op(a, b);
    case XEN_MEMORY_OP:
        return memory_op(a, b);
    case XEN_PHYSDEV_OP:
        return a == PHYSDEV_SET_IOPL ? 0 : -XEN_ENOSYS; /* the kernel has all ports anyway */
    case XEN_SET_DEBUGREG:
        return set_debug_register(a, b);
    case XEN_GET_DEBUGREG:
        return a == STATUS_REGISTER ? (int64_t)shim()->dr6 : 0;
    case XEN_SET_GDT:           /* its selectors are those that we have */
    case XEN_UPDATE_DESCRIPTOR: /* segments of 32-bit code: it has none yet */
    case XEN_FPU_TASKSWITCH:    /* CR0.TS: Linux switches the FPU eagerly */
    case XEN_VM_ASSIST:
        return 0;
    default:
        return -XEN_ENOSYS;
    }
}
