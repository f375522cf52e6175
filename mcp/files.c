/* mcp/files.c - the tools file_read, file_write and file_list. */
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/own.h"
#include "base/utf8.h"
#include "cloche/v1/file.pb-c.h"
#include "mcp/ask_priv.h"
#include "mcp/call_priv.h"
#include "mcp/tools_priv.h"

enum {
    READ_DEFAULT = 64 * 1024,
    READ_MAX = 1024 * 1024,
    LIST_PAGE = 500, /* entries a call: more would drown a model */
    WRITE_PIECE = 256 * 1024,
    PARENTS_MAX = 4096,
};

static char *base64(const uint8_t *data, size_t n)
{
    char *out = cl_zalloc(4 * ((n + 2) / 3) + 1);
    if (out)
        (void)EVP_EncodeBlock((unsigned char *)out, data, (int)n);
    return out;
}

/* The path belongs to what went wrong with it. */
static void end_error(struct mcp_call *c, const struct cl_err *err)
{
    struct cl_err named = *err;
    const char *path = mcp_json_text(mcp_args(c), "path");
    if (strcmp(err->subject, "sandbox") != 0)
        (void)cl_wrap(&named, "%.200s", path ? path : ".");
    mcp_end_tool_error(c, &named);
}

/* --- file_read ----------------------------------------------------------------------------------
 */

struct reading {
    struct cl_buf bytes;
    uint64_t size;
};

static void reading_free(void *obj)
{
    struct reading *w = obj;
    cl_buf_fini(&w->bytes);
    cl_free(w);
}

static const char *image_type(const struct cl_buf *b)
{
    static const struct {
        const char *type, *magic;
        size_t n, at;
    } rows[] = {{"image/png", "\x89PNG\r\n\x1a\n", 8, 0},
                {"image/jpeg", "\xff\xd8\xff", 3, 0},
                {"image/gif", "GIF8", 4, 0},
                {"image/webp", "WEBP", 4, 8}};
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        if (b->len >= rows[i].at + rows[i].n &&
            memcmp(b->data + rows[i].at, rows[i].magic, rows[i].n) == 0)
            return rows[i].type;
    }
    return NULL;
}

/* Valid but for a character that the range cuts at its ends. */
static bool is_text(const struct cl_buf *b, bool cut_front, bool cut_end)
{
    size_t from = 0, n = b->len;
    while (cut_front && from < n && from < 3 && (b->data[from] & 0xc0) == 0x80)
        from++;
    for (int i = 0; i < 4; i++) {
        if (cl_utf8_is_valid((const char *)b->data + from, n - from))
            return !memchr(b->data, 0, b->len);
        if (!cut_end || n == from)
            return false;
        n--;
    }
    return false;
}

static void show_image(const char *type, const struct cl_buf *b, struct mcp_result *r)
{
    CL_AUTO(cl_freep) char *coded = base64(b->data, b->len);
    r->content = json_array();
    (void)json_array_append_new(r->content, json_pack("{s:s, s:s, s:s}", "type", "image", "data",
                                                      coded ? coded : "", "mimeType", type));
    mcp_json_set(r->structured, "encoding", json_string("image"));
}

static void show_bytes(const struct mcp_call *c, const struct reading *w, uint64_t offset,
                       struct mcp_result *r)
{
    const char *how = mcp_json_text(mcp_args(c), "encoding");
    bool cut_end = offset + w->bytes.len < w->size;
    bool text = how && strcmp(how, "text") == 0;
    if (!how || strcmp(how, "auto") == 0)
        text = is_text(&w->bytes, offset > 0, cut_end);
    CL_AUTO(cl_freep)
    char *shown = text ? mcp_text_clean(w->bytes.data, w->bytes.len, offset > 0, cut_end)
                       : base64(w->bytes.data, w->bytes.len);
    mcp_json_set(r->structured, "encoding", json_string(text ? "text" : "base64"));
    mcp_json_set(r->structured, "content", json_string(shown ? shown : ""));
    r->text = cl_asprintf("%s%s", shown ? shown : "",
                          cut_end ? "\n[... more: call again with a larger offset ...]" : "");
}

