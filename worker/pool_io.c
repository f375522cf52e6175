/* worker/pool_io.c - see worker/pool.h. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "worker/pool.h"
#include "worker/snapshot_cache.h"

#include "observability/log.h"

enum {
    BUILD_TRIES = 3,
    RETRY_MS = 1000,
    REFILL_REST_MS = 100, /* after a claim: making the next VM would take the CPU from this one's
                             first output */
};

enum flavour_state { FLAVOUR_BUILDING = 1, FLAVOUR_READY, FLAVOUR_FAILED };

struct flavour {
    struct cl_list link;
    struct pool *pool;         /* borrowed */
    struct template *template; /* owned */
    enum flavour_state state;
    struct image_check *check; /* BUILDING: its files are read */
    bool saved;                /* the builder wrote the snapshot; to be sealed at its end */
    bool is_loading;           /* BUILDING: it is read from the cache */
    bool is_from_cache;        /* READY: it was */
    bool is_proven;            /* READY: a clone of it came up */
    struct machine *builder;   /* borrowed: the booting machine */
    struct cl_list spares;     /* of struct spare: parked ones first, starting ones behind */
    struct cl_list claims;     /* of struct pool_claim, oldest first */
    uint32_t n_parked, n_starting;
    uint32_t keep; /* target of n_parked */
    int failures;  /* in a row */
    uint64_t all_failures;
    uint64_t not_before_ns;     /* after a failure */
    uint64_t used_ns, began_ns; /* a claim came last; its snapshot is made since */
    bool is_retired;            /* another build has its place; it goes when nobody waits for it */
    char refused[TEMPLATE_BUILD]; /* a build that was to have its place and could not be opened */
    struct cl_err why;
};

/* A machine that nobody has yet. */
struct spare {
    struct cl_list link;
    struct flavour *flavour; /* borrowed */
    struct machine *machine; /* borrowed from its own life: on_end tells */
    bool parked;
    bool leaves;      /* parked, and stopped: not counted any more */
    bool is_of_cache; /* its snapshot is */
};

struct pool_claim {
    struct cl_list link;
    struct pool_want want;
    pool_claim_fn *fn;
    void *arg;
    struct pool *pool;
};

struct pool {
    struct pool_options options;
    pool_changed_fn *changed;
    void *arg;
    struct cl_list flavours;
    size_t n_flavours, n_claims;
    uint32_t n_starting; /* machines of all flavours, builders included */
    bool stopping;
    uint64_t refill_from_ns;
    struct cl_timer kick; /* does the work, outside of every call */
};

static void kick(struct pool *p)
{
    cl_timer_start(&p->kick, 0);
}

/* --- claims --------------------------------------------------------------------------------- */

static void answer(struct pool_claim *c, struct machine *m, const char *source,
                   const struct cl_err *err)
{
    cl_list_unlink(&c->link);
    c->pool->n_claims--;
    c->fn(c->arg, m, source, err);
    cl_free(c);
}

static void refuse_all(struct flavour *f, const struct cl_err *why)
{
    while (!cl_list_empty(&f->claims))
        answer(CL_LIST_ENTRY(f->claims.next, struct pool_claim, link), NULL, "", why);
}

static int choose_flavour(struct pool *p, const struct pool_want *want,
                          struct flavour **ret_flavour, struct cl_err *err);

static bool has_given_up(const struct flavour *f)
{
    return f->failures >= BUILD_TRIES;
}

/* To the next maker with those who wait, and with the keeping; refused is who suits no other. */
static void give_up(struct flavour *f, const struct cl_err *why)
{
    struct pool *p = f->pool;
    struct pool_want kept = {
        .template = f->template->m.name, .network = f->template->network, .shared_ok = true};
    struct flavour *next;
    struct cl_err err = {0};
    while (!cl_list_empty(&f->claims)) {
        struct pool_claim *c = CL_LIST_ENTRY(f->claims.next, struct pool_claim, link);
        if (choose_flavour(p, &c->want, &next, &err) < 0 || next == f) {
            answer(c, NULL, "", why);
            continue;
        }
        cl_list_unlink(&c->link);
        cl_list_push(&next->claims, &c->link);
    }
    if (f->keep == 0 || choose_flavour(p, &kept, &next, &err) < 0 || next == f)
        return;
    log_event(LOG_POOL_NEXT, "template=%s text='%s does not boot it: from now on by %s'",
              f->template->m.name, f->template->driver->name, next->template->driver->name);
    next->keep = f->keep;
    f->keep = 0;
}

