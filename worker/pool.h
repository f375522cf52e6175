/* worker/pool.h - the warm pools: templates with their snapshots, and machines that wait.
 *
 * Machines of a template can be made in more than one way (by makers).  A claim gets the first that
 * suits it and works: one that fails to boot a template three times gives way to the next.
 *
 * VMs with a network card are flavours of their own: made when first asked for, kept warm from then
 * on where the template is.
 *
 * A template that was built again is taken at its next claim, or when it is next to be kept: what
 * waits warm ends, what waits for a machine of the build before gets one, what runs goes on.
 *
 * Owns:    the templates, the machines that nobody has claimed, the queue of claims.
 * Thread:  the worker loop; callbacks never run inside a call.
 * Limits:  POOL_FLAVOURS templates with a snapshot, POOL_ASKED of them not to be kept (the least
 *          recently used idle one goes first: without it a tenant could fill RAM by asking for odd
 *          sizes), POOL_CLAIMS claims waiting, `starts` machines starting at once.
 */
#ifndef CL_WORKER_POOL_H
#define CL_WORKER_POOL_H

#include "worker/machine.h"

enum {
    POOL_FLAVOURS = 32,
    POOL_ASKED = 12, /* of them, those that only tenants asked for */
    POOL_CLAIMS = 1024,
    POOL_MAKERS = 3,
};

struct pool;
struct pool_claim;
struct snapshot_cache;

struct pool_options {
    struct machine_host *host;                 /* borrowed */
    const char *template_dir, *public_key;     /* borrowed */
    struct template_maker makers[POOL_MAKERS]; /* the preferred first */
    size_t n_makers;
    uint32_t warm;                /* machines kept parked per default flavour */
    uint32_t starts;              /* at once */
    struct snapshot_cache *cache; /* borrowed; NULL = every template is booted */
    struct image_files *files;    /* borrowed */
    void (*bad)(void *arg, const char *template, const struct cl_err *why); /* one that is kept */
    void (*snapshot_made)(void *arg, const char *from); /* "boot" or "cache"; may be NULL */
};

/* A machine is yours (READY or PARKED; claim it and set its events at once), or err says why not.
 */
typedef void pool_claim_fn(void *arg, struct machine *machine, const char *source,
                           const struct cl_err *err);
/* Something changed that the scheduler should hear of. */
typedef void pool_changed_fn(void *arg);

int pool_new(const struct pool_options *options, pool_changed_fn *changed, void *arg,
             struct pool **ret_pool, struct cl_err *err) CL_MUST;
/* Refuse what waits and end every machine that nobody claimed; start nothing more. */
void pool_stop(struct pool *pool);
/* NULL is a no-op.  No machine of it may live any more. */
void pool_free(struct pool *pool);
/* Keep this template warm from now on, by the preferred maker; builds its snapshot. */
int pool_keep(struct pool *pool, const char *template, struct cl_err *err) CL_MUST;
/* It is no template any more: what waits warm ends, what waits for a machine gets one. */
void pool_forget(struct pool *pool, const char *template);
/* How many to keep warm of each template that is kept; more are started at once, fewer are not
 * refilled. */
void pool_set_warm(struct pool *pool, uint32_t warm);
struct pool_want {
    const char *template;       /* borrowed until the claim is answered */
    uint32_t memory_mib, vcpus; /* 0 = the template's defaults */
    bool network;               /* with a network card */
    bool shared_ok;             /* a guest will do whose user code can reach its kernel */
};
/* Ask for a machine. */
int pool_claim(struct pool *pool, const struct pool_want *want, pool_claim_fn *fn, void *arg,
               struct pool_claim **ret_claim, struct cl_err *err) CL_MUST;
/* Forget a claim that was not answered yet. */
void pool_cancel(struct pool_claim *claim);
/* Renew the guardians of machines that are parked, starting or being built; the owner calls it
 * every few seconds. */
void pool_renew(struct pool *pool, uint64_t deadline_ns);

/* For Hello and load reports. */
struct pool_flavour_info {
    const struct template *template;
    uint32_t parked;
    uint64_t failures; /* since the worker started */
    bool ready;
};
size_t pool_list(struct pool *pool, struct pool_flavour_info *out, size_t max);

#endif
