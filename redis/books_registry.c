/* redis/books_registry.c - the calls about tenants and their usage, keys, workers, enrolment and
 * the audit head.  See redis/books_registry.h. */
#include <string.h>

#include "base/mem.h"
#include "redis/books_priv.h"

enum {
    KEY_VERSION = 1,
    KEY_FIXED = 1 + BOOKS_MAC + 4 + 8, /* version, MAC, scopes, expiry; then three strings */
    KEY_PACKED_MAX = KEY_FIXED + 2 * BOOKS_NAME + BOOKS_NOTE,
    TENANT_FIELDS = 13,
    KEY_FIELDS = 5,
    WORKER_FIELDS = 4,
    BLOB_MAX = 65536,
    HASH_HEX = 64,
    TOUCH_MAX = 1000,
};

static void put_page(struct books_call *call, size_t n)
{
    if (n < 1 || n > BOOKS_PAGE_MAX)
        call_refuse(call, "page_size");
    call_num(call, n);
}

/* 1 to BOOKS_NAME - 1 printable bytes: part of a key name in Redis. */
static void put_word(struct books_call *call, const char *word, const char *what)
{
    size_t n = strlen(word);
    if (n == 0 || n >= BOOKS_NAME)
        call_refuse(call, what);
    for (size_t i = 0; i < n; i++) {
        if (word[i] <= ' ' || word[i] > '~')
            call_refuse(call, what);
    }
    call_bytes(call, word, n);
}

static void put_blob(struct books_call *call, const void *blob, size_t n)
{
    if (n > BLOB_MAX)
        call_refuse(call, "blob");
    else
        call_bytes(call, blob, n);
}

/* Rows of `fields` elements after code and token; 0 for a reply too short. */
static size_t row_count(const redisReply *reply, size_t fields)
{
    return reply->elements >= 2 ? (reply->elements - 2) / fields : 0;
}

/* --- tenants -------------------------------------------------------------------------------- */

static void put_limits(struct books_call *call, const struct books_limits *l)
{
    for (size_t i = 0; i < BOOKS_DIM_NR; i++)
        call_num(call, l->dim[i]);
    call_num(call, l->period_ms);
    call_num(call, l->rate_interval_us);
    call_num(call, l->rate_burst);
    call_num(call, l->queue_max);
}

static void answer_put(struct books_call *call, const redisReply *reply, const struct cl_err *err)
{
    call->fn.put(reply && reply_int(reply, 1) == 1, err, call->arg);
}

int books_tenant_put(struct books *books, const struct books_tenant *tenant, books_put_fn *fn,
                     void *arg, struct cl_err *err)
{
    struct books_call *call = call_begin(books, "tenant_put", CALL_WAIT, tenant->name, 12, err);
    if (!call)
        return -1;
    call->fn.put = fn;
    call->arg = arg;
    call_str(call, tenant->name);
    put_limits(call, &tenant->limits);
    put_blob(call, tenant->blob, tenant->blob_n);
    return call_go(call, answer_put, err);
}

static void unpack_tenant(const redisReply *r, size_t at, struct books_tenant *t)
{
    reply_copy(r, at, t->name, sizeof t->name);
    for (size_t i = 0; i < BOOKS_DIM_NR; i++)
        t->limits.dim[i] = reply_num(r, at + 1 + i);
    t->limits.period_ms = reply_num(r, at + 7);
    t->limits.rate_interval_us = reply_num(r, at + 8);
    t->limits.rate_burst = reply_num(r, at + 9);
    t->limits.queue_max = reply_num(r, at + 10);
    t->blob = reply_str(r, at + 11, &t->blob_n);
    t->created_ms = reply_num(r, at + 12);
}

