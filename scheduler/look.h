/* scheduler/look.h - Get and List of units: what the books say of units, with what
 * this process knows of the live ones.
 *
 * Owns:    the rows, until the callback returns.
 * Thread:  the loop's.
 */
#ifndef CL_SCHEDULER_LOOK_H
#define CL_SCHEDULER_LOOK_H

#include "scheduler/api.h"

struct look_row {
    const struct books_unit *row;
    Cloche__V1__UnitRecord *record;       /* NULL when it cannot be read */
    Cloche__V1__TerminalRecord *terminal; /* NULL unless it has ended */
    const struct unit *live;              /* NULL when this process does not have it */
};

/* Answers the call; row is NULL-free. */
typedef void look_one_fn(struct api_call *a, const struct look_row *row);
/* Find a unit of the caller's tenant: INVALID or NOTFOUND answer the call themselves. */
void look_get(struct api_call *a, enum books_kind kind, const char *id, look_one_fn *fn);

struct look_list {
    enum books_kind kind;
    uint32_t states; /* bit 1 << state; 0 = all */
    uint32_t page_size;
    const char *page_token;
    Cloche__V1__Label *const *labels; /* only units that have them all; borrowed from the request */
    size_t n_labels;
    const char *fork_of; /* only copies of this one; NULL or "" = any */
};
/* Answers the call.  rows[i] are those that fit. */
typedef void look_many_fn(struct api_call *a, const struct look_row *rows, size_t n,
                          const char *next);
void look_list(struct api_call *a, const struct look_list *what, look_many_fn *fn);

#endif
