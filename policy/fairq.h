/* policy/fairq.h - start-time fair queueing over tenants, one FIFO each.
 *
 * Owns:    the per-tenant state.
 * Borrows: every item, from push until pop or remove.
 * Limit:   `max_tenants` and `max_items`; a tenant's own queue_max.
 * Thread:  its owner's.
 * Promise: while two tenants of equal weight both wait, the numbers of their dispatched items of
 *          equal cost differ by at most 1.  pop is O(log tenants).
 */
#ifndef CL_POLICY_FAIRQ_H
#define CL_POLICY_FAIRQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "base/own.h"
#include "base/util.h"

struct fairq;
struct fairq_tenant;

enum { FAIRQ_COST_MAX = 65536 };

/* Lies inside the owner's object; init before the first push. */
struct fairq_item {
    struct cl_list link;
    struct fairq_tenant *tenant; /* borrowed from the queue; NULL when not queued */
    uint32_t cost;               /* 1 to FAIRQ_COST_MAX; 1 for ordinary jobs */
    uint64_t charged;            /* what its pop cost the tenant, for unpop */
    uint64_t order;              /* the tenant's place among equals before that pop */
};
void fairq_item_init(struct fairq_item *item, uint32_t cost);
static inline bool fairq_item_is_queued(const struct fairq_item *item)
{
    return item->tenant != NULL;
}

int fairq_new(size_t max_tenants, size_t max_items, struct fairq **ret_fq,
              struct cl_err *err) CL_MUST;
/* NULL is a no-op.  Items are left alone. */
void fairq_free(struct fairq *fq);
CL_DEFINE_AUTO(struct fairq, fairq_free)

/* Make the tenant known, or change its weight (1 to 1000) and bound. */
int fairq_tenant_set(struct fairq *fq, const char *tenant, uint32_t weight, size_t queue_max,
                     struct cl_err *err) CL_MUST;
/* At the tail.  QUEUE when the tenant's queue or the whole is full. */
int fairq_push(struct fairq *fq, const char *tenant, struct fairq_item *item,
               struct cl_err *err) CL_MUST;
/* A job that comes back: at its tenant's head, whatever the bounds say.  NOMEM only, and only for
 * a tenant that is not known. */
int fairq_requeue(struct fairq *fq, const char *tenant, struct fairq_item *item,
                  struct cl_err *err) CL_MUST;
/* As requeue at the tail: a scheduler's start, in the order of the books. */
int fairq_restore(struct fairq *fq, const char *tenant, struct fairq_item *item,
                  struct cl_err *err) CL_MUST;
/* An item that ends while it waits.  Not queued: no-op. */
void fairq_remove(struct fairq *fq, struct fairq_item *item);

/* May this tenant's head go now?  NULL = every one may. */
typedef bool fairq_may_fn(const char *tenant, const struct fairq_item *head, void *arg);
/* The fairest head that may go, charged to its tenant; NULL if there is none.  A tenant that may
 * not keeps its turn. */
struct fairq_item *fairq_pop(struct fairq *fq, fairq_may_fn *may, void *arg);
/* Undo a pop whose dispatch did not happen: back to the head, the charge returned. */
int fairq_unpop(struct fairq *fq, const char *tenant, struct fairq_item *item,
                struct cl_err *err) CL_MUST;

/* A tenant over its quota steps aside without gaining credit, until unblocked.  O(log tenants);
 * an unknown tenant is a no-op. */
void fairq_block(struct fairq *fq, const char *tenant);
void fairq_unblock(struct fairq *fq, const char *tenant);
bool fairq_is_blocked(const struct fairq *fq, const char *tenant);

/* Would a new item of this tenant be popped at once?  No tenant has a turn, and none of its own
 * items waits. */
bool fairq_is_clear(const struct fairq *fq, const char *tenant);

size_t fairq_count(const struct fairq *fq);
size_t fairq_tenant_count(const struct fairq *fq, const char *tenant);
/* The tenant that an item waits for; NULL when not queued. */
const char *fairq_item_tenant(const struct fairq_item *item);

#endif
