/* rpc/targets.h - the addresses of a channel, and which of them is to be tried next.
 *
 * Owns:    nothing but itself.
 * Thread:  its channel's.  targets_read() looks up names, which blocks; the rest is pure.
 *
 * A round tries each target once and ends with the first that works, or when all have failed.
 * Rounds begin with the target that worked last, or with the one after it once it was lost: of
 * several that stand by for one another the one that led is then likely dead, and the others refuse
 * at once if they do not lead.
 */
#ifndef CL_RPC_TARGETS_H
#define CL_RPC_TARGETS_H

#include <stdbool.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/util.h"

enum {
    TARGETS_MAX = 8,
    TARGET_TEXT = 256,                        /* size of one, with its NUL */
    TARGETS_TEXT = TARGETS_MAX * TARGET_TEXT, /* of a list */
};

struct target {
    char text[TARGET_TEXT]; /* as written */
    char host[TARGET_TEXT]; /* what its certificate must name; "" = a unix socket */
    struct sockaddr_storage addr;
    socklen_t addr_len;
};

struct targets {
    size_t n;
    size_t at;     /* in use, or to be tried now */
    size_t first;  /* where the next round begins */
    size_t failed; /* of this round */
    char reasons[CL_ERR_TEXT];
    struct target list[TARGETS_MAX];
};

/* Read "unix:/a,127.0.0.1:7001,host.example:7002" and look up its names.  INVALID says which of
 * them is wrong and why, UNAVAILABLE which cannot be looked up. */
int targets_read(const char *list, struct targets *ret, struct cl_err *err) CL_MUST;
const struct target *targets_current(const struct targets *t);

/* The current one works: its connection is up. */
void targets_up(struct targets *t);
/* It was up and is lost: rounds begin with the next one.  `steady`: it had been up for a while, so
 * that a new round begins now; else call targets_failed() too, or two that come and go would be
 * asked without a pause. */
void targets_lost(struct targets *t, bool steady);
/* The current one failed.  True: try the now current one, at once.  False: the round is over, and
 * *ret says who failed and why, as far as it fits. */
bool targets_failed(struct targets *t, const struct cl_err *why, struct cl_err *ret) CL_MUST;
/* Nobody wants a connection any more: what failed so far is forgotten. */
void targets_forget(struct targets *t);

/* What kinds of addresses a list has, by their texts alone. */
struct target_kinds {
    size_t n_unix, n_loopback, n_remote;
    char remote[TARGET_TEXT]; /* the first of those, or "" */
};
int target_kinds_read(const char *list, struct target_kinds *ret, struct cl_err *err) CL_MUST;

#endif
