/* worker/machine_usage_io.c - what a machine's unit uses, over time: its host knows the CPU time,
 * its guest is asked for the rest.
 *
 * A VM that did nothing has nothing new to say: it is left in peace.
 */
#include "base/clock.h"
#include "worker/machine_priv.h"
#include "worker/vm_process.h"

enum {
    USAGE_EVERY_S = 5,
    USAGE_LEAST_MS = 50, /* of CPU: with less it did nothing */
};

uint64_t machine_cpu_ns(const struct machine *m)
{
    bool has_vm = m->vm && m->state != MACHINE_STORING;
    return m->spent_cpu_ns + (has_vm ? vm_process_cpu_ns(machine_driver(m)->pid(m->vm)) : 0);
}

const struct usage *machine_usage(const struct machine *m)
{
    return &m->usage.series;
}

/* A guest that does not read is not asked twice. */
static void ask_guest(struct machine *m)
{
    struct machine_usage *u = &m->usage;
    u->is_asked = u->is_asked || guest_ask_stats(m->guest, NULL) == 0;
}

static void on_usage_timer(void *arg)
{
    struct machine *m = arg;
    if (m->state != MACHINE_CLAIMED)
        return;
    if (machine_cpu_ns(m) - m->usage.cpu_ns >= USAGE_LEAST_MS * CL_NS_PER_MS)
        ask_guest(m);
    cl_timer_start(&m->usage.timer, USAGE_EVERY_S * CL_NS_PER_S);
}

int machine_usage_init(struct machine *m, struct cl_err *err)
{
    return cl_timer_init(&m->usage.timer, m->host->loop, on_usage_timer, m, err);
}

void machine_usage_goes_on(struct machine *m)
{
    struct machine_usage *u = &m->usage;
    uint64_t now_ns = cl_now_ns();
    u->is_asked = false;
    if (u->since_ns == 0) {
        u->since_ns = now_ns;
        u->cpu_ns = machine_cpu_ns(m);
    } else if (u->rests_ns > 0) {
        u->since_ns += now_ns - u->rests_ns;
    }
    u->rests_ns = 0;
    cl_timer_start(&u->timer, USAGE_EVERY_S * CL_NS_PER_S);
}

void machine_usage_rests(struct machine *m)
{
    m->usage.rests_ns = cl_now_ns();
}

void machine_usage_keep(const struct machine *m, struct machine_kept *ret_kept)
{
    const struct machine_usage *u = &m->usage;
    ret_kept->usage = u->series;
    ret_kept->usage_open_ns = u->rests_ns - u->since_ns;
    ret_kept->usage_cpu_ns = u->cpu_ns;
}

/* Of a release that kept none: it begins anew when it goes on. */
int machine_usage_restore(struct machine *m, const struct machine_kept *kept, struct cl_err *err)
{
    struct machine_usage *u = &m->usage;
    if (kept->usage.n == 0 && kept->usage_open_ns == 0)
        return 0;
    if (usage_copy(&u->series, &kept->usage, err) < 0)
        return -1;
    u->rests_ns = cl_now_ns();
    u->since_ns = u->rests_ns - CL_MIN(kept->usage_open_ns, u->rests_ns - 1);
    u->cpu_ns = kept->usage_cpu_ns;
    return 0;
}

static void answer_queries(struct machine *m)
{
    struct cl_list *queries = &m->usage.queries;
    while (!cl_list_empty(queries)) {
        struct machine_usage_query *q =
            CL_LIST_ENTRY(queries->next, struct machine_usage_query, link);
        cl_list_unlink(&q->link);
        q->fn(q->arg);
    }
}

/* Hostile: it may say anything, but not more than it has. */
static struct usage_sample sample_of(const struct machine *m, const Cloche__V1__GuestStats *s)
{
    uint64_t total = CL_MIN(s->memory_total_bytes, m->template->memory_mib * CL_MIB);
    uint64_t available = CL_MIN(s->memory_available_bytes, total);
    uint64_t disk = CL_MIN(s->scratch_total_bytes, m->disk_bytes);
    return (struct usage_sample){.at_ns = cl_wall_ns(),
                                 .memory_used = total - available,
                                 .memory_cached = CL_MIN(s->memory_cached_bytes, available),
                                 .memory_total = total,
                                 .scratch_used = disk - CL_MIN(s->scratch_free_bytes, disk),
                                 .scratch_total = disk,
                                 .processes = s->processes};
}

void machine_usage_take(struct machine *m, const Cloche__V1__GuestStats *stats)
{
    struct machine_usage *u = &m->usage;
    if (!u->is_asked)
        return;
    u->is_asked = false;
    struct usage_sample sample = sample_of(m, stats);
    uint64_t now_ns = cl_now_ns(), cpu_ns = machine_cpu_ns(m);
    sample.span_ns = now_ns - u->since_ns;
    sample.cpu_ns = cpu_ns - CL_MIN(cpu_ns, u->cpu_ns);
    if (usage_add(&u->series, &sample, NULL) == 0) { /* else it becomes part of the next */
        u->since_ns = now_ns;
        u->cpu_ns = cpu_ns;
    }
    answer_queries(m);
}

bool machine_ask_usage(struct machine *m, struct machine_usage_query *query)
{
    if (m->state != MACHINE_CLAIMED || m->broken)
        return false;
    ask_guest(m);
    if (!m->usage.is_asked)
        return false; /* a full queue: it has more urgent frames to read */
    cl_list_push(&m->usage.queries, &query->link);
    return true;
}

void machine_usage_stop(struct machine *m)
{
    cl_timer_stop(&m->usage.timer);
    answer_queries(m);
}

void machine_usage_fini(struct machine *m)
{
    machine_usage_stop(m);
    cl_timer_fini(&m->usage.timer);
    usage_fini(&m->usage.series);
}
