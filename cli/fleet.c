/* cli/fleet.c - workers of other hosts: list, token, enroll.
 *
 * `worker enroll` runs on the new host: it makes the worker's id, key and certificate request, has
 * the scheduler sign it against a one-use token, and writes what cloche-worker needs.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/own.h"
#include "cli/certs.h"
#include "cli/client.h"
#include "cli/output.h"
#include "cli/paths.h"
#include "cloche/v1/fleet.pb-c.h"
#include "proto/copy.h"

static int cmd_list(const struct cli_opts *o, const struct args *a)
{
    (void)a;
    static const struct client_method list =
        CLIENT_METHOD("FleetService", "ListWorkers", list_workers_response);
    static const struct out_col cols[] = {
        {"id", "ID"},       {"host", "HOST"},     {"driver", "DRIVER"}, {"used_slots", "VMS"},
        {"slots", "SLOTS"}, {"build", "RELEASE"}, {"closed", "CLOSED"}};
    struct cl_err err = {0};
    ProtobufCMessage *msg = NULL;
    CL_AUTO(client_freep) struct client *client = NULL;
    Cloche__V1__ListWorkersRequest req = CLOCHE__V1__LIST_WORKERS_REQUEST__INIT;
    req.page_size = 1000;
    if (client_open(o, &client, &err) < 0 ||
        client_unary(client, &list, &req.base, 0, &msg, &err) < 0)
        return cli_report(&err);
    const Cloche__V1__ListWorkersResponse *m = (const Cloche__V1__ListWorkersResponse *)msg;
    json_t *rows = json_array();
    for (size_t i = 0; i < m->n_workers; i++) {
        const Cloche__V1__Worker *w = m->workers[i];
        (void)json_array_append_new(
            rows, json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:I, s:I, s:s}", "id", w->id, "host",
                            w->hostname, "driver", w->driver, "build", w->build, "slots",
                            (int)w->slots, "used_slots", (int)w->used_slots, "memory_mib",
                            (json_int_t)w->capacity_memory_mib, "used_memory_mib",
                            (json_int_t)w->used_memory_mib, "closed", w->closed));
    }
    pb_free(msg);
    return out_rows(o->json, rows, cols, CL_COUNT(cols));
}

static int cmd_token(const struct cli_opts *o, const struct args *a)
{
    (void)a;
    static const struct client_method make =
        CLIENT_METHOD("FleetService", "CreateEnrollToken", create_enroll_token_response);
    struct cl_err err = {0};
    ProtobufCMessage *msg = NULL;
    CL_AUTO(client_freep) struct client *client = NULL;
    Cloche__V1__CreateEnrollTokenRequest req = CLOCHE__V1__CREATE_ENROLL_TOKEN_REQUEST__INIT;
    if (client_open(o, &client, &err) < 0 ||
        client_unary(client, &make, &req.base, 0, &msg, &err) < 0)
        return cli_report(&err);
    const Cloche__V1__CreateEnrollTokenResponse *m =
        (const Cloche__V1__CreateEnrollTokenResponse *)msg;
    if (o->json)
        (void)out_json(json_pack("{s:s, s:o}", "token", m->token, "expires",
                                 out_time(m->expires ? m->expires->unix_ns : 0)));
    else
        (void)printf("%s\n", m->token);
    pb_free(msg);
    return EXIT_OK;
}

/* --- enroll -------------------------------------------------------------------------------------
 */

/* The id that this state folder has, or a new one. */
static int worker_id(const char *dir, char id[static CL_ID_MAX], struct cl_err *err)
{
    char path[PATH_TEXT];
    struct cl_buf text;
    path_join(path, dir, "id");
    cl_buf_init(&text, CL_ID_MAX);
    id[0] = '\0';
    if (cl_file_read(AT_FDCWD, path, &text, NULL) == 0 && text.len < CL_ID_MAX) {
        memcpy(id, text.data, text.len);
        id[text.len] = '\0';
        id[strcspn(id, "\n")] = '\0';
    }
    cl_buf_fini(&text);
    if (cl_id_is(id, "wrk"))
        return 0;
    cl_id_new("wrk", id);
    return cl_file_write(path, id, strlen(id), 0600, err);
}

