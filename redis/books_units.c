/* redis/books_units.c - the calls about units and leases.  See redis/books.h, books_recover.h. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "redis/books_priv.h"
#include "redis/books_recover.h"

enum {
    HEADER_VERSION = 1,
    HEADER_BYTES = 5,    /* version kind state outcome flags */
    HEADER_DOUBLES = 12, /* attempt, 6 dimensions, created, changed, fence, settled, position */
    HEADER_MIN = HEADER_BYTES + 8 * HEADER_DOUBLES + 2,
    ROW_FIELDS = 7,
    FLAG_CANCEL = 1,
    FLAG_REAPED = 2,
};

/* --- rows ----------------------------------------------------------------------------------- */

static double double_at(const char *p, size_t i)
{
    double v;
    memcpy(&v, p + HEADER_BYTES + 8 * i, sizeof v); /* x86-64: little endian, as packed */
    return v;
}

static uint64_t whole_at(const char *p, size_t i)
{
    double v = double_at(p, i);
    return v > 0 && v < 9.1e15 ? (uint64_t)v : 0;
}

/* A zero-terminated string at p[0..n) into out; returns what follows it, or NULL. */
static const char *take_string(const char *p, size_t n, char *out, size_t out_n)
{
    const char *end = memchr(p, 0, n);
    if (!end || (size_t)(end - p) >= out_n)
        return NULL;
    memcpy(out, p, (size_t)(end - p) + 1);
    return end + 1;
}

static int unpack_header(const char *p, size_t n, struct books_unit *u, struct cl_err *err)
{
    if (n < 1 || (uint8_t)p[0] > HEADER_VERSION)
        return cl_fail(err, CL_E_STATE, 0, "unit record of version %d; upgrade this release",
                       n ? (uint8_t)p[0] : 0);
    if (n < HEADER_MIN)
        return cl_fail(err, CL_E_DATALOSS, 0, "unit record of %zu bytes", n);
    u->kind = (enum books_kind)p[1];
    u->state = (enum books_state)p[2];
    u->outcome = (uint8_t)p[3];
    u->cancel = p[4] & FLAG_CANCEL;
    u->reaped = p[4] & FLAG_REAPED;
    u->attempt = (uint32_t)whole_at(p, 0);
    for (size_t i = 0; i < BOOKS_DIM_NR; i++)
        u->need[i] = whole_at(p, 1 + i);
    u->created_us = whole_at(p, 7);
    u->changed_us = whole_at(p, 8);
    u->fence = whole_at(p, 9);
    u->position = (int64_t)double_at(p, 11);
    size_t at = HEADER_BYTES + 8 * HEADER_DOUBLES;
    const char *next = take_string(p + at, n - at, u->lease, sizeof u->lease);
    if (!next || !take_string(next, n - (size_t)(next - p), u->worker, sizeof u->worker))
        return cl_fail(err, CL_E_DATALOSS, 0, "unit record with bad strings");
    return 0;
}

static int unpack_row(const struct books_call *call, const redisReply *r, size_t at,
                      struct books_unit *u, struct cl_err *err)
{
    size_t n;
    reply_copy(r, at, u->id, sizeof u->id);
    memcpy(u->tenant, call->tenant, sizeof u->tenant);
    const char *header = reply_str(r, at + 1, &n);
    if (unpack_header(header, n, u, err) < 0)
        return cl_wrap(err, "unit %s", u->id);
    u->expires_ms = reply_num(r, at + 2);
    u->spec = reply_str(r, at + 3, &u->spec_n);
    u->terminal = reply_str(r, at + 4, &u->terminal_n);
    u->started_ms = reply_num(r, at + 5);
    u->start = reply_str(r, at + 6, &u->start_n);
    if (u->spec_n == 0)
        u->spec = NULL;
    if (u->terminal_n == 0)
        u->terminal = NULL;
    return 0;
}

