/* policy/limits.c - see policy/limits.h. */
#include "policy/limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PACK_VERSION = 1, PACK_HEAD = 2 };

const struct limit_info limit_infos[] = {
#define LIMIT(name_, def_, min_, max_, unit_, help_) \
    {#name_, \
     UINT64_C(def_), \
     UINT64_C(min_), \
     UINT64_C(max_), \
     unit_, \
     help_, \
     offsetof(struct tenant_limits, name_)},
#include "policy/limits.def"
#undef LIMIT
};
const size_t limit_infos_nr = CL_COUNT(limit_infos);

_Static_assert(PACK_HEAD + 8 * CL_COUNT(limit_infos) <= LIMITS_PACKED_MAX, "packed limits fit");
_Static_assert(sizeof(struct tenant_limits) == 8 * CL_COUNT(limit_infos), "one u64 a row");

static uint64_t *at(struct tenant_limits *limits, size_t i)
{
    return (uint64_t *)(void *)((char *)limits + limit_infos[i].offset);
}

static uint64_t value(const struct tenant_limits *limits, size_t i)
{
    uint64_t v;
    memcpy(&v, (const char *)limits + limit_infos[i].offset, sizeof v);
    return v;
}

void limits_default(struct tenant_limits *ret)
{
    for (size_t i = 0; i < CL_COUNT(limit_infos); i++)
        *at(ret, i) = limit_infos[i].def;
}

static void set_subject(struct cl_err *err, const char *name)
{
    if (err)
        (void)snprintf(err->subject, sizeof err->subject, "%s", name);
}

static int check_one(const struct limit_info *row, uint64_t v, struct cl_err *err)
{
    if (v >= row->min && v <= row->max)
        return 0;
    (void)cl_fail(err, CL_E_INVALID, 0,
                  "limit %s: %" PRIu64 " is not within %" PRIu64 " to %" PRIu64 " %s", row->name, v,
                  row->min, row->max, row->unit);
    set_subject(err, row->name);
    return -1;
}

int limits_validate(const struct tenant_limits *limits, struct cl_err *err)
{
    for (size_t i = 0; i < CL_COUNT(limit_infos); i++) {
        if (check_one(&limit_infos[i], value(limits, i), err) < 0)
            return -1;
    }
    return 0;
}

int limits_set(struct tenant_limits *limits, const char *name, uint64_t v, struct cl_err *err)
{
    for (size_t i = 0; i < CL_COUNT(limit_infos); i++) {
        if (strcmp(name, limit_infos[i].name) != 0)
            continue;
        if (check_one(&limit_infos[i], v, err) < 0)
            return -1;
        *at(limits, i) = v;
        return 0;
    }
    return cl_fail(err, CL_E_NOTFOUND, 0, "no limit is called '%.40s'", name);
}

/* --- requests ------------------------------------------------------------------------------- */

static void fill(uint64_t *field, uint64_t def, uint64_t max)
{
    if (*field == 0)
        *field = CL_MIN(def, max);
}

void unit_request_default(struct unit_request *r, const struct tenant_limits *l)
{
    fill(&r->wall_ms, UNIT_DEFAULT_WALL_MS, l->wall_ms);
    fill(&r->vcpu_milli, UNIT_DEFAULT_VCPU_MILLI, CL_MIN(l->unit_vcpu_milli, l->vcpu_milli));
    fill(&r->mem_mib, UNIT_DEFAULT_MEM_MIB, CL_MIN(l->unit_mem_mib, l->mem_mib));
    fill(&r->disk_mib, UNIT_DEFAULT_DISK_MIB, CL_MIN(l->unit_disk_mib, l->disk_mib));
    fill(&r->pids, UNIT_DEFAULT_PIDS, l->pids);
    fill(&r->output_bytes, UNIT_DEFAULT_OUTPUT_BYTES, l->output_bytes);
}

