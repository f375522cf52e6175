/* What an image says of itself, as the agent reads it at boot; whoever made the image chose it. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "agent/exec_env.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct people people;
    static char text[IMAGE_CONF_MAX + 1];
    static char word[] = "true";
    static char *argv[] = {word};
    struct image_conf conf;
    struct cl_err err = {0};
    size_t n = CL_MIN(size, sizeof text);
    memcpy(text, data, n);
    if (image_conf_parse(text, n, &conf, &err) < 0 || people_init(&people, &conf, &err) < 0) {
        CL_ASSERT(err.code == CL_E_INVALID || err.code == CL_E_TOOBIG);
        return 0;
    }
    Cloche__V1__GuestExec req = CLOCHE__V1__GUEST_EXEC__INIT;
    req.argv = argv;
    req.n_argv = 1;
    CL_AUTO(exec_env_freep) struct exec_env *env = NULL;
    if (exec_env_new(&req, &people, "/tmp/t", &env, &err) < 0) {
        CL_ASSERT(err.code == CL_E_NOMEM);
        return 0;
    }
    CL_ASSERT(env->cwd[0] == '/' && env->n >= conf.n_env && !env->envp[env->n]);
    for (size_t i = 0; i < env->n; i++) { /* each is a variable, and there once */
        size_t len = strcspn(env->envp[i], "=");
        CL_ASSERT(len > 0 && env->envp[i][len] == '=');
        for (size_t j = 0; j < i; j++)
            CL_ASSERT(strncmp(env->envp[j], env->envp[i], len + 1) != 0);
    }
    return 0;
}
