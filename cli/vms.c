/* cli/vms.c - `cloche vm stats`, `cloche vm usage`: what is counted of the VM of a sandbox or a
 * job.
 *
 * Owns:    nothing.
 * Thread:  the only one.
 */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cli/client.h"
#include "cli/output.h"
#include "cli/sample.h"
#include "cli/values.h"
#include "cloche/v1/sandbox.pb-c.h"
#include "proto/copy.h"

static bool is_exit(const char *name)
{
    return strncmp(name, "exits.", 6) == 0 || strncmp(name, "kicks.", 6) == 0;
}

/* null where there are none: a 0 would say that nothing happened. */
static json_t *counters_json(const Cloche__V1__VmStats *s, uint64_t *ret_exits)
{
    json_t *o = s->has_counters ? json_object() : json_null();
    *ret_exits = 0;
    for (size_t i = 0; s->has_counters && i < s->n_counters; i++) {
        const Cloche__V1__VmCounter *c = s->counters[i];
        (void)json_object_set_new(o, c->name, json_integer((json_int_t)c->value));
        *ret_exits += is_exit(c->name) ? c->value : 0;
    }
    return o;
}

static json_t *stats_json(const char *id, const Cloche__V1__VmStats *s)
{
    uint64_t exits;
    json_t *counters = counters_json(s, &exits);
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:o, s:o}", "id", id, "driver", s->driver,
                     "guest_separation", value_separation((int)s->guest_separation), "cpu_ms",
                     (json_int_t)(s->cpu_ns / CL_NS_PER_MS), "memory_bytes",
                     (json_int_t)s->memory_bytes, "monitor_exits",
                     s->has_counters ? json_integer((json_int_t)exits) : json_null(), "counters",
                     counters);
}

static void print_counters(const json_t *counters, bool all)
{
    static const struct out_col cols[] = {{"name", "COUNTER"}, {"value", "N"}};
    json_t *rows = json_array(), *value;
    const char *name;
    json_object_foreach((json_t *)(uintptr_t)counters, name, value)
    {
        if (all || json_integer_value(value) > 0)
            (void)json_array_append_new(rows,
                                        json_pack("{s:s, s:O}", "name", name, "value", value));
    }
    (void)putchar('\n');
    (void)out_rows(false, rows, cols, CL_COUNT(cols));
}

static int print_stats(const struct cli_opts *o, const char *id, const Cloche__V1__VmStats *s)
{
    static const struct out_col lines[] = {{"id", "id"},
                                           {"driver", "driver"},
                                           {"guest_separation", "guests"},
                                           {"cpu_ms", "CPU ms"},
                                           {"memory_bytes", "memory"},
                                           {"monitor_exits", "exits to the monitor"}};
    json_t *stats = stats_json(id, s);
    if (o->json)
        return out_json(stats);
    (void)out_object(false, json_incref(stats), lines, CL_COUNT(lines));
    if (s->has_counters)
        print_counters(json_object_get(stats, "counters"), o->all);
    else
        (void)printf("\nno counters: QEMU keeps none; the drivers kvm and kvm/xenpv do\n");
    json_decref(stats);
    return EXIT_OK;
}

static int cmd_stats(const struct cli_opts *o, const struct args *a)
{
    static const struct client_method method =
        CLIENT_METHOD("SandboxService", "Stats", stats_response);
    struct cl_err err = {0};
    ProtobufCMessage *msg = NULL;
    CL_AUTO(client_freep) struct client *client = NULL;
    Cloche__V1__StatsRequest req = CLOCHE__V1__STATS_REQUEST__INIT;
    req.unit_id = pb_text(a->pos[0]);
    if (client_open(o, &client, &err) < 0 ||
        client_unary(client, &method, &req.base, 0, &msg, &err) < 0)
        return cli_report(&err);
    const Cloche__V1__VmStats *s = ((const Cloche__V1__StatsResponse *)msg)->stats;
    if (!s)
        (void)cl_fail(&err, CL_E_PEER, 0, "the service answered without statistics");
    int code = s ? print_stats(o, a->pos[0], s) : cli_report(&err);
    pb_free(msg);
    return code;
}

/* --- usage ------------------------------------------------------------------------------------ */

enum { USAGE_LINES = 20 };

