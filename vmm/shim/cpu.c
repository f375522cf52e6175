/* vmm/shim/cpu.c - several vCPUs: their start and end, what they ask of each other.
 *
 *              VCPUOP_initialise, _up            VCPUOP_down
 *     park() ───────────────────────► runs ◄───────────────────► waits in down()
 *                                                VCPUOP_up
 *
 * One asks another by a word in its state and an interrupt of its local APIC.  It answers wherever
 * it is, in interrupt(), but for the few instructions with IF clear; so whoever waits for an answer
 * must have IF set, and then two that ask each other both get it.
 */
#include "vmm/shim/shim.h"

enum { MSR_INTERRUPT_COMMAND = 0x830 }; /* x2APIC; Intel SDM 3A §10.12.9 */

void cpu_kick(uint64_t cpu)
{
    write_msr(MSR_INTERRUPT_COMMAND, cpu << 32 | SHIM_IRQ_VECTOR);
}

/* --- waiting ------------------------------------------------------------------------------- */

void cpu_look(void)
{
    __atomic_store_n(&shim()->woken, 0, __ATOMIC_SEQ_CST);
}

/* --- translations -------------------------------------------------------------------------- */

static void flush(uint64_t what)
{
    if (what == FLUSH_ALL)
        load_root(doors()->kernel_root);
    else
        flush_page(what);
}

static void use_again(void)
{
    if (__atomic_exchange_n(&shim()->use, USE_RUNS, __ATOMIC_SEQ_CST) == USE_WAITS_STALE)
        flush(FLUSH_ALL);
}

/* While it waits it uses none of the kernel's translations but those of its stack, which stay. */
void cpu_wait(void)
{
    __atomic_store_n(&shim()->use, USE_WAITS, __ATOMIC_SEQ_CST);
    wait_for_irq();
    use_again();
}

void cpu_settle(void)
{
    use_again();
    for (uint64_t i = 0; i < common()->n_cpus; i++) {
        uint64_t *request = &shim()->flush[i], what = __atomic_load_n(request, __ATOMIC_SEQ_CST);
        if (what == 0)
            continue;
        flush(what);
        __atomic_store_n(request, 0, __ATOMIC_SEQ_CST);
    }
}

/* False when that vCPU waits: it will flush before it does anything else. */
static bool ask_to_flush(uint64_t cpu, uint64_t what)
{
    struct shim_state *s = shim_of(cpu);
    uint64_t use = USE_WAITS;
    if (__atomic_compare_exchange_n(&s->use, &use, USE_WAITS_STALE, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST) ||
        use == USE_WAITS_STALE)
        return false;
    __atomic_store_n(&s->flush[shim()->cpu], what, __ATOMIC_SEQ_CST);
    cpu_kick(cpu);
    return true;
}

void cpu_flush(uint64_t cpus, uint64_t what)
{
    uint64_t self = shim()->cpu, asked = 0;
    for (uint64_t i = 0; i < common()->n_cpus; i++) {
        if (i != self && cpus >> i & 1 && ask_to_flush(i, what))
            asked |= UINT64_C(1) << i;
    }
    if (cpus >> self & 1)
        flush(what);
    for (uint64_t i = 0; i < SHIM_CPUS_MAX; i++) {
        while (asked >> i & 1 && __atomic_load_n(&shim_of(i)->flush[self], __ATOMIC_SEQ_CST) != 0)
            relax();
    }
}

/* --- start and end ------------------------------------------------------------------------- */

static void await_up(void)
{
    struct shim_state *s = shim();
    for (;;) {
        cpu_look();
        if (__atomic_load_n(&s->is_up, __ATOMIC_SEQ_CST) != 0)
            return;
        cpu_wait();
    }
}

_Noreturn void park(void)
{
    const struct shim_start *start = &shim()->start;
    await_up();
    if (mmu_new_root(start->root) < 0)
        give_up(0, start->ip, start->root);
    write_fs_base(start->fs);
    write_gs_base(shim()->kernel_gs);
    start_kernel(start->ip, start->sp);
}

