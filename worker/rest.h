/* worker/rest.h - a VM at rest: its memory and its state in one encrypted file.
 *
 *   rest_new ─► rest_store ─► (at rest) ─► rest_load ─► its files again ─► rest_free
 *                   │            └─ rest_name, rest_leave ─► (another process) rest_open ─► at rest
 *                   └─ failed: its files are as they were
 *
 * Each piece is sealed with AES-256-GCM; its place, length and number are authenticated with it, so
 * whoever can write the disk can make a load fail, and nothing else.  The key lives in this object
 * and in the tickets that it was asked for: when they are gone the VM is erased, whatever the disk
 * remembers.  The file has no name unless it is given one.
 *
 * Owns:    the memfds, the file, the key.
 * Thread:  the worker loop.  Storing and loading go piece by piece, REST_TURN_NS a turn of the
 *          loop; `done` never runs inside a call.  Nothing is synced: a host that dies within the
 *          half minute that its kernel takes to write loses the file, and a load says so.
 */
#ifndef CL_WORKER_REST_H
#define CL_WORKER_REST_H

#include "base/loop.h"
#include "worker/vm_driver.h"

enum {
    REST_PIECE = 256 * 1024,        /* sealed in one go */
    REST_TURN_NS = 2 * 1000 * 1000, /* then the loop gets its turn */
    REST_KEY = 32,                  /* of AES-256 */
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
/* At rest: another one of the same file, which may be loaded at the same time; the name is not its.
 */
int rest_share(const struct rest *r, struct cl_loop *loop, struct rest **ret_rest,
               struct cl_err *err) CL_MUST;
/* Sealed or loaded: another one of what is in the memfds now, to be stored. */
int rest_copy(const struct rest *r, struct cl_loop *loop, struct rest **ret_rest,
              struct cl_err *err) CL_MUST;
/* Close loaded memfds: it is at rest as before. */
void rest_drop(struct rest *r);
/* Bytes of the file; 0 until it is stored. */
uint64_t rest_bytes(const struct rest *r);

/* --- for another process ---------------------------------------------------------------------- */

/* With its file all that is needed of one that is stored.  Whoever has it has the VM. */
struct rest_ticket {
    uint8_t key[REST_KEY];
    uint64_t bytes, pieces; /* of the file */
    uint64_t memory_bytes, state_bytes;
};

/* As rest_new(), of files that do not change any more; a state of -1 is an empty one. */
int rest_new_of(struct cl_loop *loop, const struct vm_rest *files, uint64_t most,
                struct rest **ret_rest, struct cl_err *err) CL_MUST;
/* Stored: name its file, once.  Then rest_free() removes the name, unless it is left. */
int rest_name(struct rest *r, const char *path, struct cl_err *err) CL_MUST;
bool rest_has_name(const struct rest *r);
void rest_leave(struct rest *r);
/* It is not left any more. */
void rest_own(struct rest *r);
void rest_get_ticket(const struct rest *r, struct rest_ticket *ret_ticket);
/* One that is stored, with its name.  TOOBIG when the ticket says more than `most`; whether the
 * file is what was stored, a load tells. */
int rest_open(struct cl_loop *loop, const char *path, const struct rest_ticket *ticket,
              uint64_t most, struct rest **ret_rest, struct cl_err *err) CL_MUST;

#endif
