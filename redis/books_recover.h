/* redis/books_recover.h - what a scheduler reads when it begins, and what it leaves to the next
 * one.
 *
 * Of each page only tenant, token ("" = from the start; else `next` of the page before) and n
 * count; units come by id. Thread: the books' loop.
 */
#ifndef CL_REDIS_BOOKS_RECOVER_H
#define CL_REDIS_BOOKS_RECOVER_H

#include "redis/books.h"

/* The units that have not ended, with their specs. */
int books_live(struct books *books, const struct books_list *page, books_units_fn *fn, void *arg,
               struct cl_err *err) CL_MUST;
/* Those that have, and that no books_logged() named since; with their terminals, for as long as
 * these are kept. */
int books_unlogged(struct books *books, const struct books_list *page, books_units_fn *fn,
                   void *arg, struct cl_err *err) CL_MUST;

struct books_ids {
    const char *tenant;
    const char (*id)[CL_ID_MAX];
    size_t n; /* 1 to BOOKS_PAGE_MAX */
};
/* The audit log has the ends of these units. */
int books_logged(struct books *books, const struct books_ids *units, books_done_fn *fn, void *arg,
                 struct cl_err *err) CL_MUST;

#endif
