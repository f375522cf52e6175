/* agent/thrash.c - see agent/thrash.h. */
#include "agent/thrash.h"

#include "base/util.h"

enum { PAGE = 4096 };

bool thrash_is_on(struct thrash *t, const struct thrash_look *look)
{
    const struct thrash_look *first = &t->first;
    bool is_new = first->limit_bytes == 0 || look->limit_bytes == 0 ||
                  look->now_ns - t->last_ns > THRASH_GAP_NS ||
                  look->cache_bytes > look->limit_bytes / THRASH_CACHE_SHARE;
    t->last_ns = look->now_ns;
    if (is_new) {
        t->first = *look;
        return false;
    }
    uint64_t time_ns = look->now_ns - first->now_ns;
    uint64_t cache_pages = CL_MAX(look->cache_bytes, (uint64_t)THRASH_CACHE_LEAST) / PAGE;
    uint64_t reread = look->reread_pages - first->reread_pages;
    bool is_on = time_ns >= THRASH_LEAST_NS && reread >= cache_pages * THRASH_TIMES &&
                 reread <= (look->faults - first->faults) * THRASH_PAGES_A_FAULT &&
                 look->user_ns - first->user_ns < time_ns / THRASH_USER_SHARE;
    if (is_on)
        *t = (struct thrash){0};
    else if (time_ns >= THRASH_MOST_NS)
        t->first = *look;
    return is_on;
}
