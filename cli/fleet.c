/* cli/fleet.c - workers and their hosts: list, drain, token, enroll; and schedulers: list.
 *
 * `worker enroll` runs on the new host: it makes the worker's id, key and certificate request, has
 * the scheduler sign it against a one-use token, and writes what cloche-worker needs.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/own.h"
#include "base/text.h"
#include "cli/certs.h"
#include "cli/client.h"
#include "cli/drain.h"
#include "cli/output.h"
#include "cli/plan.h"
#include "cloche/v1/fleet.pb-c.h"
#include "proto/copy.h"

static json_t *worker_row(const Cloche__V1__Worker *w)
{
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:i, s:i, s:I, s:I, s:s, s:b, s:I, s:I, s:I, s:o}", "id", w->id,
        "host", w->hostname, "driver", w->driver, "build", w->build, "slots", (int)w->slots,
        "used_slots", (int)w->used_slots, "memory_mib", (json_int_t)w->capacity_memory_mib,
        "used_memory_mib", (json_int_t)w->used_memory_mib, "closed", w->closed, "draining",
        (int)w->draining, "jobs", (json_int_t)w->jobs, "sandboxes", (json_int_t)w->sandboxes,
        "snapshots", (json_int_t)w->snapshots, "drain_trouble", out_string(w->drain_trouble));
}

static int list_workers(struct client *client, Cloche__V1__ListWorkersResponse **ret_list,
                        struct cl_err *err)
{
    static const struct client_method list =
        CLIENT_METHOD("FleetService", "ListWorkers", list_workers_response);
    Cloche__V1__ListWorkersRequest req = CLOCHE__V1__LIST_WORKERS_REQUEST__INIT;
    ProtobufCMessage *msg = NULL;
    req.page_size = 1000;
    if (client_unary(client, &list, &req.base, 0, &msg, err) < 0)
        return -1;
    *ret_list = (Cloche__V1__ListWorkersResponse *)msg;
    return 0;
}

static int cmd_list(const struct cli_opts *o, const struct args *a)
{
    (void)a;
    static const struct out_col cols[] = {
        {"id", "ID"},       {"host", "HOST"},     {"driver", "DRIVER"}, {"used_slots", "VMS"},
        {"slots", "SLOTS"}, {"build", "RELEASE"}, {"state", "STATE"}};
    struct cl_err err = {0};
    Cloche__V1__ListWorkersResponse *m = NULL;
    CL_AUTO(client_freep) struct client *client = NULL;
    if (client_open(o, &client, &err) < 0 || list_workers(client, &m, &err) < 0)
        return cli_report(&err);
    json_t *rows = json_array();
    for (size_t i = 0; i < m->n_workers; i++) {
        char state[DRAIN_TEXT];
        json_t *row = worker_row(m->workers[i]);
        drain_state(m->workers[i], state);
        if (!o->json) /* which has it in parts */
            (void)json_object_set_new(row, "state", out_string(state));
        (void)json_array_append_new(rows, row);
    }
    pb_free(&m->base);
    return out_rows(o->json, rows, cols, CL_COUNT(cols));
}

/* --- schedulers --------------------------------------------------------------------------------
 */

static json_t *scheduler_row(const Cloche__V1__Scheduler *s, bool json)
{
    json_t *row = json_pack("{s:s, s:s, s:s, s:s, s:o, s:o}", "id", s->id, "host", s->hostname,
                            "address", s->address, "build", s->build, "since",
                            out_time(s->since ? s->since->unix_ns : 0), "seen",
                            out_time(s->seen ? s->seen->unix_ns : 0));
    if (json)
        (void)json_object_set_new(row, "leads", json_boolean(s->leads));
    else
        (void)json_object_set_new(row, "state", json_string(s->leads ? "leads" : "stands by"));
    return row;
}

static int cmd_schedulers(const struct cli_opts *o, const struct args *a)
{
    (void)a;
    static const struct out_col cols[] = {
        {"id", "ID"},       {"host", "HOST"},   {"address", "ADDRESS"}, {"build", "RELEASE"},
        {"state", "STATE"}, {"since", "SINCE"}, {"seen", "SEEN"}};
    static const struct client_method list =
        CLIENT_METHOD("FleetService", "ListSchedulers", list_schedulers_response);
    Cloche__V1__ListSchedulersRequest req = CLOCHE__V1__LIST_SCHEDULERS_REQUEST__INIT;
    ProtobufCMessage *msg = NULL;
    struct cl_err err = {0};
    CL_AUTO(client_freep) struct client *client = NULL;
    if (client_open(o, &client, &err) < 0 ||
        client_unary(client, &list, &req.base, 0, &msg, &err) < 0)
        return cli_report(&err);
    const Cloche__V1__ListSchedulersResponse *m = (const Cloche__V1__ListSchedulersResponse *)msg;
    json_t *rows = json_array();
    for (size_t i = 0; i < m->n_schedulers; i++)
        (void)json_array_append_new(rows, scheduler_row(m->schedulers[i], o->json));
    pb_free(msg);
    return out_rows(o->json, rows, cols, CL_COUNT(cols));
}

