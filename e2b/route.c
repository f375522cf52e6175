/* e2b/route.c - see e2b/route.h. */
#include "e2b/route.h"

#include <string.h>

#include "e2b/call_priv.h"

static const struct e2b_route routes[] = {
    {E2B_POST, "/sandboxes", PLANE_CONTROL, e2b_sandbox_create},
    {E2B_POST, "/v2/sandboxes", PLANE_CONTROL, e2b_sandbox_create},
    {E2B_GET, "/sandboxes", PLANE_CONTROL, e2b_sandbox_list},
    {E2B_GET, "/v2/sandboxes", PLANE_CONTROL, e2b_sandbox_list},
    {E2B_GET, "/sandboxes/*", PLANE_CONTROL, e2b_sandbox_get},
    {E2B_DELETE, "/sandboxes/*", PLANE_CONTROL, e2b_sandbox_kill},
    {E2B_POST, "/sandboxes/*/timeout", PLANE_CONTROL, e2b_sandbox_timeout},
    {E2B_POST, "/sandboxes/*/refreshes", PLANE_CONTROL, e2b_sandbox_timeout},
    {E2B_POST, "/sandboxes/*/connect", PLANE_CONTROL, e2b_sandbox_connect},
    {E2B_POST, "/v2/sandboxes/*/connect", PLANE_CONTROL, e2b_sandbox_connect},
    {E2B_POST, "/sandboxes/*/pause", PLANE_CONTROL, e2b_sandbox_pause},
    {E2B_POST, "/sandboxes/*/resume", PLANE_CONTROL, e2b_sandbox_resume},
    {E2B_POST, "/sandboxes/*/fork", PLANE_CONTROL, e2b_sandbox_fork},
    {E2B_POST, "/sandboxes/*/snapshots", PLANE_CONTROL, e2b_snapshot_create},
    {E2B_GET, "/snapshots", PLANE_CONTROL, e2b_snapshot_list},
    {E2B_POST, "/v3/templates", PLANE_CONTROL, e2b_template_request},
    {E2B_GET, "/templates/*/files/*", PLANE_CONTROL, e2b_template_upload_link},
    {E2B_PUT, "/templates/*/files/*", PLANE_UPLOAD, e2b_template_upload},
    {E2B_POST, "/v2/templates/*/builds/*", PLANE_CONTROL, e2b_template_build},
    {E2B_GET, "/templates/*/builds/*/status", PLANE_CONTROL, e2b_template_status},
    {E2B_GET, "/templates/aliases/*", PLANE_CONTROL, e2b_template_exists},
    {E2B_POST, "/templates/tags", PLANE_CONTROL, e2b_not_there},
    {E2B_DELETE, "/templates/tags", PLANE_CONTROL, e2b_not_there},
    {E2B_GET, "/templates/*/tags", PLANE_CONTROL, e2b_not_there},
    {E2B_DELETE, "/templates/*", PLANE_CONTROL, e2b_snapshot_delete},
    {E2B_PUT, "/sandboxes/*/network", PLANE_CONTROL, e2b_not_there},
    {E2B_GET, "/sandboxes/*/metrics", PLANE_CONTROL, e2b_sandbox_metrics},
    {E2B_GET, "/health", PLANE_CODE, e2b_health},
    {E2B_POST, "/process.Process/Start", PLANE_STREAM, e2b_process_start},
    {E2B_POST, "/process.Process/Connect", PLANE_STREAM, e2b_process_connect},
    {E2B_POST, "/process.Process/List", PLANE_RPC, e2b_process_list},
    {E2B_POST, "/process.Process/SendSignal", PLANE_RPC, e2b_process_signal},
    {E2B_POST, "/process.Process/SendInput", PLANE_RPC, e2b_process_input},
    {E2B_POST, "/process.Process/CloseStdin", PLANE_RPC, e2b_process_close},
    {E2B_POST, "/process.Process/Update", PLANE_RPC, e2b_process_update},
    {E2B_POST, "/process.Process/StreamInput", PLANE_STREAM, e2b_not_there},
    {E2B_POST, "/filesystem.Filesystem/Stat", PLANE_RPC, e2b_folder_stat},
    {E2B_POST, "/filesystem.Filesystem/ListDir", PLANE_RPC, e2b_folder_list},
    {E2B_POST, "/filesystem.Filesystem/MakeDir", PLANE_RPC, e2b_folder_make},
    {E2B_POST, "/filesystem.Filesystem/Move", PLANE_RPC, e2b_folder_move},
    {E2B_POST, "/filesystem.Filesystem/Remove", PLANE_RPC, e2b_folder_remove},
    {E2B_POST, "/filesystem.Filesystem/WatchDir", PLANE_STREAM, e2b_folder_watch},
    {E2B_POST, "/filesystem.Filesystem/CreateWatcher", PLANE_RPC, e2b_watcher_create},
    {E2B_POST, "/filesystem.Filesystem/GetWatcherEvents", PLANE_RPC, e2b_watcher_events},
    {E2B_POST, "/filesystem.Filesystem/RemoveWatcher", PLANE_RPC, e2b_watcher_remove},
    {E2B_GET, "/files", PLANE_FILES, e2b_file_read},
    {E2B_POST, "/files", PLANE_UPLOAD, e2b_file_write},
    {E2B_POST, "/execute", PLANE_CODE, e2b_code_run},
    {E2B_GET, "/contexts", PLANE_CODE, e2b_context_list},
    {E2B_POST, "/contexts", PLANE_CODE, e2b_context_create},
    {E2B_DELETE, "/contexts/*", PLANE_CODE, e2b_context_delete},
    {E2B_POST, "/contexts/*/restart", PLANE_CODE, e2b_context_restart},
};