void pool_cancel(struct pool_claim *claim)
{
    cl_list_unlink(&claim->link);
    claim->pool->n_claims--;
    cl_free(claim);
}

/* --- spares --------------------------------------------------------------------------------- */

static void forget_start(struct flavour *f)
{
    f->n_starting--;
    f->pool->n_starting--;
    kick(f->pool);
}

/* Only what works is left to others. */
static void note_proof(struct flavour *f)
{
    struct snapshot_cache *cache = f->pool->options.cache;
    if (!f->is_proven && !f->is_from_cache && cache)
        snapshot_cache_store(cache, f->template);
    f->is_proven = true;
}

static void spare_ready(void *arg)
{
    struct spare *s = arg;
    struct flavour *f = s->flavour;
    forget_start(f);
    f->failures = 0;
    note_proof(f);
    cl_list_unlink(&s->link);
    if (!cl_list_empty(&f->claims)) {
        struct machine *m = s->machine;
        cl_free(s);
        answer(CL_LIST_ENTRY(f->claims.next, struct pool_claim, link), m, "clone", NULL);
        return;
    }
    struct cl_err err = {0};
    s->parked = true;
    f->n_parked++;
    cl_list_push_front(&f->spares, &s->link);
    if (machine_park(s->machine, &err) < 0)
        machine_stop(s->machine);
    else if (f->is_retired)
        kick(f->pool);
    f->pool->changed(f->pool->arg);
}

static void note_failure(struct flavour *f, const struct cl_err *why)
{
    if (f->pool->stopping)
        return;
    f->failures++;
    f->all_failures++;
    f->why = *why;
    f->not_before_ns = cl_now_ns() + (uint64_t)f->failures * RETRY_MS * CL_NS_PER_MS;
    log_event(LOG_POOL_FAILED, "template=%s try=%d text='%s'", f->template->m.name, f->failures,
              why->text);
    if (has_given_up(f))
        give_up(f, why);
    kick(f->pool); /* its turn sets the timer for the next try */
}

/* None of its clones has come up: it is booted, and that has all its tries. */
static void distrust(struct flavour *f, const struct cl_err *why)
{
    if (f->state != FLAVOUR_READY || !f->is_from_cache || f->pool->stopping)
        return; /* of one that is distrusted already */
    log_event(LOG_SNAPSHOT_BAD, "template=%s key=%.16s text='no clone of it comes up: %s'",
              f->template->m.name, f->template->snapshot_key, why->text);
    snapshot_cache_forget(f->pool->options.cache, f->template);
    f->state = FLAVOUR_FAILED;
    kick(f->pool);
}

static void note_spare_failure(struct flavour *f, bool is_of_cache, const struct cl_err *why)
{
    if (is_of_cache && !f->is_proven)
        distrust(f, why);
    else
        note_failure(f, why);
}

static void spare_end(void *arg, const struct cl_err *why)
{
    struct spare *s = arg;
    struct flavour *f = s->flavour;
    if (!s->parked) {
        forget_start(f);
        note_spare_failure(f, s->is_of_cache, why);
    } else {
        f->n_parked -= !s->leaves;
        kick(f->pool);
        f->pool->changed(f->pool->arg);
        if (!f->pool->stopping && !s->leaves)
            log_event(LOG_POOL_LOST, "template=%s text='%s'", f->template->m.name, why->text);
    }
    cl_list_unlink(&s->link);
    cl_free(s);
}

static void start_spare(struct flavour *f)
{
    static const struct machine_events events = {.on_ready = spare_ready, .on_end = spare_end};
    struct pool *p = f->pool;
    struct cl_err err = {0};
    struct spare *s = cl_zalloc(sizeof *s);
    if (!s)
        return;
    s->flavour = f;
    s->is_of_cache = f->is_from_cache;
    /* Somebody waits: hand it over as it comes.  Otherwise warm it up, it has the time. */
    bool warm = cl_list_empty(&f->claims);
    if (machine_start(p->options.host, f->template, VM_CLONE, warm, &events, s, &s->machine, &err) <
        0) {
        cl_free(s);
        note_spare_failure(f, f->is_from_cache, &err);
        return;
    }
    cl_list_push(&f->spares, &s->link);
    f->n_starting++;
    p->n_starting++;
}

