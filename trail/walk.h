/* trail/walk.h - records of the audit log in the order of their time, read a piece at a time.
 *
 * Streams are merged by time; of one stream records come as they lie, so one that was written late
 * (a producer sent it again) stands where it lies.  What is asked for is chosen by its bytes before
 * a line is parsed and its hash is checked, so most of a log costs no more than reading it.
 *
 * Owns:    its place in each stream, 64 KiB of each.
 * Limit:   WALK_STREAMS_MAX streams in one walk, by default.
 * Thread:  any; blocks on the disk for what one step reads.
 */
#ifndef CL_TRAIL_WALK_H
#define CL_TRAIL_WALK_H

#include "audit/record.h"
#include "base/err.h"
#include "base/own.h"
#include "base/util.h"

enum {
    WALK_STREAMS_MAX = 4096,
    WALK_EVENTS = 16,    /* names that one walk asks for */
    WALK_EVENT = 40,     /* one of them */
    WALK_UNIT = 128,     /* an id and NUL */
    WALK_SLACK_S = 600,  /* how far a stream's records may be out of the order of their time */
    WALK_STEP = 1 << 18, /* bytes that a loop may read in one turn */
};

/* A record of a stream, by its number. */
struct walk_place {
    const char *stream;
    uint64_t seq;
};

/* What is wanted; all of it is copied. */
struct walk_filter {
    const char *stream;            /* "tenant/acme", "host/a"; NULL or "" = all of them */
    const char *unit;              /* NULL or "" = any */
    const char *const *events;     /* names, or their beginnings with a '*' at the end; with a '!'
                                      before them these are left out */
    size_t n_events;               /* none but such = all but checkpoints */
    bool may_come;                 /* the named stream need not be there yet */
    uint64_t since_ns;             /* wall clock; 0 = the log's beginning */
    uint64_t until_ns;             /* before this; 0 = its end */
    const struct walk_place *from; /* of these streams nothing before this record */
    size_t n_from;
    uint64_t tail_bytes; /* of each stream no more than its last bytes; 0 = all */
    size_t streams_max;  /* TOOBIG when there are more; 0 = WALK_STREAMS_MAX */
};

struct walk;
/* NOTFOUND when the folder or the named stream is not there; INVALID for a filter that cannot be.
 */
int walk_new(const char *dir, const struct walk_filter *filter, struct walk **ret_walk,
             struct cl_err *err) CL_MUST;
/* NULL is a no-op. */
void walk_free(struct walk *w);
CL_DEFINE_AUTO(struct walk, walk_free)

/* One that matches; it and its line (without the newline) live until the call returns.  -1 with err
 * ends the step. */
typedef int walk_fn(void *arg, const struct audit_record *r, const char *line, size_t n,
                    struct cl_err *err);
/* Read on, `bytes` more or less.  1: there is more; 0: all that was written was told, and a later
 * call tells what has come since, also of new streams; -1: err. */
int walk_step(struct walk *w, size_t bytes, walk_fn *fn, void *arg, struct cl_err *err) CL_MUST;
/* All that is written now. */
int walk_all(struct walk *w, walk_fn *fn, void *arg, struct cl_err *err) CL_MUST;

/* From this time on nothing was left out because of tail_bytes; "" = nothing at all was. */
const char *walk_horizon(const struct walk *w);
/* Lines so far that are no records, `cloche audit verify` says which. */
uint64_t walk_unreadable(const struct walk *w);

#endif
