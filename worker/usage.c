/* worker/usage.c - see worker/usage.h. */
#include "worker/usage.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

void usage_fini(struct usage *u)
{
    cl_free(u->samples);
    *u = (struct usage){0};
}

/* One that is as long as both. */
static struct usage_sample join(const struct usage_sample pair[static 2])
{
    struct usage_sample both = pair[1];
    both.span_ns += pair->span_ns;
    both.cpu_ns += pair->cpu_ns;
    both.memory_used = CL_MAX(both.memory_used, pair->memory_used);
    both.scratch_used = CL_MAX(both.scratch_used, pair->scratch_used);
    both.processes = CL_MAX(both.processes, pair->processes);
    return both;
}

static void make_room(struct usage *u)
{
    size_t half = u->n / 2, kept = 0;
    CL_ASSERT(u->samples);
    for (size_t i = 0; i + 1 < half; i += 2)
        u->samples[kept++] = join(&u->samples[i]);
    size_t from = 2 * kept;
    memmove(u->samples + kept, u->samples + from, (u->n - from) * sizeof *u->samples);
    u->n -= from - kept;
}

int usage_copy(struct usage *u, const struct usage *from, struct cl_err *err)
{
    CL_ASSERT(u->n == 0 && from->n <= USAGE_MAX);
    if (from->n > 0 &&
        cl_grow(&u->samples, &u->room, from->n, USAGE_MAX, sizeof *u->samples, err) < 0)
        return cl_wrap(err, "usage");
    for (size_t i = 0; i < from->n; i++)
        u->samples[u->n++] = from->samples[i];
    return 0;
}

int usage_add(struct usage *u, const struct usage_sample *sample, struct cl_err *err)
{
    struct usage_sample *last = u->n > 0 ? &u->samples[u->n - 1] : NULL;
    if (last && last->span_ns < USAGE_WHOLE_MS * CL_NS_PER_MS) {
        struct usage_sample whole = *sample;
        whole.span_ns += last->span_ns;
        whole.cpu_ns += last->cpu_ns;
        *last = whole;
        return 0;
    }
    if (u->n == USAGE_MAX)
        make_room(u);
    if (cl_grow(&u->samples, &u->room, u->n + 1, USAGE_MAX, sizeof *u->samples, err) < 0)
        return cl_wrap(err, "usage");
    u->samples[u->n++] = *sample;
    return 0;
}
