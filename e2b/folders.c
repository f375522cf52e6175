/* e2b/folders.c - envd's filesystem.Filesystem. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cloche/v1/file.pb-c.h"
#include "e2b/call_priv.h"

enum { PATH_BYTES = 4096, PAGE = 1000, ENTRIES_MAX = 10000, DEPTH_MAX = 16 };

/* A folder still to be listed. */
struct pending {
    struct pending *next;
    unsigned depth;
    char path[];
};

struct folder {
    char path[PATH_BYTES], page[256];
    e2b_run_fn *next; /* after it has been made or moved */
    json_t *entries;  /* owned */
    struct pending *todo, **todo_end;
    unsigned depth, wanted;
};

static void folder_free(void *obj)
{
    struct folder *w = obj;
    for (struct pending *p = w->todo, *next; p; p = next) {
        next = p->next;
        cl_free(p);
    }
    json_decref(w->entries);
    cl_free(w);
}

/* The path that the member names; NULL: the call has ended. */
static struct folder *begin(struct e2b_call *c, const char *member)
{
    const char *path = e2b_text(c, member);
    struct folder *w = e2b_work_new(c, sizeof *w, folder_free);
    if (!w)
        return NULL;
    w->todo_end = &w->todo;
    if (path && e2b_path(c, path, w->path, sizeof w->path) == 0)
        return w;
    (void)e2b_fail_invalid(c, "the path is missing, holds NUL, or is too long");
    return NULL;
}

/* --- what a file is -----------------------------------------------------------------------------
 */

static const char *type_of(const Cloche__V1__FileInfo *f)
{
    return f->type == CLOCHE__V1__FILE_TYPE__FILE_TYPE_DIRECTORY ? "FILE_TYPE_DIRECTORY"
           : f->type == CLOCHE__V1__FILE_TYPE__FILE_TYPE_SYMLINK ? "FILE_TYPE_SYMLINK"
           : f->type == CLOCHE__V1__FILE_TYPE__FILE_TYPE_REGULAR ? "FILE_TYPE_FILE"
                                                                 : "FILE_TYPE_UNSPECIFIED";
}

static void permissions_of(const Cloche__V1__FileInfo *f, char out[static 11])
{
    static const char letters[] = "rwxrwxrwx";
    out[0] = f->type == CLOCHE__V1__FILE_TYPE__FILE_TYPE_DIRECTORY ? 'd'
             : f->type == CLOCHE__V1__FILE_TYPE__FILE_TYPE_SYMLINK ? 'l'
                                                                   : '-';
    for (int i = 0; i < 9; i++)
        out[1 + i] = f->mode >> (8 - i) & 1 ? letters[i] : '-';
    out[10] = '\0';
}

/* Guests have these two; another one is told by number. */
static json_t *owner_of(uint32_t id)
{
    char text[12];
    (void)snprintf(text, sizeof text, "%u", id);
    return json_string(id == 0 ? "root" : id == 1000 ? "user" : text);
}

json_t *e2b_entry(const Cloche__V1__FileInfo *f, const char *path)
{
    char permissions[11], size[24], when[CL_RFC3339_LEN];
    permissions_of(f, permissions);
    (void)snprintf(size, sizeof size, "%llu", (unsigned long long)f->size);
    json_t *o =
        json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:o, s:o}", "name", f->name, "type", type_of(f),
                  "path", path, "size", size, "mode", (int)f->mode, "permissions", permissions,
                  "owner", owner_of(f->uid), "group", owner_of(f->gid));
    if (f->modified) {
        cl_rfc3339(f->modified->unix_ns, when);
        mcp_json_set(o, "modifiedTime", json_string(when));
    }
    if (f->link_target[0])
        mcp_json_set(o, "symlinkTarget", json_string(f->link_target));
    return o;
}

/* --- stat ---------------------------------------------------------------------------------------
 */

static void ask_stat(struct e2b_call *c, void (*on_end)(struct e2b_call *, const ProtobufCMessage *,
                                                        const struct cl_err *))
{
    static const struct e2b_method stat = E2B_RPC("FileService", "Stat", stat_response);
    const struct folder *w = c->work;
    Cloche__V1__StatRequest m = CLOCHE__V1__STAT_REQUEST__INIT;
    m.sandbox_id = c->grant->sandbox;
    m.path = e2b_pb(w->path);
    m.user = e2b_pb(c->user);
    (void)!e2b_ask(c, &(struct e2b_ask){.method = &stat, .request = &m.base, .on_end = on_end},
                   NULL);
}

static void on_stat(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    const struct folder *w = c->work;
    if (err)
        e2b_fail_in_box(c, err);
    else
        e2b_reply(c, 200,
                  json_pack("{s:o}", "entry",
                            e2b_entry(((const Cloche__V1__StatResponse *)reply)->file, w->path)));
}

void e2b_folder_stat(struct e2b_call *c)
{
    if (begin(c, "path"))
        ask_stat(c, on_stat);
}

/* --- make, move, remove -------------------------------------------------------------------------
 */

static void on_changed(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply;
    if (err)
        e2b_fail_in_box(c, err);
    else
        ask_stat(c, on_stat);
}

static void make(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    static const struct e2b_method make = E2B_RPC("FileService", "MakeDir", make_dir_response);
    const struct folder *w = c->work;
    Cloche__V1__MakeDirRequest m = CLOCHE__V1__MAKE_DIR_REQUEST__INIT;
    struct cl_err exists = {0};
    (void)reply;
    if (!err) {
        (void)cl_fail(&exists, CL_E_EXISTS, 0, "%.300s: it exists already", w->path);
        e2b_fail(c, &exists);
        return;
    }
    if (err->code != CL_E_NOTFOUND) {
        e2b_fail_in_box(c, err);
        return;
    }
    m.sandbox_id = c->grant->sandbox;
    m.path = e2b_pb(w->path);
    m.user = e2b_pb(c->user);
    m.parents = true;
    (void)!e2b_ask(c, &(struct e2b_ask){.method = &make, .request = &m.base, .on_end = on_changed},
                   NULL);
}

