/* cli/forward.c - see cli/forward.h: words and addresses. */
#include "cli/forward.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { PORT_MAX = 65535 };

/* Digits only, of n characters. */
static bool read_number(const char *s, size_t n, uint32_t *ret)
{
    uint32_t value = 0;
    if (n < 1 || n > 5)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        value = value * 10 + (uint32_t)(s[i] - '0');
    }
    *ret = value;
    return value <= PORT_MAX;
}

int forward_port_number(const char *word, uint32_t *ret_port, struct cl_err *err)
{
    if (read_number(word, strlen(word), ret_port) && *ret_port > 0)
        return 0;
    return cl_fail(err, CL_E_INVALID, 0, "'%.40s' is no port: 1 to 65535", word);
}

int forward_parse(const char *word, struct forward_port *ret, struct cl_err *err)
{
    const char *last = strrchr(word, ':'), *local = word, *host = "127.0.0.1";
    size_t local_n = last ? (size_t)(last - word) : strlen(word), host_n = strlen(host);
    uint32_t listen;
    for (const char *at = last; last && at > word; at--) {
        if (at[-1] != ':')
            continue;
        local = at;
        local_n = (size_t)(last - at);
        host = word;
        host_n = (size_t)(at - word) - 1;
        break;
    }
    if (!read_number(local, local_n, &listen) || (!last && listen == 0) || host_n == 0 ||
        host_n > FORWARD_ADDRESS - 8)
        return cl_fail(err, CL_E_INVALID, 0,
                       "'%.60s' is not PORT, LOCAL:PORT or HOST:LOCAL:PORT (LOCAL 0: any free one)",
                       word);
    (void)snprintf(ret->address, sizeof ret->address, "%.*s:%" PRIu32, (int)host_n, host, listen);
    return forward_port_number(last ? last + 1 : word, &ret->port, err);
}

/* --- addresses ----------------------------------------------------------------------------------
 */

static bool is_localhost(const char *domain)
{
    static const char name[] = "localhost";
    size_t n = sizeof name - 1;
    return strncasecmp(domain, name, n) == 0 && (domain[n] == '\0' || domain[n] == ':');
}

int forward_url(const char *domain, const char *link, uint32_t port,
                char ret_url[static FORWARD_URL], struct cl_err *err)
{
    static const char http[] = "http://", https[] = "https://";
    bool plain = strncmp(domain, http, sizeof http - 1) == 0;
    bool tls = strncmp(domain, https, sizeof https - 1) == 0;
    domain += plain ? sizeof http - 1 : tls ? sizeof https - 1 : 0;
    plain = plain || (!tls && is_localhost(domain));
    size_t n = strspn(domain, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:");
    const char *secret = strrchr(link, '_');
    if (n == 0 || domain[n] || n > 200 || !secret || secret - link < 5)
        return cl_fail(err, CL_E_INVALID, 0, "'%.60s' is no domain of a gateway", domain);
    int id_n = (int)(secret - link) - 4; /* "clp_<id>_<secret>"; an underscore is no host name's */
    const char *id = link + 4;
    if (plain)
        (void)snprintf(ret_url, FORWARD_URL, "http://%" PRIu32 "-sbx-%.*s.%s.%s/", port, id_n, id,
                       secret + 1, domain);
    else
        (void)snprintf(ret_url, FORWARD_URL, "https://%" PRIu32 "-sbx-%.*s.%s/?cloche_link=%s",
                       port, id_n, id, domain, link);
    return 0;
}
