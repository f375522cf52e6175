/* e2b/files.c - envd's /files: whole files down and up. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "cloche/v1/file.pb-c.h"
#include "e2b/call_priv.h"
#include "e2b/multipart.h"

enum { PATH_BYTES = 4096, PIECE = 256 * 1024, TRANSFER_S = 3600 };

struct transfer {
    char path[PATH_BYTES], folder[PATH_BYTES];
    bool has_path; /* of the query: then the form's names do not count */
    struct multipart form;
    struct multipart_part part;
    bool is_form;
    struct rpc_call *rpc; /* the channel's; NULL once all was sent */
    size_t sent;
    json_t *written; /* owned */
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
 */

static void write_next(struct e2b_call *c);

static void on_written(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    struct transfer *w = c->work;
    const char *name = strrchr(w->path, '/');
    (void)reply;
    w->rpc = NULL;
    if (err) {
        e2b_fail_in_box(c, err);
        return;
    }
    (void)json_array_append_new(w->written,
                                json_pack("{s:s, s:s, s:s}", "name", name ? name + 1 : w->path,
                                          "type", "file", "path", w->path));
    write_next(c);
}

static void feed(struct e2b_call *c, struct rpc_call *rpc)
{
    struct transfer *w = c->work;
    while (w->rpc && !rpc_call_is_full(rpc)) {
        Cloche__V1__WriteRequest m = CLOCHE__V1__WRITE_REQUEST__INIT;
        if (w->sent == 0) {
            m.sandbox_id = c->grant->sandbox;
            m.path = w->path;
            m.user = e2b_pb(c->user);
        }
        m.data.data = (uint8_t *)(uintptr_t)(w->part.data + w->sent);
        m.data.len = CL_MIN(w->part.n - w->sent, (size_t)PIECE);
        w->sent += m.data.len;
        m.commit = w->sent == w->part.n;
        if (rpc_call_send(rpc, &m.base, NULL) < 0 || m.commit) {
            rpc_call_close_send(rpc);
            w->rpc = NULL;
        }
    }
}

static void write_file(struct e2b_call *c)
{
    static const struct e2b_method write = E2B_RPC("FileService", "Write", write_response);
    struct transfer *w = c->work;
    w->sent = 0;
    if (e2b_ask(c,
                &(struct e2b_ask){.method = &write,
                                  .keep_open = true,
                                  .timeout_ns = TRANSFER_S * CL_NS_PER_S,
                                  .on_drain = feed,
                                  .on_end = on_written},
                &w->rpc) == 0)
        feed(c, w->rpc);
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
static void make_folder(struct e2b_call *c)
{
    static const struct e2b_method make = E2B_RPC("FileService", "MakeDir", make_dir_response);
    struct transfer *w = c->work;
    Cloche__V1__MakeDirRequest m = CLOCHE__V1__MAKE_DIR_REQUEST__INIT;
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

/* The next file: of the form, or the body itself, once. */
static int take_part(struct e2b_call *c, struct cl_err *err)
{
    struct transfer *w = c->work;
    if (w->is_form) {
        int rc = multipart_next(&w->form, &w->part, err);
        if (rc <= 0)
            return rc;
        if (!w->has_path &&
            (!w->part.filename[0] || e2b_path(c, w->part.filename, w->path, sizeof w->path) < 0))
            return cl_fail(err, CL_E_INVALID, 0,
                           "a file of the form has no name, or too long a one");
        return 1;
    }
    if (json_array_size(w->written) > 0)
        return 0;
    if (!w->has_path)
        return cl_fail(err, CL_E_INVALID, 0, "path is missing");
    w->part.data = c->in.body ? c->in.body : "";
    w->part.n = c->in.n;
    return 1;
}

static void write_next(struct e2b_call *c)
{
    struct cl_err err = {0};
    struct transfer *w = c->work;
    int rc = take_part(c, &err);
    if (rc < 0)
        e2b_fail(c, &err);
    else if (rc > 0)
        make_folder(c);
    else
        e2b_reply(c, 200, json_incref(w->written));
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
    if (c->in.content_encoding)
        (void)cl_fail(&err, CL_E_INVALID, 0, "Content-Encoding '%.40s': send it plain",
                      c->in.content_encoding);
    else if (w->is_form)
        (void)!multipart_begin(&w->form, type, c->in.body ? c->in.body : "", c->in.n, &err);
    if (err.code)
        e2b_fail(c, &err);
    else
        write_next(c);
}
