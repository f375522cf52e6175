/* worker/spool.h - the output of one exec, on disk, bounded.
 *
 * The guest never waits for a reader: output is written here, readers follow at their own pace.
 * Over the cap bytes are counted and hashed, not kept.  The files are encrypted (AES-256-CTR) with
 * a key that lives only in this object, and in the record of its sandbox while that is kept
 * (worker/kept.h), so freeing it erases them, whatever the disk remembers.
 *
 * Of a sandbox that outlives its worker the files have names, and who has the key can go on with
 * them in another process.  A byte of the key stream is used for one byte only: what was kept of a
 * spool is of use until one byte is appended to it.
 *
 * Owns:    two files, which have no names until they get them, the key, the digests.
 * Borrows: its waiters (unlinked by their owners).
 * Thread:  the worker loop.  Writes go to the page cache; nothing is synced.
 */
#ifndef CL_WORKER_SPOOL_H
#define CL_WORKER_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "base/util.h"

enum spool_stream { SPOOL_STDOUT = 0, SPOOL_STDERR = 1, SPOOL_STREAMS = 2 };
enum {
    SPOOL_SHA256 = 32,
    SPOOL_KEY = 32,
    SPOOL_DIGEST_MAX = SPOOL_SHA256 + 63, /* words, and what does not fill a block */
};

struct spool;

/* All that another process needs, beside the files. */
struct spool_kept {
    uint8_t key[SPOOL_KEY];
    uint64_t cap;
    bool closed;
    struct spool_kept_lane {
        uint64_t bytes, kept;
        uint8_t digest[SPOOL_DIGEST_MAX]; /* final once closed */
        size_t n_digest;                  /* spool_digest_size() */
    } lanes[SPOOL_STREAMS];
};

struct spool_total {
    uint64_t bytes;               /* that the process wrote */
    uint64_t kept;                /* that are readable */
    uint8_t sha256[SPOOL_SHA256]; /* over all bytes; set once closed */
};

/* Told when something was appended or the spool was closed. */
struct spool_waiter {
    struct cl_list link;
    void (*fn)(void *arg);
    void *arg;
};

int spool_new(const char *dir, uint64_t cap_bytes, struct spool **ret_spool,
              struct cl_err *err) CL_MUST;
void spool_free(struct spool *spool);
/* Append; a full disk counts as the cap (the total says so). */
void spool_append(struct spool *spool, enum spool_stream stream, const void *data, size_t n);
/* No more will come: digests are final, waiters are told. */
void spool_close(struct spool *spool);
bool spool_is_closed(const struct spool *spool);
void spool_total(const struct spool *spool, enum spool_stream stream,
                 struct spool_total *ret_total);
/* Read up to n bytes at offset; *ret_n is 0 at the end of what is kept. */
int spool_read(const struct spool *spool, enum spool_stream stream, uint64_t offset, void *data,
               size_t n, size_t *ret_n, struct cl_err *err) CL_MUST;
/* Bytes on disk. */
uint64_t spool_size(const struct spool *spool);

/* Name the files PATH.out and PATH.err, once; they lose their names with the spool.  0 when they
 * are called so already. */
int spool_name(struct spool *spool, const char *path, struct cl_err *err) CL_MUST;
/* They lose them now, for good. */
void spool_unname(struct spool *spool);
void spool_get_kept(const struct spool *spool, struct spool_kept *ret_kept);
/* Of a lane with so many bytes. */
size_t spool_digest_size(uint64_t bytes, bool closed);
/* From files of those names.  DATALOSS when one is not as long as it was. */
int spool_restore(const char *path, const struct spool_kept *kept, struct spool **ret_spool,
                  struct cl_err *err) CL_MUST;
/* Its files stay where they are when it is freed. */
void spool_leave(struct spool *spool);

void spool_wait(struct spool *spool, struct spool_waiter *waiter);
/* Something else is new to them all. */
void spool_wake(struct spool *spool);

#endif