/* --- drain -------------------------------------------------------------------------------------
 */

/* A worker that is being drained. */
struct watch {
    struct client *client; /* borrowed */
    char id[CL_ID_MAX], host[256];
    struct drain drain;
    json_t *row; /* owned: as it was told last */
    int interrupted;
};

static void on_signal(int signo, void *arg)
{
    struct watch *watch = arg;
    watch->interrupted = signo;
}

static void keep_row(struct watch *watch, const Cloche__V1__Worker *w)
{
    json_decref(watch->row);
    watch->row = worker_row(w);
}

static int find_worker(struct watch *watch, const char *name, struct cl_err *err)
{
    Cloche__V1__ListWorkersResponse *list = NULL;
    const Cloche__V1__Worker *w = NULL;
    if (list_workers(watch->client, &list, err) < 0)
        return -1;
    int rc = drain_find(list, name, &w, err);
    if (rc == 0) {
        cl_text_clean(w->id, watch->id, sizeof watch->id);
        cl_text_clean(w->hostname, watch->host, sizeof watch->host);
    }
    pb_free(&list->base);
    return rc;
}

static int send_drain(struct watch *watch, bool undo, struct cl_err *err)
{
    static const struct client_method drain =
        CLIENT_METHOD("FleetService", "DrainWorker", drain_worker_response);
    Cloche__V1__DrainWorkerRequest req = CLOCHE__V1__DRAIN_WORKER_REQUEST__INIT;
    ProtobufCMessage *msg = NULL;
    req.worker_id = watch->id;
    req.undo = undo;
    if (client_unary(watch->client, &drain, &req.base, 0, &msg, err) < 0)
        return -1;
    const Cloche__V1__Worker *w = ((const Cloche__V1__DrainWorkerResponse *)msg)->worker;
    int rc = w ? 0 : cl_fail(err, CL_E_PEER, 0, "the answer to DrainWorker names no worker");
    if (w) {
        keep_row(watch, w);
        watch->drain = (struct drain){.left = drain_counts(w)};
    }
    pb_free(msg);
    return rc;
}

static void say_news(struct watch *watch, const Cloche__V1__Worker *w)
{
    char news[DRAIN_TEXT];
    while (drain_news(&watch->drain, w, news)) {
        cl_text_clean(news, news, sizeof news);
        cli_say("%s", news);
    }
}

/* A scheduler that starts anew is waited for as long as its worker would be. */
static int look(struct watch *watch, enum drain_step *ret_step, struct cl_err *err)
{
    struct cl_err why = {0};
    Cloche__V1__ListWorkersResponse *list = NULL;
    int rc = list_workers(watch->client, &list, &why);
    const Cloche__V1__Worker *w = rc == 0 ? drain_by_id(list, watch->id) : NULL;
    *ret_step = drain_look(&watch->drain, w, cl_now_ns());
    if (rc < 0) {
        if (why.code == CL_E_UNAVAILABLE && *ret_step == DRAIN_GOES_ON)
            return 0;
        *err = why;
        return -1;
    }
    if (w && w->draining && *ret_step == DRAIN_GOES_ON)
        say_news(watch, w);
    if (w)
        keep_row(watch, w);
    pb_free(&list->base);
    return 0;
}

/* Until it is empty, or we are interrupted. */
static int wait_until_empty(struct watch *watch, struct cl_err *err)
{
    struct cl_loop *loop = client_loop(watch->client);
    enum drain_step step = DRAIN_GOES_ON;
    char left[DRAIN_TEXT];
    watch->drain.seen_ns = cl_now_ns();
    if (cl_loop_on_signal(loop, SIGINT, on_signal, watch, err) < 0 ||
        cl_loop_on_signal(loop, SIGTERM, on_signal, watch, err) < 0)
        return -1;
    while (!watch->interrupted) {
        uint64_t next = cl_now_ns() + CL_NS_PER_S;
        if (look(watch, &step, err) < 0)
            return -1;
        if (step != DRAIN_GOES_ON)
            break;
        for (uint64_t now; !watch->interrupted && (now = cl_now_ns()) < next;)
            cl_loop_turn(loop, next - now);
    }
    if (step == DRAIN_UNDONE)
        return cl_fail(err, CL_E_STATE, 0,
                       "worker %s takes work again: somebody else said --undo\n"
                       "repeat the command to drain it again",
                       watch->id);
    drain_left(&watch->drain.left, left);
    if (step == DRAIN_GONE)
        return cl_fail(err, CL_E_UNAVAILABLE, 0,
                       "worker %s has not been connected for %d s, and %s there\n"
                       "start it again and repeat the command: it goes on draining",
                       watch->id, DRAIN_PATIENCE_S, left);
    return 0;
}

