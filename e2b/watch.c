/* e2b/watch.c - folders that are watched, of envd's filesystem.Filesystem: WatchDir tells changes
 * as they come; of a watcher they are fetched, and wait here for that.
 *
 *   NEW --first message--> WATCHING --RemoveWatcher, an hour unasked--> gone
 *    | error: the creating     | error, or too many wait
 *    v call fails              v
 *   gone                     ENDED --the events before it were fetched, then the error once--> gone
 *
 * Another gateway does not know the watchers of this one.
 */
#include <stdio.h>
#include <string.h>

#include <openssl/sha.h>

#include "base/id.h"
#include "base/mem.h"
#include "cloche/v1/file.pb-c.h"
#include "e2b/call_priv.h"

enum {
    PATH_BYTES = 4096,
    WATCHERS_MAX = 256,   /* of a gateway: each is a call to the scheduler */
    WATCHERS_OF_KEY = 64, /* so that one key cannot take all of them */
    EVENTS_MAX = 4096,    /* that wait; then the watcher ends: its client would miss some */
    EVENTS_BYTES = 1024 * 1024,
    EVENT_FIXED = 512, /* one of them with its entry, without its names */
    UNASKED_S = 3600,
    ID_BYTES = 16,
};

static const struct e2b_method watch_m =
    E2B_RPC("FileService", "Watch", file_service_watch_response);

struct watched {
    char path[PATH_BYTES];
};

struct watcher {
    struct cl_list link; /* of the server; unlinked once it is gone */
    char id[2 * ID_BYTES + 1], sandbox[CL_ID_MAX], path[PATH_BYTES];
    uint8_t key[SHA256_DIGEST_LENGTH]; /* who made it */
    struct rpc_call *rpc;              /* the channel's; NULL once it has ended */
    struct creating *maker;            /* while its call waits */
    json_t *events;                    /* owned */
    size_t bytes;
    struct cl_err end; /* told after the events */
    uint64_t asked_ns;
};

struct creating {
    struct e2b_call *call;
    struct watcher *watcher; /* NULL once it is answered */
};

/* --- what changed -------------------------------------------------------------------------------
 */

static const char *event_type(Cloche__V1__FileChangeKind kind)
{
    switch ((int)kind) { /* of a guest: any value */
    case CLOCHE__V1__FILE_CHANGE_KIND__FILE_CHANGE_KIND_CREATED:
        return "EVENT_TYPE_CREATE";
    case CLOCHE__V1__FILE_CHANGE_KIND__FILE_CHANGE_KIND_WRITTEN:
        return "EVENT_TYPE_WRITE";
    case CLOCHE__V1__FILE_CHANGE_KIND__FILE_CHANGE_KIND_REMOVED:
        return "EVENT_TYPE_REMOVE";
    case CLOCHE__V1__FILE_CHANGE_KIND__FILE_CHANGE_KIND_MOVED:
        return "EVENT_TYPE_RENAME";
    case CLOCHE__V1__FILE_CHANGE_KIND__FILE_CHANGE_KIND_ATTRIBUTES:
        return "EVENT_TYPE_CHMOD";
    default:
        return "EVENT_TYPE_UNSPECIFIED";
    }
}

static json_t *event_of(const Cloche__V1__FileChange *change, const char *folder)
{
    char path[2 * PATH_BYTES];
    json_t *o = json_pack("{s:s, s:s}", "name", change->path, "type", event_type(change->kind));
    int n = snprintf(path, sizeof path, "%s/%s", strcmp(folder, "/") ? folder : "", change->path);
    if (change->info && n > 0 && (size_t)n < sizeof path)
        mcp_json_set(o, "entry", e2b_entry(change->info, path));
    return o;
}

static void fill(Cloche__V1__FileServiceWatchRequest *m, const struct e2b_call *c, const char *path)
{
    cloche__v1__file_service_watch_request__init(m);
    m->sandbox_id = c->grant->sandbox;
    m->path = e2b_pb(path);
    m->recursive = json_is_true(json_object_get(c->body, "recursive"));
    m->with_info = json_is_true(json_object_get(c->body, "includeEntry"));
    m->user = e2b_pb(c->user);
}

static int fail_lost(struct cl_err *err)
{
    return cl_fail(err, CL_E_TOOBIG, 0,
                   "more changes than could be told: look at the folder, and watch it again");
}

/* False: the call has ended. */
static bool read_path(struct e2b_call *c, char path[static PATH_BYTES])
{
    const char *text = e2b_text(c, "path");
    if (text && e2b_path(c, text, path, PATH_BYTES) == 0)
        return true;
    (void)e2b_fail_invalid(c, "the path is missing, holds NUL, or is too long");
    return false;
}

/* --- as they come -------------------------------------------------------------------------------
 */

static void beat(struct e2b_call *c)
{
    e2b_send_message(c, json_pack("{s:{}}", "keepalive"), NULL);
}

