/* agent/thrash.c - see agent/thrash.h. */
#include "agent/thrash.h"

#include "base/util.h"

enum { PAGE = 4096 };

/* The time so far: what of it says that programs miss what they run from. */
struct signs {
    uint64_t time_ns;
    uint64_t reread_pages, missed_pages, faults, user_ns;
};

static struct signs signs_since(const struct thrash_look *first, const struct thrash_look *look)
{
    return (struct signs){
        .time_ns = look->now_ns - first->now_ns,
        .reread_pages = look->reread_pages - first->reread_pages,
        .missed_pages = look->missed_pages - first->missed_pages,
        .faults = look->faults - first->faults,
        .user_ns = look->user_ns - first->user_ns,
    };
}

/* There is a cache, and it is what programs need again and again. */
static bool cache_is_missed(const struct signs *signs, uint64_t cache_bytes)
{
    uint64_t pages = CL_MAX(cache_bytes, (uint64_t)THRASH_CACHE_LEAST) / PAGE;
    return signs->missed_pages >= pages * THRASH_TIMES &&
           signs->missed_pages <= signs->faults * THRASH_PAGES_A_FAULT;
}

/* There is next to none: no page stays for so long that the kernel sees it in use. */
static bool cache_is_gone(const struct signs *signs, uint64_t most_cache_bytes)
{
    return most_cache_bytes < THRASH_BARE &&
           signs->reread_pages >= (uint64_t)THRASH_BARE / PAGE * THRASH_TIMES &&
           signs->reread_pages <= signs->faults * THRASH_BARE_PAGES_A_FAULT;
}

static void begin(struct thrash *t, const struct thrash_look *look)
{
    t->first = *look;
    t->most_cache_bytes = look->cache_bytes;
}

bool thrash_is_on(struct thrash *t, const struct thrash_look *look)
{
    bool is_new = t->first.limit_bytes == 0 || look->limit_bytes == 0 ||
                  look->now_ns - t->last_ns > THRASH_GAP_NS ||
                  look->cache_bytes > look->limit_bytes / THRASH_CACHE_SHARE;
    t->last_ns = look->now_ns;
    if (is_new) {
        begin(t, look);
        return false;
    }
    t->most_cache_bytes = CL_MAX(t->most_cache_bytes, look->cache_bytes);
    struct signs signs = signs_since(&t->first, look);
    bool is_on =
        signs.time_ns >= THRASH_LEAST_NS && signs.user_ns < signs.time_ns / THRASH_USER_SHARE &&
        (cache_is_missed(&signs, look->cache_bytes) || cache_is_gone(&signs, t->most_cache_bytes));
    if (is_on)
        *t = (struct thrash){0};
    else if (signs.time_ns >= THRASH_MOST_NS)
        begin(t, look);
    return is_on;
}
