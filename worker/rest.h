/* worker/rest.h - a VM at rest: its memory and its state in one encrypted file without a name.
 *
 *   rest_new ─► rest_store ─► (at rest) ─► rest_load ─► its files again ─► rest_free
 *                   └─ failed: its files are as they were
 *
 * Each piece is sealed with AES-256-GCM; its place, length and number are authenticated with it, so
 * whoever can write the disk can make a load fail, and nothing else.  The key lives in this object
 * only: freeing it erases the VM, whatever the disk remembers.
 *
 * Owns:    the memfds, the file, the key.
 * Thread:  the worker loop.  Storing and loading go piece by piece, REST_TURN bytes a turn of the
 * loop; `done` never runs inside a call.  Nothing is synced: the file ends with its worker.
 */
#ifndef CL_WORKER_REST_H
#define CL_WORKER_REST_H

#include "base/loop.h"
#include "worker/vm_driver.h"

enum {
    REST_PIECE = 256 * 1024,     /* sealed in one go */
    REST_TURN = 2 * 1024 * 1024, /* then the loop gets its turn: a millisecond or two */
};

struct rest;

typedef void rest_done_fn(void *arg, const struct cl_err *err); /* err == NULL: done */

/* Empty memfds, for a driver to write; no more than `most` bytes of them are stored, since who
 * wrote them had run a guest. */
int rest_new(struct cl_loop *loop, uint64_t most, struct rest **ret_rest,
             struct cl_err *err) CL_MUST;
/* Stops what is under way; its `done` does not run any more.  NULL is a no-op. */
void rest_free(struct rest *r);
/* Valid from rest_new() until stored, and from loaded until rest_drop(). */
const struct vm_rest *rest_files(const struct rest *r);
/* Nobody can write the memfds any more. */
int rest_seal(struct rest *r, struct cl_err *err) CL_MUST;
/* Into a file of `dir`; the memfds are gone when it is done.  When it fails, which is said by
 * `done`, they are as they were. */
int rest_store(struct rest *r, const char *dir, rest_done_fn *done, void *arg,
               struct cl_err *err) CL_MUST;
/* Make the memfds again, sealed; the file stays.  DATALOSS when it is not what was stored. */
int rest_load(struct rest *r, rest_done_fn *done, void *arg, struct cl_err *err) CL_MUST;
/* Close loaded memfds: it is at rest as before. */
void rest_drop(struct rest *r);
/* Bytes of the file; 0 until it is stored. */
uint64_t rest_bytes(const struct rest *r);

#endif
