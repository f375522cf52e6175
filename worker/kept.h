/* worker/kept.h - the record of a paused sandbox or a snapshot that outlives its worker, in
 * bytes and back.
 *
 * The bytes are cloche.v1.KeptSandbox.  They hold the keys of its files: whoever reads them has its
 * memory.
 *
 * Owns:    nothing.
 * Thread:  any.
 * Pure: no I/O, no clock.  What a record says is within its bounds, or the record is refused; that
 * it is true its folder has to see to (root's, 0700).
 */
#ifndef CL_WORKER_KEPT_H
#define CL_WORKER_KEPT_H

#include "base/buf.h"
#include "base/mem.h"
#include "cloche/v1/kept.pb-c.h"
#include "worker/machine.h"
#include "worker/watch.h"

enum {
    KEPT_VERSION = 1,
    KEPT_MAX = 1024 * 1024, /* an Assign of 64 network rules, some KiB, and its commands */
    KEPT_EXECS_MAX = 256,
    /* Arguments, variables and labels of all commands: what is printed has to be parsed, and there
     * a record may have PB_ELEMENTS_MAX of anything, and take four times its length. */
    KEPT_ELEMENTS_MAX = 16384,
};

/* What is to be kept; borrowed. */
struct kept_source {
    const Cloche__V1__Assign *assign;
    const struct machine_kept *machine;
    uint64_t expires_unix_ns;
    bool paused_for_idle, goes_on;
    const struct watch *watch, *network;
    uint64_t sent_bytes, received_bytes;
    /* Oldest first.  Those that there is no room for are left out: what has ended first, of these
     * the oldest. */
    Cloche__V1__KeptExec *const *execs;
    size_t n_execs;
};

/* The id of what can rest: a sandbox or a snapshot. */
bool kept_is_id(const char *unit_id);
/* ... of that kind. */
bool kept_is(const Cloche__V1__Assign *a);

int kept_print(const struct kept_source *source, struct cl_buf *out, struct cl_err *err) CL_MUST;
/* *ret_kept dies with the arena.  UNIMPL for another version, INVALID or TOOBIG for all else that
 * is wrong; then *ret_kept is NULL, or of use for its lease only. */
int kept_parse(const uint8_t *bytes, size_t n, struct cl_arena *arena,
               const Cloche__V1__KeptSandbox **ret_kept, struct cl_err *err) CL_MUST;

/* Parts of one that was parsed. */
void kept_past(const Cloche__V1__KeptSandbox *m, struct guest_past *ret_past);
/* Into USAGE_MAX samples. */
size_t kept_usage(const Cloche__V1__KeptSandbox *m, struct usage_sample *ret_samples);
void kept_watch(const Cloche__V1__KeptCount *m, struct watch *ret_watch);

#endif
