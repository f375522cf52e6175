/* scheduler/snapshots.c - see scheduler/snapshots.h. */
#include "scheduler/snapshots.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "scheduler/cancel.h"
#include "scheduler/creation.h"
#include "scheduler/look.h"
#include "scheduler/move.h"
#include "scheduler/validate.h"

/* --- names --------------------------------------------------------------------------------------
 */

enum { KEY_MAX = BOOKS_NAME + SNAPSHOT_NAME_MAX + 2 };

static void key_of(const char *tenant, const char *name, char key[static KEY_MAX])
{
    (void)snprintf(key, KEY_MAX, "%s/%s", tenant, name);
}

static struct unit *owner_of(const struct sched *s, const char *tenant, const char *name)
{
    char key[KEY_MAX];
    if (!name[0] || strlen(name) > SNAPSHOT_NAME_MAX)
        return NULL;
    key_of(tenant, name, key);
    return cl_map_get(s->snapshots, key);
}

/* Who is called that, and is not to end. */
static struct unit *find_name(const struct sched *s, const char *tenant, const char *name)
{
    struct unit *u = owner_of(s, tenant, name);
    return u && !u->cancel ? u : NULL;
}

static bool has_name(const struct unit *u)
{
    return owner_of(u->sched, u->tenant->name, u->record->name) == u;
}

static int fail_taken(const char *name, const struct unit *by, struct cl_err *err)
{
    return cl_fail(err, CL_E_EXISTS, 0,
                   "the name '%s' is that of snapshot '%s'\n"
                   "delete that, ask for `replace`, or take another name",
                   name, by->id);
}

static void drop_name(const struct unit *u)
{
    char key[KEY_MAX];
    key_of(u->tenant->name, u->record->name, key);
    (void)cl_map_del(u->sched->snapshots, key);
}

int snapshot_check_name(const struct sched *s, const char *tenant, const char *name, bool replace,
                        struct cl_err *err)
{
    if (validate_snapshot_name(name, err) < 0)
        return -1;
    const struct unit *old = find_name(s, tenant, name);
    return old && !replace ? fail_taken(name, old, err) : 0;
}

static void refuse(struct unit *u, const struct cl_err *why)
{
    u->refused = *why;
    cancel_unmade(u);
}

void snapshot_is_whole(struct unit *u)
{
    struct sched *s = u->sched;
    const char *name = u->record->name;
    char key[KEY_MAX];
    struct cl_err err = {0};
    if (!name[0] || u->cancel || has_name(u))
        return;
    struct unit *old = owner_of(s, u->tenant->name, name);
    if (old && !old->cancel && !u->record->replaces) {
        (void)fail_taken(name, old, &err);
        refuse(u, &err);
        return;
    }
    if (old)
        drop_name(old);
    key_of(u->tenant->name, name, key);
    if (cl_map_put(s->snapshots, key, u, &err) < 0)
        refuse(u, &err);
    if (old && !old->cancel)
        cancel_abandoned(old);
}

void snapshot_is_over(const struct unit *u)
{
    if (u->kind == BOOKS_SNAPSHOT && has_name(u))
        drop_name(u);
}

const char *snapshot_id(const struct sched *s, const char *tenant, const char *word)
{
    if (cl_id_is(word, books_kind_prefix(BOOKS_SNAPSHOT)))
        return word;
    const struct unit *u = find_name(s, tenant, word);
    return u ? u->id : NULL;
}

static void fail_unknown(struct api_call *a, const char *word)
{
    struct cl_err err = {0};
    (void)cl_fail(&err, CL_E_NOTFOUND, 0, "no snapshot '%.63s'", word);
    (void)snprintf(err.subject, sizeof err.subject, "snapshot"); /* what is gone, not a file */
    api_fail(a, &err);
}

/* --- what begins with one -----------------------------------------------------------------------
 */