static int check_unit_limits(const struct unit_request *r, const struct tenant_limits *l,
                             struct cl_err *err)
{
    const struct {
        const char *name;
        uint64_t is, max;
    } rows[] = {
        {"wall_ms", r->wall_ms, l->wall_ms},
        {"vcpu_milli", r->vcpu_milli, l->unit_vcpu_milli},
        {"memory_mib", r->mem_mib, l->unit_mem_mib},
        {"disk_mib", r->disk_mib, l->unit_disk_mib},
        {"pids", r->pids, l->pids},
        {"output_bytes", r->output_bytes, l->output_bytes},
        {"args_bytes", r->args_bytes, l->args_bytes},
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        if (rows[i].is <= rows[i].max)
            continue;
        (void)cl_fail(err, CL_E_INVALID, 0, "%s: %" PRIu64 " is over the limit of %" PRIu64,
                      rows[i].name, rows[i].is, rows[i].max);
        set_subject(err, rows[i].name);
        return -1;
    }
    return 0;
}

int unit_request_check(const struct unit_request *r, const struct tenant_limits *l,
                       struct quota_need *ret_need, struct cl_err *err)
{
    if (check_unit_limits(r, l, err) < 0)
        return -1;
    struct quota_need need = {{0}};
    need.dim[DIM_VCPU] = r->vcpu_milli;
    need.dim[DIM_MEM] = r->mem_mib;
    need.dim[DIM_SANDBOXES] = 1;
    /* Both factors are within limits.def: 86.4e6 * 4000 does not wrap. */
    need.dim[DIM_CPU] = r->cpu_ms ? r->cpu_ms : (r->wall_ms * r->vcpu_milli + 999) / 1000;
    need.dim[DIM_EGRESS] = r->egress_bytes;
    need.dim[DIM_DISK] = r->disk_mib;
    const uint64_t have[DIM_NR] = {l->vcpu_milli, l->mem_mib,      l->sandboxes,
                                   l->cpu_ms,     l->egress_bytes, l->disk_mib};
    for (int d = 0; d < DIM_NR; d++) {
        if (need.dim[d] <= have[d])
            continue;
        const char *name = quota_dim_name((enum quota_dim)d);
        (void)cl_fail(err, CL_E_QUOTA, 0,
                      "needs %" PRIu64 " of %s, the tenant's whole quota is %" PRIu64, need.dim[d],
                      name, have[d]);
        set_subject(err, name);
        return -1;
    }
    *ret_need = need;
    return 0;
}

/* --- packed --------------------------------------------------------------------------------- */

size_t limits_pack(const struct tenant_limits *limits, uint8_t out[static LIMITS_PACKED_MAX])
{
    out[0] = PACK_VERSION;
    out[1] = CL_COUNT(limit_infos);
    for (size_t i = 0; i < CL_COUNT(limit_infos); i++) {
        uint64_t v = value(limits, i); /* x86-64: little endian */
        memcpy(out + PACK_HEAD + 8 * i, &v, sizeof v);
    }
    return PACK_HEAD + 8 * CL_COUNT(limit_infos);
}

int limits_unpack(const uint8_t *data, size_t n, struct tenant_limits *ret, struct cl_err *err)
{
    if (n < PACK_HEAD || data[0] != PACK_VERSION || data[1] > CL_COUNT(limit_infos))
        return cl_fail(err, CL_E_STATE, 0,
                       "limits of an unknown version (%d, %d values); upgrade this release",
                       n > 0 ? data[0] : -1, n > 1 ? data[1] : -1);
    if (n != PACK_HEAD + 8 * (size_t)data[1])
        return cl_fail(err, CL_E_DATALOSS, 0, "limits of %zu bytes, want %d values", n, data[1]);
    struct tenant_limits limits;
    limits_default(&limits);
    for (size_t i = 0; i < data[1]; i++)
        memcpy(at(&limits, i), data + PACK_HEAD + 8 * i, 8);
    if (limits_validate(&limits, err) < 0)
        return cl_wrap(err, "stored limits");
    *ret = limits;
    return 0;
}
