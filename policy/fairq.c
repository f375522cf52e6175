/* policy/fairq.c - see policy/fairq.h.
 *
 * Start-time fair queueing (Goyal, Vin, Cheng 1996) with one tag a tenant, that of its head: the
 * heap gives the least start tag; ties go to the one that waits longer, so equals alternate.
 */
#include "policy/fairq.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"

enum { TAG_SHIFT = 16, WEIGHT_MAX = 1000, NOT_IN_HEAP = -1, NAME_MAX_BYTES = 64 };

/* Tags only grow; before they could wrap (2^31 of the dearest pops) all are moved down. */
#define TAG_REBASE (UINT64_C(1) << 62)

struct fairq_tenant {
    struct cl_list items; /* borrowed items, head first */
    size_t n_items;
    size_t queue_max;
    uint32_t weight;
    uint64_t start;  /* tag of the head, while in the heap */
    uint64_t finish; /* tag of what comes after the last pop */
    uint64_t order;  /* of entering the heap: breaks ties */
    long heap_at;    /* index, or NOT_IN_HEAP */
    bool blocked;
    char name[NAME_MAX_BYTES];
};

struct fairq {
    struct cl_map *tenants;     /* owned, and its values */
    struct fairq_tenant **heap; /* owned; room for every tenant */
    size_t heap_n, heap_cap;
    size_t max_tenants, max_items, n_items;
    uint64_t vtime;
    uint64_t next_order;
};

/* --- heap ----------------------------------------------------------------------------------- */

static bool goes_before(const struct fairq_tenant *a, const struct fairq_tenant *b)
{
    return a->start != b->start ? a->start < b->start : a->order < b->order;
}

static void heap_set(struct fairq *fq, size_t i, struct fairq_tenant *t)
{
    fq->heap[i] = t;
    t->heap_at = (long)i;
}

