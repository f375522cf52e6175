/* observability/metrics.c - see observability/metrics.h. */
#include "observability/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum kind { COUNTER, GAUGE, HISTOGRAM };
enum { LABEL_MAX = 96 };

static const struct {
    enum kind kind;
    const char *name, *label1, *label2, *help;
} infos[] = {
#define METRIC(id, kind, name, label1, label2, help) {kind, name, label1, label2, help},
#include "observability/metrics.def"
#undef METRIC
};

/* Upper bounds in microseconds: from a warm claim to a cold boot. */
static const uint64_t bounds_us[] = {50,     100,     250,     500,     1000,     2500,
                                     5000,   10000,   25000,   50000,   100000,   250000,
                                     500000, 1000000, 2500000, 5000000, 10000000, 30000000};
enum { BUCKETS = CL_COUNT(bounds_us) };

struct series {
    char l1[LABEL_MAX], l2[LABEL_MAX];
    uint64_t value; /* of a histogram: the count */
    uint64_t sum_ns;
    uint64_t *buckets; /* owned; histograms only */
};

struct metrics {
    struct {
        struct series *series; /* owned */
        size_t n, cap;
    } of[METRIC_NR];
};

int metrics_new(struct metrics **ret_metrics, struct cl_err *err)
{
    *ret_metrics = cl_zalloc(sizeof **ret_metrics);
    return *ret_metrics ? 0 : cl_fail(err, CL_E_NOMEM, 0, "metrics");
}

void metrics_clear(struct metrics *m, enum metric id)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->of[id].n; i++)
        cl_free(m->of[id].series[i].buckets);
    m->of[id].n = 0;
}

void metrics_free(struct metrics *m)
{
    for (int id = 0; m && id < METRIC_NR; id++) {
        metrics_clear(m, (enum metric)id);
        cl_free(m->of[id].series);
    }
    cl_free(m);
}

static struct series *find(struct metrics *m, enum metric id, const char *l1, const char *l2)
{
    for (size_t i = 0; i < m->of[id].n; i++) {
        struct series *s = &m->of[id].series[i];
        if (strncmp(s->l1, l1, LABEL_MAX - 1) == 0 && strncmp(s->l2, l2, LABEL_MAX - 1) == 0)
            return s;
    }
    return NULL;
}

/* The series of these labels; NULL only when memory is short (a lost count is no reason to fail).
 */
static struct series *get(struct metrics *m, enum metric id, const char *l1, const char *l2)
{
    if (!m)
        return NULL;
    l1 = l1 ? l1 : "";
    l2 = l2 ? l2 : "";
    struct series *s = find(m, id, l1, l2);
    if (s)
        return s;
    if (m->of[id].n >= METRICS_SERIES - 1) {
        l1 = infos[id].label1[0] ? "other" : "";
        l2 = infos[id].label2[0] ? "other" : "";
        s = find(m, id, l1, l2);
        if (s)
            return s;
    }
    uint64_t *buckets =
        infos[id].kind == HISTOGRAM ? cl_zalloc_array(BUCKETS, sizeof *buckets) : NULL;
    if ((infos[id].kind == HISTOGRAM && !buckets) ||
        cl_grow(&m->of[id].series, &m->of[id].cap, m->of[id].n + 1, METRICS_SERIES, sizeof *s,
                NULL) < 0) {
        cl_free(buckets);
        return NULL;
    }
    s = &m->of[id].series[m->of[id].n++];
    *s = (struct series){.buckets = buckets};
    (void)snprintf(s->l1, sizeof s->l1, "%s", l1);
    (void)snprintf(s->l2, sizeof s->l2, "%s", l2);
    return s;
}

void metrics_add(struct metrics *m, enum metric id, const char *l1, const char *l2, uint64_t n)
{
    struct series *s = get(m, id, l1, l2);
    if (s)
        s->value += n;
}

void metrics_set(struct metrics *m, enum metric id, const char *l1, const char *l2, uint64_t value)
{
    struct series *s = get(m, id, l1, l2);
    if (s)
        s->value = value;
}

void metrics_observe(struct metrics *m, enum metric id, const char *l1, const char *l2, uint64_t ns)
{
    struct series *s = get(m, id, l1, l2);
    if (!s)
        return;
    s->value++;
    s->sum_ns += ns;
    for (size_t i = 0; i < BUCKETS; i++)
        s->buckets[i] += ns <= bounds_us[i] * CL_NS_PER_US;
}

/* --- text ---------------------------------------------------------------------------------------
 */

static int put_label(struct cl_buf *out, const char *name, const char *value, bool *any,
                     struct cl_err *err)
{
    if (!name[0])
        return 0;
    if (cl_buf_printf(out, err, "%s%s=\"", *any ? "," : "{", name) < 0)
        return -1;
    *any = true;
    for (const char *c = value; *c; c++) {
        const char *escaped = *c == '\\' ? "\\\\" : *c == '"' ? "\\\"" : *c == '\n' ? "\\n" : NULL;
        if ((escaped ? cl_buf_append(out, escaped, 2, err) : cl_buf_append(out, c, 1, err)) < 0)
            return -1;
    }
    return cl_buf_append(out, "\"", 1, err);
}

static int put_name(struct cl_buf *out, int id, const char *suffix, const struct series *s,
                    const char *le, struct cl_err *err)
{
    bool any = false;
    if (cl_buf_printf(out, err, "%s%s", infos[id].name, suffix) < 0 ||
        put_label(out, infos[id].label1, s->l1, &any, err) < 0 ||
        put_label(out, infos[id].label2, s->l2, &any, err) < 0 ||
        (le && put_label(out, "le", le, &any, err) < 0))
        return -1;
    return cl_buf_printf(out, err, "%s ", any ? "}" : "");
}

static int put_histogram(struct cl_buf *out, int id, const struct series *s, struct cl_err *err)
{
    char le[32];
    for (size_t i = 0; i <= BUCKETS; i++) {
        if (i < BUCKETS)
            (void)snprintf(le, sizeof le, "%g", (double)bounds_us[i] / 1e6);
        if (put_name(out, id, "_bucket", s, i < BUCKETS ? le : "+Inf", err) < 0 ||
            cl_buf_printf(out, err, "%" PRIu64 "\n", i < BUCKETS ? s->buckets[i] : s->value) < 0)
            return -1;
    }
    if (put_name(out, id, "_sum", s, NULL, err) < 0 ||
        cl_buf_printf(out, err, "%.9f\n", (double)s->sum_ns / 1e9) < 0 ||
        put_name(out, id, "_count", s, NULL, err) < 0)
        return -1;
    return cl_buf_printf(out, err, "%" PRIu64 "\n", s->value);
}

int metrics_render(const struct metrics *m, struct cl_buf *out, struct cl_err *err)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};
    for (int id = 0; id < METRIC_NR; id++) {
        if (m->of[id].n > 0 &&
            cl_buf_printf(out, err, "# HELP %s %s\n# TYPE %s %s\n", infos[id].name, infos[id].help,
                          infos[id].name, types[infos[id].kind]) < 0)
            return -1;
        for (size_t i = 0; i < m->of[id].n; i++) {
            const struct series *s = &m->of[id].series[i];
            int rc = infos[id].kind == HISTOGRAM ? put_histogram(out, id, s, err)
                     : put_name(out, id, "", s, NULL, err) < 0
                         ? -1
                         : cl_buf_printf(out, err, "%" PRIu64 "\n", s->value);
            if (rc < 0)
                return -1;
        }
    }
    return 0;
}
