/* cli/snapshots.c - snapshots of sandboxes: create, list, get, rm. */
#include "cli/snapshots.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/cell.h"
#include "cli/client.h"
#include "cli/output.h"
#include "cli/pages.h"
#include "cli/spec.h"
#include "proto/copy.h"

enum { SNAPSHOT_PAGE = 100 };

json_t *snapshot_json(const Cloche__V1__Snapshot *s)
{
    char left[VALUE_TEXT] = "", image[VALUE_TEXT] = "", age[VALUE_TEXT] = "";
    uint64_t now = cl_wall_ns(), created = s->created ? s->created->unix_ns : 0,
             expires = s->expires ? s->expires->unix_ns : 0;
    json_t *labels = json_object(), *allow = json_array();
    for (size_t i = 0; i < s->n_labels; i++)
        (void)json_object_set_new(labels, s->labels[i]->key, out_string(s->labels[i]->value));
    for (size_t i = 0; s->network_grant && i < s->network_grant->n_allow; i++)
        (void)json_array_append_new(allow, out_string(s->network_grant->allow[i]));
    if (expires > now && s->state != CLOCHE__V1__UNIT_STATE__UNIT_STATE_ENDED)
        value_age_text(expires - now, left);
    if (s->image_bytes)
        cl_text_bytes(s->image_bytes, image);
    if (now > created)
        value_age_text(now - created, age);
    const Cloche__V1__Resources *r = s->resources;
    const char *state = s->state == CLOCHE__V1__UNIT_STATE__UNIT_STATE_PAUSED
                            ? "ready"
                            : value_state((int)s->state);
    const Cloche__V1__FunctionEntry *f = s->function;
    json_t *function =
        f ? json_pack("{s:s, s:s}", "language", cell_language_name(f->language), "entry", f->entry)
          : json_null();
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:s, s:o, s:s, s:s, s:s, s:s, s:s, s:o, "
        "s:o, s:i, s:i, s:I, s:s, s:o}",
        "id", s->id, "name", s->name, "tenant", s->tenant, "sandbox", s->sandbox_id, "template",
        s->template_, "state", state, "created", out_time(created), "age", age, "expires",
        out_time(expires), "left", left, "worker", s->worker_id, "driver", s->driver,
        "guest_separation", value_separation((int)s->guest_separation), "reason",
        value_reason((int)s->reason), "labels", labels, "network", allow, "vcpus",
        (int)(r ? r->vcpus : 0), "memory_mib", (int)(r ? r->memory_mib : 0), "image_bytes",
        (json_int_t)s->image_bytes, "image", image, "function", function);
}

static int cmd_create(const struct cli_opts *o, const struct args *a)
{
    static const struct client_method create =
        CLIENT_METHOD("SnapshotService", "Create", snapshot_service_create_response);
    struct cl_err err = {0};
    ProtobufCMessage *msg = NULL;
    CL_AUTO(spec_freep) struct spec *spec = NULL;
    CL_AUTO(client_freep) struct client *client = NULL;
    Cloche__V1__SnapshotServiceCreateRequest req =
        CLOCHE__V1__SNAPSHOT_SERVICE_CREATE_REQUEST__INIT;
    if (spec_new(o, NULL, a, &spec, &err) < 0 || client_open(o, &client, &err) < 0)
        return cli_report(&err);
    req.sandbox_id = pb_text(a->pos[0]);
    req.name = pb_text(a->n_pos > 1 ? a->pos[1] : NULL);
    req.replace = o->replace;
    req.n_labels = spec->job.n_labels;
    req.labels = spec->job.labels;
    req.keep_ns = o->keep;
    req.idempotency_key = pb_text(o->idempotency_key);
    if (client_unary(client, &create, &req.base, SNAPSHOT_TIMEOUT_S * CL_NS_PER_S, &msg, &err) < 0)
        return cli_report(&err);
    const Cloche__V1__Snapshot *s =
        ((const Cloche__V1__SnapshotServiceCreateResponse *)msg)->snapshot;
    if (o->json)
        (void)out_json(snapshot_json(s));
    else
        (void)puts(s->id);
    pb_free(msg);
    return EXIT_OK;
}

int snapshot_page(const struct cli_opts *o, const struct args *a, struct client *client,
                  char token[static VALUE_NAME], json_t *rows, struct cl_err *err)
{
    static const struct client_method list =
        CLIENT_METHOD("SnapshotService", "List", snapshot_service_list_response);
    Cloche__V1__SnapshotServiceListRequest req = CLOCHE__V1__SNAPSHOT_SERVICE_LIST_REQUEST__INIT;
    ProtobufCMessage *msg = NULL;
    req.page_size = SNAPSHOT_PAGE;
    req.page_token = token;
    req.include_ended = o->all;
    req.sandbox_id = pb_text(a->n_pos > 0 ? a->pos[0] : NULL);
    if (client_unary(client, &list, &req.base, 0, &msg, err) < 0)
        return -1;
    const Cloche__V1__SnapshotServiceListResponse *m =
        (const Cloche__V1__SnapshotServiceListResponse *)msg;
    for (size_t i = 0; i < m->n_snapshots; i++)
        (void)json_array_append_new(rows, snapshot_json(m->snapshots[i]));
    (void)snprintf(token, VALUE_NAME, "%s", m->next_page_token);
    pb_free(msg);
    return 0;
}

