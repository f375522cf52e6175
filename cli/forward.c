/* cli/forward.c - see cli/forward.h: its words. */
#include "cli/forward.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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
