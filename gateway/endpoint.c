/* gateway/endpoint.c - see gateway/endpoint.h. */
#include "gateway/endpoint.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/util.h"
#include "e2b/server.h"
#include "gateway/metadata.h"
#include "gateway/port_host.h"
#include "web/server.h"

static const char *const loopback[] = {"localhost", "127.0.0.1", "[::1]"};

/* Is s[0..n) a word of the list "a, b,c"? */
static bool in_list(const char *list, const char *s, size_t n)
{
    for (const char *at = list; *at; at += strcspn(at, ",")) {
        at += strspn(at, ", ");
        size_t len = strcspn(at, ", ");
        if (len == n && strncasecmp(at, s, n) == 0)
            return true;
    }
    return false;
}

/* "name", "name:port", "[::1]:port": length of the name, 0 when it is malformed. */
static size_t host_length(const char *host)
{
    const char *end = host[0] == '[' ? strchr(host, ']') : host + strcspn(host, ":");
    size_t n = !end ? 0 : host[0] == '[' ? (size_t)(end - host) + 1 : (size_t)(end - host);
    if (n == 0 || (host[n] && (host[n] != ':' || !host[n + 1] ||
                               strspn(host + n + 1, "0123456789") != strlen(host + n + 1))))
        return 0;
    return n;
}

static bool is_loopback_name(const char *name, size_t n)
{
    for (size_t i = 0; i < CL_COUNT(loopback); i++) {
        if (strlen(loopback[i]) == n && strncasecmp(loopback[i], name, n) == 0)
            return true;
    }
    return false;
}

static bool host_is_ours(const struct endpoint *e, const char *host)
{
    size_t n = host ? host_length(host) : 0;
    if (n == 0)
        return false;
    return is_loopback_name(host, n) || strcmp(e->hosts, "*") == 0 || in_list(e->hosts, host, n);
}

/* A page of ours, under a name that `hosts` lists: anybody's under any name, if it is "*". */
static bool origin_is_host(const struct endpoint *e, const char *at, const char *host)
{
    return strcmp(e->hosts, "*") != 0 && strcasecmp(at, host) == 0;
}

static bool origin_is_allowed(const struct endpoint *e, const char *origin, const char *host)
{
    if (in_list(e->origins, origin, strlen(origin)))
        return true;
    const char *at = strncmp(origin, "http://", 7) == 0    ? origin + 7
                     : strncmp(origin, "https://", 8) == 0 ? origin + 8
                                                           : NULL;
    size_t n = at ? host_length(at) : 0;
    return n > 0 && (is_loopback_name(at, n) || origin_is_host(e, at, host));
}

/* "application/json; charset=utf-8" is the type "application/json". */
static bool type_is(const char *value, const char *type)
{
    size_t n = strlen(type);
    return value && strncasecmp(value, type, n) == 0 && (!value[n] || strchr("; \t,", value[n]));
}

/* Does an Accept header hold the type, or a wildcard for it? */
static bool accepts(const char *value, const char *type, const char *family)
{
    for (const char *at = value; at && *at; at += strcspn(at, ",")) {
        at += strspn(at, ", \t");
        if (type_is(at, type) || type_is(at, family) || type_is(at, "*/*"))
            return true;
    }
    return false;
}

bool endpoint_takes_stream(const struct http_request *r)
{
    return !r->is_1_0 && accepts(r->fields[FIELD_ACCEPT], "text/event-stream", "text/*");
}

int endpoint_check_types(const struct http_request *r, const char **ret_text)
{
    if (r->verb != VERB_POST)
        return 0;
    *ret_text = "Content-Type must be application/json";
    if (!type_is(r->fields[FIELD_CONTENT_TYPE], "application/json"))
        return 415;
    *ret_text = "Accept must allow application/json (and text/event-stream)";
    return accepts(r->fields[FIELD_ACCEPT], "application/json", "application/*") ? 0 : 406;
}

/* RFC 9728 section 3.1: the well-known part goes before the path of the resource. */
bool endpoint_is_metadata(const struct endpoint *e, const struct http_request *r)
{
    return e->has_metadata &&
           (strcmp(r->path, METADATA_PATH) == 0 || strcmp(r->path, METADATA_PATH "/mcp") == 0);
}

bool endpoint_is_e2b(const struct endpoint *e, const struct http_request *r)
{
    return e->has_e2b && e2b_serves(r->path);
}

bool endpoint_is_web(const struct endpoint *e, const struct http_request *r)
{
    return e->has_web && web_serves(r->path);
}

bool endpoint_is_port(const struct endpoint *e, const struct http_request *r)
{
    const char *host = r->fields[FIELD_HOST];
    struct port_host ignored;
    return host && port_host_parse(host, strlen(host), e->ports, &ignored);
}

/* --- pages of other origins (Fetch, "CORS protocol") --------------------------------------------
 */

const char *endpoint_reader(const struct endpoint *e, const struct http_request *r)
{
    const char *origin = r->fields[FIELD_ORIGIN];
    return origin && origin_is_allowed(e, origin, r->fields[FIELD_HOST]) ? origin : NULL;
}

bool endpoint_is_preflight(const struct http_request *r)
{
    return r->verb == VERB_OPTIONS && r->fields[FIELD_ORIGIN] && r->fields[FIELD_CORS_METHOD];
}

const char *endpoint_asked_fields(const struct http_request *r)
{
    static const char names[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_, ";
    const char *asked = r->fields[FIELD_CORS_HEADERS];
    size_t n = asked ? strlen(asked) : 0;
    return n > 0 && n <= ENDPOINT_ASKED_MAX && strspn(asked, names) == n ? asked : NULL;
}

int endpoint_check(const struct endpoint *e, const struct http_request *r, const char **ret_text)
{
    const char *origin = r->fields[FIELD_ORIGIN];
    *ret_text = "this Host is a port of a sandbox";
    if (endpoint_is_port(e, r))
        return 421;
    *ret_text = "this Host is not served here";
    if (!host_is_ours(e, r->fields[FIELD_HOST]))
        return 403;
    *ret_text = "this Origin may not call";
    if (origin && !origin_is_allowed(e, origin, r->fields[FIELD_HOST]))
        return 403;
    if (endpoint_is_preflight(r))
        return 0;
    *ret_text = "only GET";
    if (endpoint_is_metadata(e, r))
        return r->verb == VERB_GET ? 0 : 405;
    if (endpoint_is_e2b(e, r) || endpoint_is_web(e, r))
        return 0;
    *ret_text = "MCP is at /mcp";
    if (strcmp(r->path, "/mcp") != 0)
        return 404;
    *ret_text = "POST a message, or DELETE a session";
    return r->verb == VERB_POST || r->verb == VERB_DELETE ? 0 : 405;
}

struct mcp_headers endpoint_headers(const struct http_request *r)
{
    return (struct mcp_headers){.version = r->fields[FIELD_MCP_VERSION],
                                .method = r->fields[FIELD_MCP_METHOD],
                                .name = r->fields[FIELD_MCP_NAME],
                                .session = r->fields[FIELD_MCP_SESSION],
                                .traceparent = r->fields[FIELD_TRACEPARENT]};
}
