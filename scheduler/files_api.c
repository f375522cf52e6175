/* scheduler/files_api.c - FileService: files of a sandbox, relayed to its worker. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cloche/v1/guest.pb-c.h"
#include "scheduler/relays.h"
#include "scheduler/stream.h"
#include "scheduler/validate.h"

/* --- Read and Watch: what a relay says goes to the client at its pace ----------------------------
 */

struct flow {
    struct api_call *a; /* held */
    struct relay *relay;
    uint64_t bytes, max;
    bool finished;
};

static void finish_flow(struct flow *f, const struct cl_err *err)
{
    if (f->finished)
        return;
    f->finished = true;
    f->a->replied = true;
    api_audit(f->a, err);
    if (f->a->call)
        rpc_call_finish(f->a->call, err);
}

static void send_on(struct flow *f, const ProtobufCMessage *m)
{
    struct cl_err err = {0};
    if (rpc_call_send(f->a->call, m, &err) < 0)
        finish_flow(f, &err);
    else if (rpc_call_is_full(f->a->call))
        relay_pause(f->relay, true);
}

/* That is still to come of a file of this size. */
static uint64_t bytes_wanted(const Cloche__V1__ReadRequest *req, uint64_t size)
{
    uint64_t rest = size > req->offset ? size - req->offset : 0;
    return req->length ? CL_MIN(rest, req->length) : rest;
}

static void read_message(void *arg, const Cloche__V1__RelayRequest *m)
{
    struct flow *f = arg;
    const Cloche__V1__ReadRequest *req = (const Cloche__V1__ReadRequest *)f->a->request;
    struct cl_err err = {0};
    if (f->finished || !f->a->call)
        return;
    f->bytes += m->data.len;
    uint64_t most = CL_MAX(f->bytes, bytes_wanted(req, m->size));
    if (validate_file_bytes(most, f->max, &err) < 0) {
        finish_flow(f, &err);
        return;
    }
    if (m->data.len > 0 || m->size > 0) {
        Cloche__V1__ReadResponse out = CLOCHE__V1__READ_RESPONSE__INIT;
        out.data = m->data;
        out.size = m->size;
        send_on(f, &out.base);
    }
    if (!m->done || m->done->code)
        return;
    char hex[65] = "";
    if (m->done->sha256.len == 32)
        cl_hex(m->done->sha256.data, 32, hex);
    const struct audit_field fields[] = {AUDIT_NUM("bytes", f->bytes), AUDIT_STR("path", req->path),
                                         AUDIT_STR("sha256", hex),
                                         AUDIT_STR("unit", req->sandbox_id)};
    int rc = audit_emit(f->a->s->audit, f->a->p.tenant, AUDIT_FILE_READ, fields, CL_COUNT(fields),
                        NULL, NULL, &err);
    finish_flow(f, rc < 0 ? &err : NULL);
}

/* Of a client that is slow its worker drops changes, and tells that some are lost. */
static void watch_message(void *arg, const Cloche__V1__RelayRequest *m)
{
    struct flow *f = arg;
    if (!f->finished && f->a->call && m->changes)
        send_on(f, &m->changes->base);
}

static void flow_drain(void *arg)
{
    (void)arg;
}

static void read_end(void *arg, const struct cl_err *why)
{
    struct flow *f = arg;
    f->relay = NULL;
    if (why)
        finish_flow(f, why);
}

static void watch_end(void *arg, const struct cl_err *why)
{
    struct cl_err left = {0};
    (void)cl_fail(&left, CL_E_UNAVAILABLE, 0, "its worker ended the watch");
    read_end(arg, why ? why : &left);
}

/* `open` says what to do; the rest of it is filled in here. */
static void begin_flow(struct api_call *a, const char *sandbox_id, Cloche__V1__OpenRelay *open,
                       const struct relay_events *events)
{
    struct cl_err err = {0};
    struct worker *w;
    struct unit *u = api_unit(a, sandbox_id, BOOKS_SANDBOX, &w);
    if (!u)
        return;
    struct flow *f = cl_zalloc(sizeof *f);
    if (!f) {
        api_fail_with(a, CL_E_NOMEM, "file");
        return;
    }
    open->unit_id = u->id;
    f->a = a;
    f->max = u->tenant->limits.file_bytes;
    if (relay_open(w, open, events, f, &f->relay, &err) < 0) {
        cl_free(f);
        api_fail(a, &err);
        return;
    }
    a->state = f;
    api_hold(a);
}

