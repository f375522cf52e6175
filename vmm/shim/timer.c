/* vmm/shim/timer.c - the kernel's one-shot timer, by the local APIC's: no exit to the monitor.
 *
 * Time is the TSC since the guest's birth.  The local APIC compares with the same TSC (vmm/xenpv.c
 * sets its offset to 0).
 */
#include "vmm/shim/shim.h"

enum { MSR_TSC_DEADLINE = 0x6e0, VIRQ_TIMER = 0 };
#define FAR_NS (UINT64_C(3600) * 1000000000) /* further than this in steps: no product wraps */
#define REMIND_NS UINT64_C(500000) /* on some hosts an interrupt takes 100 us: it must get on */

static uint64_t scale(uint64_t n, uint64_t by)
{
    return (uint64_t)(((unsigned __int128)n * by) >> 32);
}

uint64_t timer_now_ns(void)
{
    return scale(read_tsc() - shim()->tsc_start, shim()->ns_scale);
}

/* From now on, so that the rounding of a long time does not add up.  The local APIC takes a time
 * that is over for "at once". */
static void arm(uint64_t ns)
{
    uint64_t now = timer_now_ns(), left = ns > now ? ns - now : 0;
    uint64_t ticks = scale(left < FAR_NS ? left : FAR_NS, shim()->tsc_scale) + 1;
    shim()->armed_ns = ns;
    write_msr(MSR_TSC_DEADLINE, read_tsc() + ticks);
}

/* What is armed earlier stays: it comes, sees that nothing is due, and arms the right time. */
void timer_set(uint64_t ns)
{
    struct shim_state *s = shim();
    s->timer_ns = ns;
    if (ns != 0 && (s->armed_ns == 0 || ns < s->armed_ns))
        arm(ns);
}

void timer_due(void)
{
    struct shim_state *s = shim();
    s->armed_ns = 0;
    if (s->timer_ns == 0)
        return;
    if (timer_now_ns() < s->timer_ns) {
        arm(s->timer_ns);
        return;
    }
    s->timer_ns = 0;
    if (s->virqs[VIRQ_TIMER] != 0 && s->virqs[VIRQ_TIMER] < SHIM_CHANNELS)
        event_raise(s->virqs[VIRQ_TIMER]);
}

void timer_remind(void)
{
    struct shim_state *s = shim();
    if (!vcpu_info()->upcall_pending)
        return;
    uint64_t soon = timer_now_ns() + REMIND_NS;
    if (s->armed_ns == 0 || soon < s->armed_ns)
        arm(soon);
}
