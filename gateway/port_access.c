/* gateway/port_access.c - see gateway/port_access.h. */
#include "gateway/port_access.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#include "gateway/port_head.h"

#define TOKEN "e2b-traffic-access-token"

static const char other[] = "the credential is of another sandbox",
                  missing[] =
                      "this server in a sandbox is not public, and no link to it was given\n"
                      "remedy: `cloche sandbox url SANDBOX PORT` makes one; programs send it, or "
                      "E2B's trafficAccessToken, in E2b-Traffic-Access-Token";

static void refuse(struct port_access *a, int status, const char *text)
{
    a->status = status;
    a->text = text;
}

static void bear(struct port_access *a, const char *credential)
{
    (void)snprintf(a->credential, sizeof a->credential, "Bearer %s", credential);
}

static bool is_visible(const char *s)
{
    for (; *s; s++) {
        if (*s < 0x21 || *s > 0x7e)
            return false;
    }
    return true;
}

/* Sealed by a gateway, for this sandbox. */
static void take_grant(const struct port_asked *asked, const char *token, struct port_access *a)
{
    struct e2b_grant grant;
    if (e2b_token_open(asked->secret, token, &grant, NULL) < 0)
        refuse(a, 401, "E2b-Traffic-Access-Token is no token of this gateway, and no link");
    else if (strcmp(grant.sandbox, asked->host->sandbox) != 0)
        refuse(a, 403, other);
    else /* it has its "Bearer " */
        (void)snprintf(a->credential, sizeof a->credential, "%s", grant.credential);
    OPENSSL_cleanse(&grant, sizeof grant);
}

static void take_token(const struct port_asked *asked, const char *token, struct port_access *a)
{
    bool is_link = strncmp(token, "clp_", 4) == 0;
    if (port_message_count(asked->request, TOKEN) > 1 || !is_visible(token) ||
        strlen(token) >= E2B_TOKEN_MAX)
        refuse(a, 400, "E2b-Traffic-Access-Token is malformed");
    else if (is_link && !port_link_names(token, strlen(token), asked->host->sandbox))
        refuse(a, 403, other);
    else if (!is_link && strncmp(token, "clk_", 4) != 0)
        take_grant(asked, token, a);
    else if (strlen(token) >= E2B_PLAIN_MAX)
        refuse(a, 401, "E2b-Traffic-Access-Token is no key");
    else
        bear(a, token);
}

/* A page that is opened with it gets the cookie and a clean address: it is then in no history and
 * in no Referer.  Other methods go on with it. */
static void take_parameter(const struct port_asked *asked, const char *link, size_t n,
                           struct port_access *a)
{
    const char *method = port_message_method(asked->request);
    if (!port_link_names(link, n, asked->host->sandbox)) {
        refuse(a, 403, other);
        return;
    }
    (void)snprintf(a->link, sizeof a->link, "%.*s", (int)n, link);
    if (strcmp(method, "GET") == 0)
        a->status = 302;
    else
        bear(a, a->link);
}

/* Another port of the sandbox is its own, as a page and its API are. */
static bool is_own_origin(const struct port_asked *asked)
{
    const char *origin = port_message_value(asked->request, "origin");
    const char *name = origin ? strstr(origin, "://") : NULL;
    struct port_host from;
    if (!origin)
        return true;
    return name && port_message_count(asked->request, "origin") == 1 &&
           port_host_parse(name + 3, strlen(name + 3), asked->domain, &from) &&
           strcmp(from.sandbox, asked->host->sandbox) == 0;
}

static void take_cookie(const struct port_asked *asked, const char *link, struct port_access *a)
{
    if (is_own_origin(asked))
        (void)snprintf(a->credential, sizeof a->credential, "Bearer %.*s", PORT_LINK - 1, link);
    else
        refuse(a, 403, "this sandbox's cookie is not for pages of other origins");
}

void port_access_find(const struct port_asked *asked, struct port_access *ret_access)
{
    const struct port_host *host = asked->host;
    const char *token = port_message_value(asked->request, TOKEN), *link;
    size_t n;
    ret_access->status = 0;
    ret_access->text = NULL;
    ret_access->link[0] = ret_access->credential[0] = '\0';
    if (host->secret[0]) {
        (void)snprintf(ret_access->credential, sizeof ret_access->credential, "Bearer clp_%s_%s",
                       host->sandbox + 4, host->secret);
    } else if (token) {
        take_token(asked, token, ret_access);
    } else if ((link = port_head_parameter(asked->request, &n))) {
        take_parameter(asked, link, n, ret_access);
    } else if ((link = port_head_cookie(asked->request, asked->tls ? PORT_COOKIE_TLS : PORT_COOKIE,
                                        host->sandbox))) {
        take_cookie(asked, link, ret_access);
    } else {
        refuse(ret_access, 401, missing);
    }
}
