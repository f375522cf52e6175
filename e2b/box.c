/* e2b/box.c - see e2b/box_priv.h. */
#include "e2b/box_priv.h"

#include <stdlib.h>
#include <string.h>

#include "cloche/v1/port.pb-c.h"
#include "e2b/labels.h"
#include "e2b/place.h"

void e2b_box_fail_unknown(struct e2b_call *c)
{
    struct cl_err err = {0};
    (void)cl_fail(&err, CL_E_NOTFOUND, 0, "sandbox %s: not found", c->id);
    e2b_fail(c, &err);
}

void e2b_box_get(struct e2b_call *c, e2b_end_fn *on_end)
{
    static const struct e2b_method get =
        E2B_RPC("SandboxService", "Get", sandbox_service_get_response);
    Cloche__V1__SandboxServiceGetRequest m = CLOCHE__V1__SANDBOX_SERVICE_GET_REQUEST__INIT;
    m.sandbox_id = c->id;
    (void)!e2b_ask(c, &(struct e2b_ask){.method = &get, .request = &m.base, .on_end = on_end},
                   NULL);
}

const Cloche__V1__Sandbox *e2b_box_living(struct e2b_call *c, const ProtobufCMessage *reply,
                                          const struct cl_err *err)
{
    const Cloche__V1__SandboxServiceGetResponse *m =
        (const Cloche__V1__SandboxServiceGetResponse *)reply;
    if (!err && m->sandbox->state != CLOCHE__V1__UNIT_STATE__UNIT_STATE_ENDED)
        return m->sandbox;
    if (err && err->code != CL_E_NOTFOUND)
        e2b_fail(c, err);
    else
        e2b_box_fail_unknown(c);
    return NULL;
}

void e2b_box_kill(struct e2b_call *c, const char *id)
{
    static const struct e2b_method kill = E2B_RPC("SandboxService", "Kill", kill_response);
    Cloche__V1__KillRequest m = CLOCHE__V1__KILL_REQUEST__INIT;
    m.sandbox_id = e2b_pb(id);
    e2b_tell(c, &kill, &m.base);
}

/* --- what it is answered with -------------------------------------------------------------------
 */

const char *e2b_box_template(const Cloche__V1__Sandbox *m)
{
    for (size_t i = 0; i < m->n_labels; i++) {
        if (strcmp(m->labels[i]->key, E2B_LABEL_TEMPLATE) == 0)
            return m->labels[i]->value;
    }
    return m->template_;
}

int e2b_box_grant(const struct e2b_call *c, const char *sandbox, const struct e2b_place *place,
                  const char *env, struct e2b_grant *ret_grant, struct cl_err *err)
{
    char *both = NULL;
    json_t *all = NULL, *more = NULL;
    int rc = 0;
    if (place->env[0] && env[0]) {
        if (mcp_json_parse(place->env, strlen(place->env), &all, err) < 0 ||
            mcp_json_parse(env, strlen(env), &more, err) < 0)
            rc = -1;
        else if (json_object_update(all, more) < 0 || !(both = json_dumps(all, JSON_COMPACT)))
            rc = cl_fail(err, CL_E_NOMEM, 0, "environment");
    }
    if (rc == 0)
        rc = e2b_grant_make(sandbox, c->grant->credential,
                            both     ? both
                            : env[0] ? env
                                     : place->env,
                            ret_grant, err);
    if (rc == 0)
        rc = e2b_grant_set_place(ret_grant, place->user, place->cwd, err);
    json_decref(all);
    json_decref(more);
    free(both);
    return rc;
}

json_t *e2b_box_answer(struct e2b_call *c, const Cloche__V1__Sandbox *m, const char *env,
                       struct cl_err *err)
{
    struct e2b_grant grant;
    struct e2b_place place;
    char token[E2B_TOKEN_MAX];
    const char *template_ = e2b_box_template(m);
    e2b_place_read(m->labels, m->n_labels, &place);
    if (e2b_box_grant(c, m->id, &place, env, &grant, err) < 0 ||
        e2b_token_seal(c->server->conf.secret, &grant, token, err) < 0)
        return NULL;
    json_t *answer =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "templateID", template_, "sandboxID",
                  m->id, "clientID", E2B_CLIENT_ID, "envdVersion", E2B_ENVD_VERSION,
                  "envdAccessToken", token, "trafficAccessToken", token, "alias", template_);
    if (!answer)
        (void)cl_fail(err, CL_E_NOMEM, 0, "sandbox %s", m->id);
    else
        e2b_box_set_link(c, answer, NULL);
    return answer;
}

bool e2b_box_has_link(const struct e2b_call *c, const Cloche__V1__Sandbox *m)
{
    for (size_t i = 0; i < m->n_labels; i++) {
        if (strcmp(m->labels[i]->key, E2B_LABEL_PRIVATE) == 0)
            return false;
    }
    return c->server->conf.ports != NULL;
}

int e2b_box_ask_link(struct e2b_call *c, const char *sandbox, e2b_end_fn *on_end,
                     struct cl_err *err)
{
    static const struct e2b_method link =
        E2B_RPC("PortService", "CreateLink", create_link_response);
    Cloche__V1__CreateLinkRequest m = CLOCHE__V1__CREATE_LINK_REQUEST__INIT;
    m.sandbox_id = e2b_pb(sandbox);
    return e2b_ask_try(c, &(struct e2b_ask){.method = &link, .request = &m.base, .on_end = on_end},
                       NULL, err);
}

/* The domain behind which get_host() of an SDK puts its "PORT-SANDBOX." */
void e2b_box_set_link(const struct e2b_call *c, json_t *answer, const char *link)
{
    const char *tail = link ? strrchr(link, '_') : NULL, *ports = c->server->conf.ports;
    if (ports && tail)
        mcp_json_set(answer, "domain", json_sprintf("%s.%s", tail + 1, ports));
    else if (ports)
        mcp_json_set(answer, "domain", json_string(ports));
}