/* --- building a snapshot -------------------------------------------------------------------- */

static void built(void *arg, const struct cl_err *err)
{
    struct flavour *f = arg;
    f->saved = !err;
    if (err)
        f->why = *err;
}

static void builder_ready(void *arg)
{
    struct flavour *f = arg;
    struct cl_err err = {0};
    if (machine_snapshot(f->builder, built, f, &err) < 0) {
        f->why = err;
        machine_stop(f->builder);
    }
}

/* The end of a text may be cut: what to do comes before what the console said. */
static void explain_build(const struct template *t, const struct cl_err *cause,
                          struct cl_err *ret_why)
{
    const char *name = t->m.name;
    *ret_why = (struct cl_err){0};
    if (t->memory_mib < t->m.default_memory_mib)
        (void)cl_fail(ret_why, cause->code, 0,
                      "template '%s' does not boot with %u MiB of memory, its default is %u: %s",
                      name, t->memory_mib, t->m.default_memory_mib, cause->text);
    else
        (void)cl_fail(ret_why, cause->code, 0,
                      "template '%s' does not boot; if its files changed on disk, build it again "
                      "with `cloche template build %s`: %s",
                      name, name, cause->text);
}

static void become_ready(struct flavour *f, const char *from)
{
    const struct template *t = f->template;
    struct pool *p = f->pool;
    f->state = FLAVOUR_READY;
    f->failures = 0;
    f->is_proven = false;
    log_event(LOG_TEMPLATE_READY,
              "template=%s key=%.16s memory_mib=%u vcpus=%u from=%s took_ms=%llu", t->m.name,
              t->snapshot_key, t->memory_mib, t->vcpus, from,
              (unsigned long long)((cl_now_ns() - f->began_ns) / CL_NS_PER_MS));
    if (p->options.snapshot_made)
        p->options.snapshot_made(p->arg, from);
    p->changed(p->arg);
}

/* Only now, with the VM gone, has nobody a writable mapping: the snapshot can be sealed. */
static void builder_end(void *arg, const struct cl_err *why)
{
    struct flavour *f = arg;
    f->builder = NULL;
    forget_start(f);
    if (f->saved && template_seal(f->template, &f->why) == 0) {
        become_ready(f, "boot");
        return;
    }
    struct cl_err failed;
    f->state = FLAVOUR_FAILED;
    explain_build(f->template, f->why.code ? &f->why : why, &failed);
    note_failure(f, &failed);
}

/* One that is no good is gone, and the next turn boots. */
static void loaded(void *arg, const struct cl_err *err)
{
    struct flavour *f = arg;
    f->is_loading = false;
    forget_start(f);
    f->is_from_cache = !err;
    if (err)
        f->state = FLAVOUR_FAILED;
    else
        become_ready(f, "cache");
}

static bool start_load(struct flavour *f)
{
    struct snapshot_cache *cache = f->pool->options.cache;
    struct cl_err err = {0};
    f->is_loading = cache && snapshot_cache_load(cache, f->template, loaded, f, &err) == 0;
    return f->is_loading;
}

static int start_boot(struct flavour *f, struct cl_err *err)
{
    static const struct machine_events events = {.on_ready = builder_ready, .on_end = builder_end};
    f->saved = f->is_from_cache = false;
    return template_prepare(f->template, err) < 0
               ? -1
               : machine_start(f->pool->options.host, f->template, VM_BOOT, true, &events, f,
                               &f->builder, err);
}

static void free_flavour(struct flavour *f)
{
    cl_list_unlink(&f->link);
    f->pool->n_flavours--;
    template_unref(f->template);
    cl_free(f);
}

/* Nothing of it is used: who asks the next time has it read again. */
static void drop_bad(struct flavour *f, const struct cl_err *err)
{
    struct pool *p = f->pool;
    struct cl_err why = *err;
    (void)!cl_wrap(&why, "template '%s'", f->template->m.name);
    if (f->keep > 0 && p->options.bad)
        p->options.bad(p->arg, f->template->m.name, &why);
    refuse_all(f, &why);
    free_flavour(f);
    p->changed(p->arg);
}

static void go_on_building(struct flavour *f);

static void checked(void *arg, const struct cl_err *err)
{
    struct flavour *f = arg;
    f->check = NULL;
    f->template->is_checked = !err;
    if (!err) {
        go_on_building(f);
        return;
    }
    forget_start(f);
    drop_bad(f, err);
}

