/* policy/quota.c - see policy/quota.h. */
#include "policy/quota.h"

#include "base/err.h"
#include "base/util.h"

const char *quota_dim_name(enum quota_dim dim)
{
    static const char *const names[DIM_NR] = {
        [DIM_VCPU] = "vcpu_milli", [DIM_MEM] = "memory_mib",      [DIM_SANDBOXES] = "sandboxes",
        [DIM_CPU] = "cpu_ms",      [DIM_EGRESS] = "egress_bytes", [DIM_DISK] = "disk_mib",
    };
    CL_ASSERT(dim < DIM_NR);
    return names[dim];
}

void quota_roll(struct quota_usage *usage, const struct quota_limits *limits, uint64_t now_ms)
{
    uint64_t period = now_ms / limits->period_ms;
    if (period == usage->period)
        return;
    usage->spent[DIM_CPU] = usage->spent[DIM_EGRESS] = 0;
    usage->period = period;
}

enum quota_dim quota_over(const struct quota_usage *usage, const struct quota_limits *limits,
                          const struct quota_need *need)
{
    int d = 0;
    while (d < DIM_NR &&
           (need->dim[d] == 0 || usage->held[d] + usage->spent[d] + need->dim[d] <= limits->dim[d]))
        d++;
    return (enum quota_dim)d;
}

void quota_take(struct quota_usage *usage, const struct quota_need *need)
{
    for (int d = 0; d < DIM_NR; d++)
        usage->held[d] += need->dim[d];
}

void quota_settle(struct quota_usage *usage, const struct quota_need *need, uint64_t cpu_ms,
                  uint64_t egress_bytes)
{
    for (int d = 0; d < DIM_NR; d++) {
        CL_ASSERT(usage->held[d] >= need->dim[d]);
        usage->held[d] -= need->dim[d];
    }
    usage->spent[DIM_CPU] += cpu_ms;
    usage->spent[DIM_EGRESS] += egress_bytes;
}

uint64_t quota_burnt_cpu_ms(const struct quota_need *need, uint64_t elapsed_ms)
{
    return CL_MIN(need->dim[DIM_CPU], elapsed_ms * need->dim[DIM_VCPU] / 1000);
}

bool gcra_step(uint64_t *tat_us, uint64_t now_us, uint64_t interval_us, uint64_t burst,
               uint64_t *ret_retry_us)
{
    *ret_retry_us = 0;
    if (interval_us == 0)
        return true;
    uint64_t tat = CL_MAX(*tat_us, now_us);
    uint64_t room = now_us + interval_us * burst; /* tat + interval may reach this */
    if (tat + interval_us > room) {
        *ret_retry_us = tat + interval_us - room;
        return false;
    }
    *tat_us = tat + interval_us;
    return true;
}
