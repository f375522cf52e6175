/* e2b/files.c - envd's /files: whole files down and up. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "cloche/v1/file.pb-c.h"
#include "e2b/call_priv.h"
#include "e2b/multipart.h"

enum { PATH_BYTES = 4096, PIECE = 64 * 1024, TRANSFER_S = 3600 };

struct transfer {
    char path[PATH_BYTES], folder[PATH_BYTES];
    bool has_path; /* of the query: then the form's names do not count */
    struct multipart form;
    bool is_form;
    struct rpc_call *rpc; /* the channel's: the Write that is open; NULL once it was committed */
    json_t *written;      /* owned */
};

static void transfer_free(void *obj)
{
    struct transfer *w = obj;
    json_decref(w->written);
    cl_free(w);
}

static struct transfer *begin(struct e2b_call *c)
{
    char asked[PATH_BYTES] = "";
    struct transfer *w = e2b_work_new(c, sizeof *w, transfer_free);
    if (!w)
        return NULL;
    int has = e2b_query_get(c->in.query, "path", asked, sizeof asked);
    w->has_path = has > 0 && asked[0];
    if (has < 0 || (w->has_path && e2b_path(c, asked, w->path, sizeof w->path) < 0)) {
        (void)e2b_fail_invalid(c, "path: malformed, or too long");
        return NULL;
    }
    return w;
}

/* --- down ---------------------------------------------------------------------------------------
 */

static void on_data(struct e2b_call *c, const ProtobufCMessage *msg, struct rpc_call *rpc)
{
    const Cloche__V1__ReadResponse *m = (const Cloche__V1__ReadResponse *)msg;
    if (!c->is_streaming)
        e2b_begin(c, "application/octet-stream");
    e2b_send(c, m->data.data, m->data.len, rpc);
}

static void on_read(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply;
    if (err) {
        e2b_fail_in_box(c, err);
        return;
    }
    if (!c->is_streaming)
        e2b_begin(c, "application/octet-stream");
    e2b_end(c);
}

void e2b_file_read(struct e2b_call *c)
{
    static const struct e2b_method read = E2B_RPC("FileService", "Read", read_response);
    Cloche__V1__ReadRequest m = CLOCHE__V1__READ_REQUEST__INIT;
    const struct transfer *w = begin(c);
    if (!w)
        return;
    if (!w->has_path) {
        (void)e2b_fail_invalid(c, "path is missing");
        return;
    }
    m.sandbox_id = c->grant->sandbox;
    m.path = e2b_pb(w->path);
    m.user = e2b_pb(c->user);
    (void)!e2b_ask(c,
                   &(struct e2b_ask){.method = &read,
                                     .request = &m.base,
                                     .timeout_ns = TRANSFER_S * CL_NS_PER_S,
                                     .on_message = on_data,
                                     .on_end = on_read},
                   NULL);
}

/* --- up -----------------------------------------------------------------------------------------
 *
 *   SEEK --a file begins--> ask for its folder --> WRITE --its end is seen: commit--> SEEK
 *
 * A body that is no form is WRITE from the beginning.  The body is wanted in SEEK, and in WRITE
 * while the scheduler takes it.  Whatever ends the call before the commit leaves the file as it
 * was.
 */

/* To the open Write.  Where it takes no more, its end says why. */
static void send(struct e2b_call *c, const Cloche__V1__WriteRequest *m)
{
    struct transfer *w = c->work;
    if (rpc_call_send(w->rpc, &m->base, NULL) < 0 || m->commit) {
        rpc_call_close_send(w->rpc);
        w->rpc = NULL;
    }
    c->wants_body = w->rpc && !rpc_call_is_full(w->rpc);
}

static void send_data(struct e2b_call *c, const void *data, size_t n)
{
    Cloche__V1__WriteRequest m = CLOCHE__V1__WRITE_REQUEST__INIT;
    m.data.data = (uint8_t *)(uintptr_t)data;
    m.data.len = n;
    send(c, &m);
}

static void commit(struct e2b_call *c)
{
    Cloche__V1__WriteRequest m = CLOCHE__V1__WRITE_REQUEST__INIT;
    m.commit = true;
    send(c, &m);
}

static void on_drain(struct e2b_call *c, struct rpc_call *rpc)
{
    const struct transfer *w = c->work;
    if (w->rpc == rpc)
        e2b_want_body(c);
}

static void on_written(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    struct transfer *w = c->work;
    const char *name = strrchr(w->path, '/');
    struct cl_err early = {0};
    (void)reply;
    if (!err && w->rpc && cl_fail(&early, CL_E_PEER, 0, "the write ended before its end") < 0)
        err = &early;
    w->rpc = NULL;
    c->wants_body = false;
    if (err) {
        e2b_fail_in_box(c, err);
        return;
    }
    (void)json_array_append_new(w->written,
                                json_pack("{s:s, s:s, s:s}", "name", name ? name + 1 : w->path,
                                          "type", "file", "path", w->path));
    if (w->is_form)
        e2b_want_body(c);
    else
        e2b_reply(c, 200, json_incref(w->written));
}

