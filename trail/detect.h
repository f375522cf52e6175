/* trail/detect.h - what in the audit log deserves a look: the detections of detections.def over a
 * stream of records.
 *
 * Each counts different values of one subject within a window; when there are enough that is a
 * finding, and what matches later is counted to it.  Records come in the order of their time.  A
 * detection sees what is recorded, no more: `blinded` and `log-gap` tell where that is not all.
 * Owns:    its findings, and what it remembers: a window a detection and subject, the files that a
 *          unit made.
 * Limit:   DETECT_SUBJECTS, DETECT_FILES, and DETECT_FILES_OF_UNIT of these: what was of use
 * longest ago makes room, and is counted.  Otherwise one tenant that writes many files, or makes
 *          one connection in each of many jobs, would blind whoever follows to all others.
 * Thread:  any.  Pure.
 */
#ifndef CL_TRAIL_DETECT_H
#define CL_TRAIL_DETECT_H

#include <jansson.h>
#include <stdint.h>

#include "base/err.h"
#include "base/own.h"
#include "base/util.h"

enum {
    DETECT_SUBJECTS = 65536,
    DETECT_FILES = 65536,
    DETECT_FILES_OF_UNIT = 4096,
    DETECT_SUBJECT = 80,
    DETECT_VALUE = 300,
    DETECT_QUIET_S = 3600,
    DETECT_OF_MAX = 32,
};

enum detect_severity { DETECT_LOW, DETECT_MEDIUM, DETECT_HIGH };

/* A rule of detections.def, or of the operator (trail/rules.h). */
struct detection {
    const char *name, *technique, *what, *then;
    enum detect_severity severity;
    unsigned threshold; /* 1 to DETECT_OF_MAX different values */
    int64_t window_s;   /* 0 = whenever */
};
bool detect_is_built_in(const char *name);

struct finding {
    const char *name, *technique, *what, *then; /* its detection's */
    enum detect_severity severity;
    char subject[DETECT_SUBJECT];         /* a unit, a key, a caller's address, a stream */
    char value[DETECT_VALUE];             /* the newest that matched, as text of hostile code */
    char stream[80], first[40], last[40]; /* times of the records */
    uint64_t seq;                         /* of the record that made it one */
    uint64_t count;                       /* that matched */
};

struct detect;
struct rules;
/* own: the operator's rules, borrowed; NULL = none.  They outlive the findings. */
int detect_new(const struct rules *own, struct detect **ret_detect, struct cl_err *err) CL_MUST;
/* NULL is a no-op. */
void detect_free(struct detect *d);
CL_DEFINE_AUTO(struct detect, detect_free)

struct detect_record {
    const char *stream, *ts, *event;
    uint64_t seq;
    const json_t *fields;
};
/* From the start, by who follows the log for long: findings are not listed but for the moment in
 * which they are made, and what comes again after DETECT_QUIET_S is a finding anew. */
void detect_follow(struct detect *d);
/* The finding that this record made, until the next call; NULL = none, or one that was there. */
const struct finding *detect_feed(struct detect *d, const struct detect_record *r);
size_t detect_count(const struct detect *d);
/* In the order in which they were made. */
const struct finding *detect_at(const struct detect *d, size_t i);
/* Those of this severity and above, the gravest first, then the earliest; the array is the
 * caller's, by cl_free(). */
int detect_sorted(const struct detect *d, enum detect_severity least,
                  const struct finding ***ret_findings, size_t *ret_n, struct cl_err *err) CL_MUST;
/* What there was no room to remember for as long as it counts. */
uint64_t detect_forgotten(const struct detect *d);

const char *detect_severity_name(enum detect_severity s);
int detect_severity_parse(const char *name, enum detect_severity *ret, struct cl_err *err) CL_MUST;

#endif
