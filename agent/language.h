/* agent/language.h - the interpreters that code contexts can be made of.  Pure but for install. */
#ifndef CL_AGENT_LANGUAGE_H
#define CL_AGENT_LANGUAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/util.h"
#include "cloche/v1/guest.pb-c.h"

struct language {
    Cloche__V1__GuestLanguage id;
    const char *const argv[8]; /* ends with NULL */
    const char *file;          /* of the runner, in LANGUAGE_DIR */
    const unsigned char *text; /* of the runner */
    const size_t *len;
    bool group; /* ^C goes to the process group at once: the interpreter waits for its children */
};

#define LANGUAGE_DIR "/run/cloche"

/* NULL for one that the protocol does not know. */
const struct language *language_find(Cloche__V1__GuestLanguage id);
/* Write the runners where the interpreters find them; once, at boot, before any user code. */
int language_install(struct cl_err *err) CL_MUST;

#endif
