/* agent/tiers.h - the seccomp filters of user code; the rows and their reasons are tiers.def.
 *
 * Owns:    the compiled programs, made once at the first use of each tier.
 * A refused call fails with the row's errno and never kills: programs probe.  A foreign
 * architecture (int 0x80, x32) kills: its numbers would pass by the table.
 */
#ifndef CL_AGENT_TIERS_H
#define CL_AGENT_TIERS_H

#include <stddef.h>

#include "base/err.h"
#include "base/util.h"
#include "cloche/v1/guest.pb-c.h"

struct tier; /* a compiled filter */

/* Compile (or find) the filter of a tier.  Borrowed; lives as long as the process. */
int tier_get(Cloche__V1__GuestSeccompTier which, const struct tier **ret_tier,
             struct cl_err *err) CL_MUST;
/* In a child, after no_new_privs: from here on the filter holds.  0 or -errno. */
int tier_apply(const struct tier *tier) CL_MUST;

#endif
