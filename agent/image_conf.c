/* agent/image_conf.c - see agent/image_conf.h. */
#include "agent/image_conf.h"

#include <string.h>

/* Of "NAME=VALUE"; 0 = it is none. */
static size_t name_length(const char *pair)
{
    const char *end = strchr(pair, '=');
    return end ? (size_t)(end - pair) : 0;
}

static const char *find_env(const struct image_conf *conf, const char *name, size_t n)
{
    for (size_t i = 0; i < conf->n_env; i++)
        if (name_length(conf->env[i]) == n && memcmp(conf->env[i], name, n) == 0)
            return conf->env[i] + n + 1;
    return NULL;
}

const char *image_conf_getenv(const struct image_conf *conf, const char *name)
{
    return find_env(conf, name, strlen(name));
}

static int set_env(struct image_conf *conf, const char *pair, struct cl_err *err)
{
    size_t n = name_length(pair);
    if (n == 0)
        return cl_fail(err, CL_E_INVALID, 0, "a variable without a name");
    if (find_env(conf, pair, n))
        return cl_fail(err, CL_E_INVALID, 0, "variable '%.*s' twice", (int)CL_MIN(n, 64u), pair);
    if (conf->n_env == IMAGE_ENV_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "more than %d variables", IMAGE_ENV_MAX);
    conf->env[conf->n_env++] = pair;
    return 0;
}

static int set_path(const char **path, const char *value, struct cl_err *err)
{
    if (*path || value[0] != '/' || strlen(value) > IMAGE_PATH_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "%s",
                       *path ? "the same folder twice" : "a folder is '/...', at most 1024 bytes");
    *path = value;
    return 0;
}

static int set_name(const char **name, const char *value, struct cl_err *err)
{
    size_t n = strlen(value);
    if (*name || n == 0 || n > IMAGE_NAME_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "one name of 1 to %d bytes", IMAGE_NAME_MAX);
    *name = value;
    return 0;
}

static int read_record(struct image_conf *conf, const char *record, struct cl_err *err)
{
    if (strncmp(record, "env=", 4) == 0)
        return set_env(conf, record + 4, err);
    if (strncmp(record, "name=", 5) == 0)
        return set_name(&conf->name, record + 5, err);
    if (strncmp(record, "home=", 5) == 0)
        return set_path(&conf->home, record + 5, err);
    if (strncmp(record, "cwd=", 4) == 0)
        return set_path(&conf->cwd, record + 4, err);
    return cl_fail(err, CL_E_INVALID, 0, "unknown key");
}

int image_conf_parse(const char *text, size_t n, struct image_conf *ret_conf, struct cl_err *err)
{
    struct image_conf conf = {0};
    size_t number = 0;
    if (n > IMAGE_CONF_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "image: %zu bytes, at most %d", n, IMAGE_CONF_MAX);
    if (n > 0 && text[n - 1] != '\0')
        return cl_fail(err, CL_E_INVALID, 0, "image: its last record has no end");
    for (const char *record = text; record < text + n; record += strlen(record) + 1) {
        number++;
        if (read_record(&conf, record, err) < 0)
            return cl_wrap(err, "image: record %zu", number);
    }
    *ret_conf = conf;
    return 0;
}