static int start_check(struct flavour *f, struct cl_err *err)
{
    return template_check(f->template, f->pool->options.files, checked, f, &f->check, err);
}

static int start_next(struct flavour *f, struct cl_err *err)
{
    if (!f->template->is_checked)
        return start_check(f, err);
    return start_load(f) ? 0 : start_boot(f, err);
}

static void go_on_building(struct flavour *f)
{
    struct cl_err err = {0};
    if (start_next(f, &err) == 0)
        return;
    f->state = FLAVOUR_FAILED;
    forget_start(f);
    note_failure(f, &err);
}

static void start_build(struct flavour *f)
{
    f->state = FLAVOUR_BUILDING;
    f->why = (struct cl_err){0};
    f->began_ns = cl_now_ns();
    f->n_starting++;
    f->pool->n_starting++;
    go_on_building(f);
}

/* --- the work ------------------------------------------------------------------------------- */

static uint32_t count_claims(const struct flavour *f)
{
    uint32_t n = 0;
    for (const struct cl_list *l = f->claims.next; l != &f->claims; l = l->next)
        n++;
    return n;
}

/* Claims that keep coming do not put it off: a rest that has begun is not made longer. */
static void rest_from_refilling(struct pool *p)
{
    if (cl_now_ns() >= p->refill_from_ns)
        p->refill_from_ns = cl_now_ns() + REFILL_REST_MS * CL_NS_PER_MS;
}

static void serve_parked(struct flavour *f)
{
    while (!cl_list_empty(&f->claims) && f->n_parked > 0) {
        struct spare *s = CL_LIST_ENTRY(f->spares.next, struct spare, link);
        CL_ASSERT(s->parked);
        struct machine *m = s->machine;
        cl_list_unlink(&s->link);
        f->n_parked--;
        cl_free(s);
        rest_from_refilling(f->pool);
        answer(CL_LIST_ENTRY(f->claims.next, struct pool_claim, link), m, "warm", NULL);
    }
}

static void work_on(struct flavour *f)
{
    struct pool *p = f->pool;
    if (p->stopping || cl_now_ns() < f->not_before_ns)
        return;
    bool wanted = f->keep > 0 || !cl_list_empty(&f->claims);
    if (f->state == FLAVOUR_FAILED && wanted)
        start_build(f);
    if (f->state != FLAVOUR_READY)
        return;
    serve_parked(f);
    uint32_t want = count_claims(f);
    /* Refill only when no claim of any flavour is kept waiting by it. */
    if (want == 0 && p->n_claims == 0 && cl_now_ns() >= p->refill_from_ns)
        want = f->keep > f->n_parked ? f->keep - f->n_parked : 0;
    while (f->state == FLAVOUR_READY && f->n_starting < want && p->n_starting < p->options.starts &&
           cl_now_ns() >= f->not_before_ns)
        start_spare(f);
}

/* One timer serves every flavour: whoever kicked it early must not have put off a retry, or the
 * refill, for good. */
static void await_next(struct pool *p)
{
    uint64_t now_ns = cl_now_ns();
    uint64_t first_ns = p->refill_from_ns > now_ns ? p->refill_from_ns : UINT64_MAX;
    CL_LIST_FOREACH (node, &p->flavours) {
        uint64_t at_ns = CL_LIST_ENTRY(node, struct flavour, link)->not_before_ns;
        if (at_ns > now_ns)
            first_ns = CL_MIN(first_ns, at_ns);
    }
    if (first_ns != UINT64_MAX && !cl_timer_is_armed(&p->kick))
        cl_timer_start(&p->kick, first_ns - now_ns);
}

/* Nobody finds it any more; those who wait for it get it yet. */
static void retire(struct flavour *f)
{
    f->is_retired = true;
    f->keep = 0;
    kick(f->pool);
}

static void stop_parked(struct flavour *f)
{
    CL_LIST_FOREACH (node, &f->spares) {
        struct spare *s = CL_LIST_ENTRY(node, struct spare, link);
        if (!s->parked || s->leaves)
            continue;
        s->leaves = true;
        f->n_parked--;
        machine_stop(s->machine);
    }
}

