/* e2b/labels.h - E2B's metadata as labels of a sandbox.
 *
 * A label's key is ^[a-z][a-z0-9-]{0,62}$, a name of metadata any text: "m-" and the name, in which
 * whatever is no lower-case letter and no digit is a dash and two hexadecimal digits.
 *
 * Owns:    nothing.
 * Thread:  any.  Pure.
 */
#ifndef CL_E2B_LABELS_H
#define CL_E2B_LABELS_H

#include "base/err.h"
#include "base/util.h"

enum { E2B_LABEL_KEY = 64 };
/* A label that metadata cannot have: neither who made the sandbox nor who connects later gets a
 * link to its ports. */
#define E2B_LABEL_PRIVATE "e2b-traffic"
/* The sandbox is there for a build of a template, whose id this is, and nothing else; the snapshot
 * is what came of it. */
#define E2B_LABEL_BUILD "e2b-build"

/* INVALID when the name is too long. */
int e2b_label_key(const char *name, char key[static E2B_LABEL_KEY], struct cl_err *err) CL_MUST;
/* Back; false: it is a label of another kind. */
bool e2b_label_name(const char *key, char name[static E2B_LABEL_KEY]);
/* Does a fork have it of its origin?  Those of this API: by others one finds the origin. */
bool e2b_label_goes_on(const char *key);

#endif