static void on_read_end(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply;
    struct reading *w = mcp_work(c);
    uint64_t offset = mcp_json_u64(mcp_args(c), "offset", 0);
    const char *type;
    if (err) {
        end_error(c, err);
        return;
    }
    struct mcp_result r = {
        .structured = json_pack("{s:s, s:s, s:I, s:I, s:I, s:b}", "sandbox_id", mcp_box(c), "path",
                                mcp_json_text(mcp_args(c), "path"), "offset", (json_int_t)offset,
                                "bytes", (json_int_t)w->bytes.len, "size", (json_int_t)w->size,
                                "truncated", offset + w->bytes.len < w->size)};
    bool is_whole = offset == 0 && w->bytes.len == w->size;
    if (is_whole && !mcp_json_text(mcp_args(c), "encoding") &&
        (type = image_type(&w->bytes)) != NULL)
        show_image(type, &w->bytes, &r);
    else
        show_bytes(c, w, offset, &r);
    mcp_end_tool(c, &r);
}

static void on_read(struct mcp_call *c, const ProtobufCMessage *msg)
{
    const Cloche__V1__ReadResponse *m = (const Cloche__V1__ReadResponse *)msg;
    struct reading *w = mcp_work(c);
    struct cl_err err = {0};
    w->size = CL_MAX(w->size, m->size);
    if (m->data.len > 0 && cl_buf_append(&w->bytes, m->data.data, m->data.len, &err) < 0)
        mcp_end_tool_error(c, &err);
}

static void read_in_box(struct mcp_call *c)
{
    static const struct mcp_method_of read = MCP_RPC("FileService", "Read", read_response);
    const json_t *args = mcp_args(c);
    Cloche__V1__ReadRequest m = CLOCHE__V1__READ_REQUEST__INIT;
    m.sandbox_id = mcp_pb(mcp_box(c));
    m.path = mcp_pb(mcp_json_text(args, "path"));
    m.offset = mcp_json_u64(args, "offset", 0);
    m.length = mcp_json_u64(args, "limit", READ_DEFAULT);
    m.user = mcp_pb(mcp_json_text(args, "user"));
    struct mcp_ask_spec ask = {
        .method = &read, .request = &m.base, .on_message = on_read, .on_end = on_read_end};
    (void)!mcp_ask(c, &ask, NULL);
}

void mcp_tool_file_read(struct mcp_call *c)
{
    struct cl_err err = {0};
    struct reading *w = cl_zalloc(sizeof *w);
    if (!w) {
        (void)cl_fail(&err, CL_E_NOMEM, 0, "file");
        mcp_end_tool_error(c, &err);
        return;
    }
    cl_buf_init(&w->bytes, READ_MAX);
    mcp_set_work(c, w, reading_free);
    mcp_box_need(c, read_in_box);
}

/* --- file_write ---------------------------------------------------------------------------------
 */

struct writing {
    uint8_t *bytes; /* owned */
    size_t n, sent;
    uint32_t mode;
    bool has_parents; /* making them was tried */
    struct rpc_call *rpc;
};

static void writing_free(void *obj)
{
    struct writing *w = obj;
    cl_free(w->bytes);
    cl_free(w);
}

static int decode64(const char *text, size_t n, struct writing *w, struct cl_err *err)
{
    size_t padding = 0;
    w->bytes = cl_zalloc(n / 4 * 3 + 4);
    if (!w->bytes)
        return cl_fail(err, CL_E_NOMEM, 0, "file");
    while (padding < 2 && n > padding && text[n - 1 - padding] == '=')
        padding++;
    int got = n % 4 == 0 ? EVP_DecodeBlock(w->bytes, (const unsigned char *)text, (int)n) : -1;
    if (got < 0 || (size_t)got < padding)
        return cl_fail(err, CL_E_INVALID, 0, "argument content: not base64");
    w->n = (size_t)got - padding;
    return 0;
}

static int read_mode(const json_t *args, uint32_t *ret, struct cl_err *err)
{
    const char *text = mcp_json_text(args, "mode");
    char *end = NULL;
    unsigned long mode = text ? strtoul(text, &end, 8) : 0;
    if (text && (*end || end == text || mode > 07777))
        return cl_fail(err, CL_E_INVALID, 0, "argument mode: octal, as 0644");
    *ret = (uint32_t)mode;
    return 0;
}

