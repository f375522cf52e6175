/* audit/writer/main.c - cloche-audit: the one process that writes the audit log. */
#include <sys/prctl.h>
#include <sys/stat.h>

#include "audit/writer/options.h"
#include "audit/writer/seccomp.h"
#include "audit/writer/server.h"
#include "base/fs.h"
#include "observability/daemon.h"
#include "observability/log.h"

static struct options options;

struct program {
    struct cl_loop *loop;                  /* owned */
    struct metrics *metrics;               /* owned */
    struct audit_private_key *key;         /* owned */
    struct store *store;                   /* owned */
    struct server *server;                 /* owned */
    struct metrics_server *metrics_server; /* owned; NULL = not served */
};

static int check(const void *values, struct cl_err *err)
{
    const struct options *o = values;
    struct audit_uids ignored;
    if (o->metrics[0] && !cl_is_loopback(o->metrics))
        return cl_fail(err, CL_E_INVALID, 0,
                       "metrics on '%s' are not loopback: put a TLS proxy before them", o->metrics);
    return audit_uids_parse(o->allowed_uids, &ignored, err);
}

static int open_metrics(struct program *p, struct cl_err *err)
{
    uint16_t port;
    if (metrics_new(&p->metrics, err) < 0)
        return -1;
    metrics_set(p->metrics, METRIC_BUILD_INFO, "audit", CLOCHE_VERSION, 1);
    return options.metrics[0] ? metrics_serve(p->loop, options.metrics, p->metrics, NULL, NULL,
                                              &p->metrics_server, &port, err)
                              : 0;
}

static int open_all(struct program *p, struct cl_err *err)
{
    const struct options *o = &options;
    if (cl_loop_new(&p->loop, err) < 0 || open_metrics(p, err) < 0 ||
        cl_mkdir_p(o->dir, 0750, err) < 0 || audit_private_key_open(o->key, &p->key, err) < 0)
        return -1;
    struct store_conf sc = {o->dir, o->host, o->rotate, p->key};
    struct server_conf conf = {.socket = o->socket,
                               .dir = o->dir,
                               .metrics = p->metrics,
                               .reserve_bytes = &o->disk_reserve,
                               .checkpoint_ns = o->checkpoint,
                               .idle_checkpoint_ns = o->idle_checkpoint};
    if (store_open(&sc, &p->store, err) < 0 ||
        audit_uids_parse(o->allowed_uids, &conf.producers, err) < 0 ||
        server_new(p->loop, &conf, p->store, &p->server, err) < 0 ||
        daemon_take_signals(&(struct daemon_life){.loop = p->loop}, err) < 0)
        return -1;
    return o->seccomp ? writer_seccomp(err) : 0;
}

static void close_all(struct program *p)
{
    metrics_server_free(p->metrics_server);
    server_free(p->server);
    store_close(p->store);
    audit_private_key_free(p->key);
    metrics_free(p->metrics);
    cl_loop_free(p->loop);
}

static int run(struct cl_err *err)
{
    struct program p = {0};
    (void)prctl(PR_SET_DUMPABLE, 0);
    (void)umask(027); /* the group reads: cloche-audit-reader */
    int rc = open_all(&p, err);
    if (rc == 0) {
        log_event(LOG_STARTED, "dir='%s'", options.dir);
        cl_loop_run(p.loop);
        rc = store_checkpoint(p.store, true, err);
    }
    close_all(&p);
    if (rc == 0)
        log_event(LOG_STOPPED, "status=0");
    return rc;
}

int main(int argc, char **argv)
{
    struct daemon d = {
        .name = "audit",
        .brief = "writes the audit log: the only process that may",
        .rows = option_rows,
        .n_rows = option_rows_nr,
        .values = &options,
        .size = sizeof options,
        .log_level = options.log_level,
        .check = check,
        .run = run,
    };
    return daemon_main(&d, argc, argv);
}
