/* worker/spool.h - the output of one exec, on disk, bounded.
 *
 * The guest never waits for a reader: output is written here, readers follow at their own pace.
 * Over the cap bytes are counted and hashed, not kept.  The files are encrypted (AES-256-CTR) with
 * a key that lives only in this object, so freeing it erases them, whatever the disk remembers.
 *
 * Owns:    two unlinked files, the key, the digests.
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
enum { SPOOL_SHA256 = 32 };

struct spool;

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

void spool_wait(struct spool *spool, struct spool_waiter *waiter);

#endif