static int write_text(const char *dir, const char *name, const char *text, struct cl_err *err)
{
    char path[PATH_TEXT];
    path_join(path, dir, name);
    return cl_file_write(path, text, strlen(text), 0644, err);
}

static int sign(const struct cli_opts *o, const char *token, const char *dir, const char *id,
                char **ret_endpoint, struct cl_err *err)
{
    static const struct client_method enroll =
        CLIENT_METHOD("FleetService", "Enroll", enroll_response);
    char key[PATH_TEXT];
    CL_AUTO(cl_freep) char *csr = NULL;
    CL_AUTO(client_freep) struct client *client = NULL;
    ProtobufCMessage *msg = NULL;
    Cloche__V1__EnrollRequest req = CLOCHE__V1__ENROLL_REQUEST__INIT;
    struct cli_opts keyless = *o; /* the token is the credential */
    keyless.keyless = true;
    path_join(key, dir, "worker.key");
    if (certs_request(key, id, &csr, err) < 0 || client_open(&keyless, &client, err) < 0)
        return -1;
    req.token = (char *)(uintptr_t)token;
    req.csr = csr;
    req.worker_id = (char *)(uintptr_t)id;
    if (client_unary(client, &enroll, &req.base, 0, &msg, err) < 0)
        return -1;
    const Cloche__V1__EnrollResponse *m = (const Cloche__V1__EnrollResponse *)msg;
    int rc = write_text(dir, "worker.pem", m->certificate, err);
    if (rc == 0)
        rc = write_text(dir, "fleet-ca.pem", m->ca, err);
    *ret_endpoint = cl_strdup(m->worker_endpoint);
    pb_free(msg);
    return rc;
}

static int cmd_enroll(const struct cli_opts *o, const struct args *a)
{
    struct cl_err err = {0};
    struct cli_paths p;
    char dir[PATH_TEXT], id[CL_ID_MAX];
    CL_AUTO(cl_freep) char *endpoint = NULL;
    if (paths_resolve(o, &p, &err) < 0)
        return cli_report(&err);
    path_join(dir, p.state, "worker");
    if (cl_mkdir_p(dir, 0700, &err) < 0 || worker_id(dir, id, &err) < 0 ||
        sign(o, a->pos[0], dir, id, &endpoint, &err) < 0)
        return cli_report(&err);
    const char *to = endpoint && endpoint[0] ? endpoint : "SCHEDULER:PORT";
    if (o->json)
        return out_json(json_pack("{s:s, s:s, s:s}", "worker_id", id, "dir", dir, "scheduler", to));
    (void)printf("enrolled as %s; start the worker with\n\n"
                 "  cloche-worker --scheduler %s --state-dir %s \\\n"
                 "    --tls-ca %s/fleet-ca.pem --tls-cert %s/worker.pem --tls-key %s/worker.key\n",
                 id, to, dir, dir, dir, dir);
    return EXIT_OK;
}

static const struct arg_opt list_opts[] = {OPT_JSON, OPT_DIRS};
static const struct arg_opt token_opts[] = {OPT_JSON, OPT_DIRS};
static const struct arg_opt enroll_opts[] = {OPT_JSON, OPT_DIRS};

const struct cli_command fleet_commands[] = {
    {"worker list", "[--json]", "the workers that are connected", NULL, SPEC(list_opts, 0, 0),
     cmd_list, false},
    {"worker token", "[--json]", "a one-use token for a new host (10 minutes)",
     "Needs an administrator's key, and a service that was started with `cloche up\n"
     "--listen HOST:PORT --worker-listen HOST:PORT`.\n",
     SPEC(token_opts, 0, 0), cmd_token, false},
    {"worker enroll", "TOKEN", "make this host a worker of a fleet",
     "Makes the worker's id and key here and has them certified; the key never leaves the host.\n"
     "CLOCHE_ENDPOINT names the scheduler, CLOCHE_CA the file that `cloche status` shows there.\n\n"
     "  CLOCHE_ENDPOINT=host-a:7443 CLOCHE_CA=ca.pem cloche worker enroll ent_...\n",
     SPEC(enroll_opts, 1, 1), cmd_enroll, false},
};
const size_t fleet_commands_n = CL_COUNT(fleet_commands);
