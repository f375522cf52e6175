/* audit/uids.h - which users may talk to a process of the log, by the uid of a socket's peer.
 *
 * Owns:    nothing.
 * Thread:  any.
 * Pure but for asking the own uid.
 */
#ifndef CL_AUDIT_UIDS_H
#define CL_AUDIT_UIDS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/util.h"

enum { AUDIT_UIDS_MAX = 16 };

struct audit_uids {
    uid_t uids[AUDIT_UIDS_MAX];
    size_t n;
};

/* The own uid, and those of an option's text, "0,1000". */
int audit_uids_parse(const char *text, struct audit_uids *ret, struct cl_err *err) CL_MUST;
bool audit_uids_have(const struct audit_uids *u, uid_t uid);

#endif
