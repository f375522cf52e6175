/* e2b/snapshots.c - the control plane: snapshots, which E2B deletes as the templates that they are
 * there. */
#include <string.h>

#include "base/mem.h"
#include "cloche/v1/snapshot.pb-c.h"
#include "e2b/box_priv.h"
#include "e2b/page.h"
#include "e2b/place.h"
#include "e2b/snapshot.h"

enum { SNAPSHOT_S = 120 /* all of its memory is written */ };

static json_t *info_of(const Cloche__V1__Snapshot *m)
{
    return m->name[0] ? json_pack("{s:s, s:[s]}", "snapshotID", m->id, "names", m->name)
                      : json_pack("{s:s, s:[]}", "snapshotID", m->id, "names");
}

static void ask_get(struct e2b_call *c, const char *word, e2b_end_fn *on_end)
{
    static const struct e2b_method get =
        E2B_RPC("SnapshotService", "Get", snapshot_service_get_response);
    Cloche__V1__SnapshotServiceGetRequest m = CLOCHE__V1__SNAPSHOT_SERVICE_GET_REQUEST__INIT;
    m.snapshot = e2b_pb(word);
    (void)!e2b_ask(c, &(struct e2b_ask){.method = &get, .request = &m.base, .on_end = on_end},
                   NULL);
}

/* --- create -------------------------------------------------------------------------------------
 */

static void on_made(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    if (err && err->code == CL_E_NOTFOUND)
        e2b_box_fail_unknown(c);
    else if (err)
        e2b_fail(c, err);
    else
        e2b_reply(c, 201,
                  info_of(((const Cloche__V1__SnapshotServiceCreateResponse *)reply)->snapshot));
}

/* In E2B a name that exists gets the new build.  How commands run in a sandbox of a built template
 * goes on to what begins with its snapshot. */
static void ask_create(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    static const struct e2b_method create =
        E2B_RPC("SnapshotService", "Create", snapshot_service_create_response);
    Cloche__V1__SnapshotServiceCreateRequest m = CLOCHE__V1__SNAPSHOT_SERVICE_CREATE_REQUEST__INIT;
    const Cloche__V1__Sandbox *box = e2b_box_living(c, reply, err);
    struct e2b_place place;
    struct e2b_place_labels labels;
    const char *name;
    if (!box || e2b_snapshot_read(c->body, &name, NULL) < 0)
        return;
    e2b_place_read(box->labels, box->n_labels, &place);
    e2b_place_write(&place, &labels);
    m.sandbox_id = c->id;
    m.name = e2b_pb(name);
    m.replace = true;
    m.labels = labels.list;
    m.n_labels = labels.n;
    m.idempotency_key = e2b_pb(c->in.idempotency_key);
    (void)!e2b_ask(c,
                   &(struct e2b_ask){.method = &create,
                                     .request = &m.base,
                                     .timeout_ns = SNAPSHOT_S * CL_NS_PER_S,
                                     .on_end = on_made},
                   NULL);
}

void e2b_snapshot_create(struct e2b_call *c)
{
    const char *name;
    struct cl_err err = {0};
    if (e2b_snapshot_read(c->body, &name, &err) < 0)
        e2b_fail(c, &err);
    else
        e2b_box_get(c, ask_create);
}

/* --- delete -------------------------------------------------------------------------------------
 */

static void fail_unknown(struct e2b_call *c)
{
    struct cl_err err = {0};
    (void)cl_fail(&err, CL_E_NOTFOUND, 0, "snapshot %s: not found", c->id);
    e2b_fail(c, &err);
}

static void on_deleted(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply;
    if (err && err->code == CL_E_NOTFOUND)
        fail_unknown(c);
    else if (err)
        e2b_fail(c, err);
    else
        e2b_reply(c, 204, NULL);
}

