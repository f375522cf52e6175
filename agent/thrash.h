/* agent/thrash.h - when memory is so full that programs stand still.
 *
 * There is no swap: at its limit a group gives up pages of files, those too that its programs run
 * from, and reads them again at once.  The kernel kills when nothing can be given up; what was read
 * again can be, so a program can stand there for as long as it may run, with a processor busy.  So
 * the agent decides, as oomd does: pressure stall information wakes it (cgroups_watch_pressure),
 * and what was read again since says whether this is it.
 *
 * Pure; the agent's only thread.
 */
#ifndef CL_AGENT_THRASH_H
#define CL_AGENT_THRASH_H

#include <stdbool.h>
#include <stdint.h>

enum {
    THRASH_WINDOW_US = 2000000,
    THRASH_STALL_US = 200000,
    THRASH_CACHE_SHARE = 8,          /* of the limit: with more cache than that there is room */
    THRASH_CACHE_LEAST = 256 * 1024, /* counts as so much when it is less */
    THRASH_TIMES = 10,               /* so often all of the cache was read again, for use */
    THRASH_PAGES_A_FAULT = 16,       /* more of them: it is files that are read, not programs */
    THRASH_BARE = 1024 * 1024,       /* less cache: nobody keeps what they run from */
    THRASH_BARE_PAGES_A_FAULT = 64,  /* twice what one fault reads around it */
    THRASH_USER_SHARE = 6,           /* of the time: who computes more than that gets on */
};
#define THRASH_LEAST_NS UINT64_C(10000000000)
/* Then it is looked at anew: it may have begun since. */
#define THRASH_MOST_NS UINT64_C(60000000000)
/* Without pressure: it was over. */
#define THRASH_GAP_NS UINT64_C(7000000000)

/* Of all user code; all 0 = not known. */
struct thrash_look {
    uint64_t now_ns;
    uint64_t limit_bytes;
    uint64_t cache_bytes;  /* pages of files, not of tmpfs */
    uint64_t reread_pages; /* given up and read again, ever (workingset_refault_file) */
    uint64_t missed_pages; /* of them: missed so soon that they count as in use (..activate_file) */
    uint64_t faults;       /* that waited for a page to be read, ever (pgmajfault) */
    uint64_t user_ns;      /* of CPU time in programs, not in the kernel for them */
};

struct thrash {
    struct thrash_look first; /* of this time */
    uint64_t last_ns;
    uint64_t most_cache_bytes; /* of all looks of this time */
};

/* Called while there is pressure.  True: something must end; the next time begins anew. */
bool thrash_is_on(struct thrash *t, const struct thrash_look *look);

#endif