static void answer_units(struct books_call *call, const redisReply *reply, const struct cl_err *err)
{
    if (err) {
        call->fn.units(NULL, 0, "", err, call->arg);
        return;
    }
    size_t n = (reply->elements - 2) / ROW_FIELDS;
    struct cl_err bad = {0};
    struct books_unit *rows = reply->elements >= 2 ? cl_zalloc_array(n, sizeof *rows) : NULL;
    int rc = rows ? 0 : cl_fail(&bad, CL_E_NOMEM, 0, "%zu rows", n);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = unpack_row(call, reply, 2 + i * ROW_FIELDS, &rows[i], &bad);
    char next[CL_ID_MAX];
    reply_copy(reply, 1, next, sizeof next);
    if (rc < 0)
        call->fn.units(NULL, 0, "", &bad, call->arg);
    else
        call->fn.units(rows, n, next, NULL, call->arg);
    cl_free(rows);
}

/* --- arguments ------------------------------------------------------------------------------ */

static void put_id(struct books_call *call, const char *id)
{
    if (!cl_id_is(id, "job") && !cl_id_is(id, "sbx") && !cl_id_is(id, "snp"))
        call_refuse(call, "id");
    call_str(call, id);
}

static void put_lease(struct books_call *call, const char *lease)
{
    if (!cl_id_is(lease, "lease"))
        call_refuse(call, "lease");
    call_str(call, lease);
}

static void put_terminal(struct books_call *call, const struct books_end *end)
{
    if (end->terminal_n > BOOKS_TERMINAL_MAX)
        call_refuse(call, "terminal");
    else
        call_bytes(call, end->terminal, end->terminal_n);
}

static void put_page(struct books_call *call, size_t n)
{
    if (n < 1 || n > BOOKS_PAGE_MAX)
        call_refuse(call, "page_size");
    call_num(call, n);
}

/* A name that goes into a record as a zero-terminated string. */
static void put_name(struct books_call *call, const char *name)
{
    if (strlen(name) >= BOOKS_NAME)
        call_refuse(call, "name");
    call_str(call, name);
}

/* --- admit ---------------------------------------------------------------------------------- */

static void answer_admit(struct books_call *call, const redisReply *reply, const struct cl_err *err)
{
    struct books_admitted res = {0};
    if (err) {
        call->fn.admit(NULL, err, call->arg);
        return;
    }
    res.replay = reply_int(reply, 0) == LUA_REPLAY;
    reply_copy(reply, 1, res.id, sizeof res.id);
    res.state = (enum books_state)reply_int(reply, 2);
    res.fence = reply_num(reply, 3);
    res.attempt = (uint32_t)reply_num(reply, 4);
    call->fn.admit(&res, NULL, call->arg);
}

int books_admit(struct books *books, const struct books_admit *req, books_admit_fn *fn, void *arg,
                struct cl_err *err)
{
    struct books_call *call = call_begin(books, "admit", CALL_NOW, req->tenant, 17, err);
    if (!call)
        return -1;
    const char *key = req->idem_key ? req->idem_key : "";
    call->fn.admit = fn;
    call->arg = arg;
    put_id(call, req->id);
    if (!cl_id_is(req->id, books_kind_prefix(req->kind)))
        call_refuse(call, "id");
    call_num(call, req->kind);
    for (size_t i = 0; i < BOOKS_DIM_NR; i++)
        call_num(call, req->need[i]);
    if (req->spec_n == 0 || req->spec_n > BOOKS_SPEC_MAX)
        call_refuse(call, "spec");
    else
        call_bytes(call, req->spec, req->spec_n);
    if (strlen(key) > BOOKS_IDEM_MAX || (key[0] && !req->idem_hash))
        call_refuse(call, "idempotency_key");
    call_str(call, key);
    call_bytes(call, key[0] ? req->idem_hash : NULL, key[0] && req->idem_hash ? 32 : 0);
    call_num(call, req->global_queue_max);
    call_num(call, BOOKS_KEEP_TERMINAL_MS);
    call_num(call, req->refuse_over_quota);
    if (req->lease)
        put_lease(call, req->lease);
    else
        call_str(call, "");
    put_name(call, req->lease ? req->worker : "");
    call_num(call, req->ttl_ms);
    return call_go(call, answer_admit, err);
}

