/* vmm/page_runs.c - see vmm/page_runs.h. */
#include "vmm/page_runs.h"

static uint32_t end_of(const struct page_run *run)
{
    return run->first + run->pages;
}

void page_runs_add(struct page_runs *p, uint32_t page)
{
    struct page_run *last = p->n > 0 ? &p->runs[p->n - 1] : NULL;
    CL_ASSERT(!last || page >= end_of(last));
    if (last && page - end_of(last) <= PAGE_RUNS_GAP)
        last->pages = page + 1 - last->first;
    else if (p->n < PAGE_RUNS_MAX)
        p->runs[p->n++] = (struct page_run){page, 1};
}

void page_runs_save(const struct page_runs *p, enum state_section section, struct state_writer *out)
{
    state_begin(out, section);
    state_put_u32(out, p->n);
    for (uint32_t i = 0; i < p->n; i++) {
        state_put_u32(out, p->runs[i].first);
        state_put_u32(out, p->runs[i].pages);
    }
    state_end(out);
}

/* Behind the one before it, and in memory. */
static bool can_be(struct page_run run, uint64_t from, uint64_t to)
{
    return run.pages > 0 && run.first >= from && run.first <= to && run.pages <= to - run.first;
}

int page_runs_load(struct page_runs *p, enum state_section section, uint64_t mem_bytes,
                   struct state_reader *in, struct cl_err *err)
{
    uint64_t from = 0;
    p->n = 0;
    if (state_enter(in, section, err) < 0)
        return -1;
    uint32_t n = state_get_u32(in);
    if (n > PAGE_RUNS_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "%u runs of pages; at most %d", n, PAGE_RUNS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        struct page_run run;
        run.first = state_get_u32(in);
        run.pages = state_get_u32(in);
        if (!can_be(run, from, mem_bytes / RUNS_PAGE))
            return cl_fail(err, CL_E_INVALID, 0, "a run of pages at %u, %u of them", run.first,
                           run.pages);
        p->runs[p->n++] = run;
        from = (uint64_t)run.first + run.pages;
    }
    return state_leave(in, err);
}
