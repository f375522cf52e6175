/* mcp/who.c - whose credential a call carries: the scheduler says it, and a 401 or 403 comes before
 * anything is read.
 *
 * What it answered is believed for MCP_WHO_FRESH_NS.  That gives nobody anything: each action is
 * judged again by the scheduler, with the credential itself.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cloche/v1/tenant.pb-c.h"
#include "mcp/ask_priv.h"
#include "mcp/call_priv.h"

enum { CHALLENGE = 1280 };

/* What WWW-Authenticate says (RFC 6750 section 3), before what the gateway adds. */
static const char no_token[] = "", bad_token[] = ", error=\"invalid_token\"",
                  low_scope[] = ", error=\"insufficient_scope\"";

/* authenticate: NULL = another credential would not help. */
static void refuse(struct mcp_call *c, int http, const char *authenticate, const char *text)
{
    char challenge[CHALLENGE];
    const char *more = c->server->conf.challenge;
    (void)snprintf(challenge, sizeof challenge, "Bearer realm=\"cloche\"%s%s",
                   authenticate ? authenticate : "",
                   more && more[0] ? more : ", scope=\"run read\"");
    json_t *body = json_pack("{s:s, s:n, s:{s:i, s:s}}", "jsonrpc", "2.0", "id", "error", "code",
                             http < 500 ? MCP_E_REQUEST : MCP_E_INTERNAL, "message", text);
    if (c->msg.id)
        (void)json_object_set(body, "id", (json_t *)(uintptr_t)c->msg.id);
    bool is_silent = c->msg.kind == MCP_NOTIFICATION;
    mcp_bare(c, &(struct mcp_reply){.http = http,
                                    .body = is_silent ? NULL : body,
                                    .authenticate = authenticate ? challenge : NULL});
    json_decref(body);
}

bool mcp_who_may(struct mcp_call *c, unsigned what)
{
    if ((c->who.may & what) == what)
        return true;
    refuse(c, 403, low_scope, "the credential lacks the scope 'run'");
    return false;
}

/* What the scheduler's scopes allow here; the admin's implies the others (policy/principal.h). */
static unsigned read_scopes(const Cloche__V1__WhoAmIResponse *m)
{
    static const struct {
        const char *name;
        unsigned may;
    } rows[] = {{"admin", MCP_MAY_READ | MCP_MAY_RUN},
                {"run", MCP_MAY_READ | MCP_MAY_RUN},
                {"read", MCP_MAY_READ}};
    unsigned may = 0;
    for (size_t i = 0; i < m->n_scopes; i++) {
        for (size_t j = 0; j < CL_COUNT(rows); j++) {
            if (strcmp(m->scopes[i], rows[j].name) == 0)
                may |= rows[j].may;
        }
    }
    return may;
}

static void empty_map(struct cl_map *map)
{
    const char *key;
    for (size_t at = 0; cl_map_next(map, &at, &key) != NULL; at = 0)
        cl_free(cl_map_del(map, key));
}

static void remember(struct mcp_call *c)
{
    char digest[MCP_DIGEST_TEXT];
    struct mcp_server *s = c->server;
    mcp_digest(s->conf.secret, "credential", c->credential ? c->credential : "", digest);
    struct mcp_who *w = cl_map_get(s->who, digest);
    if (!w && cl_map_count(s->who) >= MCP_WHO_MAX)
        empty_map(s->who);
    if (!w) {
        w = cl_zalloc(sizeof *w);
        if (!w || cl_map_put(s->who, digest, w, NULL) < 0) {
            cl_free(w);
            return;
        }
    }
    *w = c->who;
}

static void go_on(struct mcp_call *c)
{
    mcp_run_fn *next = c->next;
    c->next = NULL;
    if (c->who.may & MCP_MAY_READ)
        next(c);
    else
        refuse(c, 403, low_scope, "the credential lacks the scopes 'run' and 'read'");
}

static void on_who(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    const Cloche__V1__WhoAmIResponse *m = (const Cloche__V1__WhoAmIResponse *)reply;
    if (err && err->code == CL_E_UNAUTH) {
        refuse(c, 401, bad_token, err->text);
        return;
    }
    if (err) {
        refuse(c, cl_err_info(err->code)->http, NULL, err->text);
        return;
    }
    (void)snprintf(c->who.principal, sizeof c->who.principal, "%s/%s", m->tenant,
                   m->key_id[0] ? m->key_id : m->subject);
    c->who.may = read_scopes(m);
    c->who.fresh_until_ns = cl_now_ns() + MCP_WHO_FRESH_NS;
    remember(c);
    go_on(c);
}

void mcp_who_ask(struct mcp_call *c, mcp_run_fn *next)
{
    static const struct mcp_method_of who_am_i =
        MCP_RPC("TenantService", "WhoAmI", who_am_iresponse);
    Cloche__V1__WhoAmIRequest m = CLOCHE__V1__WHO_AM_IREQUEST__INIT;
    char digest[MCP_DIGEST_TEXT];
    struct cl_err err = {0};
    c->next = next;
    if (!c->credential && !c->is_stdio) {
        refuse(c, 401, no_token, "no credential: send the header Authorization: Bearer clk_...");
        return;
    }
    mcp_digest(c->server->conf.secret, "credential", c->credential ? c->credential : "", digest);
    const struct mcp_who *known = cl_map_get(c->server->who, digest);
    if (known && cl_now_ns() < known->fresh_until_ns) {
        c->who = *known;
        go_on(c);
        return;
    }
    struct mcp_ask_spec ask = {
        .method = &who_am_i, .request = &m.base, .timeout_ns = 10 * CL_NS_PER_S, .on_end = on_who};
    if (mcp_ask_try(c, &ask, NULL, &err) < 0)
        refuse(c, cl_err_info(err.code)->http, NULL, err.text);
}
