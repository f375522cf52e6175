/* e2b/metrics.c - see e2b/metrics.h; and the control plane's question for them. */
#include "e2b/metrics.h"

#include "base/clock.h"
#include "base/conf.h"
#include "e2b/box_priv.h"

static int read_second(const char *query, const char *name, uint64_t *second, struct cl_err *err)
{
    char text[24] = "";
    if (e2b_query_get(query, name, text, sizeof text) < 0 ||
        (text[0] && cl_parse_u64(text, second, NULL) < 0))
        return cl_fail(err, CL_E_INVALID, 0, "%s: want whole seconds since 1970", name);
    return 0;
}

int e2b_period_read(const char *query, struct e2b_period *ret, struct cl_err *err)
{
    *ret = (struct e2b_period){.start = 0, .end = UINT64_MAX};
    return read_second(query, "start", &ret->start, err) < 0 ||
                   read_second(query, "end", &ret->end, err) < 0
               ? -1
               : 0;
}

/* 100 = all vCPUs compute; the monitor's own share may go beyond. */
static double cpu_percent(const Cloche__V1__UsageSample *s, uint32_t vcpus)
{
    double whole = (double)s->span_ns * vcpus;
    double percent = whole > 0 ? 100.0 * (double)s->cpu_ns / whole : 0;
    return (double)(int)(CL_MIN(percent, 100.0) * 100 + 0.5) / 100;
}

static json_int_t integer(uint64_t n)
{
    return (json_int_t)CL_MIN(n, (uint64_t)INT64_MAX);
}

static json_t *metric_of(const Cloche__V1__UsageSample *s, uint32_t vcpus)
{
    char when[CL_RFC3339_LEN];
    cl_rfc3339(s->at->unix_ns, when);
    return json_pack("{s:s, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I}", "timestamp", when,
                     "timestampUnix", integer(s->at->unix_ns / CL_NS_PER_S), "cpuCount",
                     integer(vcpus), "cpuUsedPct", cpu_percent(s, vcpus), "memUsed",
                     integer(s->memory_used_bytes), "memTotal", integer(s->memory_total_bytes),
                     "memCache", integer(s->memory_cached_bytes), "diskUsed",
                     integer(s->scratch_used_bytes), "diskTotal", integer(s->scratch_total_bytes));
}

json_t *e2b_metrics_of(const Cloche__V1__UsageResponse *usage, const struct e2b_period *period)
{
    json_t *list = json_array();
    for (size_t i = 0; i < usage->n_samples; i++) {
        const Cloche__V1__UsageSample *s = usage->samples[i];
        uint64_t second = s->at ? s->at->unix_ns / CL_NS_PER_S : 0;
        if (s->at && second >= period->start && second <= period->end &&
            json_array_append_new(list, metric_of(s, usage->vcpus)) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* --- GET /sandboxes/ID/metrics ------------------------------------------------------------------
 */

static void on_usage(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    struct cl_err own = {0};
    struct e2b_period period;
    json_t *list = NULL;
    if (err && err->code == CL_E_NOTFOUND) {
        e2b_box_fail_unknown(c);
        return;
    }
    if (!err && e2b_period_read(c->in.query, &period, &own) == 0)
        list = e2b_metrics_of((const Cloche__V1__UsageResponse *)reply, &period);
    if (!err && !list && own.code == CL_OK)
        (void)cl_fail(&own, CL_E_NOMEM, 0, "metrics");
    if (list)
        e2b_reply(c, 200, list);
    else
        e2b_fail(c, err ? err : &own);
}

void e2b_sandbox_metrics(struct e2b_call *c)
{
    static const struct e2b_method usage = E2B_RPC("SandboxService", "Usage", usage_response);
    Cloche__V1__UsageRequest m = CLOCHE__V1__USAGE_REQUEST__INIT;
    struct e2b_period period;
    struct cl_err err = {0};
    if (e2b_period_read(c->in.query, &period, &err) < 0) {
        e2b_fail(c, &err);
        return;
    }
    m.unit_id = c->id;
    (void)!e2b_ask(c, &(struct e2b_ask){.method = &usage, .request = &m.base, .on_end = on_usage},
                   NULL);
}
