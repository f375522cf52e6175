/* cli/reach.c - see cli/reach.h: `sandbox forward` and `sandbox url`: programs in a sandbox, from
 * outside. */
#include "cli/reach.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/forward.h"
#include "cli/output.h"
#include "cli/supervisor.h"
#include "cloche/v1/port.pb-c.h"
#include "cloche/v1/sandbox.pb-c.h"
#include "mcp/port_url.h"
#include "proto/copy.h"

/* A sandbox that is not there is told before anything listens. */
static int look(struct client *c, const char *sandbox, struct cl_err *err)
{
    static const struct client_method get =
        CLIENT_METHOD("SandboxService", "Get", sandbox_service_get_response);
    Cloche__V1__SandboxServiceGetRequest req = CLOCHE__V1__SANDBOX_SERVICE_GET_REQUEST__INIT;
    ProtobufCMessage *msg = NULL;
    req.sandbox_id = pb_text(sandbox);
    if (client_unary(c, &get, &req.base, 0, &msg, err) < 0)
        return -1;
    const Cloche__V1__Sandbox *s = ((const Cloche__V1__SandboxServiceGetResponse *)msg)->sandbox;
    bool ended = s->state == CLOCHE__V1__UNIT_STATE__UNIT_STATE_ENDED;
    pb_free(msg);
    return ended ? cl_fail(err, CL_E_STATE, 0, "the sandbox has ended") : 0;
}

static int cmd_forward(const struct cli_opts *o, const struct args *a)
{
    struct forward_port ports[FORWARD_PORTS];
    struct cl_err err = {0};
    CL_AUTO(client_freep) struct client *client = NULL;
    size_t n = a->n_pos - 1;
    if (n > FORWARD_PORTS) {
        (void)cl_fail(&err, CL_E_TOOBIG, 0, "%zu ports; at most %d at once", n, FORWARD_PORTS);
        return cli_report(&err);
    }
    for (size_t i = 0; i < n; i++)
        if (forward_parse(a->pos[i + 1], &ports[i], &err) < 0)
            return cli_report_as(&err, EXIT_USAGE);
    if (client_open(o, &client, &err) < 0 || look(client, a->pos[0], &err) < 0 ||
        forward_run(client, a->pos[0], ports, n, o->json, &err) < 0)
        return cli_report(&err);
    return EXIT_OK;
}

/* --- url ----------------------------------------------------------------------------------------
 */

/* HOST:PORT of the gateway which `up` started here; "" = none runs. */
static int find_gateway(const struct cli_opts *o, char address[static REACH_DOMAIN],
                        struct cl_err *err)
{
    struct cli_paths p;
    if (paths_resolve(o, &p, err) < 0)
        return -1;
    json_t *state = supervisor_is_running(p.run) ? supervisor_state(p.run) : NULL;
    const char *mcp = json_string_value(json_object_get(state, "mcp"));
    (void)snprintf(address, REACH_DOMAIN, "%s", mcp ? mcp : "");
    json_decref(state);
    return 0;
}

int reach_gateway(const struct cli_opts *o, char url[static REACH_DOMAIN], struct cl_err *err)
{
    char address[REACH_DOMAIN];
    if (o->domain) {
        size_t n = strlen(o->domain);
        (void)snprintf(url, REACH_DOMAIN, "%.*s", (int)(n - (n && o->domain[n - 1] == '/')),
                       o->domain);
        return 0;
    }
    if (find_gateway(o, address, err) < 0)
        return -1;
    (void)snprintf(url, REACH_DOMAIN, "http://%.240s", address);
    return address[0]
               ? 0
               : cl_fail(err, CL_E_INVALID, 0,
                         "no gateway runs on this host\ngive --url, or begin with `cloche up`");
}

int reach_domain(const struct cli_opts *o, char domain[static REACH_DOMAIN], struct cl_err *err)
{
    const char *asked = o->domain ? o->domain : getenv("CLOCHE_PORTS_DOMAIN");
    char address[REACH_DOMAIN];
    if (asked && asked[0]) {
        (void)snprintf(domain, REACH_DOMAIN, "%s", asked);
        return 0;
    }
    if (find_gateway(o, address, err) < 0)
        return -1;
    const char *port = strrchr(address, ':');
    if (port)
        (void)snprintf(domain, REACH_DOMAIN, "http://localhost%s", port);
    return port ? 0
                : cl_fail(err, CL_E_INVALID, 0,
                          "no gateway runs on this host\n"
                          "give --domain (or CLOCHE_PORTS_DOMAIN): the gateway's ports-domain");
}