static int64_t initialise(struct shim_state *s, const struct xen_context *c)
{
    if (s->start.is_set)
        return -XEN_EEXIST;
    if (!is_frame(c->cr[3] >> 12))
        return -XEN_EINVAL;
    s->start = (struct shim_start){.ip = c->registers.rip,
                                   .sp = c->registers.rsp,
                                   .fs = c->fs,
                                   .root = c->cr[3] >> 12,
                                   .is_set = 1};
    s->kernel_sp = c->kernel_sp;
    s->kernel_gs = c->kernel_gs;
    s->user_gs = c->user_gs;
    s->on_event = c->on_event;
    s->on_syscall = c->on_syscall;
    for (uint64_t i = 0; i < SHIM_TRAPS; i++)
        set_trap(s, i, &c->traps[i]);
    return 0;
}

static int64_t up(struct shim_state *s)
{
    if (!s->start.is_set)
        return -XEN_EINVAL;
    __atomic_store_n(&s->is_up, 1, __ATOMIC_SEQ_CST);
    if (s != shim())
        cpu_kick(s->cpu);
    return 0;
}

static bool is_any_up_beside(const struct shim_state *s)
{
    for (uint64_t i = 0; i < common()->n_cpus; i++) {
        const struct shim_state *other = shim_of(i);
        if (other != s && __atomic_load_n(&other->is_up, __ATOMIC_SEQ_CST) != 0)
            return true;
    }
    return false;
}

/* Its own end, when it is not the last one; it goes on behind this when it is up again. */
static int64_t down(struct shim_state *s)
{
    if (s != shim() || !is_any_up_beside(s))
        return -XEN_EINVAL;
    __atomic_store_n(&s->is_up, 0, __ATOMIC_SEQ_CST);
    await_up();
    return 0;
}

struct singleshot {
    uint64_t at_ns;
    uint32_t flags;
};

static int64_t set_singleshot(const struct shim_state *s, const struct singleshot *timer)
{
    if (s != shim())
        return -XEN_EINVAL;
    timer_set(timer->at_ns);
    return 0;
}

/* While it runs only its own kernel may move it. */
static int64_t move_vcpu_info(struct shim_state *s, uint64_t arg)
{
    if (s != shim() && __atomic_load_n(&s->is_up, __ATOMIC_SEQ_CST) != 0)
        return -XEN_EINVAL;
    return set_vcpu_info(s, arg);
}

/* public/vcpu.h */
int64_t vcpu_op(uint64_t op, uint64_t vcpu, uint64_t arg)
{
    enum {
        INITIALISE = 0,
        UP = 1,
        DOWN = 2,
        IS_UP = 3,
        REGISTER_RUNSTATE = 5,
        STOP_PERIODIC = 7,
        SET_SINGLESHOT = 8,
        STOP_SINGLESHOT = 9,
        REGISTER_INFO = 10,
        REGISTER_TIME = 13
    };
    if (!is_cpu(vcpu))
        return -XEN_ENOENT;
    struct shim_state *s = shim_of(vcpu);
    switch (op) {
    case INITIALISE:
        return initialise(s, guest(arg));
    case UP:
        return up(s);
    case DOWN:
        return down(s);
    case IS_UP:
        return __atomic_load_n(&s->is_up, __ATOMIC_SEQ_CST) != 0;
    case REGISTER_RUNSTATE: /* of time that others took: it stays 0 */
    case STOP_PERIODIC:
        return 0;
    case SET_SINGLESHOT:
        return set_singleshot(s, guest(arg));
    case STOP_SINGLESHOT:
        s->timer_ns = 0;
        return 0;
    case REGISTER_INFO:
        return move_vcpu_info(s, arg);
    case REGISTER_TIME:
        return set_time_copy(s, arg);
    default:
        return -XEN_ENOSYS;
    }
}
