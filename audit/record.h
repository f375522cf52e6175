/* audit/record.h - one line of an audit stream: its canonical form, its hash, its place in the
 * chain.
 *
 * A record is one line of JSON with sorted keys, no white space, integers only, strict UTF-8:
 *   {"assurance":"H0","epoch":7,"event":"unit.end","fields":{...},"hash":"<64 hex>","n":12,
 *    "prev":"<64 hex>","seq":42,"source":"scheduler","stream":"tenant/acme","ts":"...Z","v":1}
 * `hash` is SHA-256 over the line without the hash member and without the newline; `prev` is the
 * hash of the record before, 64 zeros for the first.  `epoch` and `n` are the producer's.
 * Owns:    nothing; a parsed record points into the line that was parsed.
 * Thread:  any.
 * Pure: no I/O, no clock, no log.
 */
#ifndef CL_AUDIT_RECORD_H
#define CL_AUDIT_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/util.h"

enum {
    AUDIT_VERSION = 1,
    AUDIT_HASH_HEX = 64,
    AUDIT_HASH_TEXT = AUDIT_HASH_HEX + 1,
    AUDIT_STREAM = 80, /* "tenant/<name>" or "host/<name>" and NUL */
    AUDIT_SOURCE = 64,
    AUDIT_STRING_MAX =
        4096, /* one string of the fields, in bytes; longer ones are cut and marked */
    AUDIT_FIELDS_MAX = 32768, /* the fields object: without it one call could fill the disk */
    AUDIT_LIST_MAX = 256,     /* elements of a list */
    AUDIT_RECORD_MAX = 40960, /* one line */
};

enum audit_event {
#define AUDIT_EVENT(id, name, fields, text) AUDIT_##id,
#include "audit/events.def"
#undef AUDIT_EVENT
    AUDIT_EVENT_NR
};
const char *audit_event_name(enum audit_event ev);
/* As events.def has them: "name:type,...". */
const char *audit_event_fields(enum audit_event ev);
bool audit_event_has(enum audit_event ev, const char *field);
/* AUDIT_EVENT_NR when unknown. */
enum audit_event audit_event_by_name(const char *name, size_t n);

/* Who saw it.  H0: the host itself; G1: the guest's agent with the workload deprivileged; G0: a
 * guest whose workload is as mighty as its agent. */
enum audit_assurance { AUDIT_H0, AUDIT_G1, AUDIT_G0, AUDIT_ASSURANCE_NR };
const char *audit_assurance_name(enum audit_assurance a);

enum audit_type { AUDIT_S, AUDIT_U, AUDIT_B, AUDIT_L };
struct audit_field {
    const char *name;
    enum audit_type type;
    union {
        const char *s; /* NULL = the field is absent */
        uint64_t u;
        bool b;
        struct {
            const char *const *v;
            size_t n;
        } l;
    } is;
};
#define AUDIT_STR(name_, value) \
    { \
        .name = (name_), .type = AUDIT_S, .is.s = (value) \
    }
#define AUDIT_NUM(name_, value) \
    { \
        .name = (name_), .type = AUDIT_U, .is.u = (value) \
    }
#define AUDIT_BOOL(name_, value) \
    { \
        .name = (name_), .type = AUDIT_B, .is.b = (value) \
    }
#define AUDIT_LIST(name_, v_, n_) \
    { \
        .name = (name_), .type = AUDIT_L, .is.l = {(v_), (n_) } \
    }

/* Append the canonical fields object.  The order of `fields` does not matter; a name or type that
 * the event's row does not know, or a missing one, is a bug of the caller: INVALID.  Bytes that are
 * not UTF-8 become U+FFFD. */
int audit_fields_format(struct cl_buf *out, enum audit_event ev, const struct audit_field *fields,
                        size_t n, struct cl_err *err) CL_MUST;
/* Is text exactly one canonical fields object (of any event)? */
bool audit_fields_is_canonical(const char *text, size_t n);

struct audit_record {
    enum audit_assurance assurance;
    uint64_t epoch; /* of the producer; 0 = cloche-audit itself */
    char event[32];
    const char *fields; /* borrowed from the line */
    size_t fields_n;
    char hash[AUDIT_HASH_TEXT];
    uint64_t n; /* the producer's number */
    char prev[AUDIT_HASH_TEXT];
    uint64_t seq;
    char source[AUDIT_SOURCE];
    char stream[AUDIT_STREAM];
    char ts[CL_RFC3339_LEN];
};

/* Append the line with its newline; computes the hash and writes it into r->hash too. */
int audit_record_format(struct cl_buf *out, struct audit_record *r, struct cl_err *err) CL_MUST;
/* Parse one line without its newline and check form and hash; INVALID with the reason. */
int audit_record_parse(const char *line, size_t n, struct audit_record *ret,
                       struct cl_err *err) CL_MUST;
/* The value of a string or number field in canonical fields; false when absent or of another type.
 * Strings are unescaped only for the plain ASCII that this program writes into its own records. */
bool audit_field_str(const char *fields, size_t n, const char *name, char *out, size_t out_n);
bool audit_field_num(const char *fields, size_t n, const char *name, uint64_t *ret);

/* "tenant/<name>" or "host/<name>" with a name that is one: no such leads out of a folder. */
bool audit_stream_is_valid(const char *stream);

/* The head of a stream: what the next record continues. */
struct audit_chain {
    char stream[AUDIT_STREAM];
    uint64_t next_seq; /* 1 for an empty stream */
    char head[AUDIT_HASH_TEXT];
};
void audit_chain_init(struct audit_chain *chain, const char *stream);
/* Put *r at the end (fills stream, seq, prev, hash) and append its line to out. */
int audit_chain_append(struct audit_chain *chain, struct audit_record *r, struct cl_buf *out,
                       struct cl_err *err) CL_MUST;
/* Does *r continue the chain?  Moves on, or INVALID with the reason. */
int audit_chain_follow(struct audit_chain *chain, const struct audit_record *r,
                       struct cl_err *err) CL_MUST;

#endif
