/* e2b/metrics.h - what a sandbox used, as E2B's SandboxMetric.  Pure. */
#ifndef CL_E2B_METRICS_H
#define CL_E2B_METRICS_H

#include <jansson.h>

#include "base/err.h"
#include "base/util.h"
#include "cloche/v1/sandbox.pb-c.h"

/* Samples of this time, whole seconds since 1970, both ends with it. */
struct e2b_period {
    uint64_t start, end;
};

/* `start` and `end` of a query, which may be NULL; without them, all.  INVALID. */
int e2b_period_read(const char *query, struct e2b_period *ret, struct cl_err *err) CL_MUST;
/* The samples in the period, the oldest first.  NULL = no memory. */
json_t *e2b_metrics_of(const Cloche__V1__UsageResponse *usage, const struct e2b_period *period);

#endif