static void answer_tenants(struct books_call *call, const redisReply *reply,
                           const struct cl_err *err)
{
    if (err) {
        call->fn.tenants(NULL, 0, "", err, call->arg);
        return;
    }
    size_t n = row_count(reply, TENANT_FIELDS);
    char next[BOOKS_NAME];
    struct books_tenant *rows = cl_zalloc_array(n, sizeof *rows);
    struct cl_err nomem = {0};
    if (!rows) {
        (void)cl_fail(&nomem, CL_E_NOMEM, 0, "%zu rows", n);
        call->fn.tenants(NULL, 0, "", &nomem, call->arg);
        return;
    }
    for (size_t i = 0; i < n; i++)
        unpack_tenant(reply, 2 + i * TENANT_FIELDS, &rows[i]);
    reply_copy(reply, 1, next, sizeof next);
    call->fn.tenants(rows, n, next, NULL, call->arg);
    cl_free(rows);
}

int books_tenant_get(struct books *books, const char *name, books_tenants_fn *fn, void *arg,
                     struct cl_err *err)
{
    struct books_call *call = call_begin(books, "tenant_get", CALL_WAIT, name, 1, err);
    if (!call)
        return -1;
    call->fn.tenants = fn;
    call->arg = arg;
    call_str(call, name);
    return call_go(call, answer_tenants, err);
}

int books_tenant_list(struct books *books, const char *after, size_t n, books_tenants_fn *fn,
                      void *arg, struct cl_err *err)
{
    struct books_call *call = call_begin(books, "tenant_list", CALL_WAIT, NULL, 2, err);
    if (!call)
        return -1;
    call->fn.tenants = fn;
    call->arg = arg;
    call_str(call, after);
    put_page(call, n);
    return call_go(call, answer_tenants, err);
}

int books_tenant_delete(struct books *books, const char *name, books_done_fn *fn, void *arg,
                        struct cl_err *err)
{
    struct books_call *call = call_begin(books, "tenant_delete", CALL_WAIT, name, 1, err);
    if (!call)
        return -1;
    call->fn.done = fn;
    call->arg = arg;
    call_str(call, name);
    return call_go(call, answer_done, err);
}

/* --- usage, and the audit of the books themselves ------------------------------------------- */

static void answer_usage(struct books_call *call, const redisReply *reply, const struct cl_err *err)
{
    struct books_usage u = {0};
    if (err) {
        call->fn.usage(NULL, err, call->arg);
        return;
    }
    for (size_t i = 0; i < BOOKS_DIM_NR; i++) {
        u.limits.dim[i] = reply_num(reply, 1 + i);
        u.held[i] = reply_num(reply, 11 + i);
    }
    u.limits.period_ms = reply_num(reply, 7);
    u.limits.rate_interval_us = reply_num(reply, 8);
    u.limits.rate_burst = reply_num(reply, 9);
    u.limits.queue_max = reply_num(reply, 10);
    u.spent[BOOKS_CPU] = reply_num(reply, 17);
    u.spent[BOOKS_EGRESS] = reply_num(reply, 18);
    u.period_end_ms = reply_num(reply, 19);
    u.queued = reply_num(reply, 20);
    u.leases = reply_num(reply, 21);
    u.reaped = reply_num(reply, 22);
    u.live = reply_num(reply, 23);
    u.reaped_total = reply_num(reply, 24);
    call->fn.usage(&u, NULL, call->arg);
}

int books_usage(struct books *books, const char *tenant, books_usage_fn *fn, void *arg,
                struct cl_err *err)
{
    struct books_call *call = call_begin(books, "usage", CALL_WAIT, tenant, 0, err);
    if (!call)
        return -1;
    call->fn.usage = fn;
    call->arg = arg;
    return call_go(call, answer_usage, err);
}

static void answer_drift(struct books_call *call, const redisReply *reply, const struct cl_err *err)
{
    struct books_drift d = {0};
    if (err) {
        call->fn.drift(NULL, err, call->arg);
        return;
    }
    for (size_t i = 0; i < BOOKS_DIM_NR; i++)
        d.dim[i] = reply_int(reply, 1 + i);
    d.leases = reply_int(reply, 7);
    d.units = reply_int(reply, 8);
    d.wrong = reply_int(reply, 9);
    call->fn.drift(&d, NULL, call->arg);
}

