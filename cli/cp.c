/* cli/cp.c - files of a sandbox: `cloche cp`, between it and this machine, and `cloche watch`. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "base/text.h"
#include "cli/files.h"
#include "cli/output.h"
#include "cli/values.h"
#include "cloche/v1/file.pb-c.h"

static int cmd_cp(const struct cli_opts *o, const struct args *a)
{
    struct cl_err err = {0};
    struct value_place from, to;
    CL_AUTO(client_freep) struct client *client = NULL;
    int rc = value_place(a->pos[0], &from, &err) < 0 ? -1 : value_place(a->pos[1], &to, &err);
    if (rc == 0 && !from.sandbox[0] == !to.sandbox[0])
        rc = cl_fail(&err, CL_E_INVALID, 0,
                     "one of the two must be in a sandbox\nwrite it as SANDBOX:/path, as in: "
                     "cloche cp a.txt sbx_01...:/tmp/");
    if (rc < 0 || client_open(o, &client, &err) < 0)
        return cli_report(&err);
    struct copy copy = {.client = client,
                        .sandbox = from.sandbox[0] ? from.sandbox : to.sandbox,
                        .user = o->user,
                        .recursive = o->recursive};
    rc = from.sandbox[0] ? copy_down(&copy, from.path, to.path, &err)
                         : copy_up(&copy, from.path, to.path, &err);
    if (rc < 0)
        return cli_report(&err);
    if (o->json)
        return out_json(json_pack("{s:I, s:I, s:I}", "files", (json_int_t)copy.files, "bytes",
                                  (json_int_t)copy.bytes, "skipped", (json_int_t)copy.skipped));
    return EXIT_OK;
}

/* --- watch --------------------------------------------------------------------------------------
 */

struct watching {
    bool json, ready;
    uint64_t left; /* changes still wanted; 0 = enough */
};

static const char *change_name(Cloche__V1__FileChangeKind kind)
{
    static const char *const names[] = {
        [CLOCHE__V1__FILE_CHANGE_KIND__FILE_CHANGE_KIND_CREATED] = "created",
        [CLOCHE__V1__FILE_CHANGE_KIND__FILE_CHANGE_KIND_WRITTEN] = "written",
        [CLOCHE__V1__FILE_CHANGE_KIND__FILE_CHANGE_KIND_REMOVED] = "removed",
        [CLOCHE__V1__FILE_CHANGE_KIND__FILE_CHANGE_KIND_MOVED] = "moved",
        [CLOCHE__V1__FILE_CHANGE_KIND__FILE_CHANGE_KIND_ATTRIBUTES] = "attributes",
    };
    return (size_t)kind < CL_COUNT(names) && names[kind] ? names[kind] : "changed";
}

static void show_change(const struct watching *w, const Cloche__V1__FileChange *change)
{
    enum { PATH_SHOWN = 16 * 1024 };
    static char path[PATH_SHOWN];
    if (!w->json) {
        cl_text_clean(change->path, path, sizeof path);
        (void)printf("%-10s  %s\n", change_name(change->kind), path);
        return;
    }
    json_t *o = json_pack("{s:s, s:s}", "change", change_name(change->kind), "path", change->path);
    if (change->info)
        (void)json_object_set_new(o, "size", json_integer((json_int_t)change->info->size));
    (void)json_dumpf(o, stdout, JSON_COMPACT);
    (void)putchar('\n');
    json_decref(o);
}

static int on_changes(void *arg, const ProtobufCMessage *msg, struct cl_err *err)
{
    struct watching *w = arg;
    const Cloche__V1__FileServiceWatchResponse *m =
        (const Cloche__V1__FileServiceWatchResponse *)msg;
    if (!w->ready)
        (void)fputs("cloche: watching\n", stderr);
    w->ready = true;
    if (m->lost)
        (void)fputs(
            "cloche: changes before these are missing: there were more than could be told\n",
            stderr);
    for (size_t i = 0; i < m->n_changes && w->left > 0; i++, w->left--)
        show_change(w, m->changes[i]);
    if (fflush(stdout) != 0 || ferror(stdout))
        return cl_fail(err, CL_E_SYS, errno, "write to stdout");
    return w->left > 0 ? 0 : cl_fail(err, CL_E_CANCELLED, 0, "enough");
}

