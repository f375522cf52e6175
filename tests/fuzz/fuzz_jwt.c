/* A token of an unknown caller under fixed keys, and a key set of an unknown server. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "policy/jwt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* RFC 8037 appendix A.2. */
static const char set_text[] = "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"k\","
                               "\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}]}";

static void try_token(const char *text, const struct jwt_rules *rules)
{
    static struct jwks *keys;
    struct cl_err err = {0};
    struct principal p;
    if (!keys)
        CL_ASSERT(jwks_parse(set_text, strlen(set_text), &keys, &err) == 0);
    if (jwt_verify(keys, rules, text, 1800000000, &p, &err) < 0)
        CL_ASSERT(err.code == CL_E_UNAUTH || err.code == CL_E_DENIED);
    else
        CL_ASSERT(p.tenant[0] && p.subject[0] && p.scopes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct jwt_rules rules = {
        .issuer = "i", .audience = "a", .tenant_claim = "tenant", .skew_s = 60};
    struct cl_err err = {0};
    char text[4096];
    if (size < 1 || size >= sizeof text)
        return 0;
    (void)snprintf(text, sizeof text, "%.*s", (int)size - 1, (const char *)data + 1);
    if (data[0] % 3 == 0) {
        struct jwks *set;
        if (jwks_parse((const char *)data + 1, size - 1, &set, &err) == 0) {
            CL_ASSERT(jwks_count(set) > 0);
            jwks_free(set);
        }
    } else if (data[0] % 3 == 1) {
        struct jwt_rules map = rules;
        if (jwt_scope_map_parse(text, &map, &err) == 0)
            CL_ASSERT(map.n_scopes <= JWT_SCOPES);
    } else {
        try_token(text, &rules);
    }
    return 0;
}
