/* mcp/port_url.c - see mcp/port_url.h. */
#include "mcp/port_url.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define HOST_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:"
enum { DOMAIN_MAX = 200 };

static bool is_localhost(const char *domain)
{
    static const char name[] = "localhost";
    size_t n = sizeof name - 1;
    return strncasecmp(domain, name, n) == 0 && (domain[n] == '\0' || domain[n] == ':');
}

int port_url(const char *domain, const char *link, uint32_t port, char ret_url[static PORT_URL_MAX],
             struct cl_err *err)
{
    static const char http[] = "http://", https[] = "https://";
    bool plain = strncmp(domain, http, sizeof http - 1) == 0;
    bool tls = strncmp(domain, https, sizeof https - 1) == 0;
    domain += plain ? sizeof http - 1 : tls ? sizeof https - 1 : 0;
    plain = plain || (!tls && is_localhost(domain));
    size_t n = strspn(domain, HOST_CHARACTERS);
    const char *id = link + 4, *secret = strrchr(link, '_'); /* "clp_<id>_<secret>" */
    if (n == 0 || domain[n] || n > DOMAIN_MAX || !secret || secret <= id)
        return cl_fail(err, CL_E_INVALID, 0, "'%.60s' is no domain of a gateway", domain);
    int id_n = (int)(secret - id);
    if (plain)
        (void)snprintf(ret_url, PORT_URL_MAX, "http://%" PRIu32 "-sbx-%.*s.%s.%s/", port, id_n, id,
                       secret + 1, domain);
    else
        (void)snprintf(ret_url, PORT_URL_MAX, "https://%" PRIu32 "-sbx-%.*s.%s/?cloche_link=%s",
                       port, id_n, id, domain, link);
    return 0;
}