static int check_start(const struct unit *of, const Cloche__V1__JobSpec *asked,
                       const Cloche__V1__Resources *has, struct cl_err *err)
{
    const Cloche__V1__Resources *r = asked->resources;
    if (!of->paused)
        return cl_fail(err, CL_E_STATE, 0, "snapshot '%s' is not whole yet", of->id);
    if (asked->template_[0])
        return cl_fail(err, CL_E_INVALID, 0, "template and snapshot: one of them, not both");
    if (r && ((r->vcpus && r->vcpus != has->vcpus) ||
              (r->memory_mib && r->memory_mib != has->memory_mib)))
        return cl_fail(err, CL_E_INVALID, 0,
                       "resources: snapshot '%s' has %u vCPUs and %u MiB, and so has all that "
                       "begins with it",
                       of->id, has->vcpus, has->memory_mib);
    bool has_card = of->record->spec->network_grant != NULL;
    if (asked->network_grant && asked->network == CLOCHE__V1__NETWORK__NETWORK_NONE)
        return cl_fail(err, CL_E_INVALID, 0, "network_grant and NETWORK_NONE exclude each other");
    if (asked->network_grant && !has_card)
        return cl_fail(err, CL_E_STATE, 0,
                       "snapshot '%s' is of a sandbox without network, so it has no card", of->id);
    return 0;
}

/* Its memory has a network card, which stays; without rules that reaches nothing. */
static const Cloche__V1__NetworkGrant *grant_of(const Cloche__V1__JobSpec *asked,
                                                const Cloche__V1__JobSpec *its)
{
    static const Cloche__V1__NetworkGrant nothing = CLOCHE__V1__NETWORK_GRANT__INIT;
    if (asked->network_grant)
        return asked->network_grant;
    if (its->network_grant && asked->network == CLOCHE__V1__NETWORK__NETWORK_NONE)
        return &nothing;
    return its->network_grant;
}

bool snapshot_start(struct api_call *a, const Cloche__V1__JobSpec *asked,
                    struct snapshot_start *ret)
{
    struct cl_err err = {0};
    struct worker *w;
    const char *id = snapshot_id(a->s, a->p.tenant, asked->snapshot);
    if (!id)
        fail_unknown(a, asked->snapshot);
    const struct unit *of = id ? api_unit(a, id, BOOKS_SNAPSHOT, &w) : NULL;
    if (!of)
        return false;
    const Cloche__V1__JobSpec *its = of->record->spec;
    unit_sizes(of, &ret->resources);
    if (check_start(of, asked, &ret->resources, &err) < 0) {
        api_fail(a, &err);
        return false;
    }
    uint32_t disk_mib = asked->resources ? asked->resources->disk_mib : 0;
    ret->resources.disk_mib = CL_MAX(ret->resources.disk_mib, disk_mib);
    ret->spec = *asked;
    ret->spec.template_ = its->template_;
    ret->spec.resources = &ret->resources;
    ret->spec.network = CLOCHE__V1__NETWORK__NETWORK_UNSPECIFIED;
    ret->spec.network_grant = (Cloche__V1__NetworkGrant *)(uintptr_t)grant_of(asked, its);
    ret->id = of->id;
    ret->function = of->record->function;
    return true;
}

/* --- messages -----------------------------------------------------------------------------------
 */

static void view_record(struct snapshot_view *o, const Cloche__V1__UnitRecord *r)
{
    if (!r || !r->spec)
        return;
    o->m.sandbox_id = r->fork_of;
    o->m.template_ = r->spec->template_;
    o->m.resources = r->spec->resources;
    o->m.labels = r->spec->labels;
    o->m.n_labels = r->spec->n_labels;
    o->m.network_grant = r->spec->network_grant;
    o->m.function = r->function;
}