/* The segment at `path`: its length; 0 = it is no id.  Ids are what names are made of, or they are
 * nobody's. */
static size_t take_id(const char *path, char id[static E2B_ID_MAX])
{
    size_t n = strcspn(path, "/");
    if (n == 0 || n >= E2B_ID_MAX || path[0] == '.' ||
        strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") < n)
        return 0;
    memcpy(id, path, n);
    id[n] = '\0';
    return n;
}

static bool fits(const char *pattern, const char *path, struct e2b_ids *ids)
{
    char *id = ids->id;
    ids->id[0] = ids->below[0] = '\0';
    for (; *pattern; pattern++) {
        if (*pattern != '*') {
            if (*pattern != *path++)
                return false;
            continue;
        }
        size_t n = take_id(path, id);
        if (n == 0)
            return false;
        path += n;
        id = ids->below;
    }
    return !*path;
}

const struct e2b_route *e2b_route_find(enum e2b_verb verb, const char *path,
                                       struct e2b_ids *ret_ids, bool *ret_other)
{
    *ret_other = false;
    for (size_t i = 0; i < CL_COUNT(routes); i++) {
        if (!fits(routes[i].pattern, path, ret_ids))
            continue;
        if (routes[i].verb == verb)
            return &routes[i];
        *ret_other = true;
    }
    ret_ids->id[0] = ret_ids->below[0] = '\0';
    return NULL;
}

bool e2b_serves(const char *path)
{
    struct e2b_ids ids;
    bool other;
    return e2b_route_find(E2B_OTHER_VERB, path, &ids, &other) || other;
}

bool e2b_streams_body(enum e2b_verb verb, const char *path)
{
    struct e2b_ids ids;
    bool other;
    const struct e2b_route *r = e2b_route_find(verb, path, &ids, &other);
    return r && r->plane == PLANE_UPLOAD;
}

/* --- queries ------------------------------------------------------------------------------------
 */

static int digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* s[0..n) decoded into out: its length, or -1. */
static int decode(const char *s, size_t n, char *out, size_t size)
{
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        int c = s[i] == '+' ? ' ' : (unsigned char)s[i];
        if (s[i] == '%') {
            int high = n - i > 2 ? digit(s[i + 1]) : -1;
            int low = n - i > 2 ? digit(s[i + 2]) : -1;
            if (high < 0 || low < 0)
                return -1;
            c = high << 4 | low;
            i += 2;
        }
        if (c == 0 || m + 1 >= size)
            return -1;
        out[m++] = (char)c;
    }
    out[m] = '\0';
    return (int)m;
}

bool e2b_decode(char *text)
{
    size_t n = strlen(text);
    return decode(text, n, text, n + 1) >= 0;
}

int e2b_query_get(const char *query, const char *name, char *out, size_t size)
{
    size_t want = strlen(name);
    for (const char *at = query; at && *at;) {
        size_t n = strcspn(at, "&");
        const char *equals = memchr(at, '=', n);
        size_t name_n = equals ? (size_t)(equals - at) : n;
        if (name_n == want && memcmp(at, name, want) == 0) {
            const char *value = equals ? equals + 1 : at + n;
            return decode(value, (size_t)(at + n - value), out, size) < 0 ? -1 : 1;
        }
        at += n;
        at += *at == '&';
    }
    return 0;
}