/* --- leases --------------------------------------------------------------------------------- */

static void answer_reserve(struct books_call *call, const redisReply *reply,
                           const struct cl_err *err)
{
    if (err) {
        call->fn.reserve(NULL, err, call->arg);
        return;
    }
    struct books_reserved res = {
        .fence = reply_num(reply, 1),
        .attempt = (uint32_t)reply_num(reply, 2),
        .expires_ms = reply_num(reply, 3),
        .replay = reply_int(reply, 0) == LUA_REPLAY,
    };
    call->fn.reserve(&res, NULL, call->arg);
}

int books_reserve(struct books *books, const struct books_reserve *req, books_reserve_fn *fn,
                  void *arg, struct cl_err *err)
{
    struct books_call *call = call_begin(books, "reserve", CALL_WAIT, req->tenant, 4, err);
    if (!call)
        return -1;
    call->fn.reserve = fn;
    call->arg = arg;
    put_id(call, req->id);
    put_lease(call, req->lease);
    put_name(call, req->worker);
    call_num(call, req->ttl_ms);
    return call_go(call, answer_reserve, err);
}

static void answer_verdict(struct books_call *call, const redisReply *reply,
                           const struct cl_err *err)
{
    enum books_verdict verdict = err ? BOOKS_STALE : (enum books_verdict)reply_int(reply, 1);
    call->fn.verdict(verdict, err, call->arg);
}

static struct books_call *begin_hold(struct books *books, const char *name,
                                     const struct books_hold *hold, size_t more,
                                     books_verdict_fn *fn, void *arg, struct cl_err *err)
{
    struct books_call *call = call_begin(books, name, CALL_WAIT, hold->tenant, 3 + more, err);
    if (!call)
        return NULL;
    call->fn.verdict = fn;
    call->arg = arg;
    put_id(call, hold->id);
    put_lease(call, hold->lease);
    call_num(call, hold->fence);
    return call;
}

int books_started(struct books *books, const struct books_hold *hold,
                  const struct books_start *start, books_verdict_fn *fn, void *arg,
                  struct cl_err *err)
{
    struct books_call *call = begin_hold(books, "started", hold, 1, fn, arg, err);
    if (!call)
        return -1;
    call_bytes(call, start->about, start->about_n);
    return call_go(call, answer_verdict, err);
}

int books_pause(struct books *books, const struct books_hold *hold, const struct books_rest *rest,
                books_verdict_fn *fn, void *arg, struct cl_err *err)
{
    struct books_call *call = begin_hold(books, "pause", hold, 3, fn, arg, err);
    if (!call)
        return -1;
    call_num(call, rest->disk_mib);
    call_num(call, rest->force);
    call_num(call, rest->lease_ms);
    return call_go(call, answer_verdict, err);
}

int books_resume(struct books *books, const struct books_hold *hold, const struct books_rest *rest,
                 books_verdict_fn *fn, void *arg, struct cl_err *err)
{
    struct books_call *call = begin_hold(books, "resume", hold, 2, fn, arg, err);
    if (!call)
        return -1;
    call_num(call, rest->force);
    call_num(call, rest->lease_ms);
    return call_go(call, answer_verdict, err);
}

int books_move(struct books *books, const struct books_hold *hold, const struct books_move *to,
               books_verdict_fn *fn, void *arg, struct cl_err *err)
{
    struct books_call *call = begin_hold(books, "move", hold, 2, fn, arg, err);
    if (!call)
        return -1;
    put_lease(call, to->lease);
    put_name(call, to->worker);
    return call_go(call, answer_verdict, err);
}

int books_finish(struct books *books, const struct books_hold *hold, const struct books_end *end,
                 books_verdict_fn *fn, void *arg, struct cl_err *err)
{
    struct books_call *call = begin_hold(books, "finish", hold, 5, fn, arg, err);
    if (!call)
        return -1;
    call_num(call, end->cpu_ms);
    call_num(call, end->egress_bytes);
    call_num(call, end->outcome);
    put_terminal(call, end);
    call_num(call, BOOKS_KEEP_TERMINAL_MS);
    return call_go(call, answer_verdict, err);
}

