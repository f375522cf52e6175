/* scheduler/auth.c - credential -> principal: API keys, looked up in the books, links that a key
 * made (policy/link.h), and tokens of an authorization server (scheduler/tokens.h).
 *
 * A key's row is believed for KEY_FRESH_MS, so a revocation is in force within that time on every
 * scheduler.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/mem.h"
#include "observability/log.h"
#include "policy/link.h"
#include "scheduler/api.h"

enum { KEY_FRESH_MS = 500, KEYS_CACHED = 4096 };

struct cached_key {
    struct books_key row;
    uint64_t loaded_ns;
};

/* What a call shows: a key, or a link and with it the id of the key that made it. */
struct claim {
    struct api_key key; /* of a link only the id */
    struct link_facts link;
    bool by_link;
};

/* One call that waits for the books. */
struct waiter {
    struct sched *s;
    struct api_call *a; /* held */
    struct claim claim;
    enum scope scope;
    auth_fn *fn;
};

static void refuse(struct sched *s, struct rpc_call *call, const char *key_id,
                   const struct cl_err *err)
{
    struct cl_err ignored = {0};
    struct audit_field fields[] = {
        AUDIT_STR("key", key_id[0] ? key_id : NULL),
        AUDIT_STR("method", rpc_call_path(call)),
        AUDIT_STR("peer", rpc_call_peer(call)->address),
        AUDIT_STR("reason", err->text),
    };
    log_event(LOG_KEY_REFUSED, "method=%s key=%s peer=%s", rpc_call_path(call), key_id,
              rpc_call_peer(call)->address);
    if (audit_emit(s->audit, NULL, AUDIT_KEY_REFUSED, fields, CL_COUNT(fields), NULL, NULL,
                   &ignored) < 0)
        log_event(LOG_AUDIT_REFUSES, "text='%s'", ignored.text);
    rpc_call_finish(call, err);
}

/* We know who it is: may it do this? */
static void let_in(struct sched *s, struct rpc_call *call, const struct principal *p,
                   enum scope scope, auth_fn *fn)
{
    struct cl_err err = {0}, ignored = {0};
    if (principal_require(p, scope, &err) == 0) {
        fn(call, p);
        return;
    }
    struct audit_field fields[] = {
        AUDIT_STR("key", p->key_id), AUDIT_STR("method", rpc_call_path(call)),
        AUDIT_STR("scope", err.subject), AUDIT_STR("subject", p->subject[0] ? p->subject : NULL)};
    if (audit_emit(s->audit, p->tenant, AUDIT_SCOPE_REFUSED, fields, CL_COUNT(fields), NULL, NULL,
                   &ignored) < 0)
        log_event(LOG_AUDIT_REFUSES, "text='%s'", ignored.text);
    rpc_call_finish(call, &err);
}

/* --- API keys, and links ------------------------------------------------------------------------
 */

static int check_claim(const struct sched *s, const struct claim *claim,
                       const struct books_key *row, struct cl_err *err)
{
    uint8_t mac[API_KEY_MAC];
    uint64_t now_ms = cl_wall_ns() / CL_NS_PER_MS;
    struct key_facts facts = {.expires_ms = row->expires_ms, .revoked = row->revoked};
    memcpy(facts.mac, row->mac, sizeof facts.mac);
    if (!claim->by_link)
        return api_key_mac(&claim->key, s->pepper, sizeof s->pepper, mac, err) < 0
                   ? -1
                   : key_facts_check(&facts, mac, now_ms, err);
    return key_facts_are_live(&facts, now_ms)
               ? 0
               : cl_fail(err, CL_E_UNAUTH, 0, "the key that made this link is not valid any more");
}

/* The row is fresh: compare, check the scope, go on. */
static void judge(struct sched *s, struct rpc_call *call, const struct claim *claim,
                  const struct books_key *row, enum scope scope, auth_fn *fn)
{
    struct cl_err err = {0};
    if (check_claim(s, claim, row, &err) < 0) {
        refuse(s, call, claim->key.id, &err);
        return;
    }
    struct principal p = {.scopes = row->scopes, .link_port = claim->link.port};
    (void)snprintf(p.link_sandbox, sizeof p.link_sandbox, "%s", claim->link.sandbox);
    (void)snprintf(p.tenant, sizeof p.tenant, "%s", row->tenant);
    (void)snprintf(p.subject, sizeof p.subject, "%s", row->subject);
    (void)snprintf(p.key_id, sizeof p.key_id, "%s", row->id);
    let_in(s, call, &p, scope, fn);
}

static void remember(struct sched *s, const struct books_key *row)
{
    struct cached_key *c = cl_map_get(s->keys, row->id);
    if (!c && cl_map_count(s->keys) >= KEYS_CACHED) { /* full: start over, it fills in no time */
        size_t at = 0;
        for (struct cached_key *old; (old = cl_map_next(s->keys, &at, NULL)) != NULL;)
            old->loaded_ns = 0;
        return;
    }
    if (!c) {
        c = cl_zalloc(sizeof *c);
        if (!c || cl_map_put(s->keys, row->id, c, NULL) < 0) {
            cl_free(c);
            return;
        }
    }
    c->row = *row;
    c->loaded_ns = cl_now_ns();
}

static void touched(const struct cl_err *err, void *arg)
{
    (void)err, (void)arg; /* last-used is a convenience; the next use writes it again */
}