int books_check(struct books *books, const char *tenant, books_drift_fn *fn, void *arg,
                struct cl_err *err)
{
    struct books_call *call = call_begin(books, "recount", CALL_WAIT, tenant, 0, err);
    if (!call)
        return -1;
    call->fn.drift = fn;
    call->arg = arg;
    return call_go(call, answer_drift, err);
}

/* --- keys ----------------------------------------------------------------------------------- */

static size_t pack_key(const struct books_key *key, uint8_t out[static KEY_PACKED_MAX])
{
    size_t n = 0;
    out[n++] = KEY_VERSION;
    memcpy(out + n, key->mac, BOOKS_MAC);
    n += BOOKS_MAC;
    memcpy(out + n, &key->scopes, 4); /* x86-64: little endian */
    n += 4;
    memcpy(out + n, &key->expires_ms, 8);
    n += 8;
    const struct {
        const char *s;
        size_t max;
    } texts[] = {{key->tenant, sizeof key->tenant},
                 {key->subject, sizeof key->subject},
                 {key->note, sizeof key->note}};
    for (size_t i = 0; i < CL_COUNT(texts); i++) {
        size_t len = strnlen(texts[i].s, texts[i].max - 1);
        memcpy(out + n, texts[i].s, len);
        n += len;
        out[n++] = 0;
    }
    return n;
}

static int unpack_key(const redisReply *r, size_t at, struct books_key *key, struct cl_err *err)
{
    size_t n, pos = KEY_FIXED;
    reply_copy(r, at, key->id, sizeof key->id);
    const char *p = reply_str(r, at + 1, &n);
    if (n < KEY_FIXED + 3 || (uint8_t)p[0] != KEY_VERSION)
        return cl_fail(err, CL_E_DATALOSS, 0, "key %s: record of version %d and %zu bytes", key->id,
                       n ? (uint8_t)p[0] : 0, n);
    memcpy(key->mac, p + 1, BOOKS_MAC);
    memcpy(&key->scopes, p + 1 + BOOKS_MAC, 4);
    memcpy(&key->expires_ms, p + 1 + BOOKS_MAC + 4, 8);
    const struct {
        char *s;
        size_t size;
    } texts[] = {{key->tenant, sizeof key->tenant},
                 {key->subject, sizeof key->subject},
                 {key->note, sizeof key->note}};
    for (size_t i = 0; i < CL_COUNT(texts); i++) {
        size_t len = strnlen(p + pos, n - pos);
        if (pos + len >= n || len >= texts[i].size)
            return cl_fail(err, CL_E_DATALOSS, 0, "key %s: bad record", key->id);
        memcpy(texts[i].s, p + pos, len + 1);
        pos += len + 1;
    }
    key->created_ms = reply_num(r, at + 2);
    key->last_used_ms = reply_num(r, at + 3);
    key->revoked = reply_num(r, at + 4) != 0;
    return 0;
}

static void answer_keys(struct books_call *call, const redisReply *reply, const struct cl_err *err)
{
    if (err) {
        call->fn.keys(NULL, 0, "", err, call->arg);
        return;
    }
    size_t n = row_count(reply, KEY_FIELDS);
    char next[BOOKS_KEY_ID];
    struct cl_err bad = {0};
    struct books_key *rows = cl_zalloc_array(n, sizeof *rows);
    int rc = rows ? 0 : cl_fail(&bad, CL_E_NOMEM, 0, "%zu rows", n);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = unpack_key(reply, 2 + i * KEY_FIELDS, &rows[i], &bad);
    reply_copy(reply, 1, next, sizeof next);
    if (rc < 0)
        call->fn.keys(NULL, 0, "", &bad, call->arg);
    else
        call->fn.keys(rows, n, next, NULL, call->arg);
    cl_free(rows);
}

