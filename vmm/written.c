/* vmm/written.c - see vmm/written.h. */
#include "vmm/written.h"

static uint32_t end_of(const struct written_run *run)
{
    return run->first + run->pages;
}

void written_add(struct written *w, uint32_t page)
{
    struct written_run *last = w->n > 0 ? &w->runs[w->n - 1] : NULL;
    CL_ASSERT(!last || page >= end_of(last));
    if (last && page - end_of(last) <= WRITTEN_GAP)
        last->pages = page + 1 - last->first;
    else if (w->n < WRITTEN_RUNS_MAX)
        w->runs[w->n++] = (struct written_run){page, 1};
}

void written_save(const struct written *w, struct state_writer *out)
{
    state_begin(out, STATE_WRITTEN);
    state_put_u32(out, w->n);
    for (uint32_t i = 0; i < w->n; i++) {
        state_put_u32(out, w->runs[i].first);
        state_put_u32(out, w->runs[i].pages);
    }
    state_end(out);
}

/* Behind the one before it, and in memory. */
static bool can_be(struct written_run run, uint64_t from, uint64_t to)
{
    return run.pages > 0 && run.first >= from && run.first <= to && run.pages <= to - run.first;
}

int written_load(struct written *w, uint64_t mem_bytes, struct state_reader *in, struct cl_err *err)
{
    uint64_t from = 0;
    w->n = 0;
    if (state_enter(in, STATE_WRITTEN, err) < 0)
        return -1;
    uint32_t n = state_get_u32(in);
    if (n > WRITTEN_RUNS_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "%u runs of written pages; at most %d", n,
                       WRITTEN_RUNS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        struct written_run run;
        run.first = state_get_u32(in);
        run.pages = state_get_u32(in);
        if (!can_be(run, from, mem_bytes / WRITTEN_PAGE))
            return cl_fail(err, CL_E_INVALID, 0, "written pages %u and %u more", run.first,
                           run.pages);
        w->runs[w->n++] = run;
        from = (uint64_t)run.first + run.pages;
    }
    return state_leave(in, err);
}
