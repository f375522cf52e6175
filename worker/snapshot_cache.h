/* worker/snapshot_cache.h - snapshots of templates on the disk: what a worker, or an earlier one,
 * has booted needs no boot again.
 *
 *   DIR/BOOT/KEY        the record (worker/snapshot_record.h); it is there last, and goes first
 *   DIR/BOOT/ram_ID     RAM and device state, sealed (worker/rest.h)
 *   DIR/BOOT/disk_ID    the scratch disk that the guest's RAM knows, sealed
 *
 * BOOT is the id of this start of the host's kernel: another one may have another KVM, microcode or
 * clock, and snapshots of it are removed.  So nothing is synced: what a loss of power tears is
 * never read.  KEY is over all else that a snapshot depends on.  What is read is what was written,
 * or it is removed and the template booted.
 *
 * Owns:    the folder, with other workers of the same user; what is under way.
 * Borrows: the machine host, until it is freed.
 * Thread:  the worker loop.  Storing and loading go by turns of it (worker/rest.h).
 * Limits:  SNAPSHOT_CACHE_MAX snapshots in the folder, of which the least recently used goes first,
 *          and --disk-reserve stays free: without it a tenant who asks for odd sizes fills the
 *          disk.
 * Trust:   whoever can write the folder can make guests; it must be the worker's own, which nobody
 *          else can write.  Whoever reads it has what every clone of a template begins with.
 */
#ifndef CL_WORKER_SNAPSHOT_CACHE_H
#define CL_WORKER_SNAPSHOT_CACHE_H

#include "worker/machine.h"
#include "worker/snapshot_record.h"

enum { SNAPSHOT_CACHE_MAX = 32 }; /* some 100 MB each; a worker has 12 at once */

struct snapshot_cache;

typedef void snapshot_cache_fn(void *arg, const struct cl_err *err); /* err == NULL: done */

struct snapshot_cache_options {
    const struct machine_host *host; /* borrowed */
    const char *dir;                 /* is made if need be */
    struct snapshot_recipe recipe;
};

/* DENIED when others can write the folder. */
int snapshot_cache_open(const struct snapshot_cache_options *options,
                        struct snapshot_cache **ret_cache, struct cl_err *err) CL_MUST;
/* Drops what is under way.  NULL is a no-op. */
void snapshot_cache_free(struct snapshot_cache *cache);
/* Give the template the snapshot of its key: `done` comes once, and never inside this call.  With
 * an error it was no good and is gone.  NOTFOUND when there is none. */
int snapshot_cache_load(struct snapshot_cache *cache, struct template *t, snapshot_cache_fn *done,
                        void *arg, struct cl_err *err) CL_MUST;
/* Its `done` does not run any more. */
void snapshot_cache_cancel(struct snapshot_cache *cache, const struct template *t);
/* Store its snapshot, unless it is there; the log says when it could not be. */
void snapshot_cache_store(struct snapshot_cache *cache, struct template *t);
/* It was no good. */
void snapshot_cache_forget(struct snapshot_cache *cache, const struct template *t);

#endif