static int take_content(const json_t *args, struct writing *w, struct cl_err *err)
{
    const json_t *content = json_object_get(args, "content");
    const char *how = mcp_json_text(args, "encoding"), *text = json_string_value(content);
    size_t n = json_string_length(content);
    if (read_mode(args, &w->mode, err) < 0)
        return -1;
    if (how && strcmp(how, "base64") == 0)
        return decode64(text, n, w, err);
    w->bytes = cl_zalloc(n + 1);
    if (!w->bytes)
        return cl_fail(err, CL_E_NOMEM, 0, "file");
    memcpy(w->bytes, text, n);
    w->n = n;
    return 0;
}

static void send_pieces(struct mcp_call *c, struct rpc_call *rpc)
{
    struct writing *w = mcp_work(c);
    const json_t *args = mcp_args(c);
    while (w->rpc && !rpc_call_is_full(rpc)) {
        Cloche__V1__WriteRequest m = CLOCHE__V1__WRITE_REQUEST__INIT;
        if (w->sent == 0) {
            m.sandbox_id = mcp_pb(mcp_box(c));
            m.path = mcp_pb(mcp_json_text(args, "path"));
            m.user = mcp_pb(mcp_json_text(args, "user"));
            m.mode = w->mode;
        }
        m.data.data = w->bytes + w->sent;
        m.data.len = CL_MIN(w->n - w->sent, (size_t)WRITE_PIECE);
        w->sent += m.data.len;
        m.commit = w->sent == w->n;
        if (rpc_call_send(rpc, &m.base, NULL) < 0 || m.commit) {
            rpc_call_close_send(rpc);
            w->rpc = NULL;
        }
    }
}

static void write_in_box(struct mcp_call *c);

static void on_parents(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply;
    if (err)
        end_error(c, err);
    else
        write_in_box(c);
}

/* The folder above the path; false when there is none to make. */
static bool make_parents(struct mcp_call *c)
{
    static const struct mcp_method_of mkdir = MCP_RPC("FileService", "MakeDir", make_dir_response);
    struct writing *w = mcp_work(c);
    Cloche__V1__MakeDirRequest m = CLOCHE__V1__MAKE_DIR_REQUEST__INIT;
    char path[PARENTS_MAX + 1];
    (void)snprintf(path, sizeof path, "%s", mcp_json_text(mcp_args(c), "path"));
    char *slash = strrchr(path, '/');
    if (w->has_parents || !slash || slash == path)
        return false;
    *slash = '\0';
    w->has_parents = true;
    w->sent = 0;
    m.sandbox_id = mcp_pb(mcp_box(c));
    m.path = path;
    m.parents = true;
    m.mode = 0755;
    m.user = mcp_pb(mcp_json_text(mcp_args(c), "user"));
    struct mcp_ask_spec ask = {.method = &mkdir, .request = &m.base, .on_end = on_parents};
    (void)!mcp_ask(c, &ask, NULL);
    return true;
}

static void on_written(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    struct writing *w = mcp_work(c);
    char sum[65] = "";
    w->rpc = NULL;
    if (err && err->code == CL_E_NOTFOUND && strcmp(err->subject, "sandbox") != 0 &&
        make_parents(c))
        return;
    if (err) {
        end_error(c, err);
        return;
    }
    const Cloche__V1__WriteResponse *m = (const Cloche__V1__WriteResponse *)reply;
    const char *path = mcp_json_text(mcp_args(c), "path");
    if (m->sha256.len == 32)
        cl_hex(m->sha256.data, m->sha256.len, sum);
    char note[160];
    mcp_box_note(c, note, sizeof note);
    struct mcp_result r = {
        .structured = json_pack("{s:s, s:s, s:I, s:s}", "sandbox_id", mcp_box(c), "path", path,
                                "bytes", (json_int_t)m->bytes, "sha256", sum),
        .text = cl_asprintf("wrote %" PRIu64 " bytes to %s\n%s", m->bytes, path, note)};
    mcp_end_tool(c, &r);
}

static void write_in_box(struct mcp_call *c)
{
    static const struct mcp_method_of write = MCP_RPC("FileService", "Write", write_response);
    struct writing *w = mcp_work(c);
    struct mcp_ask_spec ask = {
        .method = &write, .keep_open = true, .on_drain = send_pieces, .on_end = on_written};
    if (mcp_ask(c, &ask, &w->rpc) == 0)
        send_pieces(c, w->rpc);
}

