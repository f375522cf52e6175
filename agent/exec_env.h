/* agent/exec_env.h - what a command starts with: environment, working folder, temporary folder.
 *
 * Of three a later one wins: the baseline, the image's own variables, the request's.
 * Pure but for the random name.  Owns: the strings; borrows the request and the people until it is
 * freed.
 */
#ifndef CL_AGENT_EXEC_ENV_H
#define CL_AGENT_EXEC_ENV_H

#include "agent/person.h"
#include "base/err.h"
#include "base/own.h"

enum {
    EXEC_ENV_MAX = 4096, /* variables; a frame of 64 KiB holds fewer of any use */
    EXEC_TMPDIR_LEN = 32,
};

struct exec_env {
    const struct person *who;
    const char *cwd; /* borrowed */
    char **argv;     /* owned; the strings are borrowed; ends with NULL */
    char **envp;     /* owned, with its strings; ends with NULL */
    size_t n;        /* of envp */
};

/* "/tmp/exec-<16 hex digits>": nobody can have made it before. */
void exec_env_tmpdir(char out[static EXEC_TMPDIR_LEN]);
/* INVALID for an empty argv, a bad variable name, or an unknown user. */
int exec_env_new(const Cloche__V1__GuestExec *req, const struct people *people, const char *tmpdir,
                 struct exec_env **ret_env, struct cl_err *err) CL_MUST;
void exec_env_free(struct exec_env *env);
CL_DEFINE_AUTO(struct exec_env, exec_env_free)

#endif
