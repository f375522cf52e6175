/* trail/mirror.h - a copy of streams in a folder of its own, that believes nothing it cannot check.
 *
 * Each record must continue the chain that the copy has, each checkpoint must be signed with the
 * key that the copy began with, and the record which the copy ends with must still be the one that
 * the log has there.  So whoever keeps a copy elsewhere sees it when the log was changed or cut
 * behind his back, also by who has its key.  What no checkpoint signs yet is not kept: a log may
 * lose it when the power fails (docs/adr/0033).  The folder is laid out as a log's (audit/files.h):
 * whatever reads one reads the other.
 *
 * Owns:    the folder while it is open: one mirror at a time.
 * Limit:   MIRROR_STREAMS streams; files of MIRROR_FILE bytes; MIRROR_WAITING bytes of a stream
 * that are not signed yet. Thread:  any one; blocks on the disk. DATALOSS is said where the log is
 * not what was copied, or is not whole; the copy then stays as it was.
 */
#ifndef CL_TRAIL_MIRROR_H
#define CL_TRAIL_MIRROR_H

#include "trail/walk.h"

enum { MIRROR_STREAMS = 512, MIRROR_FILE = 256 << 20, MIRROR_WAITING = 64 << 20 };

struct mirror;
struct mirror_conf {
    const char *dir;    /* made if it is not there, 0700 */
    const char *stream; /* the one that is copied; NULL or "" = all that are told */
    size_t file_max;    /* 0 = MIRROR_FILE */
};
/* Checks all that is there, and takes away a line that was not finished.  INVALID when the folder
 * is a log's own, STATE when another mirror writes there, DATALOSS when the copy was changed. */
int mirror_open(const struct mirror_conf *conf, struct mirror **ret_mirror,
                struct cl_err *err) CL_MUST;
/* NULL is a no-op. */
void mirror_close(struct mirror *m);
CL_DEFINE_AUTO(struct mirror, mirror_close)

/* Before each reading of the log: its public key, and where the reading has to begin (the mirror's,
 * until the next call).  The first key is kept in DIR/audit.key.pub, unless one was put there;
 * DATALOSS when it is another than that. */
int mirror_begin(struct mirror *m, const char *pem, const struct walk_place **ret_places,
                 size_t *ret_n, struct cl_err *err) CL_MUST;
/* A walk_fn whose arg is the mirror: the next record of its stream, checkpoints too. */
int mirror_take(void *mirror, const struct audit_record *r, const char *line, size_t n,
                struct cl_err *err) CL_MUST;
/* All that was written has been told: what is signed of it is on the disk when this returns 0. */
int mirror_settle(struct mirror *m, struct cl_err *err) CL_MUST;

struct mirror_state {
    const char *stream;
    uint64_t records, taken; /* in the copy; of them since it was opened */
    uint64_t checkpoints;
    uint64_t waiting; /* were told, and not signed yet */
    const char *head; /* hash of the last */
};
size_t mirror_count(const struct mirror *m);
/* i < mirror_count(); its texts are the mirror's. */
struct mirror_state mirror_state(const struct mirror *m, size_t i);
/* "" before the first reading. */
const char *mirror_key_id(const struct mirror *m);

#endif
