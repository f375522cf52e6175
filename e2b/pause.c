/* e2b/pause.c - see e2b/pause.h. */
#include "e2b/pause.h"

#include <string.h>

int e2b_states_read(const char *text, unsigned *ret_states, struct cl_err *err)
{
    static const struct {
        const char *name;
        unsigned state;
    } words[] = {{"running", E2B_RUNNING}, {"paused", E2B_PAUSED}};
    unsigned states = 0;
    for (const char *at = text;; at++) {
        size_t n = strcspn(at, ","), i = 0;
        while (i < CL_COUNT(words) &&
               (strlen(words[i].name) != n || strncmp(words[i].name, at, n) != 0))
            i++;
        if (i == CL_COUNT(words))
            return cl_fail(err, CL_E_INVALID, 0, "state '%.40s': want running, paused", text);
        states |= words[i].state;
        at += n;
        if (!*at)
            break;
    }
    *ret_states = states;
    return 0;
}

/* A wish that is a boolean, where there is one. */
static int read_flag(const json_t *body, const char *name, bool *ret, struct cl_err *err)
{
    const json_t *v = json_object_get(body, name);
    if (v && !json_is_null(v) && !json_is_boolean(v))
        return cl_fail(err, CL_E_INVALID, 0, "%s: want true or false", name);
    if (json_is_boolean(v))
        *ret = json_is_true(v);
    return 0;
}

int e2b_auto_pause_read(const json_t *body, struct e2b_auto_pause *ret, struct cl_err *err)
{
    bool pauses = false, memory = true, resumes = false;
    if (read_flag(body, "autoPause", &pauses, err) < 0 ||
        read_flag(body, "autoPauseMemory", &memory, err) < 0 ||
        read_flag(json_object_get(body, "autoResume"), "enabled", &resumes, err) < 0)
        return -1;
    if (!memory)
        return cl_fail(err, CL_E_UNIMPL, 0,
                       "autoPauseMemory: a pause keeps the memory; without it is not served");
    if (resumes && !pauses)
        return cl_fail(err, CL_E_INVALID, 0, "autoResume: only together with autoPause");
    *ret = (struct e2b_auto_pause){pauses, resumes};
    return 0;
}

int e2b_pause_check(const json_t *body, struct cl_err *err)
{
    bool memory = true, needs_agent = false;
    if (read_flag(body, "memory", &memory, err) < 0 ||
        read_flag(body, "requireHealthyGuest", &needs_agent, err) < 0)
        return -1;
    if (!memory)
        return cl_fail(err, CL_E_UNIMPL, 0,
                       "memory: a sandbox is paused and goes on with its memory; without it (a new "
                       "start from its disk) is not served");
    if (needs_agent)
        return cl_fail(err, CL_E_UNIMPL, 0, "requireHealthyGuest: not served");
    return 0;
}
