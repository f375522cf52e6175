/* gateway/port_host.c - see gateway/port_host.h. */
#include "gateway/port_host.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char digits[] = "0123456789", alphanumeric[] = "0123456789abcdefghijklmnopqrstuvwxyz",
                  name_chars[] = "0123456789abcdefghijklmnopqrstuvwxyz-.";

enum {
    ID_CHARS = 26,
    HOST_MAX = 255, /* RFC 1035 section 2.3.4 */
    PORT_DIGITS = 5,
    METHOD_MAX = 20, /* llhttp's longest has 13 */
};

/* --- names --------------------------------------------------------------------------------------
 */

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* "1" to "65535" in one way only; 0 = it is none. */
static uint16_t read_port(const char *s, size_t n)
{
    uint32_t port = 0;
    if (n == 0 || n > PORT_DIGITS || s[0] == '0')
        return 0;
    for (size_t i = 0; i < n; i++)
        port = port * 10 + (uint32_t)(s[i] - '0');
    return port <= UINT16_MAX ? (uint16_t)port : 0;
}

/* "3000-sbx_..." */
static bool read_first(const char *label, size_t n, struct port_host *ret)
{
    size_t digits_n = strspn(label, digits);
    if (n != digits_n + 5 + ID_CHARS)
        return false;
    const char *id = label + digits_n;
    if (id[0] != '-' || strncmp(id + 1, "sbx", 3) != 0 || (id[4] != '_' && id[4] != '-'))
        return false;
    memcpy(ret->sandbox, "sbx_", 4);
    memcpy(ret->sandbox + 4, id + 5, ID_CHARS);
    ret->sandbox[4 + ID_CHARS] = '\0';
    ret->port = read_port(label, digits_n);
    return ret->port > 0 && cl_id_is(ret->sandbox, "sbx");
}

static bool is_alphanumeric(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!s[i] || !strchr(alphanumeric, s[i]))
            return false;
    }
    return true;
}

static bool read_secret(const char *label, size_t n, struct port_host *ret)
{
    if (n != PORT_SECRET_CHARS || !is_alphanumeric(label, n))
        return false;
    memcpy(ret->secret, label, n);
    ret->secret[n] = '\0';
    return true;
}

/* The name without ":PORT"; 0 = malformed. */
static size_t name_length(const char *host)
{
    size_t n = strcspn(host, ":"), left = strlen(host + n);
    return left == 0 || (left > 1 && strspn(host + n + 1, digits) == left - 1) ? n : 0;
}

bool port_host_parse(const char *host, size_t n, const char *domain, struct port_host *ret_host)
{
    char name[HOST_MAX + 1] = {0};
    struct port_host h = {.port = 0};
    size_t domain_n = domain ? strlen(domain) : 0;
    if (domain_n == 0 || n >= sizeof name || (n > 0 && memchr(host, '\0', n)))
        return false;
    for (size_t i = 0; i < n; i++)
        name[i] = lower(host[i]);
    name[n] = '\0';
    n = name_length(name);
    if (n <= domain_n || strncmp(name + n - domain_n, domain, domain_n) != 0 ||
        name[n - domain_n - 1] != '.')
        return false;
    size_t left = n - domain_n - 1, first = strcspn(name, ".");
    if (!read_first(name, first, &h) ||
        (left > first && !read_secret(name + first + 1, left - first - 1, &h)))
        return false;
    *ret_host = h;
    return true;
}

bool port_link_names(const char *text, size_t n, const char *sandbox)
{
    size_t id_n = 4 + ID_CHARS; /* "sbx_..." as "clp_..." */
    return n == PORT_LINK - 1 && strncmp(text, "clp_", 4) == 0 && strlen(sandbox) == id_n &&
           strncmp(text + 4, sandbox + 4, ID_CHARS) == 0 && text[id_n] == '_' &&
           is_alphanumeric(text + id_n + 1, PORT_SECRET_CHARS);
}

bool port_domain_read(const char *option, char domain[static PORT_DOMAIN_MAX])
{
    size_t n = name_length(option);
    if (n == 0 || n >= PORT_DOMAIN_MAX)
        return false;
    for (size_t i = 0; i < n; i++)
        domain[i] = lower(option[i]);
    domain[n] = '\0';
    return strspn(domain, name_chars) == n && domain[0] != '.' && domain[n - 1] != '.' &&
           !strstr(domain, "..");
}

/* --- the first bytes of a request ---------------------------------------------------------------
 */

static bool is_host_line(const char *line, size_t n)
{
    return n >= 5 && strncasecmp(line, "host:", 5) == 0;
}

static enum port_sniff judge(const char *line, size_t n, const char *domain)
{
    struct port_host ignored;
    const char *at = line + 5, *end = line + n;
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    while (end > at && strchr(" \t\r", end[-1]))
        end--;
    return port_host_parse(at, (size_t)(end - at), domain, &ignored) ? PORT_SNIFF_YES
                                                                     : PORT_SNIFF_NO;
}

/* Can a request begin so?  What cannot shall not wait for a line. */
static bool is_request(const char *at, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (at[i] == ' ')
            return i > 0;
        if (i == METHOD_MAX || ((at[i] < 'A' || at[i] > 'Z') && at[i] != '-'))
            return false;
    }
    return true;
}

enum port_sniff port_sniff(const void *data, size_t n, const char *domain, size_t *at)
{
    const char *begin = data, *eol;
    size_t pos = *at;
    while (*at == 0 && pos < n && (begin[pos] == '\r' || begin[pos] == '\n'))
        pos++; /* RFC 9112 section 2.2 */
    if (*at == 0 && !is_request(begin + pos, n - pos))
        return PORT_SNIFF_NO;
    while (pos < n && (eol = memchr(begin + pos, '\n', n - pos))) {
        const char *line = begin + pos;
        size_t line_n = (size_t)(eol - line);
        if (is_host_line(line, line_n))
            return judge(line, line_n, domain);
        if (line_n == 0 || (line_n == 1 && line[0] == '\r'))
            return PORT_SNIFF_NO;
        *at = pos += line_n + 1;
    }
    return PORT_SNIFF_MORE;
}