static void heap_up(struct fairq *fq, size_t i)
{
    struct fairq_tenant *t = fq->heap[i];
    for (; i > 0 && goes_before(t, fq->heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap_set(fq, i, fq->heap[(i - 1) / 2]);
    heap_set(fq, i, t);
}

static void heap_down(struct fairq *fq, size_t i)
{
    struct fairq_tenant *t = fq->heap[i];
    for (size_t child; (child = 2 * i + 1) < fq->heap_n; i = child) {
        if (child + 1 < fq->heap_n && goes_before(fq->heap[child + 1], fq->heap[child]))
            child++;
        if (!goes_before(fq->heap[child], t))
            break;
        heap_set(fq, i, fq->heap[child]);
    }
    heap_set(fq, i, t);
}

static void heap_remove(struct fairq *fq, struct fairq_tenant *t)
{
    if (t->heap_at == NOT_IN_HEAP)
        return;
    size_t i = (size_t)t->heap_at;
    t->heap_at = NOT_IN_HEAP;
    struct fairq_tenant *last = fq->heap[--fq->heap_n];
    if (last == t)
        return;
    heap_set(fq, i, last);
    heap_up(fq, i);
    heap_down(fq, (size_t)last->heap_at);
}

/* Enter or leave the heap as the tenant's state says. */
static void heap_settle(struct fairq *fq, struct fairq_tenant *t)
{
    bool wants = t->n_items > 0 && !t->blocked;
    if (!wants) {
        heap_remove(fq, t);
        return;
    }
    if (t->heap_at != NOT_IN_HEAP)
        return;
    t->start = CL_MAX(fq->vtime, t->finish);
    t->order = fq->next_order++;
    heap_set(fq, fq->heap_n++, t);
    heap_up(fq, fq->heap_n - 1);
}

/* --- tenants -------------------------------------------------------------------------------- */

/* A tenant with nothing to remember: its tag is not ahead of the virtual time. */
static bool is_idle(const struct fairq *fq, const struct fairq_tenant *t)
{
    return t->n_items == 0 && !t->blocked && t->finish <= fq->vtime;
}

static void forget_one_idle(struct fairq *fq)
{
    size_t at = 0;
    const char *name;
    for (struct fairq_tenant *t; (t = cl_map_next(fq->tenants, &at, &name)) != NULL;) {
        if (!is_idle(fq, t))
            continue;
        (void)cl_map_del(fq->tenants, t->name);
        cl_free(t);
        return;
    }
}

static int tenant_need(struct fairq *fq, const char *name, struct fairq_tenant **ret,
                       struct cl_err *err)
{
    struct fairq_tenant *t = cl_map_get(fq->tenants, name);
    if (t) {
        *ret = t;
        return 0;
    }
    if (strlen(name) >= NAME_MAX_BYTES)
        return cl_fail(err, CL_E_INVALID, 0, "tenant name of %zu bytes", strlen(name));
    if (cl_map_count(fq->tenants) >= fq->max_tenants)
        forget_one_idle(fq);
    if (cl_grow(&fq->heap, &fq->heap_cap, cl_map_count(fq->tenants) + 1, fq->max_tenants,
                sizeof *fq->heap, err) < 0)
        return cl_wrap(err, "tenants in the fair queue");
    t = cl_zalloc(sizeof *t);
    if (!t)
        return cl_fail(err, CL_E_NOMEM, 0, "tenant in the fair queue");
    cl_list_init(&t->items);
    t->weight = 1;
    t->queue_max = fq->max_items;
    t->heap_at = NOT_IN_HEAP;
    (void)snprintf(t->name, sizeof t->name, "%s", name);
    if (cl_map_put(fq->tenants, name, t, err) < 0) {
        cl_free(t);
        return -1;
    }
    *ret = t;
    return 0;
}

int fairq_tenant_set(struct fairq *fq, const char *tenant, uint32_t weight, size_t queue_max,
                     struct cl_err *err)
{
    struct fairq_tenant *t;
    if (weight < 1 || weight > WEIGHT_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "weight %" PRIu32 ", want 1 to %d", weight,
                       WEIGHT_MAX);
    if (tenant_need(fq, tenant, &t, err) < 0)
        return -1;
    t->weight = weight;
    t->queue_max = queue_max;
    return 0;
}

/* --- items ---------------------------------------------------------------------------------- */

void fairq_item_init(struct fairq_item *item, uint32_t cost)
{
    cl_list_init(&item->link);
    item->tenant = NULL;
    item->charged = 0;
    item->cost = CL_MIN(CL_MAX(cost, 1u), (uint32_t)FAIRQ_COST_MAX);
}

static void link_item(struct fairq *fq, struct fairq_tenant *t, struct fairq_item *item, bool head)
{
    CL_ASSERT(!item->tenant);
    if (head)
        cl_list_push_front(&t->items, &item->link);
    else
        cl_list_push(&t->items, &item->link);
    item->tenant = t;
    t->n_items++;
    fq->n_items++;
    heap_settle(fq, t);
}

static void unlink_item(struct fairq *fq, struct fairq_item *item)
{
    struct fairq_tenant *t = item->tenant;
    cl_list_unlink(&item->link);
    item->tenant = NULL;
    t->n_items--;
    fq->n_items--;
}

int fairq_push(struct fairq *fq, const char *tenant, struct fairq_item *item, struct cl_err *err)
{
    struct fairq_tenant *t;
    if (fq->n_items >= fq->max_items)
        return cl_fail(err, CL_E_QUEUE, 0, "%zu jobs wait in all", fq->n_items);
    if (tenant_need(fq, tenant, &t, err) < 0)
        return -1;
    if (t->n_items >= t->queue_max)
        return cl_fail(err, CL_E_QUEUE, 0, "%zu jobs of tenant '%s' wait", t->n_items, t->name);
    link_item(fq, t, item, false);
    return 0;
}

int fairq_requeue(struct fairq *fq, const char *tenant, struct fairq_item *item, struct cl_err *err)
{
    struct fairq_tenant *t;
    if (tenant_need(fq, tenant, &t, err) < 0)
        return -1;
    item->charged = 0;
    link_item(fq, t, item, true);
    return 0;
}

int fairq_restore(struct fairq *fq, const char *tenant, struct fairq_item *item, struct cl_err *err)
{
    struct fairq_tenant *t;
    if (tenant_need(fq, tenant, &t, err) < 0)
        return -1;
    link_item(fq, t, item, false);
    return 0;
}

void fairq_remove(struct fairq *fq, struct fairq_item *item)
{
    struct fairq_tenant *t = item->tenant;
    if (!t)
        return;
    unlink_item(fq, item);
    heap_settle(fq, t);
}

/* --- pop ------------------------------------------------------------------------------------ */

static void rebase(struct fairq *fq)
{
    size_t at = 0;
    const char *name;
    for (struct fairq_tenant *t; (t = cl_map_next(fq->tenants, &at, &name)) != NULL;) {
        t->start -= CL_MIN(t->start, fq->vtime);
        t->finish -= CL_MIN(t->finish, fq->vtime);
    }
    fq->vtime = 0;
}

static struct fairq_item *take_head(struct fairq *fq, struct fairq_tenant *t)
{
    struct fairq_item *item = CL_LIST_ENTRY(t->items.next, struct fairq_item, link);
    uint64_t charge = ((uint64_t)item->cost << TAG_SHIFT) / t->weight;
    heap_remove(fq, t);
    unlink_item(fq, item);
    fq->vtime = CL_MAX(fq->vtime, t->start);
    t->finish = t->start + charge;
    item->charged = charge;
    item->order = t->order;
    heap_settle(fq, t);
    if (fq->vtime > TAG_REBASE)
        rebase(fq);
    return item;
}

struct fairq_item *fairq_pop(struct fairq *fq, fairq_may_fn *may, void *arg)
{
    struct fairq_tenant *chosen = NULL;
    size_t n = fq->heap_n, skipped = 0;
    while (!chosen && fq->heap_n > 0) {
        struct fairq_tenant *t = fq->heap[0];
        if (!may || may(t->name, CL_LIST_ENTRY(t->items.next, struct fairq_item, link), arg)) {
            chosen = t;
            break;
        }
        heap_remove(fq, t); /* for the time of the search, with its tags, in the array's free end */
        fq->heap[n - ++skipped] = t;
    }
    for (; skipped > 0; skipped--) {
        heap_set(fq, fq->heap_n, fq->heap[n - skipped]);
        heap_up(fq, fq->heap_n++);
    }
    return chosen ? take_head(fq, chosen) : NULL;
}

int fairq_unpop(struct fairq *fq, const char *tenant, struct fairq_item *item, struct cl_err *err)
{
    struct fairq_tenant *t;
    if (tenant_need(fq, tenant, &t, err) < 0)
        return -1;
    heap_remove(fq, t);
    t->finish -= CL_MIN(t->finish, item->charged);
    item->charged = 0;
    uint64_t start = t->finish;
    link_item(fq, t, item, true);
    if (t->heap_at != NOT_IN_HEAP) { /* the turn it had, not one at the present time */
        t->start = start;
        t->order = item->order;
        heap_up(fq, (size_t)t->heap_at);
    }
    return 0;
}

/* --- blocking and counting ------------------------------------------------------------------ */

static void set_blocked(struct fairq *fq, const char *tenant, bool blocked)
{
    struct fairq_tenant *t = cl_map_get(fq->tenants, tenant);
    if (!t || t->blocked == blocked)
        return;
    t->blocked = blocked;
    heap_settle(fq, t);
}

void fairq_block(struct fairq *fq, const char *tenant)
{
    set_blocked(fq, tenant, true);
}

void fairq_unblock(struct fairq *fq, const char *tenant)
{
    set_blocked(fq, tenant, false);
}

bool fairq_is_blocked(const struct fairq *fq, const char *tenant)
{
    const struct fairq_tenant *t = cl_map_get(fq->tenants, tenant);
    return t && t->blocked;
}

bool fairq_is_clear(const struct fairq *fq, const char *tenant)
{
    return fq->heap_n == 0 && fairq_tenant_count(fq, tenant) == 0;
}

size_t fairq_count(const struct fairq *fq)
{
    return fq->n_items;
}

size_t fairq_tenant_count(const struct fairq *fq, const char *tenant)
{
    const struct fairq_tenant *t = cl_map_get(fq->tenants, tenant);
    return t ? t->n_items : 0;
}

const char *fairq_item_tenant(const struct fairq_item *item)
{
    return item->tenant ? item->tenant->name : NULL;
}

/* --- life ----------------------------------------------------------------------------------- */

int fairq_new(size_t max_tenants, size_t max_items, struct fairq **ret_fq, struct cl_err *err)
{
    struct fairq *fq = cl_zalloc(sizeof *fq);
    if (!fq)
        return cl_fail(err, CL_E_NOMEM, 0, "fair queue");
    if (cl_map_new(max_tenants, &fq->tenants, err) < 0) {
        cl_free(fq);
        return -1;
    }
    fq->max_tenants = max_tenants;
    fq->max_items = max_items;
    *ret_fq = fq;
    return 0;
}

void fairq_free(struct fairq *fq)
{
    if (!fq)
        return;
    size_t at = 0;
    const char *name;
    for (struct fairq_tenant *t; (t = cl_map_next(fq->tenants, &at, &name)) != NULL;)
        cl_free(t);
    cl_map_free(fq->tenants);
    cl_free(fq->heap);
    cl_free(fq);
}
