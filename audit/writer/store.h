/* audit/writer/store.h - the streams on disk: append, write, checkpoint, recover.
 *
 * Owns:    the chains, the buffers and the open files.
 * Limit:   AUDIT_STREAMS_MAX streams; STORE_BUFFER_MAX bytes between two flushes of one stream.
 * Thread:  the writer's loop.  Blocks on the disk: that is this process's job.
 */
#ifndef CL_AUDIT_WRITER_STORE_H
#define CL_AUDIT_WRITER_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "audit/record.h"
#include "audit/sign.h"
#include "base/err.h"
#include "base/own.h"
#include "base/util.h"

struct store;

enum { STORE_BUFFER_MAX = 16 << 20 };

struct store_conf {
    const char *dir;                     /* copied */
    const char *host;                    /* name of the host stream; copied */
    uint64_t rotate_bytes;               /* a new file once one is this large */
    const struct audit_private_key *key; /* borrowed: must outlive the store */
};

/* Read every stream's last file, cut torn tails and chain `recovered`.  DATALOSS when damage is not
 * a torn tail: that is for `cloche audit verify` and a person. */
int store_open(const struct store_conf *conf, struct store **ret_store, struct cl_err *err) CL_MUST;
void store_close(struct store *store);
CL_DEFINE_AUTO(struct store, store_close)

/* What a producer sent; tenant "" = the host.  A record that the stream holds already is dropped.
 */
struct store_record {
    const char *tenant;
    const char *source;
    uint64_t epoch, n, wall_ns;
    enum audit_event event;
    enum audit_assurance assurance;
    const char *fields;
    size_t fields_n;
};
int store_append(struct store *store, const struct store_record *rec, struct cl_err *err) CL_MUST;
/* Write what was appended.  On failure nothing of it is lost: the next flush goes on. */
int store_flush(struct store *store, struct cl_err *err) CL_MUST;
/* Sign and fsync every stream that has something new; `always` signs the host's in any case. */
int store_checkpoint(struct store *store, bool always, struct cl_err *err) CL_MUST;
/* Newest checkpoint of the host stream. */
void store_head(const struct store *store, uint64_t *ret_seq, const char **ret_hash);

#endif