int books_requeue(struct books *books, const struct books_hold *hold, const struct books_end *used,
                  books_verdict_fn *fn, void *arg, struct cl_err *err)
{
    struct books_call *call = begin_hold(books, "requeue", hold, 2, fn, arg, err);
    if (!call)
        return -1;
    call_num(call, used ? used->cpu_ms : 0);
    call_num(call, used ? used->egress_bytes : 0);
    return call_go(call, answer_verdict, err);
}

int books_end_unleased(struct books *books, const char *tenant, const char *id,
                       const struct books_end *end, books_verdict_fn *fn, void *arg,
                       struct cl_err *err)
{
    struct books_call *call = call_begin(books, "end_unleased", CALL_WAIT, tenant, 4, err);
    if (!call)
        return -1;
    call->fn.verdict = fn;
    call->arg = arg;
    put_id(call, id);
    call_num(call, end->outcome);
    put_terminal(call, end);
    call_num(call, BOOKS_KEEP_TERMINAL_MS);
    return call_go(call, answer_verdict, err);
}

/* --- renew: one call a run of equal tenants, one answer for all ------------------------------ */

struct renewal {
    size_t n, open; /* pairs; parts without answer */
    struct cl_err why;
    bool failed;
    books_renew_fn *fn;
    void *arg;
    struct cl_grave grave;
    uint8_t held[];
};

static void renewal_part_done(struct renewal *r)
{
    if (--r->open > 0)
        return;
    r->fn(r->failed ? NULL : r->held, r->n, r->failed ? &r->why : NULL, r->arg);
    cl_free(r);
}

static void answer_renew(struct books_call *call, const redisReply *reply, const struct cl_err *err)
{
    struct renewal *r = call->arg;
    if (err) {
        r->failed = true;
        r->why = *err;
    } else {
        size_t n;
        const char *bits = reply_str(reply, 1, &n);
        if (n <= r->n - call->at)
            memcpy(r->held + call->at, bits, n);
    }
    renewal_part_done(r);
}

static int renew_part(struct books *books, struct renewal *r, const struct books_pair *pairs,
                      size_t at, size_t n, uint64_t ttl_ms, struct cl_err *err)
{
    struct books_call *call =
        call_begin(books, "renew", CALL_WAIT, pairs[at].tenant, 1 + 2 * n, err);
    if (!call)
        return -1;
    call->arg = r;
    call->at = at;
    call_num(call, ttl_ms);
    for (size_t i = at; i < at + n; i++) {
        put_lease(call, pairs[i].lease);
        call_num(call, pairs[i].fence);
    }
    if (call_go(call, answer_renew, err) < 0)
        return -1;
    r->open++;
    return 0;
}

int books_renew(struct books *books, const struct books_pair *pairs, size_t n, uint64_t ttl_ms,
                books_renew_fn *fn, void *arg, struct cl_err *err)
{
    if (n == 0 || n > BOOKS_RENEW_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "renew %zu leases, want 1 to %d", n, BOOKS_RENEW_MAX);
    struct renewal *r = cl_zalloc(sizeof *r + n);
    if (!r)
        return cl_fail(err, CL_E_NOMEM, 0, "renew %zu leases", n);
    r->n = n;
    r->fn = fn;
    r->arg = arg;
    for (size_t at = 0, run; at < n; at += run) {
        for (run = 1; at + run < n && strcmp(pairs[at + run].tenant, pairs[at].tenant) == 0;)
            run++;
        if (renew_part(books, r, pairs, at, run, ttl_ms, at == 0 ? err : &r->why) == 0)
            continue;
        if (at == 0) {
            cl_free(r);
            return -1;
        }
        r->failed = true; /* the parts that were sent answer for all */
        break;
    }
    return 0;
}

/* --- looking -------------------------------------------------------------------------------- */

