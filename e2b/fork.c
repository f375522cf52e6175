/* e2b/fork.c - see e2b/fork.h. */
#include "e2b/fork.h"

#include <inttypes.h>

enum { SECONDS_DEFAULT = 15 };

static int read_number(const json_t *body, const char *name, uint64_t max, uint64_t *ret,
                       struct cl_err *err)
{
    const json_t *v = json_object_get(body, name);
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_integer(v) || json_integer_value(v) < 1 || (uint64_t)json_integer_value(v) > max)
        return cl_fail(err, CL_E_INVALID, 0, "%s: want a number from 1 to %" PRIu64, name, max);
    *ret = (uint64_t)json_integer_value(v);
    return 0;
}

int e2b_fork_read(const json_t *body, uint64_t seconds_max, struct e2b_fork *ret,
                  struct cl_err *err)
{
    uint64_t seconds = SECONDS_DEFAULT, count = 1;
    if (read_number(body, "timeout", seconds_max, &seconds, err) < 0 ||
        read_number(body, "count", E2B_FORKS_MAX, &count, err) < 0)
        return -1;
    *ret = (struct e2b_fork){.seconds = seconds, .count = (size_t)count};
    return 0;
}

bool e2b_fork_ends_all(enum cl_code code)
{
    static const enum cl_code all[] = {CL_E_INVALID, CL_E_UNAUTH, CL_E_DENIED, CL_E_NOTFOUND,
                                       CL_E_EXISTS,  CL_E_STATE,  CL_E_UNIMPL};
    for (size_t i = 0; i < CL_COUNT(all); i++) {
        if (all[i] == code)
            return true;
    }
    return false;
}
