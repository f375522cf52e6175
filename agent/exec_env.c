/* agent/exec_env.c - see agent/exec_env.h. */
#include "agent/exec_env.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/util.h"

enum { BASELINE_NR = 8 };

void exec_env_tmpdir(char out[static EXEC_TMPDIR_LEN])
{
    uint8_t noise[8];
    char hex[2 * sizeof noise + 1];
    cl_random(noise, sizeof noise);
    cl_hex(noise, sizeof noise, hex);
    (void)snprintf(out, EXEC_TMPDIR_LEN, "/tmp/exec-%s", hex);
}

void exec_env_free(struct exec_env *env)
{
    if (!env)
        return;
    for (size_t i = 0; i < env->n; i++)
        cl_free(env->envp[i]);
    cl_free(env->envp);
    cl_free(env->argv);
    cl_free(env);
}

/* Set a variable; a later value replaces an earlier one.  Takes the text, "NAME=VALUE". */
static int put_text(struct exec_env *env, char *text, struct cl_err *err)
{
    if (!text)
        return cl_fail(err, CL_E_NOMEM, 0, "environment");
    size_t len = strcspn(text, "=") + 1;
    for (size_t i = 0; i < env->n; i++) {
        if (strncmp(env->envp[i], text, len) != 0)
            continue;
        cl_free(env->envp[i]);
        env->envp[i] = text;
        return 0;
    }
    env->envp[env->n++] = text;
    return 0;
}

static int put(struct exec_env *env, const char *name, const char *value, struct cl_err *err)
{
    return put_text(env, cl_asprintf("%s=%s", name, value), err);
}

/* Its PATH is in each person's own. */
static int put_image(struct exec_env *env, const struct image_conf *image, struct cl_err *err)
{
    for (size_t i = 0; i < image->n_env; i++)
        if (strncmp(image->env[i], "PATH=", 5) != 0 &&
            put_text(env, cl_strdup(image->env[i]), err) < 0)
            return -1;
    return 0;
}

static int put_baseline(struct exec_env *env, bool is_pty, const char *tmpdir, struct cl_err *err)
{
    const char *const rows[][2] = {
        {"PATH", env->who->path},
        {"HOME", env->who->home},
        {"USER", env->who->name},
        {"LOGNAME", env->who->name},
        {"LANG", "C.UTF-8"},
        {"TMPDIR", tmpdir},
        {"TERM", is_pty ? "xterm-256color" : "dumb"},
    };
    _Static_assert(CL_COUNT(rows) < BASELINE_NR, "room for the baseline and the final NULL");
    for (size_t i = 0; i < CL_COUNT(rows); i++)
        if (put(env, rows[i][0], rows[i][1], err) < 0)
            return -1;
    return 0;
}

int exec_env_new(const Cloche__V1__GuestExec *req, const struct people *people, const char *tmpdir,
                 struct exec_env **ret_env, struct cl_err *err)
{
    if (req->n_argv == 0 || !req->argv[0][0])
        return cl_fail(err, CL_E_INVALID, 0, "no command");
    if (req->n_env > EXEC_ENV_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "%zu variables, at most %d", req->n_env, EXEC_ENV_MAX);
    CL_AUTO(exec_env_freep) struct exec_env *env = cl_zalloc(sizeof *env);
    if (!env)
        return cl_fail(err, CL_E_NOMEM, 0, "environment");
    env->who = person_find(people, req->user);
    if (!env->who)
        return cl_fail(err, CL_E_INVALID, 0, "user %d", (int)req->user);
    env->cwd = req->cwd[0] ? req->cwd : env->who->cwd;
    env->envp = cl_zalloc_array(BASELINE_NR + people->image.n_env + req->n_env, sizeof *env->envp);
    env->argv = cl_zalloc_array(req->n_argv + 1, sizeof *env->argv);
    if (!env->envp || !env->argv)
        return cl_fail(err, CL_E_NOMEM, 0, "environment");
    memcpy(env->argv, req->argv, req->n_argv * sizeof *env->argv);
    if (put_baseline(env, req->pty != NULL, tmpdir, err) < 0 ||
        put_image(env, &people->image, err) < 0)
        return -1;
    for (size_t i = 0; i < req->n_env; i++) {
        const char *name = req->env[i]->name;
        if (!name[0] || strchr(name, '='))
            return cl_fail(err, CL_E_INVALID, 0, "variable name '%.64s'", name);
        if (put(env, name, req->env[i]->value, err) < 0)
            return -1;
    }
    *ret_env = CL_STEAL(&env);
    return 0;
}