static void bury_retired(struct pool *p)
{
    struct cl_list *next;
    for (struct cl_list *node = p->flavours.next; node != &p->flavours; node = next) {
        struct flavour *f = CL_LIST_ENTRY(node, struct flavour, link);
        next = node->next;
        if (!f->is_retired || !cl_list_empty(&f->claims))
            continue;
        stop_parked(f);
        if (f->n_starting == 0 && cl_list_empty(&f->spares))
            free_flavour(f);
    }
}

static void on_kick(void *arg)
{
    struct pool *p = arg;
    CL_LIST_FOREACH (node, &p->flavours)
        work_on(CL_LIST_ENTRY(node, struct flavour, link));
    bury_retired(p);
    await_next(p);
}

/* Make room for one more flavour; only an idle one that nobody asked to keep may go. */
static void evict_one(struct pool *p)
{
    struct flavour *oldest = NULL;
    CL_LIST_FOREACH (node, &p->flavours) {
        struct flavour *f = CL_LIST_ENTRY(node, struct flavour, link);
        bool idle = f->keep == 0 && f->n_starting == 0 && cl_list_empty(&f->spares) &&
                    cl_list_empty(&f->claims);
        if (idle && (!oldest || f->used_ns < oldest->used_ns))
            oldest = f;
    }
    if (oldest)
        free_flavour(oldest);
}

static struct flavour *find_flavour(struct pool *p, const struct vm_driver *driver,
                                    const struct pool_want *want)
{
    CL_LIST_FOREACH (node, &p->flavours) {
        struct flavour *f = CL_LIST_ENTRY(node, struct flavour, link);
        const struct template *t = f->template;
        if (!f->is_retired && t->driver == driver && t->network == want->network &&
            strcmp(t->m.name, want->template) == 0 &&
            t->memory_mib == (want->memory_mib ? want->memory_mib : t->m.default_memory_mib) &&
            t->vcpus == (want->vcpus ? want->vcpus : t->m.default_vcpus))
            return f;
    }
    return NULL;
}

/* Has the driver VMs of such a size? */
static int check_size(const struct vm_driver *d, uint32_t memory_mib, uint32_t vcpus,
                      struct cl_err *err)
{
    if (d->vcpus_max && vcpus > d->vcpus_max)
        return cl_fail(err, CL_E_INVALID, 0, "%u vCPUs: a VM of the driver %s has at most %u",
                       vcpus, d->name, d->vcpus_max);
    if (d->memory_max_mib && memory_mib > d->memory_max_mib)
        return cl_fail(err, CL_E_INVALID, 0, "%u MiB: a VM of the driver %s has at most %u",
                       memory_mib, d->name, d->memory_max_mib);
    return 0;
}

static int open_template(struct pool *p, const struct template_maker *maker,
                         const struct pool_want *want, struct template **ret_template,
                         struct cl_err *err)
{
    struct template_request request = {.dir = p->options.template_dir,
                                       .name = want->template,
                                       .public_keys = p->options.public_key,
                                       .memory_mib = want->memory_mib,
                                       .vcpus = want->vcpus,
                                       .network = want->network,
                                       .maker = maker,
                                       .files = p->options.files,
                                       .check_later = true};
    struct template *t;
    if (check_size(maker->driver, want->memory_mib, want->vcpus, err) < 0 ||
        template_open(&request, &t, err) < 0)
        return -1;
    if (check_size(maker->driver, t->memory_mib, t->vcpus, err) < 0) {
        template_unref(t);
        return -1;
    }
    *ret_template = t;
    return 0;
}

static bool has_room(struct pool *p)
{
    size_t asked = 0;
    CL_LIST_FOREACH (node, &p->flavours)
        asked += CL_LIST_ENTRY(node, struct flavour, link)->keep == 0;
    return asked < POOL_ASKED && p->n_flavours < POOL_FLAVOURS;
}

static int add_flavour(struct pool *p, const struct template_maker *maker,
                       const struct pool_want *want, struct flavour **ret_flavour,
                       struct cl_err *err)
{
    if (!has_room(p))
        evict_one(p);
    if (!has_room(p))
        return cl_fail(err, CL_E_TOOBIG, 0, "%zu flavours of templates are in use", p->n_flavours);
    struct template *t;
    if (open_template(p, maker, want, &t, err) < 0)
        return -1;
    struct flavour *f = cl_zalloc(sizeof *f);
    if (!f) {
        template_unref(t);
        return cl_fail(err, CL_E_NOMEM, 0, "template");
    }
    f->pool = p;
    f->template = t;
    f->state = FLAVOUR_FAILED; /* nothing built yet; the next turn starts it */
    cl_list_init(&f->spares);
    cl_list_init(&f->claims);
    cl_list_push(&p->flavours, &f->link);
    p->n_flavours++;
    *ret_flavour = f;
    return 0;
}

