/* cli/dashboard.c - `cloche dashboard`: an address for a browser. */
#include <stdio.h>

#include "cli/client.h"
#include "cli/output.h"
#include "cli/reach.h"
#include "cli/values.h"
#include "cloche/v1/tenant.pb-c.h"
#include "proto/copy.h"

#define KEY_TTL_NS (12 * 3600 * CL_NS_PER_S)

/* A key of its own, which ends by itself: the address is in the terminal, and perhaps in the
 * browser's history.  Who may make none signs in with his: "" then. */
static int make_key(const struct cli_opts *o, struct client *client, ProtobufCMessage **ret_made,
                    struct cl_err *err)
{
    static const struct client_method create =
        CLIENT_METHOD("TenantService", "CreateKey", create_key_response);
    char text[VALUE_SCOPES_TEXT], *scopes[VALUE_SCOPES];
    Cloche__V1__CreateKeyRequest req = CLOCHE__V1__CREATE_KEY_REQUEST__INIT;
    req.tenant = pb_text(o->tenant ? o->tenant : "local");
    req.ttl_ns = o->ttl ? o->ttl : KEY_TTL_NS;
    req.note = pb_text("dashboard");
    req.scopes = scopes;
    if (value_scopes(o->scopes ? o->scopes : "run,audit", text, scopes, &req.n_scopes, err) < 0)
        return -1;
    if (client_unary(client, &create, &req.base, 0, ret_made, err) == 0)
        return 0;
    *ret_made = NULL;
    return err->code == CL_E_DENIED && !o->tenant ? 0 : -1;
}

static int cmd_dashboard(const struct cli_opts *o, const struct args *a)
{
    (void)a;
    struct cl_err err = {0};
    char base[REACH_DOMAIN], url[REACH_DOMAIN + 128];
    ProtobufCMessage *msg = NULL;
    CL_AUTO(client_freep) struct client *client = NULL;
    if (reach_gateway(o, base, &err) < 0 || client_open(o, &client, &err) < 0 ||
        make_key(o, client, &msg, &err) < 0)
        return cli_report(&err);
    const Cloche__V1__CreateKeyResponse *m = (const Cloche__V1__CreateKeyResponse *)msg;
    (void)snprintf(url, sizeof url, "%s/dashboard%s%s", base, m ? "#key=" : "", m ? m->secret : "");
    int code = EXIT_OK;
    if (o->json)
        code =
            out_json(json_pack("{s:s, s:o*}", "url", url, "expires",
                               m && m->key->expires ? out_time(m->key->expires->unix_ns) : NULL));
    else if (puts(url) < 0)
        code = EXIT_FAILED;
    else if (!m)
        cli_say("this key may make no other: sign in there with it");
    pb_free(msg);
    return code;
}

static const struct arg_opt dashboard_opts[] = {
    OPT_JSON,
    {"tenant", 0, ARG_STRING, OPT(tenant), "TENANT", "whose (default local)"},
    {"ttl", 0, ARG_DURATION, OPT(ttl), "12h", "how long it opens (default 12 h)"},
    {"scopes", 0, ARG_STRING, OPT(scopes), "run,audit",
     "what its key may; admin: tenants, limits and keys, too"},
    {"url", 0, ARG_STRING, OPT(domain), "URL",
     "of the gateway, as in https://cloche.example.org (default: this host's)"}};

const struct cli_command dashboard_commands[] = {
    {"dashboard", "[--tenant TENANT]", "an address of the dashboard, for your browser",
     "Sandboxes, jobs, snapshots, workers, the audit log, and what is left of the quotas: seen and "
     "ended,\n"
     "paused and resumed, with a line for commands.  The address holds a new key with the scopes "
     "run "
     "and\n"
     "audit; it stays in the tab that opens it, and ends by itself.  The gateway serves it.\n\n"
     "  xdg-open \"$(cloche dashboard)\"\n"
     "  cloche dashboard --scopes admin --ttl 1h    # tenants, their limits and keys\n",
     SPEC(dashboard_opts, 0, 0), cmd_dashboard, false},
};
const size_t dashboard_commands_n = CL_COUNT(dashboard_commands);
