/* vmm/shim/timer.c - the kernel's one-shot timer, by the local APIC's: no exit to the monitor.
 *
 * Time is the TSC since the guest's birth.  The local APIC compares with the same TSC (vmm/xenpv.c
 * sets its offset to 0), but where KVM has no clock that does, it counts with the host's, which NTP
 * lets run faster: then the interrupt is early, and has to be asked for again.
 */
#include "vmm/shim/shim.h"

enum { MSR_TSC_DEADLINE = 0x6e0, VIRQ_TIMER = 0 };
#define FAR_NS (UINT64_C(3600) * 1000000000) /* further than this in steps: no product wraps */
#define EARLY_NS UINT64_C(100000)            /* more than rounding makes of FAR_NS */
#define EARLY_SHARE 8                        /* chrony slews by a twelfth at most */
#define REMIND_NS UINT64_C(500000) /* on some hosts an interrupt takes 100 us: it must get on */

static uint64_t scale(uint64_t n, uint64_t by)
{
    return (uint64_t)(((unsigned __int128)n * by) >> 32);
}

uint64_t timer_now_ns(void)
{
    return scale(read_tsc() - common()->tsc_start, common()->ns_scale);
}

/* From now on, so that the rounding of a long time does not add up.  The local APIC takes a time
 * that is over for "at once". */
static void arm(uint64_t ns)
{
    uint64_t now = timer_now_ns(), left = ns > now ? ns - now : 0;
    shim()->armed_at_ns = now;
    shim()->armed_ns = left < FAR_NS ? ns : now + FAR_NS;
    left = left < FAR_NS ? left : FAR_NS;
    write_msr(MSR_TSC_DEADLINE, read_tsc() + scale(left, common()->tsc_scale) + 1);
}

/* What is armed earlier stays: it comes, sees that nothing is due, and arms the right time.  What
 * should have come may have been armed anew by an interrupt in the middle of arm(), or be about to
 * come: then the kernel's timer is due before anything else. */
void timer_wake(uint64_t ns)
{
    const struct shim_state *s = shim();
    if (s->timer_ns != 0 && s->timer_ns < ns)
        ns = s->timer_ns;
    if (s->armed_ns <= timer_now_ns() || ns < s->armed_ns)
        arm(ns);
}

void timer_set(uint64_t ns)
{
    shim()->timer_ns = ns;
    if (ns != 0)
        timer_wake(ns);
}

/* Even if it were early: this is another interrupt. */
static bool is_to_come(const struct shim_state *s, uint64_t now)
{
    uint64_t early = EARLY_NS + (s->armed_ns - s->armed_at_ns) / EARLY_SHARE;
    return s->armed_ns != 0 && s->armed_ns > now + early;
}

void timer_due(void)
{
    struct shim_state *s = shim();
    uint64_t now = timer_now_ns();
    if (is_to_come(s, now))
        return;
    s->armed_ns = 0;
    if (s->timer_ns == 0)
        return;
    if (now < s->timer_ns) {
        arm(s->timer_ns);
        return;
    }
    s->timer_ns = 0;
    event_raise_virq(VIRQ_TIMER);
}

void timer_remind(void)
{
    if (vcpu_info()->upcall_pending)
        timer_wake(timer_now_ns() + REMIND_NS);
}