int books_key_put(struct books *books, const struct books_key *key, books_done_fn *fn, void *arg,
                  struct cl_err *err)
{
    uint8_t packed[KEY_PACKED_MAX];
    struct books_call *call = call_begin(books, "key_put", CALL_WAIT, key->tenant, 3, err);
    if (!call)
        return -1;
    call->fn.done = fn;
    call->arg = arg;
    call_str(call, key->tenant);
    put_word(call, key->id, "key");
    call_bytes(call, packed, pack_key(key, packed));
    return call_go(call, answer_done, err);
}

int books_key_get(struct books *books, const char *id, books_keys_fn *fn, void *arg,
                  struct cl_err *err)
{
    struct books_call *call = call_begin(books, "key_get", CALL_NOW, NULL, 1, err);
    if (!call)
        return -1;
    call->fn.keys = fn;
    call->arg = arg;
    put_word(call, id, "key");
    return call_go(call, answer_keys, err);
}

int books_key_list(struct books *books, const char *tenant, const char *after, size_t n,
                   books_keys_fn *fn, void *arg, struct cl_err *err)
{
    struct books_call *call = call_begin(books, "key_list", CALL_WAIT, tenant, 3, err);
    if (!call)
        return -1;
    call->fn.keys = fn;
    call->arg = arg;
    call_str(call, tenant);
    call_str(call, after);
    put_page(call, n);
    return call_go(call, answer_keys, err);
}

int books_key_revoke(struct books *books, const char *tenant, const char *id, books_done_fn *fn,
                     void *arg, struct cl_err *err)
{
    struct books_call *call = call_begin(books, "key_revoke", CALL_WAIT, tenant, 2, err);
    if (!call)
        return -1;
    call->fn.done = fn;
    call->arg = arg;
    call_str(call, tenant ? tenant : "");
    put_word(call, id, "key");
    return call_go(call, answer_done, err);
}

int books_key_touch(struct books *books, const char *const *ids, size_t n, books_done_fn *fn,
                    void *arg, struct cl_err *err)
{
    if (n == 0 || n > TOUCH_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "touch %zu keys, want 1 to %d", n, TOUCH_MAX);
    struct books_call *call = call_begin(books, "key_touch", CALL_WAIT, NULL, n, err);
    if (!call)
        return -1;
    call->fn.done = fn;
    call->arg = arg;
    for (size_t i = 0; i < n; i++)
        put_word(call, ids[i], "key");
    return call_go(call, answer_done, err);
}

/* --- workers -------------------------------------------------------------------------------- */

int books_worker_put(struct books *books, const char *id, const void *blob, size_t n,
                     books_done_fn *fn, void *arg, struct cl_err *err)
{
    struct books_call *call = call_begin(books, "worker_put", CALL_WAIT, NULL, 3, err);
    if (!call)
        return -1;
    call->fn.done = fn;
    call->arg = arg;
    put_word(call, id, "worker");
    call_num(call, blob ? 0 : 1);
    put_blob(call, blob, blob ? n : 0);
    return call_go(call, answer_done, err);
}

static void answer_workers(struct books_call *call, const redisReply *reply,
                           const struct cl_err *err)
{
    if (err) {
        call->fn.workers(NULL, 0, "", err, call->arg);
        return;
    }
    size_t n = row_count(reply, WORKER_FIELDS);
    char next[BOOKS_NAME];
    struct cl_err nomem = {0};
    struct books_worker *rows = cl_zalloc_array(n, sizeof *rows);
    if (!rows) {
        (void)cl_fail(&nomem, CL_E_NOMEM, 0, "%zu rows", n);
        call->fn.workers(NULL, 0, "", &nomem, call->arg);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        size_t at = 2 + i * WORKER_FIELDS;
        reply_copy(reply, at, rows[i].id, sizeof rows[i].id);
        rows[i].seen_ms = reply_num(reply, at + 1);
        rows[i].now_ms = reply_num(reply, at + 2);
        rows[i].blob = reply_str(reply, at + 3, &rows[i].blob_n);
    }
    reply_copy(reply, 1, next, sizeof next);
    call->fn.workers(rows, n, next, NULL, call->arg);
    cl_free(rows);
}