/* False: the call has failed. */
static bool check_path(struct api_call *a, const char *path, const char *user)
{
    struct cl_err err = {0};
    if (validate_path(path, &err) == 0 && validate_user(user, &err) == 0)
        return true;
    api_fail(a, &err);
    return false;
}

static void file_read(struct api_call *a)
{
    static const struct relay_events events = {read_message, flow_drain, read_end};
    const Cloche__V1__ReadRequest *req = (const Cloche__V1__ReadRequest *)a->request;
    Cloche__V1__OpenRelay open = CLOCHE__V1__OPEN_RELAY__INIT;
    Cloche__V1__RelayRead read = CLOCHE__V1__RELAY_READ__INIT;
    open.what_case = CLOCHE__V1__OPEN_RELAY__WHAT_READ;
    open.read = &read;
    read.path = req->path;
    read.offset = req->offset;
    read.length = req->length;
    read.user = req->user;
    if (check_path(a, req->path, req->user))
        begin_flow(a, req->sandbox_id, &open, &events);
}

static void file_watch(struct api_call *a)
{
    static const struct relay_events events = {watch_message, flow_drain, watch_end};
    const Cloche__V1__FileServiceWatchRequest *req =
        (const Cloche__V1__FileServiceWatchRequest *)a->request;
    Cloche__V1__OpenRelay open = CLOCHE__V1__OPEN_RELAY__INIT;
    Cloche__V1__RelayWatch watch = CLOCHE__V1__RELAY_WATCH__INIT;
    open.what_case = CLOCHE__V1__OPEN_RELAY__WHAT_WATCH;
    open.watch = &watch;
    watch.path = req->path;
    watch.recursive = req->recursive;
    watch.user = req->user;
    watch.with_info = req->with_info;
    if (check_path(a, req->path, req->user))
        begin_flow(a, req->sandbox_id, &open, &events);
}

static void flow_room(struct api_call *a)
{
    struct flow *f = a->state;
    if (f && f->relay)
        relay_pause(f->relay, false);
}

static void flow_gone(struct api_call *a, const struct cl_err *why)
{
    struct flow *f = a->state;
    if (!f)
        return;
    api_audit(a, why);
    if (f->relay)
        relay_drop(f->relay);
    a->state = NULL;
    cl_free(f);
    api_release(a);
}

/* --- List, Stat, MakeDir, Remove, Rename
 * ---------------------------------------------------------- */

static void ask(struct api_call *a, const char *sandbox_id, Cloche__V1__FileCommand *f,
                request_fn *done)
{
    struct cl_err err = {0};
    struct worker *w;
    if (!check_path(a, f->path, f->user))
        return;
    struct unit *u = api_unit(a, sandbox_id, BOOKS_SANDBOX, &w);
    if (!u)
        return;
    Cloche__V1__ExecCommand cmd = CLOCHE__V1__EXEC_COMMAND__INIT;
    cmd.unit_id = u->id;
    cmd.what_case = CLOCHE__V1__EXEC_COMMAND__WHAT_FILE;
    cmd.file = f;
    api_hold(a);
    if (worker_request(w, &cmd, done, a, &err) < 0)
        done(a, NULL, &err);
}

enum { LIST_MAX = 1000 };

static void on_listed(void *arg, const Cloche__V1__ExecAnswer *answer, const struct cl_err *err)
{
    struct api_call *a = arg;
    const Cloche__V1__FileServiceListRequest *r =
        (const Cloche__V1__FileServiceListRequest *)a->request;
    Cloche__V1__FileServiceListResponse m = CLOCHE__V1__FILE_SERVICE_LIST_RESPONSE__INIT;
    if (err) {
        api_fail(a, err);
    } else {
        size_t page = r->page_size ? CL_MIN(r->page_size, (uint32_t)LIST_MAX) : LIST_MAX;
        m.files = answer->files;
        m.n_files = answer->n_files;
        if (m.n_files > 0 && m.n_files >= page)
            m.next_page_token = m.files[m.n_files - 1]->name;
        api_reply(a, &m.base);
    }
    api_release(a);
}