static json_t *sample_row(const Cloche__V1__UsageSample *s)
{
    char cached[VALUE_TEXT], span[VALUE_TEXT];
    cl_text_bytes(s->memory_cached_bytes, cached);
    value_age_text(s->span_ns, span);
    return json_pack("{s:o, s:s, s:o, s:o, s:s, s:o, s:I}", "at",
                     out_time(s->at ? s->at->unix_ns : 0), "span", span, "cpu",
                     json_sprintf("%.1f%%", sample_cpu_percent(s)), "memory",
                     sample_of_text(s->memory_used_bytes, s->memory_total_bytes), "cached", cached,
                     "disk", sample_of_text(s->scratch_used_bytes, s->scratch_total_bytes),
                     "processes", (json_int_t)s->processes);
}

static int print_usage(const struct cli_opts *o, const char *id, const Cloche__V1__UsageResponse *m)
{
    static const struct out_col cols[] = {{"at", "AT"},
                                          {"span", "FOR"},
                                          {"cpu", "CPU"},
                                          {"memory", "MEMORY"},
                                          {"cached", "CACHED"},
                                          {"disk", "DISK"},
                                          {"processes", "PROCESSES"}};
    size_t lines = o->lines ? o->lines : o->json ? SIZE_MAX : USAGE_LINES;
    size_t from = m->n_samples > lines ? m->n_samples - lines : 0;
    json_t *rows = json_array();
    for (size_t i = from; i < m->n_samples; i++)
        (void)json_array_append_new(rows, o->json ? sample_json(m->samples[i])
                                                  : sample_row(m->samples[i]));
    if (o->json)
        return out_json(
            json_pack("{s:s, s:i, s:o}", "id", id, "vcpus", (int)m->vcpus, "samples", rows));
    return out_rows(false, rows, cols, CL_COUNT(cols));
}

static int cmd_usage(const struct cli_opts *o, const struct args *a)
{
    static const struct client_method method =
        CLIENT_METHOD("SandboxService", "Usage", usage_response);
    struct cl_err err = {0};
    ProtobufCMessage *msg = NULL;
    CL_AUTO(client_freep) struct client *client = NULL;
    Cloche__V1__UsageRequest req = CLOCHE__V1__USAGE_REQUEST__INIT;
    req.unit_id = pb_text(a->pos[0]);
    if (client_open(o, &client, &err) < 0 ||
        client_unary(client, &method, &req.base, 0, &msg, &err) < 0)
        return cli_report(&err);
    int code = print_usage(o, a->pos[0], (const Cloche__V1__UsageResponse *)msg);
    pb_free(msg);
    return code;
}

static const struct arg_opt usage_opts[] = {
    OPT_JSON, {"lines", 'n', ARG_U64, OPT(lines), "N", "only the last N (default: 20)"}};

static const struct arg_opt stats_opts[] = {
    OPT_JSON, {"all", 'a', ARG_FLAG, OPT(all), NULL, "counters that are 0, too"}};

const struct cli_command vm_commands[] = {
    {"vm stats", "[--all] [--json] SANDBOX|JOB", "what is counted of the VM of a sandbox or a job",
     "How often its vCPUs left the guest for the monitor, and why; interrupts; what KVM counts.\n"
     "From the start of its process on; docs/vm-counters.md tells what each one means.  Looking "
     "does\n"
     "not renew a sandbox's time to live.  VMs of QEMU have no counters.\n\n"
     "  cloche vm stats sbx_01...\n"
     "  cloche vm stats --json job_01... | jq '.counters[\"kicks.vsock\"]'\n",
     SPEC(stats_opts, 1, 1), cmd_stats, false},
    {"vm usage", "[-n N] [--json] SANDBOX|JOB", "CPU time, memory and disk it used, over time",
     "A line for each 5 seconds in which its VM did something, up to now; the older ones are "
     "longer.\n"
     "100% CPU: one vCPU computes.  Memory is without the page cache (CACHED), which can be "
     "dropped.\n"
     "Looking does not renew a sandbox's time to live.  docs/usage.md tells more.\n\n"
     "  cloche vm usage sbx_01...\n"
     "  cloche vm usage --json sbx_01... | jq '[.samples[].memory_used_bytes] | max'\n",
     SPEC(usage_opts, 1, 1), cmd_usage, false},
};
const size_t vm_commands_n = CL_COUNT(vm_commands);
