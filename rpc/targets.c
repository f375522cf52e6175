/* rpc/targets.c - see rpc/targets.h. */
#include "rpc/targets.h"

#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "base/addr.h"
#include "base/conf.h"

#define UNIX_PREFIX "unix:"
#define CONNECT_PREFIX "connect to " /* of a transport's reasons */

enum { HEAD_TEXT = 32 }; /* of a round's reasons: "connect to any of 8 targets: " */

/* --- reading -----------------------------------------------------------------------------------
 */

static bool is_unix(const char *target)
{
    return strncmp(target, UNIX_PREFIX, sizeof UNIX_PREFIX - 1) == 0;
}

/* Copy the target at *at, the `nth` from 1, and go behind its comma; *at is NULL after the last. */
static int next_target(const char *list, const char **at, size_t nth, char text[static TARGET_TEXT],
                       struct cl_err *err)
{
    size_t len = strcspn(*at, ",");
    if (nth > TARGETS_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "targets '%.128s': '%.*s' is one more than %d", list,
                       (int)CL_MIN(len, (size_t)128), *at, TARGETS_MAX);
    if (len == 0)
        return cl_fail(err, CL_E_INVALID, 0, "targets '%.128s': number %zu is empty", list, nth);
    if (len >= TARGET_TEXT)
        return cl_fail(err, CL_E_INVALID, 0, "target '%.60s...' is too long: want at most %d bytes",
                       *at, TARGET_TEXT - 1);
    (void)snprintf(text, TARGET_TEXT, "%.*s", (int)len, *at);
    *at = (*at)[len] ? *at + len + 1 : NULL;
    return 0;
}

static int resolve_unix(struct target *t, const char *path, struct cl_err *err)
{
    struct sockaddr_un *un = (struct sockaddr_un *)&t->addr;
    if (strlen(path) >= sizeof un->sun_path)
        return cl_fail(err, CL_E_INVALID, 0, "unix socket path '%s' is too long", path);
    un->sun_family = AF_UNIX;
    (void)snprintf(un->sun_path, sizeof un->sun_path, "%s", path);
    t->addr_len = sizeof *un;
    return 0;
}

static int resolve(struct target *t, struct cl_err *err)
{
    struct cl_addr addr;
    if (is_unix(t->text))
        return resolve_unix(t, t->text + sizeof UNIX_PREFIX - 1, err);
    if (cl_addr_parse(t->text, &addr, err) < 0)
        return cl_wrap(err, "target");
    if (!addr.host[0])
        return cl_fail(err, CL_E_INVALID, 0, "target '%s': want HOST:PORT or unix:/path", t->text);
    (void)snprintf(t->host, sizeof t->host, "%s", addr.host);
    memcpy(&t->addr, &addr.sa, addr.len);
    t->addr_len = addr.len;
    return 0;
}

int targets_read(const char *list, struct targets *ret, struct cl_err *err)
{
    *ret = (struct targets){0};
    for (const char *at = list; at; ret->n++) {
        char text[TARGET_TEXT];
        if (next_target(list, &at, ret->n + 1, text, err) < 0)
            return -1;
        struct target *t = &ret->list[ret->n];
        memcpy(t->text, text, sizeof t->text);
        if (resolve(t, err) < 0)
            return -1;
    }
    return 0;
}

int target_kinds_read(const char *list, struct target_kinds *ret, struct cl_err *err)
{
    struct target_kinds kinds = {0};
    size_t n = 0;
    for (const char *at = list; at;) {
        char text[TARGET_TEXT];
        if (next_target(list, &at, ++n, text, err) < 0)
            return -1;
        if (is_unix(text))
            kinds.n_unix++;
        else if (cl_is_loopback(text))
            kinds.n_loopback++;
        else if (kinds.n_remote++ == 0)
            memcpy(kinds.remote, text, sizeof kinds.remote);
    }
    *ret = kinds;
    return 0;
}

/* --- rounds ------------------------------------------------------------------------------------
 */

const struct target *targets_current(const struct targets *t)
{
    return &t->list[t->at];
}

static void begin_round(struct targets *t)
{
    t->failed = 0;
    t->reasons[0] = '\0';
}

void targets_forget(struct targets *t)
{
    begin_round(t);
}

void targets_up(struct targets *t)
{
    t->first = t->at;
}

void targets_lost(struct targets *t, bool steady)
{
    t->first = (t->at + 1) % t->n;
    if (!steady)
        return;
    begin_round(t);
    t->at = t->first;
}

/* Each target has its share of the text, and what those before it left of theirs. */
static void add_reason(struct targets *t, const char *why)
{
    size_t share = (sizeof t->reasons - HEAD_TEXT) / t->n;
    size_t end = HEAD_TEXT + share * (t->failed + 1), used = strlen(t->reasons);
    const char *name = targets_current(t)->text;
    if (strncmp(why, CONNECT_PREFIX, sizeof CONNECT_PREFIX - 1) == 0)
        why += sizeof CONNECT_PREFIX - 1;
    bool named = strstr(why, name) != NULL;
    (void)snprintf(t->reasons + used, end - used, "%s%s%s%s", t->failed > 0 ? "; " : "",
                   named ? "" : name, named ? "" : ": ", why);
}

bool targets_failed(struct targets *t, const struct cl_err *why, struct cl_err *ret)
{
    if (t->n == 1) {
        *ret = *why;
        return false;
    }
    if (t->failed == 0)
        (void)snprintf(t->reasons, sizeof t->reasons, CONNECT_PREFIX "any of %zu targets: ", t->n);
    add_reason(t, why->text);
    t->failed++;
    if (t->failed < t->n) {
        t->at = (t->at + 1) % t->n;
        return true;
    }
    *ret = (struct cl_err){.code = CL_E_UNAVAILABLE};
    memcpy(ret->text, t->reasons, sizeof ret->text);
    begin_round(t);
    t->at = t->first;
    return false;
}