static int watch(struct client *client, const Cloche__V1__FileServiceWatchRequest *request,
                 struct watching *w, struct cl_err *err)
{
    static const struct client_method watch_m =
        CLIENT_METHOD("FileService", "Watch", file_service_watch_response);
    CL_AUTO(client_stream_freep) struct client_stream *stream = NULL;
    if (client_stream_open(client, &watch_m, on_changes, w, &stream, err) < 0 ||
        client_stream_send(stream, &request->base, err) < 0)
        return -1;
    return client_stream_finish(stream, err) < 0 && w->left > 0 ? -1 : 0;
}

static int cmd_watch(const struct cli_opts *o, const struct args *a)
{
    struct cl_err err = {0};
    struct value_place at;
    struct watching w = {.json = o->json, .left = o->lines ? o->lines : UINT64_MAX};
    CL_AUTO(client_freep) struct client *client = NULL;
    Cloche__V1__FileServiceWatchRequest m = CLOCHE__V1__FILE_SERVICE_WATCH_REQUEST__INIT;
    int rc = value_place(a->pos[0], &at, &err);
    if (rc == 0 && !at.sandbox[0])
        rc = cl_fail(&err, CL_E_INVALID, 0,
                     "'%.80s' is no folder of a sandbox\nwrite it as SANDBOX:/path, as in: cloche "
                     "watch sbx_01...:/home/user",
                     a->pos[0]);
    if (rc < 0 || client_open(o, &client, &err) < 0)
        return cli_report(&err);
    m.sandbox_id = at.sandbox;
    m.path = pb_text(at.path);
    m.recursive = o->recursive;
    m.user = pb_text(o->user);
    m.with_info = o->json;
    return watch(client, &m, &w, &err) < 0 ? cli_report(&err) : EXIT_OK;
}

static const struct arg_opt watch_opts[] = {
    OPT_JSON,
    {"recursive", 'r', ARG_FLAG, OPT(recursive), NULL, "the folders below it, too"},
    {"lines", 'n', ARG_U64, OPT(lines), "N", "end after so many changes (default: never)"},
    {"user", 'u', ARG_STRING, OPT(user), "NAME", "user (default) or root"},
};

static const struct arg_opt cp_opts[] = {
    OPT_JSON,
    {"recursive", 'r', ARG_FLAG, OPT(recursive), NULL, "folders with what is in them"},
    {"user", 'u', ARG_STRING, OPT(user), "NAME", "user (default) or root"},
};

const struct cli_command file_commands[] = {
    {"cp", "[-r] SOURCE TARGET", "copy files into or out of a sandbox",
     "One of the two is SANDBOX:/path.  Modes are kept; symbolic links are skipped with a note; "
     "every\n"
     "upload is checked by its SHA-256.\n\n"
     "  cloche cp -r project sbx_01...:/tmp/\n  cloche cp sbx_01...:/tmp/out.csv .\n",
     SPEC(cp_opts, 2, 2), cmd_cp, false},
    {"watch", "[-r] SANDBOX:/FOLDER", "show what changes in a folder of a sandbox",
     "A line for each file that is created, written, removed or moved away, or whose attributes "
     "change,\n"
     "until it is interrupted or the folder or sandbox goes.  Watching keeps no sandbox awake.\n\n"
     "  cloche watch -r sbx_01...:/home/user\n"
     "  cloche watch --json -n 1 sbx_01...:/tmp && cloche cp sbx_01...:/tmp/out.csv .\n",
     SPEC(watch_opts, 1, 1), cmd_watch, false},
};
const size_t file_commands_n = CL_COUNT(file_commands);
