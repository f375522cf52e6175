/* worker/guest_env.c - see worker/guest_env.h. */
#include "worker/guest_env.h"

#include "base/mem.h"

int guest_env_init(struct guest_env *env, size_t max, struct cl_err *err)
{
    *env = (struct guest_env){.rows = cl_zalloc_array(max + 1, sizeof *env->rows),
                              .list = cl_zalloc_array(max + 1, sizeof *env->list),
                              .max = max};
    if (env->rows && env->list)
        return 0;
    guest_env_fini(env);
    return cl_fail(err, CL_E_NOMEM, 0, "environment");
}

void guest_env_fini(struct guest_env *env)
{
    cl_free(env->rows);
    cl_free(env->list);
    *env = (struct guest_env){0};
}

void guest_env_add(struct guest_env *env, const char *name, const char *value)
{
    CL_ASSERT(env->n < env->max);
    Cloche__V1__GuestEnv *row = &env->rows[env->n];
    cloche__v1__guest_env__init(row);
    row->name = (char *)(uintptr_t)name;
    row->value = (char *)(uintptr_t)value;
    env->list[env->n++] = row;
}

void guest_env_add_all(struct guest_env *env, Cloche__V1__EnvVar *const *vars, size_t n)
{
    for (size_t i = 0; i < n; i++)
        guest_env_add(env, vars[i]->name, vars[i]->value);
}
