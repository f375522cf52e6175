/* audit/uids.c - see audit/uids.h. */
#include "audit/uids.h"

#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

int audit_uids_parse(const char *text, struct audit_uids *ret, struct cl_err *err)
{
    *ret = (struct audit_uids){.uids = {getuid()}, .n = 1};
    for (const char *at = text; *at;) {
        char *end;
        unsigned long uid = strtoul(at, &end, 10);
        if (end == at || (*end && *end != ',') || ret->n == AUDIT_UIDS_MAX || uid > UINT32_MAX - 1)
            return cl_fail(err, CL_E_INVALID, 0,
                           "allowed_uids '%s': want at most %d numbers, as in 0,1000", text,
                           AUDIT_UIDS_MAX - 1);
        ret->uids[ret->n++] = (uid_t)uid;
        at = *end ? end + 1 : end;
    }
    return 0;
}

bool audit_uids_have(const struct audit_uids *u, uid_t uid)
{
    for (size_t i = 0; i < u->n; i++)
        if (u->uids[i] == uid)
            return true;
    return false;
}