static void file_list(struct api_call *a)
{
    const Cloche__V1__FileServiceListRequest *r =
        (const Cloche__V1__FileServiceListRequest *)a->request;
    Cloche__V1__FileCommand f = CLOCHE__V1__FILE_COMMAND__INIT;
    if (r->page_size > 10000) {
        api_fail_with(a, CL_E_INVALID, "page_size: at most 10000");
        return;
    }
    f.kind = CLOCHE__V1__GUEST_FILE_KIND__GUEST_FILE_KIND_LIST;
    f.path = r->path;
    f.user = r->user;
    f.after = r->page_token;
    f.limit = r->page_size ? CL_MIN(r->page_size, (uint32_t)LIST_MAX) : LIST_MAX;
    ask(a, r->sandbox_id, &f, on_listed);
}

static void on_stat(void *arg, const Cloche__V1__ExecAnswer *answer, const struct cl_err *err)
{
    struct api_call *a = arg;
    Cloche__V1__StatResponse m = CLOCHE__V1__STAT_RESPONSE__INIT;
    if (err) {
        api_fail(a, err);
    } else if (answer->n_files != 1) {
        api_fail_with(a, CL_E_PEER, "the guest answered %zu files", answer->n_files);
    } else {
        m.file = answer->files[0];
        api_reply(a, &m.base);
    }
    api_release(a);
}

static void file_stat(struct api_call *a)
{
    const Cloche__V1__StatRequest *r = (const Cloche__V1__StatRequest *)a->request;
    Cloche__V1__FileCommand f = CLOCHE__V1__FILE_COMMAND__INIT;
    f.kind = CLOCHE__V1__GUEST_FILE_KIND__GUEST_FILE_KIND_STAT;
    f.path = r->path;
    f.user = r->user;
    ask(a, r->sandbox_id, &f, on_stat);
}

/* Record a change and answer with an empty message. */
static void changed(struct api_call *a, const char *op, const char *path, const char *to,
                    const char *unit, const ProtobufCMessage *m)
{
    struct cl_err err = {0};
    const struct audit_field fields[] = {AUDIT_STR("op", op), AUDIT_STR("path", path),
                                         AUDIT_STR("to", to), AUDIT_STR("unit", unit)};
    if (audit_emit(a->s->audit, a->p.tenant, AUDIT_FILE_CHANGE, fields, CL_COUNT(fields), NULL,
                   NULL, &err) < 0)
        api_fail(a, &err);
    else
        api_reply(a, m);
}

static void on_made(void *arg, const Cloche__V1__ExecAnswer *answer, const struct cl_err *err)
{
    (void)answer;
    struct api_call *a = arg;
    const Cloche__V1__MakeDirRequest *r = (const Cloche__V1__MakeDirRequest *)a->request;
    Cloche__V1__MakeDirResponse m = CLOCHE__V1__MAKE_DIR_RESPONSE__INIT;
    if (err)
        api_fail(a, err);
    else
        changed(a, "mkdir", r->path, NULL, r->sandbox_id, &m.base);
    api_release(a);
}

static void file_make_dir(struct api_call *a)
{
    const Cloche__V1__MakeDirRequest *r = (const Cloche__V1__MakeDirRequest *)a->request;
    Cloche__V1__FileCommand f = CLOCHE__V1__FILE_COMMAND__INIT;
    f.kind = CLOCHE__V1__GUEST_FILE_KIND__GUEST_FILE_KIND_MKDIR;
    f.path = r->path;
    f.mode = r->mode;
    f.recursive = r->parents;
    f.user = r->user;
    ask(a, r->sandbox_id, &f, on_made);
}