static uint32_t count_of(const struct watch *watch, const char *what)
{
    return (uint32_t)json_integer_value(json_object_get(watch->row, what));
}

static int say_drained(const struct watch *watch, bool undo)
{
    const struct drain_counts n = {count_of(watch, "jobs"), count_of(watch, "sandboxes"),
                                   count_of(watch, "snapshots")};
    char left[DRAIN_TEXT];
    drain_left(&n, left);
    (void)printf("%s (%s) ", watch->id, watch->host);
    if (undo)
        (void)printf("takes work again\n");
    else if (drain_sum(&n) == 0)
        (void)printf("is empty: its host can be maintained\n");
    else
        (void)printf("takes no new work, and %s: see `cloche worker list`\n", left);
    return EXIT_OK;
}

static int cmd_drain(const struct cli_opts *o, const struct args *a)
{
    struct cl_err err = {0};
    struct watch watch = {0};
    CL_AUTO(client_freep) struct client *client = NULL;
    int rc = client_open(o, &client, &err);
    watch.client = client;
    if (rc == 0)
        rc = find_worker(&watch, a->pos[0], &err);
    if (rc == 0)
        rc = send_drain(&watch, o->undo, &err);
    if (rc == 0 && !o->undo && !o->no_wait)
        rc = wait_until_empty(&watch, &err);
    if (rc < 0) {
        rc = cli_report(&err);
    } else if (watch.interrupted) {
        cli_say("%s goes on draining; to let it take work again: cloche worker drain --undo %s",
                watch.id, watch.id);
        rc = EXIT_SIGNAL + watch.interrupted;
    } else {
        rc = o->json ? out_json(json_incref(watch.row)) : say_drained(&watch, o->undo);
    }
    json_decref(watch.row);
    return rc;
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
                char endpoint[static PATH_TEXT], struct cl_err *err)
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
    address_as_reached(m->worker_endpoint, rpc_channel_target(client_channel(client)), endpoint,
                       PATH_TEXT);
    pb_free(msg);
    return rc;
}

/* Before the token is spent: can the file be made?  One that is there is somebody's work. */
static int check_config(const char *path, struct cl_err *err)
{
    if (access(path, F_OK) == 0)
        return cl_fail(err, CL_E_EXISTS, 0,
                       "'%s' is there already\nmove it away, or enroll without --config and change "
                       "it by hand",
                       path);
    char dir[PATH_TEXT];
    (void)snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    *(slash > dir ? slash : dir + 1) = '\0';
    if (cl_mkdir_p(dir, 0755, err) < 0)
        return cl_wrap(err, "folder '%s'", dir);
    return access(dir, W_OK) == 0 ? 0 : cl_fail(err, CL_E_SYS, errno, "write into '%s'", dir);
}

static int write_config(const char *path, const char *to, const char *dir, struct cl_err *err)
{
    char text[8 * PATH_TEXT];
    int n = snprintf(text, sizeof text,
                     "# by `cloche worker enroll`; `cloche-worker --help` lists all options\n"
                     "[worker]\nscheduler = %s\nstate-dir = %s\ntls-ca = %s/fleet-ca.pem\n"
                     "tls-cert = %s/worker.pem\ntls-key = %s/worker.key\n",
                     to, dir, dir, dir, dir);
    if (n < 0 || n >= (int)sizeof text)
        return cl_fail(err, CL_E_INVALID, 0, "the worker's configuration is too long");
    return cl_file_write(path, text, (size_t)n, 0644, err);
}

static void say_enrolled(const char *id, const char *to, const char *dir, const char *config)
{
    if (config[0]) {
        (void)printf("enrolled as %s; start the worker with\n\n"
                     "  systemctl enable --now cloche-worker   # or: cloche-worker --config %s\n",
                     id, config);
        return;
    }
    (void)printf("enrolled as %s; start the worker with\n\n"
                 "  cloche-worker --scheduler %s --state-dir %s \\\n"
                 "    --tls-ca %s/fleet-ca.pem --tls-cert %s/worker.pem --tls-key %s/worker.key\n",
                 id, to, dir, dir, dir, dir);
}

