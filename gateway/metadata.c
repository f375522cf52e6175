/* gateway/metadata.c - see gateway/metadata.h. */
#include "gateway/metadata.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char https[] = "https://", path[] = "/mcp";

/* Nothing that would end a quoted parameter or a header. */
static bool is_url(const char *s, size_t n)
{
    bool is_local =
        strncmp(s, "http://127.0.0.1", 16) == 0 || strncmp(s, "http://localhost", 16) == 0;
    if ((strncmp(s, https, sizeof https - 1) != 0 && !is_local) || n < sizeof https)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] <= ' ' || s[i] > '~' || strchr("\"\\<>#", s[i]))
            return false;
    }
    return true;
}

static int add_servers(json_t *list, const char *servers, struct cl_err *err)
{
    for (const char *at = servers; *at;) {
        at += strspn(at, ", ");
        size_t n = strcspn(at, ", ");
        if (n > 0 && !is_url(at, n))
            return cl_fail(err, CL_E_INVALID, 0, "authorization-servers: '%.*s' is no https URL",
                           (int)CL_MIN(n, (size_t)80), at);
        if (n > 0)
            (void)json_array_append_new(list, json_stringn(at, n));
        at += n;
    }
    return 0;
}

static int write_json(const char *resource, json_t *servers, struct metadata *ret,
                      struct cl_err *err)
{
    json_t *o =
        json_pack("{s:s, s:O, s:[s, s], s:[s]}", "resource", resource, "authorization_servers",
                  servers, "scopes_supported", "run", "read", "bearer_methods_supported", "header");
    size_t n = o ? json_dumpb(o, ret->json, sizeof ret->json - 1, JSON_COMPACT) : 0;
    json_decref(o);
    if (n == 0 || n > sizeof ret->json - 1)
        return cl_fail(err, CL_E_TOOBIG, 0, "the resource's metadata are too long");
    ret->json[n] = '\0';
    return 0;
}

int metadata_make(const char *resource, const char *servers, struct metadata *ret,
                  struct cl_err *err)
{
    size_t n = strlen(resource), tail = sizeof path - 1;
    *ret = (struct metadata){0};
    if (!is_url(resource, n) || n <= tail || strcmp(resource + n - tail, path) != 0)
        return cl_fail(err, CL_E_INVALID, 0,
                       "resource: '%.80s' is not https://HOST/mcp, under which clients reach us",
                       resource);
    (void)snprintf(ret->challenge, sizeof ret->challenge,
                   ", resource_metadata=\"%.*s" METADATA_PATH "/mcp\", scope=\"run read\"",
                   (int)(n - tail), resource);
    json_t *list = json_array();
    int rc = add_servers(list, servers, err);
    if (rc == 0)
        rc = write_json(resource, list, ret, err);
    json_decref(list);
    return rc;
}
