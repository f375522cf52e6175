/* worker/warmup.c - see worker/warmup.h. */
#include "worker/warmup.h"

/* Is it one of the next n?  If not, it counts from behind them. */
static bool is_among(size_t n, size_t *index)
{
    if (*index < n)
        return true;
    *index -= n;
    return false;
}

static struct warmup_step command_of(const struct template_manifest *m, size_t index)
{
    return (struct warmup_step){.kind = WARMUP_COMMAND,
                                .command = &m->warmups[index % m->n_warmups]};
}

static struct warmup_step start_of(const struct template_manifest *m, size_t index)
{
    return (struct warmup_step){.kind = index % 2 ? WARMUP_PRELOAD : WARMUP_CONTEXT,
                                .context = &m->contexts[index / 2]};
}

static struct warmup_step cell_of(const struct template_manifest *m, size_t index)
{
    return (struct warmup_step){.kind = WARMUP_CELL,
                                .context = &m->contexts[index % m->n_contexts]};
}

static bool rehearsal_step(const struct template_manifest *m, size_t index,
                           struct warmup_step *ret_step)
{
    if (is_among(1, &index))
        *ret_step = (struct warmup_step){.kind = WARMUP_REHEARSE};
    else if (is_among(1, &index))
        *ret_step = (struct warmup_step){.kind = WARMUP_IDENTITY};
    else if (is_among(m->n_contexts, &index))
        *ret_step = cell_of(m, index);
    else if (m->n_contexts == 0 && is_among(m->n_warmups, &index))
        *ret_step = command_of(m, index);
    else
        return false;
    return true;
}

bool warmup_step(const struct template_manifest *m, bool boot, size_t index,
                 struct warmup_step *ret_step)
{
    if (is_among(WARMUP_ROUNDS * m->n_warmups, &index))
        *ret_step = command_of(m, index);
    else if (boot && is_among(2 * m->n_contexts, &index))
        *ret_step = start_of(m, index);
    else if (is_among(WARMUP_ROUNDS * m->n_contexts, &index))
        *ret_step = cell_of(m, index);
    else
        return boot && rehearsal_step(m, index, ret_step);
    return true;
}