int books_worker_get(struct books *books, const char *id, books_workers_fn *fn, void *arg,
                     struct cl_err *err)
{
    struct books_call *call = call_begin(books, "worker_get", CALL_WAIT, NULL, 1, err);
    if (!call)
        return -1;
    call->fn.workers = fn;
    call->arg = arg;
    put_word(call, id, "worker");
    return call_go(call, answer_workers, err);
}

int books_worker_list(struct books *books, const char *after, size_t n, books_workers_fn *fn,
                      void *arg, struct cl_err *err)
{
    struct books_call *call = call_begin(books, "worker_list", CALL_WAIT, NULL, 2, err);
    if (!call)
        return -1;
    call->fn.workers = fn;
    call->arg = arg;
    call_str(call, after);
    put_page(call, n);
    return call_go(call, answer_workers, err);
}

int books_worker_delete(struct books *books, const char *id, books_done_fn *fn, void *arg,
                        struct cl_err *err)
{
    struct books_call *call = call_begin(books, "worker_delete", CALL_WAIT, NULL, 1, err);
    if (!call)
        return -1;
    call->fn.done = fn;
    call->arg = arg;
    put_word(call, id, "worker");
    return call_go(call, answer_done, err);
}

/* --- enrolment and audit head --------------------------------------------------------------- */

static void put_hash(struct books_call *call, const char *hex)
{
    uint8_t raw[HASH_HEX / 2];
    if (!cl_unhex(hex, strlen(hex), raw, sizeof raw))
        call_refuse(call, "hash");
    call_str(call, hex);
}

int books_enroll_put(struct books *books, const char *token_hash, const void *blob, size_t n,
                     uint64_t ttl_ms, books_done_fn *fn, void *arg, struct cl_err *err)
{
    struct books_call *call = call_begin(books, "enroll_put", CALL_WAIT, NULL, 3, err);
    if (!call)
        return -1;
    call->fn.done = fn;
    call->arg = arg;
    put_hash(call, token_hash);
    put_blob(call, blob, n);
    call_num(call, CL_MAX(ttl_ms, (uint64_t)1));
    return call_go(call, answer_done, err);
}

static void answer_blob(struct books_call *call, const redisReply *reply, const struct cl_err *err)
{
    size_t n = 0;
    const char *blob = reply ? reply_str(reply, 1, &n) : NULL;
    call->fn.blob(blob, n, err, call->arg);
}

int books_enroll_take(struct books *books, const char *token_hash, const char *claim,
                      books_blob_fn *fn, void *arg, struct cl_err *err)
{
    struct books_call *call = call_begin(books, "enroll_take", CALL_WAIT, NULL, 2, err);
    if (!call)
        return -1;
    call->fn.blob = fn;
    call->arg = arg;
    put_hash(call, token_hash);
    put_word(call, claim, "claim");
    return call_go(call, answer_blob, err);
}

int books_audit_head_set(struct books *books, const struct books_head *head, books_done_fn *fn,
                         void *arg, struct cl_err *err)
{
    struct books_call *call = call_begin(books, "head_set", CALL_WAIT, NULL, 3, err);
    if (!call)
        return -1;
    call->fn.done = fn;
    call->arg = arg;
    put_word(call, head->host, "host");
    call_num(call, head->seq);
    put_hash(call, head->hash);
    return call_go(call, answer_done, err);
}

static void answer_head(struct books_call *call, const redisReply *reply, const struct cl_err *err)
{
    struct books_head head = {0};
    if (reply) {
        head.seq = reply_num(reply, 1);
        reply_copy(reply, 2, head.hash, sizeof head.hash);
    }
    call->fn.head(reply ? &head : NULL, err, call->arg);
}

int books_audit_head_get(struct books *books, const char *host, books_head_fn *fn, void *arg,
                         struct cl_err *err)
{
    struct books_call *call = call_begin(books, "head_get", CALL_WAIT, NULL, 1, err);
    if (!call)
        return -1;
    call->fn.head = fn;
    call->arg = arg;
    put_word(call, host, "host");
    return call_go(call, answer_head, err);
}