static void view_live(struct snapshot_view *o, const struct unit *u)
{
    o->m.state = u->phase == PHASE_RUNNING && !u->paused
                     ? CLOCHE__V1__UNIT_STATE__UNIT_STATE_STARTING
                     : unit_state(u);
    o->m.worker_id = (char *)(uintptr_t)u->worker_id;
    o->m.driver = (char *)(uintptr_t)u->driver;
    o->m.guest_separation = u->separation;
    o->m.image_bytes = u->image_bytes;
    o->expires.unix_ns = u->expires_wall_ns;
    if (u->expires_wall_ns)
        o->m.expires = &o->expires;
    if (has_name(u))
        o->m.name = u->record->name;
}

static void view_init(struct snapshot_view *o, const char *id, const char *tenant,
                      uint64_t created_ns)
{
    cloche__v1__snapshot__init(&o->m);
    cloche__v1__time__init(&o->created);
    cloche__v1__time__init(&o->expires);
    o->m.id = (char *)(uintptr_t)id;
    o->m.tenant = (char *)(uintptr_t)tenant;
    o->created.unix_ns = created_ns;
    o->m.created = &o->created;
}

void snapshot_view_unit(struct snapshot_view *o, const struct unit *u)
{
    view_init(o, u->id, u->tenant->name, u->created_ns);
    view_record(o, u->record);
    view_live(o, u);
}

static void view_row(struct snapshot_view *o, const struct look_row *row)
{
    const struct books_unit *b = row->row;
    view_init(o, b->id, b->tenant, b->created_us * CL_NS_PER_US);
    view_record(o, row->record);
    o->m.state = (Cloche__V1__UnitState)b->state;
    o->m.worker_id = (char *)(uintptr_t)b->worker;
    if (row->live)
        view_live(o, row->live);
    if (row->terminal && row->terminal->result) {
        o->m.reason = row->terminal->result->reason;
        o->m.driver = row->terminal->driver;
    }
}

/* --- Create -------------------------------------------------------------------------------------
 */

static void reply_created(struct api_call *a, const struct unit *u)
{
    struct snapshot_view view;
    Cloche__V1__SnapshotServiceCreateResponse m =
        CLOCHE__V1__SNAPSHOT_SERVICE_CREATE_RESPONSE__INIT;
    snapshot_view_unit(&view, u);
    m.snapshot = &view.m;
    api_reply(a, &m.base);
}

static int check_request(const struct api_call *a, const struct worker *w,
                         const Cloche__V1__SnapshotServiceCreateRequest *r, uint64_t *ret_keep_ns,
                         struct cl_err *err)
{
    if (!w->snapshots)
        return cl_fail(err, CL_E_UNIMPL, 0, "the worker of '%.40s' is older than snapshots",
                       r->sandbox_id);
    bool again = r->replace || r->idempotency_key[0];
    if (snapshot_check_name(a->s, a->p.tenant, r->name, again, err) < 0)
        return -1;
    return validate_keep(r->keep_ns ? r->keep_ns : PAUSE_KEEP_MAX_S * CL_NS_PER_S, ret_keep_ns,
                         err);
}

static void snapshot_create(struct api_call *a)
{
    const Cloche__V1__SnapshotServiceCreateRequest *r =
        (const Cloche__V1__SnapshotServiceCreateRequest *)a->request;
    struct cl_err err = {0};
    struct worker *w;
    uint64_t keep_ns;
    struct unit *of = api_unit(a, r->sandbox_id, BOOKS_SANDBOX, &w);
    struct creation *c = of ? creation_call(a, reply_created) : NULL;
    if (!c)
        return;
    if (check_request(a, w, r, &keep_ns, &err) < 0) {
        api_fail(a, &err);
        return;
    }
    creation_copy_spec(c, of);
    c->spec.labels = r->labels;
    c->spec.n_labels = r->n_labels;
    struct submit_spec spec = {.kind = BOOKS_SNAPSHOT,
                               .idempotency_key = r->idempotency_key,
                               .ttl_ns = keep_ns,
                               .fork_of = of->id,
                               .name = r->name,
                               .replaces = r->replace};
    creation_submit(c, &spec);
}

/* --- Get, List and Delete -----------------------------------------------------------------------
 */