static void on_changes(struct e2b_call *c, const ProtobufCMessage *msg, struct rpc_call *rpc)
{
    const Cloche__V1__FileServiceWatchResponse *m =
        (const Cloche__V1__FileServiceWatchResponse *)msg;
    const struct watched *w = c->work;
    struct cl_err lost = {0};
    if (!c->is_streaming) {
        e2b_begin_messages(c, beat);
        e2b_send_message(c, json_pack("{s:{}}", "start"), rpc);
    }
    if (m->lost) {
        (void)fail_lost(&lost);
        e2b_end_messages(c, &lost);
        return;
    }
    for (size_t i = 0; i < m->n_changes; i++)
        e2b_send_message(c, json_pack("{s:o}", "filesystem", event_of(m->changes[i], w->path)),
                         rpc);
}

static void on_end(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply;
    struct cl_err lost = {0};
    if (!err)
        (void)cl_fail(&lost, CL_E_UNAVAILABLE, 0, "the watch ended");
    e2b_fail_in_box(c, err ? err : &lost);
}

void e2b_folder_watch(struct e2b_call *c)
{
    Cloche__V1__FileServiceWatchRequest m;
    struct watched *w = e2b_work_new(c, sizeof *w, cl_free);
    if (!w || !read_path(c, w->path))
        return;
    fill(&m, c, w->path);
    (void)!e2b_ask(c,
                   &(struct e2b_ask){.method = &watch_m,
                                     .request = &m.base,
                                     .timeout_ns = e2b_limit_ns(c),
                                     .on_message = on_changes,
                                     .on_end = on_end},
                   NULL);
}

/* --- watchers -----------------------------------------------------------------------------------
 */

static void destroy(struct watcher *w)
{
    json_decref(w->events);
    cl_free(w);
}

/* Nobody asks for it any more; its call's end frees it. */
static void drop(struct watcher *w)
{
    cl_list_unlink(&w->link);
    if (w->rpc)
        rpc_call_cancel(w->rpc);
    else
        destroy(w);
}

static bool is_gone(const struct watcher *w)
{
    return cl_list_empty(&w->link);
}

/* What waits is kept until it is fetched; more does not come. */
static void end(struct watcher *w, const struct cl_err *why)
{
    if (!w->end.code)
        w->end = *why;
}

static void keep(struct watcher *w, const Cloche__V1__FileServiceWatchResponse *m)
{
    struct cl_err lost = {0};
    for (size_t i = 0; i < m->n_changes; i++) {
        json_t *event = event_of(m->changes[i], w->path);
        w->bytes += EVENT_FIXED + 2 * strlen(m->changes[i]->path);
        if (json_array_append_new(w->events, event) < 0 || w->bytes > EVENTS_BYTES ||
            json_array_size(w->events) > EVENTS_MAX) {
            (void)fail_lost(&lost);
            end(w, &lost);
            rpc_call_cancel(w->rpc);
            return;
        }
    }
}

static void on_watcher_message(struct rpc_call *rpc, const ProtobufCMessage *msg, void *arg)
{
    const Cloche__V1__FileServiceWatchResponse *m =
        (const Cloche__V1__FileServiceWatchResponse *)msg;
    struct watcher *w = arg;
    struct cl_err lost = {0};
    if (is_gone(w) || w->end.code)
        return;
    if (w->maker) {
        struct e2b_call *c = w->maker->call;
        w->maker->watcher = NULL;
        w->maker = NULL;
        e2b_reply(c, 200, json_pack("{s:s}", "watcherId", w->id));
    }
    if (m->lost) {
        (void)fail_lost(&lost);
        end(w, &lost);
        rpc_call_cancel(rpc);
        return;
    }
    keep(w, m);
}

static void on_watcher_end(struct rpc_call *rpc, const struct cl_err *status, void *arg)
{
    (void)rpc;
    struct watcher *w = arg;
    struct cl_err over = {0};
    w->rpc = NULL;
    if (is_gone(w)) {
        destroy(w);
        return;
    }
    (void)cl_fail(&over, CL_E_UNAVAILABLE, 0, "the watch ended");
    end(w, status ? status : &over);
    if (!w->maker)
        return;
    struct e2b_call *c = w->maker->call;
    w->maker->watcher = NULL;
    over = w->end;
    drop(w);
    e2b_fail_in_box(c, &over);
}

static void creating_free(void *obj)
{
    struct creating *work = obj;
    if (work->watcher) /* its client left before the answer */
        drop(work->watcher);
    cl_free(work);
}

