/* audit/verify.h - is this log what was written?
 *
 * Owns:    nothing after the call.
 * Thread:  any; audit_verify_dir() blocks on the disk.
 * The core (audit_verify_feed) is pure; the walk over the folder is a thin part.
 */
#ifndef CL_AUDIT_VERIFY_H
#define CL_AUDIT_VERIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "audit/record.h"
#include "base/err.h"
#include "base/util.h"

/* Exit codes of `cloche audit verify`. */
enum audit_verdict { AUDIT_OK = 0, AUDIT_BAD = 1, AUDIT_TORN = 3 };

enum { AUDIT_PATH = 512, AUDIT_REASON = 256 };

struct audit_report {
    enum audit_verdict verdict;
    uint64_t streams, records, checkpoints, unsigned_tail, gaps, recovered;
    char host_stream[AUDIT_STREAM];
    uint64_t host_seq;
    char host_head[AUDIT_HASH_TEXT];
    bool head_checked; /* false: truncation of the host stream cannot be excluded */
    /* the first bad record, when the verdict is not OK */
    char stream[AUDIT_STREAM];
    uint64_t seq;
    char file[AUDIT_PATH];
    uint64_t offset;
    char reason[AUDIT_REASON];
};

struct audit_verify_conf {
    const char *dir;         /* holds tenant/ and host/ */
    const char *public_key;  /* file: PEM, Ed25519 */
    const char *expect_head; /* NULL, "<64 hex>" or "<seq>:<64 hex>": must be in the host stream */
    bool may_lack_host;      /* a copy of tenants' streams: their ends may be cut */
    const char *tenant;      /* NULL = all streams; else this one and the host's */
};
/* 0 when the walk could be done (the verdict is in *ret), -1 when not (no folder, no key). */
int audit_verify_dir(const struct audit_verify_conf *conf, struct audit_report *ret,
                     struct cl_err *err) CL_MUST;

/* --- the pure core: one stream, fed file by file -------------------------------------------- */

struct audit_public_key; /* opaque: audit/sign.h */
struct audit_stream_check {
    struct audit_chain chain;
    const struct audit_public_key *key; /* borrowed; NULL = signatures are not checked */
    uint64_t records, checkpoints, gaps, recovered;
    uint64_t signed_seq; /* last record under a checkpoint */
    uint64_t bad_offset; /* in the file that was bad */
    uint64_t bad_seq;
    /* called for each good record; may be NULL; -1 with err stops the walk */
    int (*on_record)(const struct audit_record *r, void *arg, struct cl_err *err);
    void *arg;
};
void audit_stream_check_init(struct audit_stream_check *check, const char *stream,
                             const struct audit_public_key *key);
/* The next record, which was parsed, so its own hash fits.  INVALID with the reason; the
 * chain is then where it was. */
int audit_stream_check_next(struct audit_stream_check *check, const struct audit_record *r,
                            struct cl_err *err) CL_MUST;
/* A whole file, from its first byte.  BAD or TORN with the reason in err; TORN only when nothing
 * but an unfinished last line is wrong and `last` says that no file follows. */
enum audit_verdict audit_stream_check_feed(struct audit_stream_check *check, const char *data,
                                           size_t n, bool last, struct cl_err *err) CL_MUST;

#endif
