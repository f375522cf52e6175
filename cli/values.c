/* cli/values.c - see cli/values.h. */
#include "cli/values.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/conf.h"
#include "base/id.h"
#include "cli/cli.h"

int value_pair(const char *text, char name[static VALUE_NAME], const char **ret_value,
               struct cl_err *err)
{
    const char *eq = strchr(text, '=');
    size_t n = eq ? (size_t)(eq - text) : 0;
    if (n == 0 || n >= VALUE_NAME)
        return cl_fail(err, CL_E_INVALID, 0, "'%.64s' is not of the form NAME=VALUE", text);
    (void)snprintf(name, VALUE_NAME, "%.*s", (int)n, text);
    *ret_value = eq + 1;
    return 0;
}

int value_place(const char *text, struct value_place *ret, struct cl_err *err)
{
    struct value_place p = {.path = text};
    const char *colon = strchr(text, ':');
    if (colon && strncmp(text, "sbx_", 4) == 0) {
        (void)snprintf(p.sandbox, sizeof p.sandbox, "%.*s",
                       (int)CL_MIN(colon - text, (ptrdiff_t)63), text);
        if (!cl_id_is(p.sandbox, "sbx"))
            return cl_fail(err, CL_E_INVALID, 0, "'%.64s' is no sandbox id", p.sandbox);
        p.path = colon + 1;
    }
    if (!p.path[0] && p.sandbox[0])
        p.path = ".";
    if (!p.path[0])
        return cl_fail(err, CL_E_INVALID, 0, "an empty path");
    *ret = p;
    return 0;
}

int value_rate(const char *text, uint64_t *ret_interval_us, struct cl_err *err)
{
    char number[VALUE_TEXT];
    const char *slash = strchr(text, '/');
    uint64_t count = 0, per_us = 0;
    if (slash && (size_t)(slash - text) < sizeof number) {
        (void)snprintf(number, sizeof number, "%.*s", (int)(slash - text), text);
        per_us = strcmp(slash, "/s") == 0   ? UINT64_C(1000000)
                 : strcmp(slash, "/m") == 0 ? UINT64_C(60000000)
                 : strcmp(slash, "/h") == 0 ? UINT64_C(3600000000)
                                            : 0;
        if (per_us && cl_parse_u64(number, &count, NULL) < 0)
            count = 0;
    }
    if (count == 0 || count > per_us)
        return cl_fail(err, CL_E_INVALID, 0, "'%.32s' is no rate: give it as 10/s, 5/m or 100/h",
                       text);
    *ret_interval_us = per_us / count;
    return 0;
}

int value_time(const char *text, uint64_t now_wall_ns, uint64_t *ret_ns, struct cl_err *err)
{
    struct tm tm = {0};
    uint64_t ago = 0;
    const char *end = strptime(text, "%Y-%m-%d", &tm);
    if (end && *end == 'T')
        end = strptime(end + 1, "%H:%M:%S", &tm);
    int64_t s = end && (!*end || *end == 'Z' || *end == '.') ? (int64_t)timegm(&tm) : -1;
    if (s >= 0) {
        *ret_ns = (uint64_t)s * CL_NS_PER_S;
        return 0;
    }
    if (cl_parse_duration_ns(text, &ago, NULL) < 0 || ago > now_wall_ns)
        return cl_fail(
            err, CL_E_INVALID, 0,
            "'%.40s' is no time: give 2026-01-02, 2026-01-02T03:04:05Z (UTC) or 10m (ago)", text);
    *ret_ns = now_wall_ns - ago;
    return 0;
}

int value_idle(const char *text, struct value_idle *ret, struct cl_err *err)
{
    static const struct {
        const char *word;
        struct value_idle means;
    } rows[] = {{"end", {CLOCHE__V1__IDLE_ACTION__IDLE_ACTION_END, false}},
                {"pause", {CLOCHE__V1__IDLE_ACTION__IDLE_ACTION_PAUSE, true}},
                {"pause-until-resumed", {CLOCHE__V1__IDLE_ACTION__IDLE_ACTION_PAUSE, false}}};
    if (!text) {
        *ret = (struct value_idle){CLOCHE__V1__IDLE_ACTION__IDLE_ACTION_UNSPECIFIED, false};
        return 0;
    }
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        if (strcmp(text, rows[i].word) == 0) {
            *ret = rows[i].means;
            return 0;
        }
    }
    return cl_fail(err, CL_E_INVALID, 0,
                   "--on-idle '%.40s': want end, pause or pause-until-resumed", text);
}