static int open_rpc(struct e2b_call *c, struct watcher *w, struct cl_err *err)
{
    static const struct rpc_client_events events = {.on_message = on_watcher_message,
                                                    .on_end = on_watcher_end};
    struct rpc_metadata pairs[] = {{"authorization", c->grant->credential},
                                   {"traceparent", c->trace}};
    struct rpc_call_spec spec = {.path = watch_m.path,
                                 .out = watch_m.out,
                                 .deadline_ns = cl_now_ns() + E2B_LIFE_NS,
                                 .fail_fast = true,
                                 .metadata = pairs,
                                 .n_metadata = c->trace[0] ? 2 : 1};
    Cloche__V1__FileServiceWatchRequest m;
    fill(&m, c, w->path);
    if (rpc_channel_call(rpc_pool_pick(c->server->conf.pool), &spec, &events, w, &w->rpc, err) < 0)
        return -1;
    cl_list_push(&c->server->watchers, &w->link);
    if (rpc_call_send(w->rpc, &m.base, err) < 0) {
        drop(w);
        return 1; /* its call's end frees it */
    }
    rpc_call_close_send(w->rpc);
    return 0;
}

static void drop_unasked(struct e2b_server *s)
{
    uint64_t now = cl_now_ns();
    CL_LIST_FOREACH (it, &s->watchers) {
        struct watcher *w = CL_LIST_ENTRY(it, struct watcher, link);
        if (!w->maker && now - w->asked_ns > UNASKED_S * CL_NS_PER_S)
            drop(w);
    }
}

static int check_room(struct e2b_server *s, const uint8_t *key, struct cl_err *err)
{
    size_t all = 0, of_key = 0;
    drop_unasked(s);
    CL_LIST_FOREACH (it, &s->watchers) {
        const struct watcher *w = CL_LIST_ENTRY(it, struct watcher, link);
        all++;
        of_key += memcmp(w->key, key, sizeof w->key) == 0;
    }
    if (all < WATCHERS_MAX && of_key < WATCHERS_OF_KEY)
        return 0;
    return cl_fail(err, CL_E_TOOBIG, 0, "too many watchers (%d of one key): stop one",
                   WATCHERS_OF_KEY);
}

void e2b_watcher_create(struct e2b_call *c)
{
    struct creating *work = e2b_work_new(c, sizeof *work, creating_free);
    struct watcher *w = work ? cl_zalloc(sizeof *w) : NULL;
    const char *credential = c->grant->credential;
    uint8_t id[ID_BYTES];
    struct cl_err err = {0};
    if (!work)
        return;
    if (!w || !(w->events = json_array())) {
        cl_free(w);
        (void)cl_fail(&err, CL_E_NOMEM, 0, "watcher");
        e2b_fail(c, &err);
        return;
    }
    cl_list_init(&w->link);
    cl_random(id, sizeof id);
    cl_hex(id, sizeof id, w->id);
    w->asked_ns = cl_now_ns();
    (void)snprintf(w->sandbox, sizeof w->sandbox, "%s", c->grant->sandbox);
    (void)SHA256((const uint8_t *)credential, strlen(credential), w->key);
    if (!read_path(c, w->path)) {
        destroy(w);
        return;
    }
    int rc = check_room(c->server, w->key, &err) < 0 ? -1 : open_rpc(c, w, &err);
    if (rc < 0)
        destroy(w);
    if (rc != 0) {
        e2b_fail(c, &err);
        return;
    }
    *work = (struct creating){c, w};
    w->maker = work;
}

/* Of this sandbox; NULL: the call has ended. */
static struct watcher *find(struct e2b_call *c)
{
    const char *id = e2b_text(c, "watcherId");
    struct cl_err err = {0};
    drop_unasked(c->server);
    CL_LIST_FOREACH (it, &c->server->watchers) {
        struct watcher *w = CL_LIST_ENTRY(it, struct watcher, link);
        if (id && !w->maker && strcmp(w->id, id) == 0 && strcmp(w->sandbox, c->grant->sandbox) == 0)
            return w;
    }
    (void)cl_fail(&err, CL_E_NOTFOUND, 0,
                  "no such watcher: it was stopped, or nobody asked for an hour");
    e2b_fail(c, &err);
    return NULL;
}

void e2b_watcher_events(struct e2b_call *c)
{
    struct watcher *w = find(c);
    if (!w)
        return;
    w->asked_ns = cl_now_ns();
    if (w->end.code && json_array_size(w->events) == 0) {
        struct cl_err why = w->end;
        drop(w);
        e2b_fail_in_box(c, &why);
        return;
    }
    json_t *events = w->events;
    w->events = json_array();
    w->bytes = 0;
    e2b_reply(c, 200, json_pack("{s:o}", "events", events));
}

void e2b_watcher_remove(struct e2b_call *c)
{
    struct watcher *w = find(c);
    if (!w)
        return;
    drop(w);
    e2b_reply(c, 200, json_object());
}

void e2b_watchers_free(struct e2b_server *s)
{
    CL_LIST_FOREACH (it, &s->watchers)
        drop(CL_LIST_ENTRY(it, struct watcher, link));
}
