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

enum { ROWS_MAX = 13 };

struct rows {
    struct audit_field field[ROWS_MAX];
    size_t n;
};

void rows_add(struct rows *r, struct audit_field field);
/* NULL, which leaves the field out, for an empty text. */
const char *rows_text(const char *s);

struct unit;
/* One tenant may fill neither the log's disk nor the producer's queue.  tat_us: of the tenant, for
 * records of this kind. */
bool rows_have_room(const struct unit *u, uint64_t *tat_us);

#endif
