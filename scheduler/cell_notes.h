/* scheduler/cell_notes.h - what the cell of a function's call said, until the call is answered.
 * Pure.
 *
 * The guest is hostile: what it says is text only if it is UTF-8, a result only if it is JSON, and
 * all of it is bounded.
 *
 * Owns:    what it notes.
 * Limit:   NOTES_OUTPUT_MAX of each stream, NOTES_RESULT_MAX of a result; without them whoever
 * calls often could make the scheduler hold what functions print.
 */
#ifndef CL_SCHEDULER_CELL_NOTES_H
#define CL_SCHEDULER_CELL_NOTES_H

#include "base/buf.h"
#include "cloche/v1/code.pb-c.h"

enum { NOTES_OUTPUT_MAX = 64 * 1024, NOTES_RESULT_MAX = 1024 * 1024 };

/* Media types of what a call shows: see call_text.h. */
enum note {
    NOTE_RESULT,
    NOTE_ERROR,
    NOTE_VALUE,
    NOTE_TRACEBACK,
    NOTE_REFUSED,
    NOTE_FOUND,
    NOTE_NR
};

struct cell_notes {
    char *told[NOTE_NR];         /* NULL = not so */
    struct cl_buf out[2];        /* the beginnings of stdout and stderr */
    Cloche__V1__CellEnded *end;  /* NULL until it has ended */
    Cloche__V1__CellError *own;  /* what the interpreter itself says; NULL = nothing */
    Cloche__V1__CellError error; /* what notes_error() returned */
    bool spoilt;                 /* it showed a result that is none */
};

void notes_init(struct cell_notes *n);
/* Forget the cell before; what was printed stays. */
void notes_next(struct cell_notes *n);
void notes_fini(struct cell_notes *n);
/* One event of the cell.  NOMEM. */
int notes_take(struct cell_notes *n, const Cloche__V1__RunCodeResponse *m,
               struct cl_err *err) CL_MUST;
/* How the call ended, and what there is to say of that; the text lives as long as the notes. */
Cloche__V1__CellOutcome notes_outcome(const struct cell_notes *n, const char **ret_message);
/* What was raised; NULL = nothing. */
Cloche__V1__CellError *notes_error(struct cell_notes *n);

#endif