static void on_got(struct api_call *a, const struct look_row *row)
{
    struct snapshot_view view;
    Cloche__V1__SnapshotServiceGetResponse m = CLOCHE__V1__SNAPSHOT_SERVICE_GET_RESPONSE__INIT;
    view_row(&view, row);
    m.snapshot = &view.m;
    api_reply(a, &m.base);
}

static void snapshot_get(struct api_call *a)
{
    const char *word = ((const Cloche__V1__SnapshotServiceGetRequest *)a->request)->snapshot;
    const char *id = snapshot_id(a->s, a->p.tenant, word);
    if (id)
        look_get(a, BOOKS_SNAPSHOT, id, on_got);
    else
        fail_unknown(a, word);
}

static void on_listed(struct api_call *a, const struct look_row *rows, size_t n, const char *next)
{
    Cloche__V1__SnapshotServiceListResponse m = CLOCHE__V1__SNAPSHOT_SERVICE_LIST_RESPONSE__INIT;
    struct snapshot_view *views = cl_zalloc_array(n, sizeof *views);
    Cloche__V1__Snapshot **list = cl_zalloc_array(n, sizeof *list);
    m.snapshots = list;
    m.n_snapshots = n;
    m.next_page_token = (char *)(uintptr_t)next;
    for (size_t i = 0; views && list && i < n; i++) {
        view_row(&views[i], &rows[i]);
        list[i] = &views[i].m;
    }
    if (views && list)
        api_reply(a, &m.base);
    else
        api_fail_with(a, CL_E_NOMEM, "list");
    cl_free(views);
    cl_free(list);
}

static void snapshot_list(struct api_call *a)
{
    const Cloche__V1__SnapshotServiceListRequest *r =
        (const Cloche__V1__SnapshotServiceListRequest *)a->request;
    uint32_t live =
        1u << BOOKS_QUEUED | 1u << BOOKS_STARTING | 1u << BOOKS_RUNNING | 1u << BOOKS_PAUSED;
    look_list(a,
              &(struct look_list){.kind = BOOKS_SNAPSHOT,
                                  .states = r->include_ended ? 0 : live,
                                  .page_size = r->page_size,
                                  .page_token = r->page_token,
                                  .labels = r->labels,
                                  .n_labels = r->n_labels,
                                  .fork_of = r->sandbox_id},
              on_listed);
}

static void snapshot_delete(struct api_call *a)
{
    static const Cloche__V1__SnapshotServiceDeleteResponse reply =
        CLOCHE__V1__SNAPSHOT_SERVICE_DELETE_RESPONSE__INIT;
    const char *word = ((const Cloche__V1__SnapshotServiceDeleteRequest *)a->request)->snapshot;
    const char *id = snapshot_id(a->s, a->p.tenant, word);
    if (id)
        cancel_unit(a,
                    &(struct cancel_spec){.kind = BOOKS_SNAPSHOT, .id = id, .reply = &reply.base});
    else
        fail_unknown(a, word);
}

#define METHOD(name) "/cloche.v1.SnapshotService/" name
#define TYPES(in_, out_) \
    .in = &cloche__v1__snapshot_service_##in_##__descriptor, \
    .out = &cloche__v1__snapshot_service_##out_##__descriptor

const struct api_method snapshot_api[] = {
    {METHOD("Create"), TYPES(create_request, create_response), .scope = SCOPE_RUN, .changes = true,
     .handle = snapshot_create, .on_gone = creation_gone},
    {METHOD("Get"), TYPES(get_request, get_response), .scope = SCOPE_READ, .handle = snapshot_get},
    {METHOD("List"), TYPES(list_request, list_response), .scope = SCOPE_READ,
     .handle = snapshot_list},
    {METHOD("Delete"), TYPES(delete_request, delete_response), .scope = SCOPE_RUN, .changes = true,
     .handle = snapshot_delete, .on_gone = cancel_gone},
};
const size_t snapshot_api_n = CL_COUNT(snapshot_api);
