/* worker/warmup.c - see worker/warmup.h. */
#include "worker/warmup.h"

bool warmup_step(const struct template_manifest *m, bool boot, size_t index,
                 struct warmup_step *ret_step)
{
    size_t commands = WARMUP_ROUNDS * m->n_warmups;
    if (index < commands) {
        *ret_step = (struct warmup_step){.kind = WARMUP_COMMAND,
                                         .command = &m->warmups[index % m->n_warmups]};
        return true;
    }
    index -= commands;
    size_t starts = boot ? 2 * m->n_contexts : 0;
    if (index < starts) {
        *ret_step = (struct warmup_step){.kind = index % 2 ? WARMUP_PRELOAD : WARMUP_CONTEXT,
                                         .context = &m->contexts[index / 2]};
        return true;
    }
    index -= starts;
    if (index >= WARMUP_ROUNDS * m->n_contexts)
        return false;
    *ret_step =
        (struct warmup_step){.kind = WARMUP_CELL, .context = &m->contexts[index % m->n_contexts]};
    return true;
}