void mcp_tool_file_write(struct mcp_call *c)
{
    struct cl_err err = {0};
    struct writing *w = cl_zalloc(sizeof *w);
    if (!w)
        (void)cl_fail(&err, CL_E_NOMEM, 0, "file");
    else
        mcp_set_work(c, w, writing_free);
    if (!w || take_content(mcp_args(c), w, &err) < 0)
        mcp_end_tool_error(c, &err);
    else
        mcp_box_need(c, write_in_box);
}

/* --- file_list ----------------------------------------------------------------------------------
 */

static const char *const types[] = {"other", "file", "directory", "symlink", "other"};

static const char *type_name(const Cloche__V1__FileInfo *f)
{
    return (size_t)f->type < CL_COUNT(types) ? types[f->type] : types[0];
}

/* Names in a guest are bytes: what is no UTF-8 never reaches us (proto/unpack.h refuses it). */
static json_t *entry_json(const Cloche__V1__FileInfo *f)
{
    char mode[8], when[CL_RFC3339_LEN];
    (void)snprintf(mode, sizeof mode, "%04o", f->mode & 07777);
    json_t *o = json_pack("{s:s, s:s, s:I, s:s}", "name", f->name, "type", type_name(f), "size",
                          (json_int_t)f->size, "mode", mode);
    if (f->modified) {
        cl_rfc3339(f->modified->unix_ns, when);
        mcp_json_set(o, "modified", json_string(when));
    }
    if (f->link_target[0])
        mcp_json_set(o, "link_target", json_string(f->link_target));
    return o;
}

static char *entries_text(const Cloche__V1__FileServiceListResponse *m)
{
    struct cl_buf text;
    cl_buf_init(&text, 4 * 1024 * 1024);
    int rc = cl_buf_printf(&text, NULL, "%zu entries%s", m->n_files,
                           m->next_page_token[0] ? ", and more: pass next_cursor" : "");
    for (size_t i = 0; rc == 0 && i < m->n_files; i++) {
        const Cloche__V1__FileInfo *f = m->files[i];
        rc = cl_buf_printf(&text, NULL, "\n%-9s %10" PRIu64 "  %s", type_name(f), f->size, f->name);
    }
    char *out = cl_strndup((const char *)text.data, text.len);
    cl_buf_fini(&text);
    return out;
}

static void on_listed(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    if (err) {
        end_error(c, err);
        return;
    }
    const Cloche__V1__FileServiceListResponse *m =
        (const Cloche__V1__FileServiceListResponse *)reply;
    const char *path = mcp_json_text(mcp_args(c), "path");
    json_t *entries = json_array();
    for (size_t i = 0; i < m->n_files; i++)
        (void)json_array_append_new(entries, entry_json(m->files[i]));
    struct mcp_result r = {.structured = json_pack("{s:s, s:s, s:o}", "sandbox_id", mcp_box(c),
                                                   "path", path ? path : ".", "entries", entries),
                           .text = entries_text(m)};
    if (m->next_page_token[0])
        mcp_json_set(r.structured, "next_cursor", json_string(m->next_page_token));
    mcp_end_tool(c, &r);
}

static void list_in_box(struct mcp_call *c)
{
    static const struct mcp_method_of list =
        MCP_RPC("FileService", "List", file_service_list_response);
    const char *path = mcp_json_text(mcp_args(c), "path");
    Cloche__V1__FileServiceListRequest m = CLOCHE__V1__FILE_SERVICE_LIST_REQUEST__INIT;
    m.sandbox_id = mcp_pb(mcp_box(c));
    m.path = mcp_pb(path ? path : ".");
    m.page_size = LIST_PAGE;
    m.page_token = mcp_pb(mcp_json_text(mcp_args(c), "cursor"));
    m.user = mcp_pb(mcp_json_text(mcp_args(c), "user"));
    struct mcp_ask_spec ask = {.method = &list, .request = &m.base, .on_end = on_listed};
    (void)!mcp_ask(c, &ask, NULL);
}

void mcp_tool_file_list(struct mcp_call *c)
{
    mcp_box_need(c, list_in_box);
}
