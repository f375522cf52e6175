/* worker/guest_env.h - variables of a process or a cell, as the guest protocol wants them.
 *
 * Owns:    the rows.
 * Borrows: names and values, from who adds them, until guest_env_fini().
 * Pure: no I/O.
 */
#ifndef CL_WORKER_GUEST_ENV_H
#define CL_WORKER_GUEST_ENV_H

#include "base/err.h"
#include "base/util.h"
#include "cloche/v1/common.pb-c.h"
#include "cloche/v1/guest.pb-c.h"

struct guest_env {
    Cloche__V1__GuestEnv *rows, **list; /* owned */
    size_t n, max;
};

/* Room for `max` variables. */
int guest_env_init(struct guest_env *env, size_t max, struct cl_err *err) CL_MUST;
void guest_env_fini(struct guest_env *env);
void guest_env_add(struct guest_env *env, const char *name, const char *value);
void guest_env_add_all(struct guest_env *env, Cloche__V1__EnvVar *const *vars, size_t n);

#endif