static void write_file(struct e2b_call *c)
{
    static const struct e2b_method write = E2B_RPC("FileService", "Write", write_response);
    struct transfer *w = c->work;
    Cloche__V1__WriteRequest m = CLOCHE__V1__WRITE_REQUEST__INIT;
    if (e2b_ask(c,
                &(struct e2b_ask){.method = &write,
                                  .keep_open = true,
                                  .timeout_ns = TRANSFER_S * CL_NS_PER_S,
                                  .on_drain = on_drain,
                                  .on_end = on_written},
                &w->rpc) < 0)
        return;
    m.sandbox_id = c->grant->sandbox;
    m.path = w->path;
    m.user = e2b_pb(c->user);
    send(c, &m); /* without data: who may not write hears it before all of it is sent */
    if (c->wants_body)
        e2b_want_body(c);
}

static void on_made(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply;
    if (err)
        e2b_fail_in_box(c, err);
    else
        write_file(c);
}

/* Folders on the way are made, as envd does. */
static void begin_file(struct e2b_call *c)
{
    static const struct e2b_method make = E2B_RPC("FileService", "MakeDir", make_dir_response);
    struct transfer *w = c->work;
    Cloche__V1__MakeDirRequest m = CLOCHE__V1__MAKE_DIR_REQUEST__INIT;
    c->wants_body = false;
    (void)snprintf(w->folder, sizeof w->folder, "%s", w->path);
    char *slash = strrchr(w->folder, '/');
    if (!slash || slash == w->folder) {
        write_file(c);
        return;
    }
    *slash = '\0';
    m.sandbox_id = c->grant->sandbox;
    m.path = w->folder;
    m.user = e2b_pb(c->user);
    m.parents = true;
    (void)!e2b_ask(c, &(struct e2b_ask){.method = &make, .request = &m.base, .on_end = on_made},
                   NULL);
}

static size_t take_plain(struct e2b_call *c, const void *data, size_t n)
{
    n = CL_MIN(n, (size_t)PIECE);
    send_data(c, data, n);
    return n;
}

static void take_part(struct e2b_call *c)
{
    struct transfer *w = c->work;
    const char *name = w->form.filename;
    if (!w->has_path && (!name[0] || e2b_path(c, name, w->path, sizeof w->path) < 0))
        (void)e2b_fail_invalid(c, "a file of the form has no name, or too long a one");
    else
        begin_file(c);
}

static size_t take_form(struct e2b_call *c, const void *data, size_t n)
{
    struct transfer *w = c->work;
    struct cl_err err = {0};
    size_t used;
    switch (multipart_feed(&w->form, data, CL_MIN(n, (size_t)PIECE), &used, &err)) {
    case MULTIPART_MORE:
        break;
    case MULTIPART_PART:
        take_part(c);
        break;
    case MULTIPART_DATA:
        send_data(c, w->form.data, w->form.n);
        break;
    case MULTIPART_END:
        commit(c);
        break;
    case MULTIPART_BAD:
        e2b_fail(c, &err);
        break;
    }
    return used;
}

static void end_form(struct e2b_call *c)
{
    struct transfer *w = c->work;
    struct cl_err err = {0};
    if (multipart_finish(&w->form, &err) < 0)
        e2b_fail(c, &err);
    else
        e2b_reply(c, 200, json_incref(w->written));
}

/* A client that sends a byte now and then is never idle. */
static void take_too_long(struct e2b_call *c)
{
    struct cl_err err = {0};
    (void)cl_fail(&err, CL_E_DEADLINE, 0, "the upload took more than %d s", TRANSFER_S);
    e2b_fail(c, &err);
}

static int check_coding(const struct e2b_call *c, struct cl_err *err)
{
    const char *coding = c->in.content_encoding;
    return coding ? cl_fail(err, CL_E_INVALID, 0, "Content-Encoding '%.40s': send it plain", coding)
                  : 0;
}

void e2b_file_take(struct e2b_call *c, const char *path)
{
    struct cl_err err = {0};
    struct transfer *w = e2b_work_new(c, sizeof *w, transfer_free);
    if (!w)
        return;
    w->written = json_array();
    (void)snprintf(w->path, sizeof w->path, "%s", path);
    c->on_body = take_plain;
    c->on_body_end = commit;
    e2b_after(c, TRANSFER_S * CL_NS_PER_S, take_too_long);
    if (check_coding(c, &err) < 0)
        e2b_fail(c, &err);
    else
        begin_file(c);
}

void e2b_file_write(struct e2b_call *c)
{
    struct cl_err err = {0};
    const char *type = c->in.content_type ? c->in.content_type : "";
    struct transfer *w = begin(c);
    if (!w)
        return;
    w->written = json_array();
    w->is_form = strncasecmp(type, "multipart/form-data", 19) == 0;
    c->on_body = w->is_form ? take_form : take_plain;
    c->on_body_end = w->is_form ? end_form : commit;
    e2b_after(c, TRANSFER_S * CL_NS_PER_S, take_too_long);
    if (check_coding(c, &err) == 0 && w->is_form)
        (void)!multipart_init(&w->form, type, &err);
    else if (!err.code && !w->has_path)
        (void)cl_fail(&err, CL_E_INVALID, 0, "path is missing");
    if (err.code)
        e2b_fail(c, &err);
    else if (w->is_form)
        e2b_want_body(c);
    else
        begin_file(c);
}
