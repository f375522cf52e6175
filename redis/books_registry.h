/* redis/books_registry.h - the books' second half: tenants and what they use, API keys, workers,
 * enrolment, audit heads.
 *
 * The connection, the answers and the thread are those of redis/books.h.
 */
#ifndef CL_REDIS_BOOKS_REGISTRY_H
#define CL_REDIS_BOOKS_REGISTRY_H

#include "redis/books.h"

enum {
    BOOKS_NOTE = 128, /* free text of a key, with its NUL */
    BOOKS_KEY_ID = 17,
    BOOKS_MAC = 32,
};

/* --- tenants -------------------------------------------------------------------------------- */

struct books_tenant {
    char name[BOOKS_NAME];
    struct books_limits limits;
    const void *blob; /* opaque: the policy's packed limits */
    size_t blob_n;
    uint64_t created_ms;
};
typedef void books_tenants_fn(const struct books_tenant *rows, size_t n, const char *next,
                              const struct cl_err *err, void *arg);

typedef void books_put_fn(bool created, const struct cl_err *err, void *arg);
/* Create it, or change its limits and blob. */
int books_tenant_put(struct books *books, const struct books_tenant *tenant, books_put_fn *fn,
                     void *arg, struct cl_err *err) CL_MUST;
/* One row, or NOTFOUND. */
int books_tenant_get(struct books *books, const char *name, books_tenants_fn *fn, void *arg,
                     struct cl_err *err) CL_MUST;
/* By name, after `after` ("" = from the start); next is "" at the end. */
int books_tenant_list(struct books *books, const char *after, size_t n, books_tenants_fn *fn,
                      void *arg, struct cl_err *err) CL_MUST;
/* STATE while it has units that have not ended.  Its keys and ended units go with it. */
int books_tenant_delete(struct books *books, const char *name, books_done_fn *fn, void *arg,
                        struct cl_err *err) CL_MUST;

/* --- usage, and the audit of the books themselves ------------------------------------------- */

struct books_usage {
    struct books_limits limits;
    uint64_t held[BOOKS_DIM_NR];
    uint64_t spent[BOOKS_DIM_NR]; /* CPU and egress of this period */
    uint64_t period_end_ms;
    uint64_t queued, leases, reaped, live;
    uint64_t reaped_total;
};
typedef void books_usage_fn(const struct books_usage *usage, const struct cl_err *err, void *arg);
int books_usage(struct books *books, const char *tenant, books_usage_fn *fn, void *arg,
                struct cl_err *err) CL_MUST;

/* Recount: every field must be 0. */
struct books_drift {
    int64_t dim[BOOKS_DIM_NR]; /* held minus the sum over the leases */
    int64_t leases;            /* leases minus expiries */
    int64_t units;             /* live units minus queued, leased and reaped ones */
    int64_t wrong;             /* units whose record does not fit the set they are in */
};
typedef void books_drift_fn(const struct books_drift *drift, const struct cl_err *err, void *arg);
int books_check(struct books *books, const char *tenant, books_drift_fn *fn, void *arg,
                struct cl_err *err) CL_MUST;

/* --- API keys ------------------------------------------------------------------------------- */

struct books_key {
    char id[BOOKS_KEY_ID];
    char tenant[BOOKS_NAME];
    char subject[BOOKS_NAME];
    char note[BOOKS_NOTE];
    uint8_t mac[BOOKS_MAC];
    uint32_t scopes;
    uint64_t created_ms, expires_ms, last_used_ms; /* 0 = never */
    bool revoked;
};
typedef void books_keys_fn(const struct books_key *rows, size_t n, const char *next,
                           const struct cl_err *err, void *arg);

/* EXISTS if the id is there, NOTFOUND if the tenant is not; the same row again is a no-op. */
int books_key_put(struct books *books, const struct books_key *key, books_done_fn *fn, void *arg,
                  struct cl_err *err) CL_MUST;
int books_key_get(struct books *books, const char *id, books_keys_fn *fn, void *arg,
                  struct cl_err *err) CL_MUST;
int books_key_list(struct books *books, const char *tenant, const char *after, size_t n,
                   books_keys_fn *fn, void *arg, struct cl_err *err) CL_MUST;
/* NOTFOUND if the tenant (NULL = any) has no such key.  Again is a no-op. */
int books_key_revoke(struct books *books, const char *tenant, const char *id, books_done_fn *fn,
                     void *arg, struct cl_err *err) CL_MUST;
/* Note that these keys were used now.  Unknown ids are skipped. */
int books_key_touch(struct books *books, const char *const *ids, size_t n, books_done_fn *fn,
                    void *arg, struct cl_err *err) CL_MUST;

/* --- workers, enrolment, audit head --------------------------------------------------------- */

struct books_worker {
    char id[BOOKS_NAME];
    uint64_t seen_ms; /* the server's clock at the last put */
    uint64_t now_ms;  /* the server's clock now */
    const void *blob;
    size_t blob_n;
};
typedef void books_workers_fn(const struct books_worker *rows, size_t n, const char *next,
                              const struct cl_err *err, void *arg);
/* Register or renew (blob NULL = keep the old one: a heartbeat). */
int books_worker_put(struct books *books, const char *id, const void *blob, size_t n,
                     books_done_fn *fn, void *arg, struct cl_err *err) CL_MUST;
int books_worker_get(struct books *books, const char *id, books_workers_fn *fn, void *arg,
                     struct cl_err *err) CL_MUST;
int books_worker_list(struct books *books, const char *after, size_t n, books_workers_fn *fn,
                      void *arg, struct cl_err *err) CL_MUST;
int books_worker_delete(struct books *books, const char *id, books_done_fn *fn, void *arg,
                        struct cl_err *err) CL_MUST;

typedef void books_blob_fn(const void *blob, size_t n, const struct cl_err *err, void *arg);
/* A one-use enrolment, known by the SHA-256 of its token in hex. */
int books_enroll_put(struct books *books, const char *token_hash, const void *blob, size_t n,
                     uint64_t ttl_ms, books_done_fn *fn, void *arg, struct cl_err *err) CL_MUST;
/* Take it.  The same claim may take it again (a lost answer); any other is answered UNAUTH. */
int books_enroll_take(struct books *books, const char *token_hash, const char *claim,
                      books_blob_fn *fn, void *arg, struct cl_err *err) CL_MUST;

struct books_head {
    char host[BOOKS_NAME];
    uint64_t seq;
    char hash[65];
};
typedef void books_head_fn(const struct books_head *head, const struct cl_err *err, void *arg);
/* Mirror a host's newest audit head; an older one than stored is ignored. */
int books_audit_head_set(struct books *books, const struct books_head *head, books_done_fn *fn,
                         void *arg, struct cl_err *err) CL_MUST;
int books_audit_head_get(struct books *books, const char *host, books_head_fn *fn, void *arg,
                         struct cl_err *err) CL_MUST;
#endif