int value_scopes(const char *text, char copy[static VALUE_SCOPES_TEXT],
                 char *list[static VALUE_SCOPES], size_t *ret_n, struct cl_err *err)
{
    size_t n = 0;
    char *save = NULL;
    if (strlen(text) >= VALUE_SCOPES_TEXT)
        return cl_fail(err, CL_E_INVALID, 0, "--scopes is too long");
    (void)snprintf(copy, VALUE_SCOPES_TEXT, "%s", text);
    for (char *s = strtok_r(copy, ", ", &save); s; s = strtok_r(NULL, ", ", &save)) {
        if (n == VALUE_SCOPES)
            return cl_fail(err, CL_E_INVALID, 0, "--scopes: too many");
        list[n++] = s;
    }
    *ret_n = n;
    return 0;
}

void value_us_text(uint64_t ns, char out[static VALUE_TEXT])
{
    uint64_t tenths = ns / 100 + (ns % 100 >= 50);
    (void)snprintf(out, VALUE_TEXT, "%" PRIu64 ".%" PRIu64 " us", tenths / 10, tenths % 10);
}

void value_age_text(uint64_t ns, char out[static VALUE_TEXT])
{
    static const struct {
        uint64_t s;
        const char *unit;
    } units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    uint64_t s = ns / CL_NS_PER_S;
    for (size_t i = 0; i < CL_COUNT(units); i++) {
        if (s < units[i].s * (units[i].s > 1 ? 2 : 1) && i + 1 < CL_COUNT(units))
            continue;
        (void)snprintf(out, VALUE_TEXT, "%" PRIu64 " %s", s / units[i].s, units[i].unit);
        return;
    }
}

int value_exit_code(const Cloche__V1__ExecResult *r)
{
    switch ((int)r->outcome) {
    case CLOCHE__V1__OUTCOME__OUTCOME_EXITED:
        return r->exit_code & 0xff;
    case CLOCHE__V1__OUTCOME__OUTCOME_SIGNALED:
        return EXIT_SIGNAL + (r->signal & 0x7f);
    case CLOCHE__V1__OUTCOME__OUTCOME_TIMED_OUT:
        return EXIT_TIMED_OUT;
    case CLOCHE__V1__OUTCOME__OUTCOME_OOM_KILLED:
        return EXIT_SIGNAL + 9;
    case CLOCHE__V1__OUTCOME__OUTCOME_NOT_FOUND:
        return EXIT_NOT_FOUND;
    case CLOCHE__V1__OUTCOME__OUTCOME_NOT_EXECUTABLE:
        return EXIT_NOT_EXECUTABLE;
    case CLOCHE__V1__OUTCOME__OUTCOME_CANCELLED:
        return EXIT_SIGNAL + 2;
    default:
        return EXIT_CLOCHE;
    }
}

static const char *pick(const char *const *names, size_t n, int i)
{
    return i >= 0 && (size_t)i < n && names[i] ? names[i] : "unknown";
}

const char *value_state(int state)
{
    static const char *const names[] = {"unknown", "queued", "starting",
                                        "running", "paused", "ended"};
    return pick(names, CL_COUNT(names), state);
}

const char *value_outcome(int outcome)
{
    static const char *const names[] = {"",           "exited",    "signaled",       "timed-out",
                                        "oom-killed", "not-found", "not-executable", "cancelled",
                                        "failed"};
    return pick(names, CL_COUNT(names), outcome);
}

const char *value_reason(int reason)
{
    static const char *const names[] = {"",        "worker-lost", "queue-deadline", "start-failed",
                                        "vm-died", "expired",     "requested",      "no-template",
                                        "finished"};
    return pick(names, CL_COUNT(names), reason);
}

const char *value_idle_name(int action, bool wakes)
{
    static const char *const names[] = {"end", "end", "pause-until-resumed"};
    return wakes ? "pause" : pick(names, CL_COUNT(names), action);
}

const char *value_separation(int separation)
{
    static const char *const names[] = {"", "isolated", "shared"};
    return pick(names, CL_COUNT(names), separation);
}