static void on_row(const struct books_key *rows, size_t n, const char *next,
                   const struct cl_err *err, void *arg)
{
    (void)next;
    struct waiter *w = arg;
    struct rpc_call *call = w->a->call;
    struct cl_err refused = {0};
    if (n == 1)
        remember(w->s, &rows[0]);
    if (call && n == 1) {
        const char *ids[] = {rows[0].id};
        (void)!books_key_touch(w->s->books, ids, 1, touched, NULL, NULL);
        judge(w->s, call, &w->claim, &rows[0], w->scope, w->fn);
    } else if (call && err && err->code != CL_E_NOTFOUND) {
        rpc_call_finish(call, err);
    } else if (call) {
        (void)cl_fail(&refused, CL_E_UNAUTH, 0, "the API key is not valid");
        refuse(w->s, call, w->claim.key.id, &refused);
    }
    api_key_wipe(&w->claim.key);
    api_release(w->a);
    cl_free(w);
}

static int ask_books(struct sched *s, struct rpc_call *call, const struct claim *claim,
                     enum scope scope, auth_fn *fn, struct cl_err *err)
{
    struct waiter *w = cl_zalloc(sizeof *w);
    if (!w)
        return cl_fail(err, CL_E_NOMEM, 0, "authentication");
    *w = (struct waiter){s, rpc_call_user(call), *claim, scope, fn};
    api_hold(w->a);
    if (books_key_get(s->books, claim->key.id, on_row, w, err) == 0)
        return 0;
    api_release(w->a);
    cl_free(w);
    return -1;
}

static void look_up(struct sched *s, struct rpc_call *call, const struct claim *claim,
                    enum scope scope, auth_fn *fn)
{
    struct cl_err err = {0};
    const struct cached_key *c = cl_map_get(s->keys, claim->key.id);
    if (c && cl_now_ns() - c->loaded_ns < KEY_FRESH_MS * CL_NS_PER_MS)
        judge(s, call, claim, &c->row, scope, fn);
    else if (ask_books(s, call, claim, scope, fn, &err) < 0)
        rpc_call_finish(call, &err);
}

static void check_key(struct sched *s, struct rpc_call *call, const char *text, enum scope scope,
                      auth_fn *fn)
{
    struct cl_err err = {0};
    struct claim claim = {0};
    if (api_key_parse(text, &claim.key, &err) < 0)
        refuse(s, call, "", &err);
    else
        look_up(s, call, &claim, scope, fn);
    api_key_wipe(&claim.key);
}

static void check_link(struct sched *s, struct rpc_call *call, const char *text, enum scope scope,
                       auth_fn *fn)
{
    const struct api_call *a = rpc_call_user(call);
    struct cl_err err = {0};
    struct claim claim = {.by_link = true};
    if (link_open(text, s->pepper, sizeof s->pepper, cl_wall_ns() / CL_NS_PER_S, &claim.link,
                  &err) < 0 ||
        (!a->m->takes_links &&
         cl_fail(&err, CL_E_DENIED, 0, "a link opens connections to its sandbox, nothing else") <
             0)) {
        refuse(s, call, claim.link.key_id, &err);
        return;
    }
    memcpy(claim.key.id, claim.link.key_id, sizeof claim.key.id);
    look_up(s, call, &claim, scope, fn);
}

/* --- tokens --------------------------------------------------------------------------------------
 */

/* A good token that waits for its tenant's row. */
struct bearer {
    struct api_call *a; /* held */
    struct principal p;
    enum scope scope;
    auth_fn *fn;
};

static void on_tenant(void *arg, struct tenant *t, const struct cl_err *err)
{
    (void)t;
    struct bearer *b = arg;
    struct rpc_call *call = b->a->call;
    struct cl_err refused = {0};
    if (call && err && err->code == CL_E_NOTFOUND) {
        (void)cl_fail(&refused, CL_E_DENIED, 0, "the token's tenant '%s' is not known here",
                      b->p.tenant);
        refuse(b->a->s, call, "", &refused);
    } else if (call && err) {
        rpc_call_finish(call, err);
    } else if (call) {
        let_in(b->a->s, call, &b->p, b->scope, b->fn);
    }
    api_release(b->a);
    cl_free(b);
}

static void check_token(struct sched *s, struct rpc_call *call, const char *text, enum scope scope,
                        auth_fn *fn)
{
    struct cl_err err = {0};
    struct principal p;
    if (tokens_verify(s->tokens, text, &p, &err) < 0) {
        if (err.code == CL_E_UNAVAILABLE)
            rpc_call_finish(call, &err);
        else
            refuse(s, call, "", &err);
        return;
    }
    struct bearer *b = cl_zalloc(sizeof *b);
    if (!b) {
        (void)cl_fail(&err, CL_E_NOMEM, 0, "authentication");
        rpc_call_finish(call, &err);
        return;
    }
    *b = (struct bearer){rpc_call_user(call), p, scope, fn};
    api_hold(b->a);
    tenant_get(s, b->p.tenant, on_tenant, b);
}

void auth_check(struct sched *s, struct rpc_call *call, enum scope scope, auth_fn *fn)
{
    static const char bearer[] = "Bearer ";
    struct cl_err err = {0};
    const char *text = rpc_call_metadata(call, "authorization");
    if (text && strncasecmp(text, bearer, sizeof bearer - 1) == 0)
        text += sizeof bearer - 1;
    if (!text) {
        (void)cl_fail(&err, CL_E_UNAUTH, 0, "no credential: send `authorization: Bearer clk_...`");
        refuse(s, call, "", &err);
    } else if (s->tokens && jwt_is_like(text)) {
        check_token(s, call, text, scope, fn);
    } else if (link_is_like(text)) {
        check_link(s, call, text, scope, fn);
    } else {
        check_key(s, call, text, scope, fn);
    }
}