/* The template was built again: what comes from now on is of that build.  One that cannot be opened
 * takes nobody's place. */
static struct flavour *renew(struct pool *p, const struct template_maker *maker,
                             const struct pool_want *want, struct flavour *f)
{
    struct cl_err err = {0};
    struct flavour *next;
    char build[TEMPLATE_BUILD];
    template_current(p->options.template_dir, want->template, build);
    if (strlen(build) < TEMPLATE_BUILD - 1 || strcmp(build, f->refused) == 0 ||
        strncmp(build, f->template->m.image_key, TEMPLATE_BUILD - 1) == 0)
        return f;
    uint32_t keep = f->keep;
    f->keep = CL_MAX(keep, 1u); /* if one has to make room, not this one */
    int rc = add_flavour(p, maker, want, &next, &err);
    f->keep = keep;
    if (rc < 0) {
        memcpy(f->refused, build, sizeof f->refused);
        if (p->options.bad)
            p->options.bad(p->arg, want->template, &err);
        return f;
    }
    next->keep = keep;
    retire(f);
    return next;
}

static int get_flavour(struct pool *p, const struct template_maker *maker,
                       const struct pool_want *want, struct flavour **ret_flavour,
                       struct cl_err *err)
{
    struct flavour *f = find_flavour(p, maker->driver, want);
    if (f)
        f = renew(p, maker, want, f);
    else if (add_flavour(p, maker, want, &f, err) < 0)
        return -1;
    *ret_flavour = f;
    (*ret_flavour)->used_ns = cl_now_ns();
    return 0;
}

/* By the first maker that suits and works; when none works, by the last that suits. */
static int choose_flavour(struct pool *p, const struct pool_want *want,
                          struct flavour **ret_flavour, struct cl_err *err)
{
    struct flavour *f = NULL, *found;
    struct cl_err why = {0};
    (void)cl_fail(&why, CL_E_UNAVAILABLE, 0, "this worker has no isolated guests");
    for (size_t i = 0; i < p->options.n_makers; i++) {
        const struct template_maker *maker = &p->options.makers[i];
        if (maker->driver->is_shared && !want->shared_ok)
            continue;
        if (get_flavour(p, maker, want, &found, &why) < 0)
            continue;
        f = found;
        if (!has_given_up(f))
            break;
    }
    *ret_flavour = f;
    if (!f)
        *err = why;
    return f ? 0 : -1;
}

/* At least one: the snapshot's first clone proves that it works. */
static uint32_t keep_target(const struct pool *pool)
{
    return CL_MAX(pool->options.warm, 1u);
}

int pool_keep(struct pool *pool, const char *template, struct cl_err *err)
{
    struct pool_want want = {.template = template, .shared_ok = true};
    struct flavour *f;
    if (choose_flavour(pool, &want, &f, err) < 0)
        return -1;
    f->keep = keep_target(pool);
    kick(pool);
    return 0;
}

void pool_forget(struct pool *pool, const char *template)
{
    CL_LIST_FOREACH (node, &pool->flavours) {
        struct flavour *f = CL_LIST_ENTRY(node, struct flavour, link);
        if (!f->is_retired && strcmp(f->template->m.name, template) == 0)
            retire(f);
    }
    pool->changed(pool->arg);
}

void pool_set_warm(struct pool *pool, uint32_t warm)
{
    pool->options.warm = warm;
    CL_LIST_FOREACH (node, &pool->flavours) {
        struct flavour *f = CL_LIST_ENTRY(node, struct flavour, link);
        if (f->keep > 0)
            f->keep = keep_target(pool);
    }
    kick(pool);
}

/* A template that is kept warm is so with a card, too, once somebody has asked for one; a size that
 * nobody keeps is not: any tenant may ask for any. */
