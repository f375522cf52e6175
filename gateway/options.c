/* gateway/options.c - see gateway/options.h. */
#include "gateway/options.h"

#include <stdio.h>
#include <string.h>

#include "gateway/metadata.h"
#include "gateway/port_host.h"
#include "policy/net_rule.h"
#include "rpc/targets.h"

#define AT(field) offsetof(struct gateway_options, field)

const struct cl_conf_row gateway_conf_rows[] = {
    {"gateway", "listen", CL_CONF_STRING, AT(listen), "127.0.0.1:7780", 0, 0, false,
     "ADDRESS:PORT of http://.../mcp"},
    {"gateway", "tls-cert", CL_CONF_STRING, AT(tls_cert), "", 0, 0, false,
     "certificate chain (PEM): https instead of http; h2 and HTTP/1.1 by ALPN"},
    {"gateway", "tls-key", CL_CONF_STRING, AT(tls_key), "", 0, 0, false, "its private key (PEM)"},
    {"gateway", "insecure-listen", CL_CONF_BOOL, AT(insecure_listen), "no", 0, 0, false,
     "allow plaintext off loopback: clients, metrics, scheduler"},
    {"gateway", "hosts", CL_CONF_STRING, AT(hosts), "", 0, 0, false,
     "names besides loopback's that a Host header may have, as in a.org,b.org; * = any"},
    {"gateway", "origins", CL_CONF_STRING, AT(origins), "", 0, 0, false,
     "origins of web pages that may call and read the answers, as in https://a.org; loopback's "
     "may"},
    {"gateway", "ports-domain", CL_CONF_STRING, AT(ports_domain), "", 0, 0, false,
     "names PORT-SANDBOX.DOMAIN lead to servers in sandboxes; as in sandboxes.example.org[:PORT]; "
     "default localhost:PORT of listen when that is loopback, else none"},
    {"gateway", "scheduler", CL_CONF_STRING, AT(scheduler), "unix:/run/cloche/api.sock", 0, 0,
     false,
     "the scheduler: unix:/PATH or HOST:PORT; all of several that stand by for one another, "
     "as in a:7443,b:7443"},
    {"gateway", "scheduler-ca", CL_CONF_STRING, AT(scheduler_ca), "", 0, 0, false,
     "CA of its certificate (PEM); TLS where it is given"},
    {"gateway", "authorization-servers", CL_CONF_STRING, AT(authorization_servers), "", 0, 0, false,
     "issuers of the tokens that the scheduler takes, as in https://a.org; named to clients"},
    {"gateway", "resource", CL_CONF_STRING, AT(resource), "", 0, 0, false,
     "with it: our own URL as clients know it, https://HOST/mcp"},
    {"gateway", "secret-file", CL_CONF_STRING, AT(secret_file), "", 0, 0, false,
     "32 secret bytes that session ids are made with, created when missing; none: sessions end "
     "with the process"},
    {"gateway", "template", CL_CONF_STRING, AT(template_name), "python", 0, 0, false,
     "template of the sandboxes that calls make by themselves"},
    {"gateway", "ttl", CL_CONF_DURATION, AT(ttl), "15m", CL_NS_PER_S, 24 * 3600 * CL_NS_PER_S,
     false, "their idle life"},
    {"gateway", "drain", CL_CONF_DURATION, AT(drain), "5s", 0, 3600 * CL_NS_PER_S, false,
     "how long calls in flight may go on when it is told to end (SIGTERM)"},
    {"gateway", "aliases", CL_CONF_BOOL, AT(aliases), "no", 0, 0, false,
     "also tools by the names of ForeverVM and Microsandbox; run_code answers as E2B's"},
    {"gateway", "e2b", CL_CONF_BOOL, AT(e2b), "yes", 0, 0, false,
     "also E2B's API, for its SDKs: E2B_API_URL and E2B_SANDBOX_URL = our address"},
    {"gateway", "build-net", CL_CONF_STRING, AT(build_net), "", 0, 0, false,
     "what builds of templates by E2B's SDKs may reach, as rules of --net with commas; only of "
     "tenants that may have a network"},
    {"gateway", "web", CL_CONF_BOOL, AT(web), "yes", 0, 0, false,
     "also Cloche's own services over HTTP (Connect, JSON), and the dashboard"},
    {"gateway", "seccomp", CL_CONF_BOOL, AT(seccomp), "yes", 0, 0, false, "confine the process"},
    {"gateway", "metrics", CL_CONF_STRING, AT(metrics), "", 0, 0, false,
     "HOST:PORT of /metrics (loopback)"},
    {"gateway", "log-level", CL_CONF_STRING, AT(log_level), "info", 0, 0, true,
     "debug, info, warn or error"},
};
const size_t gateway_conf_count = CL_COUNT(gateway_conf_rows);

