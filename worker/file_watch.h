/* worker/file_watch.h - one Watch: what changes in a folder of a guest, as messages.
 *
 * Owns:    its guest stream until that closes.
 * Borrows: the unit, which its holder keeps; that it is watched is no use of it.
 * Limit:   UNIT_WATCHES_MAX of a sandbox: each is a process in it, and one of its GUEST_STREAMS_MAX
 * streams. Thread:  the worker loop.  No event comes inside file_watch_start(). The guest is never
 * made to wait: what a reader that is slow misses is told as lost.
 */
#ifndef CL_WORKER_FILE_WATCH_H
#define CL_WORKER_FILE_WATCH_H

#include "worker/unit.h"

struct file_watch;

struct file_watch_events {
    /* Lives until the callback returns.  False: the reader has no room, and does not hear it. */
    bool (*on_changes)(void *arg, Cloche__V1__FileServiceWatchResponse *changes);
    /* The last one, once. */
    void (*on_end)(void *arg, const struct cl_err *why);
};

/* TOOBIG when so many are there; otherwise as unit_check_runs(). */
int file_watch_start(struct unit *u, const Cloche__V1__RelayWatch *what,
                     const struct file_watch_events *events, void *arg,
                     struct file_watch **ret_watch, struct cl_err *err) CL_MUST;
/* There is room: tell what was lost meanwhile. */
void file_watch_go_on(struct file_watch *w);
/* NULL is a no-op. */
void file_watch_free(struct file_watch *w);

#endif
