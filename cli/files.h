/* cli/files.h - copy files and folders between this machine and a sandbox.
 *
 * Owns:    nothing after the call.
 * Thread:  the only one; blocks until the copy is done.
 * Symbolic links and special files are skipped with a note.  Names that come from the guest are
 * hostile: each is one plain component or the copy is refused, and nothing is followed here.
 */
#ifndef CL_CLI_FILES_H
#define CL_CLI_FILES_H

#include "cli/client.h"

struct copy {
    struct client *client; /* borrowed */
    const char *sandbox;
    const char *user; /* NULL = the sandbox's user */
    bool recursive;
    uint64_t files, bytes, skipped; /* what was done so far */
};

/* Local path to remote path; into it when it is a folder there (as cp does). */
int copy_up(struct copy *c, const char *local, const char *remote, struct cl_err *err) CL_MUST;
/* What is in the local folder, into the remote one (made when missing). */
int copy_up_content(struct copy *c, const char *local, const char *remote,
                    struct cl_err *err) CL_MUST;
int copy_down(struct copy *c, const char *remote, const char *local, struct cl_err *err) CL_MUST;

#endif