/* Ours may be said twice, E2B's answers 404 the second time. */
static void delete_living(struct e2b_call *c, const ProtobufCMessage *reply,
                          const struct cl_err *err)
{
    static const struct e2b_method delete =
        E2B_RPC("SnapshotService", "Delete", snapshot_service_delete_response);
    Cloche__V1__SnapshotServiceDeleteRequest m = CLOCHE__V1__SNAPSHOT_SERVICE_DELETE_REQUEST__INIT;
    const Cloche__V1__Snapshot *it =
        err ? NULL : ((const Cloche__V1__SnapshotServiceGetResponse *)reply)->snapshot;
    if (!it || it->state == CLOCHE__V1__UNIT_STATE__UNIT_STATE_ENDED) {
        on_deleted(c, NULL, err ? err : &(struct cl_err){.code = CL_E_NOTFOUND});
        return;
    }
    m.snapshot = it->id; /* of its name there may be another one by now */
    (void)!e2b_ask(
        c, &(struct e2b_ask){.method = &delete, .request = &m.base, .on_end = on_deleted}, NULL);
}

void e2b_snapshot_delete(struct e2b_call *c)
{
    ask_get(c, c->id, delete_living);
}

/* --- list ---------------------------------------------------------------------------------------
 */

struct listing {
    struct e2b_page page;
    char sandbox[E2B_ID_MAX], name[256]; /* "" = any */
};

static void listing_free(void *obj)
{
    struct listing *w = obj;
    e2b_page_fini(&w->page);
    cl_free(w);
}

static int read_list(const struct e2b_call *c, struct listing *w, struct cl_err *err)
{
    if (e2b_query_get(c->in.query, "sandboxID", w->sandbox, sizeof w->sandbox) < 0 ||
        e2b_query_get(c->in.query, "name", w->name, sizeof w->name) < 0)
        return cl_fail(err, CL_E_INVALID, 0, "the query is malformed");
    return e2b_page_read(c->in.query, &w->page, err);
}

/* Nothing can begin with one that is not whole: it is not there yet. */
static void add_whole(struct listing *w, const Cloche__V1__Snapshot *m)
{
    if (m->state == CLOCHE__V1__UNIT_STATE__UNIT_STATE_PAUSED &&
        (!w->sandbox[0] || strcmp(m->sandbox_id, w->sandbox) == 0))
        e2b_page_add(&w->page, info_of(m));
}

static void ask_page(struct e2b_call *c);

static void on_listed(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    const Cloche__V1__SnapshotServiceListResponse *m =
        (const Cloche__V1__SnapshotServiceListResponse *)reply;
    struct listing *w = c->work;
    if (err) {
        e2b_fail(c, err);
        return;
    }
    for (size_t i = 0; i < m->n_snapshots; i++)
        add_whole(w, m->snapshots[i]);
    if (e2b_page_goes_on(&w->page, m->next_page_token))
        ask_page(c);
    else
        e2b_reply_next(c, json_incref(w->page.found), w->page.token[0] ? w->page.token : NULL);
}

static void ask_page(struct e2b_call *c)
{
    static const struct e2b_method list =
        E2B_RPC("SnapshotService", "List", snapshot_service_list_response);
    Cloche__V1__SnapshotServiceListRequest m = CLOCHE__V1__SNAPSHOT_SERVICE_LIST_REQUEST__INIT;
    struct listing *w = c->work;
    m.page_size = e2b_page_room(&w->page);
    m.page_token = w->page.token;
    m.sandbox_id = w->sandbox;
    (void)!e2b_ask(c, &(struct e2b_ask){.method = &list, .request = &m.base, .on_end = on_listed},
                   NULL);
}

/* The one of that name or id, or none. */
static void on_named(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    struct listing *w = c->work;
    if (err && err->code != CL_E_NOTFOUND) {
        e2b_fail(c, err);
        return;
    }
    if (!err)
        add_whole(w, ((const Cloche__V1__SnapshotServiceGetResponse *)reply)->snapshot);
    e2b_reply(c, 200, json_incref(w->page.found));
}

void e2b_snapshot_list(struct e2b_call *c)
{
    struct cl_err err = {0};
    struct listing *w = e2b_work_new(c, sizeof *w, listing_free);
    if (!w)
        return;
    if (read_list(c, w, &err) < 0)
        e2b_fail(c, &err);
    else if (w->name[0])
        ask_get(c, w->name, on_named);
    else
        ask_page(c);
}
