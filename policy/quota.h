/* policy/quota.h - quota arithmetic: what is held, what is spent, what fits.
 *
 * The books in Redis decide; this is the same arithmetic in C, the oracle of their tests and the
 * scheduler's forecast.
 * Owns:    nothing; plain values.
 * Thread:  any.
 * Pure: the caller passes the time.
 */
#ifndef CL_POLICY_QUOTA_H
#define CL_POLICY_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

enum quota_dim {
    DIM_VCPU,      /* thousandths */
    DIM_MEM,       /* MiB */
    DIM_SANDBOXES, /* count */
    DIM_CPU,       /* ms per period */
    DIM_EGRESS,    /* bytes per period */
    DIM_DISK,      /* MiB */
    DIM_NR
};

/* "vcpu_milli", "memory_mib", "sandboxes", "cpu_ms", "egress_bytes", "disk_mib". */
const char *quota_dim_name(enum quota_dim dim);

struct quota_need {
    uint64_t dim[DIM_NR];
};

struct quota_usage {
    uint64_t held[DIM_NR];  /* sum over the live leases */
    uint64_t spent[DIM_NR]; /* DIM_CPU and DIM_EGRESS only: settled in `period` */
    uint64_t period;        /* number of the period that `spent` belongs to */
};

struct quota_limits {
    uint64_t dim[DIM_NR];
    uint64_t period_ms;
};

/* Forget what was spent in an earlier period. */
void quota_roll(struct quota_usage *usage, const struct quota_limits *limits, uint64_t now_ms);
/* The first dimension that `need` does not fit into, or DIM_NR. */
enum quota_dim quota_over(const struct quota_usage *usage, const struct quota_limits *limits,
                          const struct quota_need *need);
void quota_take(struct quota_usage *usage, const struct quota_need *need);
/* Give back what was held and charge what was used. */
void quota_settle(struct quota_usage *usage, const struct quota_need *need, uint64_t cpu_ms,
                  uint64_t egress_bytes);
/* What a holder that vanished is charged: it can have burnt no more. */
uint64_t quota_burnt_cpu_ms(const struct quota_need *need, uint64_t elapsed_ms);

/* GCRA: one call of rate interval `interval_us` and burst `burst` at `now_us`.  True = allowed and
 * *tat_us moves; false = wait *ret_retry_us.  interval 0 = always allowed. */
bool gcra_step(uint64_t *tat_us, uint64_t now_us, uint64_t interval_us, uint64_t burst,
               uint64_t *ret_retry_us);

#endif
