/* cli/sample.c - see cli/sample.h. */
#include "cli/sample.h"

#include "base/clock.h"
#include "base/text.h"
#include "base/util.h"
#include "cli/output.h"
#include "cli/values.h"

double sample_cpu_percent(const Cloche__V1__UsageSample *s)
{
    double percent = s->span_ns ? 100.0 * (double)s->cpu_ns / (double)s->span_ns : 0;
    return (double)(uint64_t)(CL_MIN(percent, 1e6) * 10 + 0.5) / 10;
}

json_t *sample_json(const Cloche__V1__UsageSample *s)
{
    return json_pack(
        "{s:o, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I}", "at",
        out_time(s->at ? s->at->unix_ns : 0), "span_ms", (json_int_t)(s->span_ns / CL_NS_PER_MS),
        "cpu_ms", (json_int_t)(s->cpu_ns / CL_NS_PER_MS), "cpu_percent", sample_cpu_percent(s),
        "memory_used_bytes", (json_int_t)s->memory_used_bytes, "memory_cached_bytes",
        (json_int_t)s->memory_cached_bytes, "memory_total_bytes", (json_int_t)s->memory_total_bytes,
        "scratch_used_bytes", (json_int_t)s->scratch_used_bytes, "scratch_total_bytes",
        (json_int_t)s->scratch_total_bytes, "processes", (json_int_t)s->processes);
}

json_t *sample_of_text(uint64_t part, uint64_t whole)
{
    char a[VALUE_TEXT], b[VALUE_TEXT];
    cl_text_bytes(part, a);
    cl_text_bytes(whole, b);
    return json_sprintf("%s of %s", a, b);
}
