/* agent/cell_env.c - see agent/cell_env.h. */
#include "agent/cell_env.h"

#include <errno.h>
#include <string.h>

/* What a shell can call a variable. */
static bool is_identifier(const char *s)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    return strspn(s, letters) == strlen(s) && !strchr("0123456789", s[0]);
}

int cell_env_check(const Cloche__V1__GuestCell *cell, Cloche__V1__GuestLanguage language,
                   const char **ret_why)
{
    size_t bytes = 0;
    for (size_t i = 0; i < cell->n_env; i++) {
        const char *name = cell->env[i]->name;
        if (!name[0] || strchr(name, '=')) {
            *ret_why = "a variable's name must not be empty or contain '='";
            return EINVAL;
        }
        if (language == CLOCHE__V1__GUEST_LANGUAGE__GUEST_LANGUAGE_BASH && !is_identifier(name)) {
            *ret_why = "in bash a variable's name has letters, digits and underscores only";
            return EINVAL;
        }
        bytes += strlen(name) + strlen(cell->env[i]->value) + CELL_ENV_EACH;
    }
    *ret_why = "more than 64 KiB of environment";
    return bytes <= CELL_ENV_MAX ? 0 : E2BIG;
}

int cell_env_write(const Cloche__V1__GuestCell *cell, struct cl_buf *out, struct cl_err *err)
{
    for (size_t i = 0; i < cell->n_env; i++) {
        const char *name = cell->env[i]->name, *value = cell->env[i]->value;
        size_t n = strlen(name) + 1 + strlen(value);
        if (cl_buf_printf(out, err, "env %zu\n", n) < 0 ||
            cl_buf_append(out, name, strlen(name), err) < 0 ||
            cl_buf_append(out, "=", 1, err) < 0 ||
            cl_buf_append(out, value, strlen(value), err) < 0)
            return -1;
    }
    return 0;
}