static void keep_with_card(struct flavour *f)
{
    const struct template *t = f->template;
    if (f->keep > 0 || !t->network || t->memory_mib != t->m.default_memory_mib ||
        t->vcpus != t->m.default_vcpus)
        return;
    CL_LIST_FOREACH (node, &f->pool->flavours) {
        const struct flavour *other = CL_LIST_ENTRY(node, struct flavour, link);
        if (other->keep > 0 && strcmp(other->template->m.name, t->m.name) == 0)
            f->keep = keep_target(f->pool);
    }
}

int pool_claim(struct pool *pool, const struct pool_want *want, pool_claim_fn *fn, void *arg,
               struct pool_claim **ret_claim, struct cl_err *err)
{
    struct flavour *f;
    if (pool->n_claims >= POOL_CLAIMS)
        return cl_fail(err, CL_E_TOOBIG, 0, "%d claims wait for a VM already", POOL_CLAIMS);
    if (choose_flavour(pool, want, &f, err) < 0)
        return -1;
    struct pool_claim *c = cl_zalloc(sizeof *c);
    if (!c)
        return cl_fail(err, CL_E_NOMEM, 0, "claim");
    *c = (struct pool_claim){.want = *want, .fn = fn, .arg = arg, .pool = pool};
    cl_list_push(&f->claims, &c->link);
    pool->n_claims++;
    keep_with_card(f);
    if (has_given_up(f))
        f->failures = 0; /* somebody asks again: try anew */
    *ret_claim = c;
    kick(pool);
    return 0;
}

void pool_renew(struct pool *pool, uint64_t deadline_ns)
{
    CL_LIST_FOREACH (node, &pool->flavours) {
        struct flavour *f = CL_LIST_ENTRY(node, struct flavour, link);
        CL_LIST_FOREACH (at, &f->spares)
            machine_set_deadline(CL_LIST_ENTRY(at, struct spare, link)->machine, deadline_ns);
        if (f->builder) /* importing what a template preloads can take longer than one lease */
            machine_set_deadline(f->builder, deadline_ns);
    }
}

size_t pool_list(struct pool *pool, struct pool_flavour_info *out, size_t max)
{
    size_t n = 0;
    CL_LIST_FOREACH (node, &pool->flavours) {
        const struct flavour *f = CL_LIST_ENTRY(node, struct flavour, link);
        if (n < max && !f->is_retired)
            out[n++] = (struct pool_flavour_info){f->template, f->n_parked, f->all_failures,
                                                  f->state == FLAVOUR_READY};
    }
    return n;
}

int pool_new(const struct pool_options *options, pool_changed_fn *changed, void *arg,
             struct pool **ret_pool, struct cl_err *err)
{
    struct pool *p = cl_zalloc(sizeof *p);
    if (!p)
        return cl_fail(err, CL_E_NOMEM, 0, "pool");
    *p = (struct pool){.options = *options, .changed = changed, .arg = arg};
    cl_list_init(&p->flavours);
    if (cl_timer_init(&p->kick, options->host->loop, on_kick, p, err) < 0) {
        cl_free(p);
        return -1;
    }
    *ret_pool = p;
    return 0;
}

static void stop_check(struct flavour *f)
{
    image_check_cancel(f->check);
    f->check = NULL;
    forget_start(f);
}

static void stop_load(struct flavour *f)
{
    snapshot_cache_cancel(f->pool->options.cache, f->template);
    f->is_loading = false;
    forget_start(f);
}

void pool_stop(struct pool *pool)
{
    struct cl_err why = {0};
    (void)cl_fail(&why, CL_E_UNAVAILABLE, 0, "the worker ends");
    pool->stopping = true;
    CL_LIST_FOREACH (node, &pool->flavours) {
        struct flavour *f = CL_LIST_ENTRY(node, struct flavour, link);
        refuse_all(f, &why);
        CL_LIST_FOREACH (at, &f->spares)
            machine_stop(CL_LIST_ENTRY(at, struct spare, link)->machine);
        if (f->builder)
            machine_stop(f->builder);
        if (f->check)
            stop_check(f);
        if (f->is_loading)
            stop_load(f);
    }
}

void pool_free(struct pool *pool)
{
    if (!pool)
        return;
    CL_LIST_FOREACH (node, &pool->flavours) {
        struct flavour *f = CL_LIST_ENTRY(node, struct flavour, link);
        CL_ASSERT(f->n_starting == 0 && cl_list_empty(&f->spares));
        free_flavour(f);
    }
    cl_timer_fini(&pool->kick);
    cl_free(pool);
}
