/* policy/principal.h - who calls, and what they may do.
 *
 * Owns:    nothing; plain values.
 * Thread:  any.
 * Pure: the caller passes the time.
 */
#ifndef CL_POLICY_PRINCIPAL_H
#define CL_POLICY_PRINCIPAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "base/util.h"
#include "policy/key.h"

enum scope {
    SCOPE_ADMIN = 1 << 0,        /* every tenant, and the service itself; implies all others */
    SCOPE_TENANT_ADMIN = 1 << 1, /* keys of the own tenant */
    SCOPE_RUN = 1 << 2,          /* jobs, sandboxes, files; implies read */
    SCOPE_READ = 1 << 3,         /* look */
    SCOPE_AUDIT = 1 << 4,        /* the own tenant's audit stream */
    SCOPE_ALL = (1 << 5) - 1,
};
enum { SCOPES_TEXT = 64, PRINCIPAL_NAME = 64 };

/* "run,read" <-> mask.  INVALID names the unknown word. */
int scopes_parse(const char *text, uint32_t *ret_scopes, struct cl_err *err) CL_MUST;
void scopes_format(uint32_t scopes, char out[static SCOPES_TEXT]);

struct principal {
    char tenant[PRINCIPAL_NAME];
    char subject[PRINCIPAL_NAME]; /* who the key was made for */
    uint32_t scopes;              /* enum scope */
    char key_id[API_KEY_ID];      /* PRINCIPAL_BY_TOKEN when no key was used */
    /* By a link (policy/link.h) that this key made: this one sandbox, and of it this port (0 =
     * every one); "" otherwise. */
    char link_sandbox[CL_ID_MAX];
    uint32_t link_port;
};
#define PRINCIPAL_BY_TOKEN "token"

/* Does it hold this scope, itself or by implication? */
bool principal_has(const struct principal *p, enum scope scope);
/* 0, or DENIED with the scope's name as subject. */
int principal_require(const struct principal *p, enum scope scope, struct cl_err *err) CL_MUST;
/* The tenant that a call acts on: `asked` may be NULL or "" (the own one); another tenant needs
 * SCOPE_ADMIN, else NOTFOUND, as for a tenant that does not exist. */
int principal_tenant(const struct principal *p, const char *asked, const char **ret_tenant,
                     struct cl_err *err) CL_MUST;

/* What the books keep of a key. */
struct key_facts {
    uint8_t mac[API_KEY_MAC];
    uint64_t expires_ms; /* wall clock; 0 = never */
    bool revoked;
};
/* 0 when the presented MAC opens it now; UNAUTH otherwise, with one text for every reason. */
int key_facts_check(const struct key_facts *facts, const uint8_t mac[static API_KEY_MAC],
                    uint64_t now_ms, struct cl_err *err) CL_MUST;
/* Is it still one: neither revoked nor over? */
bool key_facts_are_live(const struct key_facts *facts, uint64_t now_ms);

#endif
