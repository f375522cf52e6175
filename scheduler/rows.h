/* scheduler/rows.h - the fields of a record about what a guest did, row by row, and whether the log
 * has room for one more of its tenant's.
 *
 * Owns:    nothing; values are borrowed until the record is emitted.
 * Thread:  the scheduler's loop.
 */
#ifndef CL_SCHEDULER_ROWS_H
#define CL_SCHEDULER_ROWS_H

#include "audit/producer.h"
#include "base/util.h"
#include "cloche/v1/worker.pb-c.h"

struct unit;
struct receipt;

enum { ROWS_MAX = 14 };

struct rows {
    struct audit_field field[ROWS_MAX];
    size_t n;
    struct receipt *receipt; /* that waits for it; or NULL */
};

/* None yet, of a message: what was told before says so. */
struct rows rows_begin(const Cloche__V1__UnitWatched *m, struct receipt *receipt);

void rows_add(struct rows *r, struct audit_field field);
/* To the log; tenant and assurance as audit_emit_as(). */
int rows_emit(const struct rows *r, const struct unit *u, enum audit_assurance assurance,
              enum audit_event ev, struct cl_err *err) CL_MUST;
/* NULL, which leaves the field out, for an empty text. */
const char *rows_text(const char *s);

/* One tenant may fill neither the log's disk nor the producer's queue.  tat_us: of the tenant, for
 * records of this kind. */
bool rows_have_room(const struct unit *u, uint64_t *tat_us);

#endif