static void on_removed(void *arg, const Cloche__V1__ExecAnswer *answer, const struct cl_err *err)
{
    (void)answer;
    struct api_call *a = arg;
    const Cloche__V1__RemoveRequest *r = (const Cloche__V1__RemoveRequest *)a->request;
    Cloche__V1__RemoveResponse m = CLOCHE__V1__REMOVE_RESPONSE__INIT;
    if (err)
        api_fail(a, err);
    else
        changed(a, "remove", r->path, NULL, r->sandbox_id, &m.base);
    api_release(a);
}

static void file_remove(struct api_call *a)
{
    const Cloche__V1__RemoveRequest *r = (const Cloche__V1__RemoveRequest *)a->request;
    Cloche__V1__FileCommand f = CLOCHE__V1__FILE_COMMAND__INIT;
    f.kind = CLOCHE__V1__GUEST_FILE_KIND__GUEST_FILE_KIND_REMOVE;
    f.path = r->path;
    f.recursive = r->recursive;
    f.user = r->user;
    ask(a, r->sandbox_id, &f, on_removed);
}

static void on_renamed(void *arg, const Cloche__V1__ExecAnswer *answer, const struct cl_err *err)
{
    (void)answer;
    struct api_call *a = arg;
    const Cloche__V1__RenameRequest *r = (const Cloche__V1__RenameRequest *)a->request;
    Cloche__V1__RenameResponse m = CLOCHE__V1__RENAME_RESPONSE__INIT;
    if (err)
        api_fail(a, err);
    else
        changed(a, "rename", r->from, r->to, r->sandbox_id, &m.base);
    api_release(a);
}

static void file_rename(struct api_call *a)
{
    const Cloche__V1__RenameRequest *r = (const Cloche__V1__RenameRequest *)a->request;
    struct cl_err err = {0};
    Cloche__V1__FileCommand f = CLOCHE__V1__FILE_COMMAND__INIT;
    if (validate_path(r->to, &err) < 0) {
        api_fail(a, &err);
        return;
    }
    f.kind = CLOCHE__V1__GUEST_FILE_KIND__GUEST_FILE_KIND_RENAME;
    f.path = r->from;
    f.to = r->to;
    f.user = r->user;
    ask(a, r->sandbox_id, &f, on_renamed);
}

static void write_message(struct api_call *a, const ProtobufCMessage *msg)
{
    upload_file_bytes(a, (const Cloche__V1__WriteRequest *)msg);
}

#define METHOD(name) "/cloche.v1.FileService/" name
#define TYPES(in_, out_) \
    .in = &cloche__v1__##in_##__descriptor, .out = &cloche__v1__##out_##__descriptor

const struct api_method file_api[] = {
    {METHOD("Read"), TYPES(read_request, read_response), .scope = SCOPE_READ, .wakes = true,
     .server_streams = true, .handle = file_read, .on_drain = flow_room, .on_gone = flow_gone},
    {METHOD("Write"), TYPES(write_request, write_response), .scope = SCOPE_RUN, .wakes = true,
     .changes = true, .client_streams = true, .handle = upload_file, .on_message = write_message,
     .on_half_close = upload_half_close, .on_gone = upload_gone},
    {METHOD("List"), TYPES(file_service_list_request, file_service_list_response),
     .scope = SCOPE_READ, .wakes = true, .handle = file_list},
    {METHOD("Stat"), TYPES(stat_request, stat_response), .scope = SCOPE_READ, .wakes = true,
     .handle = file_stat},
    {METHOD("MakeDir"), TYPES(make_dir_request, make_dir_response), .scope = SCOPE_RUN,
     .wakes = true, .changes = true, .handle = file_make_dir},
    {METHOD("Remove"), TYPES(remove_request, remove_response), .scope = SCOPE_RUN, .wakes = true,
     .changes = true, .handle = file_remove},
    {METHOD("Rename"), TYPES(rename_request, rename_response), .scope = SCOPE_RUN, .wakes = true,
     .changes = true, .handle = file_rename},
    {METHOD("Watch"), TYPES(file_service_watch_request, file_service_watch_response),
     .scope = SCOPE_READ, .wakes = true, .server_streams = true, .handle = file_watch,
     .on_drain = flow_room, .on_gone = flow_gone},
};
const size_t file_api_n = CL_COUNT(file_api);