static int cmd_list(const struct cli_opts *o, const struct args *a)
{
    static const struct out_col cols[] = {
        {"id", "ID"},   {"name", "NAME"}, {"template", "TEMPLATE"}, {"state", "STATE"},
        {"age", "AGE"}, {"left", "LEFT"}, {"image", "IMAGE"},       {"reason", "REASON"}};
    int code = EXIT_OK;
    json_t *rows = pages_all(o, a, snapshot_page, 0, &code);
    return rows ? out_rows(o->json, rows, cols, CL_COUNT(cols)) : code;
}

static int cmd_get(const struct cli_opts *o, const struct args *a)
{
    static const struct client_method get =
        CLIENT_METHOD("SnapshotService", "Get", snapshot_service_get_response);
    static const struct out_col lines[] = {{"id", "id"},
                                           {"name", "name"},
                                           {"tenant", "tenant"},
                                           {"sandbox", "sandbox"},
                                           {"template", "template"},
                                           {"state", "state"},
                                           {"reason", "reason"},
                                           {"created", "created"},
                                           {"expires", "expires"},
                                           {"image", "image"},
                                           {"worker", "worker"},
                                           {"driver", "driver"},
                                           {"guest_separation", "guests"},
                                           {"network", "network"},
                                           {"vcpus", "vCPUs"},
                                           {"memory_mib", "MiB"}};
    struct cl_err err = {0};
    ProtobufCMessage *msg = NULL;
    CL_AUTO(client_freep) struct client *client = NULL;
    Cloche__V1__SnapshotServiceGetRequest req = CLOCHE__V1__SNAPSHOT_SERVICE_GET_REQUEST__INIT;
    req.snapshot = pb_text(a->pos[0]);
    if (client_open(o, &client, &err) < 0 ||
        client_unary(client, &get, &req.base, 0, &msg, &err) < 0)
        return cli_report(&err);
    const Cloche__V1__Snapshot *s = ((const Cloche__V1__SnapshotServiceGetResponse *)msg)->snapshot;
    int code = out_object(o->json, snapshot_json(s), lines, CL_COUNT(lines));
    pb_free(msg);
    return code;
}

int snapshot_rm(const struct cli_opts *o, const struct args *a)
{
    static const struct client_method delete =
        CLIENT_METHOD("SnapshotService", "Delete", snapshot_service_delete_response);
    struct cl_err err = {0};
    int code = EXIT_OK;
    CL_AUTO(client_freep) struct client *client = NULL;
    if (client_open(o, &client, &err) < 0)
        return cli_report(&err);
    json_t *rows = json_array();
    for (size_t i = 0; i < a->n_pos; i++) {
        Cloche__V1__SnapshotServiceDeleteRequest req =
            CLOCHE__V1__SNAPSHOT_SERVICE_DELETE_REQUEST__INIT;
        req.snapshot = pb_text(a->pos[i]);
        if (client_do(client, &delete, &req.base, &err) < 0)
            code = cli_report(&err);
        else
            (void)json_array_append_new(rows, json_string(a->pos[i]));
    }
    if (o->json)
        (void)out_json(json_pack("{s:o}", "deleted", rows));
    else
        json_decref(rows);
    return code;
}

static const struct arg_opt create_opts[] = {
    OPT_JSON,
    {"replace", 0, ARG_FLAG, OPT(replace), NULL,
     "take NAME from the snapshot that has it, which is deleted once this one is whole"},
    {"keep", 0, ARG_DURATION, OPT(keep), "7d",
     "how long it is kept after something began with it last (default 30d, which is the most)"},
    {"label", 'l', ARG_LIST, OPT(labels), "k=v", "a label; repeatable"},
    {"idempotency-key", 0, ARG_STRING, OPT(idempotency_key), "KEY",
     "the same key within 24 h is the same snapshot"},
};
static const struct arg_opt list_opts[] = {
    OPT_JSON, {"all", 'a', ARG_FLAG, OPT(all), NULL, "ended ones too"}};
static const struct arg_opt json_opts[] = {OPT_JSON};

const struct cli_command snapshot_commands[] = {
    {"snapshot create", "[OPTIONS] SANDBOX [NAME]",
     "keep a sandbox as it is now, to begin others with it",
     "Memory, processes, files and the variables of `cloche repl` are kept, encrypted, on its "
     "worker's\n"
     "disk; SANDBOX goes on, and may end. Jobs and sandboxes begin with the snapshot as often as "
     "you like,\n"
     "each time where it was: prepared once, it is a template of your own. It takes its image, of "
     "some\n"
     "MiB, of the disk quota. It lasts as a paused sandbox does: not over an upgrade of its "
     "monitor, and\n"
     "over the next start of its host only where the worker keeps its keys on a disk.\n\n"
     "  S=$(cloche sandbox create python)\n"
     "  cloche exec $S -- pip install --target /tmp/lib ./wheels/*.whl\n"
     "  cloche snapshot create $S with-wheels && cloche sandbox kill $S\n"
     "  cloche run --snapshot with-wheels -- python3 -c 'import sys; sys.path.insert(0, "
     "\"/tmp/lib\")'\n"
     "  cloche sandbox create --snapshot with-wheels --ttl 1h\n",
     SPEC(create_opts, 1, 2), cmd_create, false},
    {"snapshot list", "[--all] [--json] [SANDBOX]", "list snapshots, all or those of a sandbox",
     NULL, SPEC(list_opts, 0, 1), cmd_list, false},
    {"snapshot get", "SNAPSHOT", "look at a snapshot, by its id or name", NULL,
     SPEC(json_opts, 1, 1), cmd_get, false},
    {"snapshot rm", "SNAPSHOT...", "delete snapshots; what began with them stays", NULL,
     SPEC(json_opts, 1, ARGS_POS), snapshot_rm, false},
};
const size_t snapshot_commands_n = CL_COUNT(snapshot_commands);
