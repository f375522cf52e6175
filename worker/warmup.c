/* worker/warmup.c - see worker/warmup.h. */
#include "worker/warmup.h"

/* Commands, or cells: which of them, round by round; false, and *index behind them, past the last.
 */
static bool is_command(const struct template_manifest *m, size_t rounds, size_t *index,
                       struct warmup_step *ret_step)
{
    if (*index >= rounds * m->n_warmups) {
        *index -= rounds * m->n_warmups;
        return false;
    }
    *ret_step =
        (struct warmup_step){.kind = WARMUP_COMMAND, .command = &m->warmups[*index % m->n_warmups]};
    return true;
}

static bool is_cell(const struct template_manifest *m, size_t rounds, size_t *index,
                    struct warmup_step *ret_step)
{
    if (*index >= rounds * m->n_contexts) {
        *index -= rounds * m->n_contexts;
        return false;
    }
    *ret_step =
        (struct warmup_step){.kind = WARMUP_CELL, .context = &m->contexts[*index % m->n_contexts]};
    return true;
}

static bool is_start(const struct template_manifest *m, size_t *index, struct warmup_step *ret_step)
{
    if (*index >= 2 * m->n_contexts) {
        *index -= 2 * m->n_contexts;
        return false;
    }
    *ret_step = (struct warmup_step){.kind = *index % 2 ? WARMUP_PRELOAD : WARMUP_CONTEXT,
                                     .context = &m->contexts[*index / 2]};
    return true;
}

static bool is_rehearsal(const struct template_manifest *m, size_t index,
                         struct warmup_step *ret_step)
{
    static const enum warmup_kind begin[] = {WARMUP_REHEARSE, WARMUP_IDENTITY};
    if (index < CL_COUNT(begin)) {
        *ret_step = (struct warmup_step){.kind = begin[index]};
        return true;
    }
    index -= CL_COUNT(begin);
    return m->n_contexts > 0 ? is_cell(m, 1, &index, ret_step) : is_command(m, 1, &index, ret_step);
}

bool warmup_step(const struct template_manifest *m, bool boot, size_t index,
                 struct warmup_step *ret_step)
{
    return is_command(m, WARMUP_ROUNDS, &index, ret_step) ||
           (boot && is_start(m, &index, ret_step)) || is_cell(m, WARMUP_ROUNDS, &index, ret_step) ||
           (boot && is_rehearsal(m, index, ret_step));
}