static int cmd_enroll(const struct cli_opts *o, const struct args *a)
{
    struct cl_err err = {0};
    struct cli_paths p;
    char dir[PATH_TEXT], id[CL_ID_MAX], config[PATH_TEXT] = "", endpoint[PATH_TEXT];
    if (paths_resolve(o, &p, &err) < 0 ||
        (o->config &&
         (path_absolute(config, o->config, &err) < 0 || check_config(config, &err) < 0)))
        return cli_report(&err);
    path_join(dir, p.state, "worker");
    if (cl_mkdir_p(dir, 0700, &err) < 0 || worker_id(dir, id, &err) < 0 ||
        sign(o, a->pos[0], dir, id, endpoint, &err) < 0)
        return cli_report(&err);
    const char *to = endpoint[0] ? endpoint : "SCHEDULER:PORT";
    if (config[0] && write_config(config, to, dir, &err) < 0)
        return cli_report(&err);
    if (o->json)
        return out_json(json_pack("{s:s, s:s, s:s, s:s}", "worker_id", id, "dir", dir, "scheduler",
                                  to, "config", config));
    say_enrolled(id, to, dir, config);
    return EXIT_OK;
}

static const struct arg_opt list_opts[] = {OPT_JSON, OPT_DIRS};
static const struct arg_opt drain_opts[] = {
    {"undo", 0, ARG_FLAG, OPT(undo), NULL, "let it take work again"},
    {"no-wait", 0, ARG_FLAG, OPT(no_wait), NULL, "do not wait until it is empty"},
    OPT_JSON,
    OPT_DIRS};
static const struct arg_opt token_opts[] = {OPT_JSON, OPT_DIRS};
static const struct arg_opt enroll_opts[] = {
    {"config", 0, ARG_STRING, OPT(config), "FILE",
     "write the worker's configuration here (its systemd unit: /etc/cloche/worker.ini)"},
    OPT_JSON,
    OPT_DIRS};

const struct cli_command fleet_commands[] = {
    {"scheduler list", "[--json]", "who leads, and who stands by for it",
     "Of the schedulers of one group on one Redis one leads and serves; the others refuse\n"
     "connections until it is gone. Needs an administrator's key.\n",
     SPEC(list_opts, 0, 0), cmd_schedulers, false},
    {"worker list", "[--json]", "the workers that are connected", NULL, SPEC(list_opts, 0, 0),
     cmd_list, false},
    {"worker drain", "[--undo] [--no-wait] WORKER", "empty a worker's host for maintenance",
     "The worker takes no new work. Its sandboxes go on on other workers, paused ones rest there; "
     "its\n"
     "jobs come to their end, or to their time limit. Waits until nothing is left; Ctrl-C ends "
     "only\n"
     "the waiting. It stays so, also when it is started again, until `--undo`. WORKER is an id, or "
     "a\n"
     "host with one worker. Needs an administrator's key.\n\n"
     "  cloche worker drain host-b && ssh host-b reboot\n"
     "  cloche worker drain --undo host-b\n",
     SPEC(drain_opts, 1, 1), cmd_drain, false},
    {"worker token", "[--json]", "a one-use token for a new host (10 minutes)",
     "Needs an administrator's key, and a service that was started with `cloche up\n"
     "--listen HOST:PORT --worker-listen HOST:PORT`.\n",
     SPEC(token_opts, 0, 0), cmd_token, false},
    {"worker enroll", "[--config FILE] TOKEN", "make this host a worker of a fleet",
     "Makes the worker's id and key here and has them certified; the key never leaves the host.\n"
     "CLOCHE_ENDPOINT names the scheduler, CLOCHE_CA the file that `cloche status` shows there.\n"
     "Where several schedulers stand by for one another, give the worker's --scheduler the worker "
     "addresses\n"
     "of all of them, as in host-a:7444,host-b:7444.\n\n"
     "  CLOCHE_ENDPOINT=host-a:7443 CLOCHE_CA=ca.pem cloche worker enroll ent_... "
     "--config /etc/cloche/worker.ini\n"
     "  systemctl enable --now cloche-worker\n",
     SPEC(enroll_opts, 1, 1), cmd_enroll, false},
};
const size_t fleet_commands_n = CL_COUNT(fleet_commands);