static struct books_call *begin_units(struct books *books, const char *name, const char *tenant,
                                      size_t n_args, books_units_fn *fn, void *arg,
                                      struct cl_err *err)
{
    struct books_call *call = call_begin(books, name, CALL_WAIT, tenant, n_args, err);
    if (call) {
        call->fn.units = fn;
        call->arg = arg;
    }
    return call;
}

static int cancel(struct books_call *call, const char *id, bool unmade, struct cl_err *err)
{
    if (!call)
        return -1;
    put_id(call, id);
    call_num(call, unmade);
    return call_go(call, answer_units, err);
}

int books_cancel(struct books *books, const char *tenant, const char *id, books_units_fn *fn,
                 void *arg, struct cl_err *err)
{
    return cancel(begin_units(books, "cancel", tenant, 2, fn, arg, err), id, false, err);
}

int books_unmake(struct books *books, const char *tenant, const char *id, books_units_fn *fn,
                 void *arg, struct cl_err *err)
{
    return cancel(begin_units(books, "cancel", tenant, 2, fn, arg, err), id, true, err);
}

int books_reap(struct books *books, const char *tenant, size_t n, books_units_fn *fn, void *arg,
               struct cl_err *err)
{
    struct books_call *call = begin_units(books, "reap", tenant, 1, fn, arg, err);
    if (!call)
        return -1;
    put_page(call, n);
    return call_go(call, answer_units, err);
}

int books_get(struct books *books, const char *tenant, const char *id, unsigned with,
              books_units_fn *fn, void *arg, struct cl_err *err)
{
    struct books_call *call = begin_units(books, "get", tenant, 2, fn, arg, err);
    if (!call)
        return -1;
    put_id(call, id);
    call_num(call, with & (BOOKS_WITH_SPEC | BOOKS_WITH_TERMINAL));
    return call_go(call, answer_units, err);
}

int books_list(struct books *books, const struct books_list *req, books_units_fn *fn, void *arg,
               struct cl_err *err)
{
    struct books_call *call = begin_units(books, "list", req->tenant, 5, fn, arg, err);
    if (!call)
        return -1;
    char prefix[8];
    (void)snprintf(prefix, sizeof prefix, "%s_", books_kind_prefix(req->kind));
    if (req->token[0] && !cl_id_is(req->token, books_kind_prefix(req->kind)))
        call_refuse(call, "page_token");
    call_str(call, prefix);
    call_str(call, req->token);
    call_num(call, req->states & 0xff);
    put_page(call, req->n);
    call_num(call, req->with & (BOOKS_WITH_SPEC | BOOKS_WITH_TERMINAL));
    return call_go(call, answer_units, err);
}

static int list_after(struct books *books, const char *name, const struct books_list *page,
                      books_units_fn *fn, void *arg, struct cl_err *err)
{
    struct books_call *call = begin_units(books, name, page->tenant, 2, fn, arg, err);
    if (!call)
        return -1;
    call_str(call, page->token);
    put_page(call, page->n);
    return call_go(call, answer_units, err);
}

int books_live(struct books *books, const struct books_list *page, books_units_fn *fn, void *arg,
               struct cl_err *err)
{
    return list_after(books, "live", page, fn, arg, err);
}

int books_unlogged(struct books *books, const struct books_list *page, books_units_fn *fn,
                   void *arg, struct cl_err *err)
{
    return list_after(books, "unlogged", page, fn, arg, err);
}

int books_logged(struct books *books, const struct books_ids *units, books_done_fn *fn, void *arg,
                 struct cl_err *err)
{
    if (units->n == 0 || units->n > BOOKS_PAGE_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "%zu units, want 1 to %d", units->n, BOOKS_PAGE_MAX);
    struct books_call *call = call_begin(books, "logged", CALL_WAIT, units->tenant, units->n, err);
    if (!call)
        return -1;
    call->fn.done = fn;
    call->arg = arg;
    for (size_t i = 0; i < units->n; i++)
        put_id(call, units->id[i]);
    return call_go(call, answer_done, err);
}
