/* e2b/page.h - one page of a list as the SDKs ask for it, of several of the scheduler's: what those
 * hold is not all shown.
 *
 * Owns:    what was found.
 * Thread:  any.  Pure.
 * Source:  e2b-dev/E2B, spec/openapi.yml: paginationLimit, paginationNextToken.
 */
#ifndef CL_E2B_PAGE_H
#define CL_E2B_PAGE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

enum {
    E2B_PAGE_MAX = 1000, /* entries, as the scheduler's */
    E2B_PAGE_ASKS = 8,   /* the scheduler's pages of one of ours: each counts against the rate */
    E2B_PAGE_TOKEN = 256,
};

struct e2b_page {
    char token[E2B_PAGE_TOKEN]; /* where the scheduler's next page begins; "" = at the beginning */
    size_t limit, asked;
    json_t *found; /* owned */
};

/* `limit` and `nextToken` of a query, which may be NULL.  INVALID.  Freed with e2b_page_fini(),
 * also when it failed. */
int e2b_page_read(const char *query, struct e2b_page *ret, struct cl_err *err) CL_MUST;
void e2b_page_fini(struct e2b_page *p);

/* How many there is room for yet. */
uint32_t e2b_page_room(const struct e2b_page *p);
/* Takes the reference. */
void e2b_page_add(struct e2b_page *p, json_t *entry);
/* One of the scheduler's has been read, and says where the next one begins: is that to be asked
 * for? */
bool e2b_page_goes_on(struct e2b_page *p, const char *next);

#endif