void e2b_folder_make(struct e2b_call *c)
{
    if (begin(c, "path"))
        ask_stat(c, make);
}

void e2b_folder_move(struct e2b_call *c)
{
    static const struct e2b_method rename = E2B_RPC("FileService", "Rename", rename_response);
    Cloche__V1__RenameRequest m = CLOCHE__V1__RENAME_REQUEST__INIT;
    char from[PATH_BYTES];
    const char *source = e2b_text(c, "source");
    const struct folder *w = begin(c, "destination");
    if (!w)
        return;
    if (!source || e2b_path(c, source, from, sizeof from) < 0) {
        (void)e2b_fail_invalid(c, "source is missing, or too long");
        return;
    }
    m.sandbox_id = c->grant->sandbox;
    m.from = from;
    m.to = e2b_pb(w->path);
    m.user = e2b_pb(c->user);
    (void)!e2b_ask(
        c, &(struct e2b_ask){.method = &rename, .request = &m.base, .on_end = on_changed}, NULL);
}

static void on_removed(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply;
    if (err)
        e2b_fail_in_box(c, err);
    else
        e2b_reply(c, 200, json_object());
}

void e2b_folder_remove(struct e2b_call *c)
{
    static const struct e2b_method remove = E2B_RPC("FileService", "Remove", remove_response);
    Cloche__V1__RemoveRequest m = CLOCHE__V1__REMOVE_REQUEST__INIT;
    const struct folder *w = begin(c, "path");
    if (!w)
        return;
    m.sandbox_id = c->grant->sandbox;
    m.path = e2b_pb(w->path);
    m.user = e2b_pb(c->user);
    m.recursive = true;
    (void)!e2b_ask(
        c, &(struct e2b_ask){.method = &remove, .request = &m.base, .on_end = on_removed}, NULL);
}

/* --- list ---------------------------------------------------------------------------------------
 */

static void ask_page(struct e2b_call *c);

static void put_off(struct folder *w, const char *path)
{
    size_t n = strlen(path) + 1;
    struct pending *p = cl_zalloc(sizeof *p + n);
    if (!p)
        return;
    memcpy(p->path, path, n);
    p->depth = w->depth + 1;
    *w->todo_end = p;
    w->todo_end = &p->next;
}

/* False when there are too many. */
static bool add_files(struct folder *w, const Cloche__V1__FileServiceListResponse *m)
{
    char path[PATH_BYTES + 256];
    for (size_t i = 0; i < m->n_files; i++) {
        const Cloche__V1__FileInfo *f = m->files[i];
        int n = snprintf(path, sizeof path, "%s/%s", strcmp(w->path, "/") ? w->path : "", f->name);
        if (n < 0 || n >= PATH_BYTES)
            continue; /* it could not be named in a request either */
        if (json_array_size(w->entries) == ENTRIES_MAX)
            return false;
        (void)json_array_append_new(w->entries, e2b_entry(f, path));
        if (f->type == CLOCHE__V1__FILE_TYPE__FILE_TYPE_DIRECTORY && w->depth < w->wanted)
            put_off(w, path);
    }
    return true;
}

static bool take_next(struct folder *w)
{
    struct pending *p = w->todo;
    if (!p)
        return false;
    w->todo = p->next;
    if (!w->todo)
        w->todo_end = &w->todo;
    (void)snprintf(w->path, sizeof w->path, "%s", p->path);
    w->depth = p->depth;
    w->page[0] = '\0';
    cl_free(p);
    return true;
}

static void on_page(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    const Cloche__V1__FileServiceListResponse *m =
        (const Cloche__V1__FileServiceListResponse *)reply;
    struct folder *w = c->work;
    if (err && w->depth == 1) {
        e2b_fail_in_box(c, err);
        return;
    }
    if (!err && !add_files(w, m)) { /* one below that cannot be read is left out */
        (void)e2b_fail_invalid(c, "more than 10000 entries: list a folder below it, or less deep");
        return;
    }
    if (!err && m->next_page_token[0] && strlen(m->next_page_token) < sizeof w->page) {
        (void)snprintf(w->page, sizeof w->page, "%s", m->next_page_token);
        ask_page(c);
    } else if (take_next(w)) {
        ask_page(c);
    } else {
        e2b_reply(c, 200, json_pack("{s:O}", "entries", w->entries));
    }
}

static void ask_page(struct e2b_call *c)
{
    static const struct e2b_method list =
        E2B_RPC("FileService", "List", file_service_list_response);
    const struct folder *w = c->work;
    Cloche__V1__FileServiceListRequest m = CLOCHE__V1__FILE_SERVICE_LIST_REQUEST__INIT;
    m.sandbox_id = c->grant->sandbox;
    m.path = e2b_pb(w->path);
    m.page_size = PAGE;
    m.page_token = e2b_pb(w->page);
    m.user = e2b_pb(c->user);
    (void)!e2b_ask(c, &(struct e2b_ask){.method = &list, .request = &m.base, .on_end = on_page},
                   NULL);
}

void e2b_folder_list(struct e2b_call *c)
{
    struct folder *w = begin(c, "path");
    if (!w)
        return;
    w->entries = json_array();
    w->depth = 1;
    w->wanted = (unsigned)mcp_json_u64(c->body, "depth", 1);
    w->wanted = CL_MIN(CL_MAX(w->wanted, 1U), (unsigned)DEPTH_MAX);
    ask_page(c);
}