static int print_url(const struct cli_opts *o, const char *url,
                     const Cloche__V1__CreateLinkResponse *m)
{
    if (!o->json)
        return puts(url) < 0 ? EXIT_FAILED : EXIT_OK;
    return out_json(json_pack("{s:s, s:s, s:o}", "url", url, "link", m->link, "expires",
                              out_time(m->expires ? m->expires->unix_ns : 0)));
}

static int cmd_url(const struct cli_opts *o, const struct args *a)
{
    static const struct client_method link =
        CLIENT_METHOD("PortService", "CreateLink", create_link_response);
    struct cl_err err = {0};
    ProtobufCMessage *msg = NULL;
    char domain[REACH_DOMAIN], url[PORT_URL_MAX];
    CL_AUTO(client_freep) struct client *client = NULL;
    Cloche__V1__CreateLinkRequest req = CLOCHE__V1__CREATE_LINK_REQUEST__INIT;
    req.sandbox_id = pb_text(a->pos[0]);
    req.ttl_ns = o->ttl;
    if (forward_port_number(a->pos[1], &req.port, &err) < 0)
        return cli_report_as(&err, EXIT_USAGE);
    if (reach_domain(o, domain, &err) < 0 || client_open(o, &client, &err) < 0 ||
        client_unary(client, &link, &req.base, 0, &msg, &err) < 0)
        return cli_report(&err);
    const Cloche__V1__CreateLinkResponse *m = (const Cloche__V1__CreateLinkResponse *)msg;
    int code = port_url(domain, m->link, req.port, url, &err) < 0 ? cli_report(&err)
                                                                  : print_url(o, url, m);
    pb_free(msg);
    return code;
}

/* --- rows ---------------------------------------------------------------------------------------
 */

static const struct arg_opt forward_opts[] = {OPT_JSON};
static const struct arg_opt url_opts[] = {
    OPT_JSON,
    {"ttl", 0, ARG_DURATION, OPT(ttl), "1h",
     "how long it opens (default: while the sandbox lives)"},
    {"domain", 0, ARG_STRING, OPT(domain), "DOMAIN",
     "ports-domain of the gateway, as in https://sandboxes.example.org (default "
     "CLOCHE_PORTS_DOMAIN, or this host's)"}};

const struct cli_command port_commands[] = {
    {"sandbox forward", "SANDBOX [[HOST:]LOCAL:]PORT...",
     "a sandbox's ports on this host, until interrupted",
     "What connects to LOCAL here (PORT when there is none) reaches the program that listens on "
     "PORT "
     "in\n"
     "the sandbox, at its 127.0.0.1 or ::1.  The sandbox needs no network for that.  Whoever "
     "reaches "
     "HOST\n"
     "(default 127.0.0.1) reaches the program.  --json prints where it listens.\n\n"
     "  cloche exec sbx_01... -- sh -c 'python3 -m http.server 8000 >/dev/null 2>&1 &'\n"
     "  cloche sandbox forward sbx_01... 8000             # http://127.0.0.1:8000\n"
     "  cloche sandbox forward sbx_01... 0:8000 5433:5432 # any free port; another one\n",
     SPEC(forward_opts, 2, ARGS_POS), cmd_forward, false},
    {"sandbox url", "[--ttl 1h] SANDBOX PORT", "a web address of a port of a sandbox",
     "Whoever has the address can reach that port, and nothing else, without a key: until --ttl "
     "has "
     "passed,\n"
     "the sandbox has ended or the key that made it is revoked.  The gateway serves it, WebSockets "
     "too.\n\n"
     "  cloche sandbox url --ttl 1h sbx_01... 8000\n"
     "  curl \"$(cloche sandbox url sbx_01... 8000)\"\n",
     SPEC(url_opts, 2, 2), cmd_url, false},
};
const size_t port_commands_n = CL_COUNT(port_commands);
