/* policy/limits.h - what a tenant may use, and whether one request can ever fit into it.
 *
 * Owns:    nothing; plain values.
 * Thread:  any.
 * Pure: no I/O, no clock.
 */
#ifndef CL_POLICY_LIMITS_H
#define CL_POLICY_LIMITS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"
#include "policy/quota.h"

struct tenant_limits {
#define LIMIT(name, def, min, max, unit, help) uint64_t name;
#include "policy/limits.def"
#undef LIMIT
};

/* What a request leaves open gets these (DECISIONS: limits.def's defaults of one unit). */
enum {
    UNIT_DEFAULT_WALL_MS = 300000,
    UNIT_DEFAULT_VCPU_MILLI = 1000,
    UNIT_DEFAULT_MEM_MIB = 256,
    UNIT_DEFAULT_DISK_MIB = 512,
    UNIT_DEFAULT_PIDS = 256,
    UNIT_DEFAULT_OUTPUT_BYTES = 64 << 20,
    UNIT_DEFAULT_EGRESS_BYTES = 1 << 30, /* of one that has network */
};

/* What one job or sandbox asks for; 0 = the default above. */
struct unit_request {
    uint64_t wall_ms; /* wall clock of a job; longest life of a sandbox */
    uint64_t vcpu_milli;
    uint64_t mem_mib;
    uint64_t disk_mib;
    uint64_t pids;
    uint64_t output_bytes;
    uint64_t args_bytes;   /* argv and environment as sent */
    uint64_t egress_bytes; /* most it may send; 0 = none */
    uint64_t cpu_ms;       /* most CPU time; 0 = wall_ms * vcpu */
};

/* One row of limits.def. */
struct limit_info {
    const char *name;
    uint64_t def, min, max;
    const char *unit;
    const char *help;
    size_t offset; /* into struct tenant_limits */
};
extern const struct limit_info limit_infos[];
extern const size_t limit_infos_nr;

void limits_default(struct tenant_limits *ret);
/* Every value inside its row's bounds, or INVALID with the row's name as subject. */
int limits_validate(const struct tenant_limits *limits, struct cl_err *err) CL_MUST;
/* Set one limit by name: NOTFOUND or INVALID. */
int limits_set(struct tenant_limits *limits, const char *name, uint64_t value,
               struct cl_err *err) CL_MUST;

/* Fill the open fields of *request with the defaults (never above the tenant's maximum). */
void unit_request_default(struct unit_request *request, const struct tenant_limits *limits);
/* Check a filled request and compute what it reserves.  INVALID: over a limit of one unit; QUOTA:
 * over the tenant's whole quota, so it can never run.  subject = the dimension or field. */
int unit_request_check(const struct unit_request *request, const struct tenant_limits *limits,
                       struct quota_need *ret_need, struct cl_err *err) CL_MUST;

/* The stored form: a version byte, a count byte, that many u64 (little endian). */
enum { LIMITS_PACKED_MAX = 512 };
size_t limits_pack(const struct tenant_limits *limits, uint8_t out[static LIMITS_PACKED_MAX]);
/* Values that an older writer did not know get their default; a newer version is refused. */
int limits_unpack(const uint8_t *data, size_t n, struct tenant_limits *ret,
                  struct cl_err *err) CL_MUST;

#endif
