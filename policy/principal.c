/* policy/principal.c - see policy/principal.h. */
#include "policy/principal.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    uint32_t bit;
    uint32_t implies;
} scope_rows[] = {
    {"admin", SCOPE_ADMIN, SCOPE_ALL},
    {"tenant-admin", SCOPE_TENANT_ADMIN, SCOPE_TENANT_ADMIN},
    {"run", SCOPE_RUN, SCOPE_RUN | SCOPE_READ},
    {"read", SCOPE_READ, SCOPE_READ},
    {"audit", SCOPE_AUDIT, SCOPE_AUDIT},
};

static uint32_t scope_by_name(const char *word, size_t n)
{
    for (size_t i = 0; i < CL_COUNT(scope_rows); i++) {
        if (strlen(scope_rows[i].name) == n && memcmp(scope_rows[i].name, word, n) == 0)
            return scope_rows[i].bit;
    }
    return 0;
}

int scopes_parse(const char *text, uint32_t *ret_scopes, struct cl_err *err)
{
    uint32_t scopes = 0;
    for (const char *at = text;;) {
        size_t n = strcspn(at, ",");
        uint32_t bit = scope_by_name(at, n);
        if (!bit)
            return cl_fail(err, CL_E_INVALID, 0,
                           "unknown scope '%.*s', want admin, tenant-admin, run, read or audit",
                           (int)CL_MIN(n, (size_t)40), at);
        scopes |= bit;
        if (at[n] == '\0')
            break;
        at += n + 1;
    }
    *ret_scopes = scopes;
    return 0;
}

void scopes_format(uint32_t scopes, char out[static SCOPES_TEXT])
{
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < CL_COUNT(scope_rows); i++) {
        if (scopes & scope_rows[i].bit)
            n += (size_t)snprintf(out + n, SCOPES_TEXT - n, "%s%s", n ? "," : "",
                                  scope_rows[i].name);
    }
}

bool principal_has(const struct principal *p, enum scope scope)
{
    uint32_t held = 0;
    for (size_t i = 0; i < CL_COUNT(scope_rows); i++) {
        if (p->scopes & scope_rows[i].bit)
            held |= scope_rows[i].implies;
    }
    return (held & (uint32_t)scope) == (uint32_t)scope;
}

int principal_require(const struct principal *p, enum scope scope, struct cl_err *err)
{
    char name[SCOPES_TEXT];
    if (principal_has(p, scope))
        return 0;
    scopes_format((uint32_t)scope, name);
    (void)cl_fail(err, CL_E_DENIED, 0, "the key lacks the scope '%s'", name);
    if (err)
        (void)snprintf(err->subject, sizeof err->subject, "%.47s", name);
    return -1;
}

int principal_tenant(const struct principal *p, const char *asked, const char **ret_tenant,
                     struct cl_err *err)
{
    if (!asked || !asked[0] || strcmp(asked, p->tenant) == 0) {
        *ret_tenant = p->tenant;
        return 0;
    }
    if (!principal_has(p, SCOPE_ADMIN))
        return cl_fail(err, CL_E_NOTFOUND, 0, "no tenant '%.63s'", asked);
    *ret_tenant = asked;
    return 0;
}

bool key_facts_are_live(const struct key_facts *facts, uint64_t now_ms)
{
    return !facts->revoked && (facts->expires_ms == 0 || now_ms < facts->expires_ms);
}

int key_facts_check(const struct key_facts *facts, const uint8_t mac[static API_KEY_MAC],
                    uint64_t now_ms, struct cl_err *err)
{
    bool equal = api_key_mac_equal(facts->mac, mac);
    if (equal && key_facts_are_live(facts, now_ms))
        return 0;
    return cl_fail(err, CL_E_UNAUTH, 0, "the API key is not valid");
}