void gateway_ports_domain(const struct gateway_options *o, char domain[static CL_CONF_STR])
{
    const char *port = strrchr(o->listen, ':');
    domain[0] = '\0';
    if (o->ports_domain[0])
        (void)snprintf(domain, CL_CONF_STR, "%s", o->ports_domain);
    else if (cl_is_loopback(o->listen) && port)
        (void)snprintf(domain, CL_CONF_STR, "localhost%s", port);
}

static int check_rules(const char *list, struct cl_err *err)
{
    char text[CL_CONF_STR];
    struct net_rule ignored;
    size_t n = 0;
    (void)snprintf(text, sizeof text, "%s", list);
    char *rest = text;
    for (char *rule; text[0] && (rule = strsep(&rest, ",")) != NULL;) {
        if (++n > NET_RULES_MAX)
            return cl_fail(err, CL_E_INVALID, 0, "build-net: more than %d rules", NET_RULES_MAX);
        if (net_rule_parse(rule, &ignored, err) < 0)
            return cl_wrap(err, "build-net");
    }
    return 0;
}

int gateway_options_check(const struct gateway_options *o, struct cl_err *err)
{
    if (!cl_is_loopback(o->listen) && !o->tls_cert[0] && !o->insecure_listen)
        return cl_fail(err, CL_E_INVALID, 0,
                       "'%s' is not loopback: give --tls-cert and --tls-key, or --insecure-listen",
                       o->listen);
    struct metadata ignored;
    char domain[PORT_DOMAIN_MAX];
    if (o->ports_domain[0] && !port_domain_read(o->ports_domain, domain))
        return cl_fail(err, CL_E_INVALID, 0,
                       "ports-domain '%.100s': want a name, as in sandboxes.example.org[:PORT]",
                       o->ports_domain);
    if (o->authorization_servers[0] &&
        metadata_make(o->resource, o->authorization_servers, &ignored, err) < 0)
        return -1;
    if (!o->tls_cert[0] != !o->tls_key[0])
        return cl_fail(err, CL_E_INVALID, 0, "--tls-cert and --tls-key belong together");
    if (!cl_is_loopback(o->listen) && !o->hosts[0])
        return cl_fail(err, CL_E_INVALID, 0,
                       "'%s' is not loopback: give --hosts, the names under which it is reached",
                       o->listen);
    if (o->metrics[0] && !cl_is_loopback(o->metrics) && !o->insecure_listen)
        return cl_fail(
            err, CL_E_INVALID, 0,
            "metrics on '%s' are not loopback: put a TLS proxy before them, or --insecure-listen",
            o->metrics);
    if (check_rules(o->build_net, err) < 0)
        return -1;
    struct target_kinds kinds;
    if (target_kinds_read(o->scheduler, &kinds, err) < 0)
        return cl_wrap(err, "scheduler");
    if (kinds.n_remote > 0 && !o->scheduler_ca[0] && !o->insecure_listen)
        return cl_fail(err, CL_E_INVALID, 0,
                       "the scheduler at '%s' is not on this host: give --scheduler-ca",
                       kinds.remote);
    return 0;
}
