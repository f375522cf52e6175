/* trail/reader/main.c - cloche-audit-reader: reads the audit log for schedulers, and can change
 * nothing. */
#include <sys/prctl.h>

#include "base/fs.h"
#include "observability/daemon.h"
#include "observability/log.h"
#include "trail/reader/options.h"
#include "trail/reader/seccomp.h"
#include "trail/reader/service.h"

static struct options options;

struct program {
    struct cl_loop *loop;      /* owned */
    struct rules_file *rules;  /* owned */
    struct service *service;   /* owned */
    struct rpc_server *server; /* owned */
    struct audit_uids uids;
};

static int check(const void *values, struct cl_err *err)
{
    const struct options *o = values;
    struct audit_uids ignored;
    return audit_uids_parse(o->allowed_uids, &ignored, err);
}

static int listen_on(struct program *p, struct cl_err *err)
{
    CL_AUTO(cl_closep) int fd = -1;
    if (rpc_server_new(p->loop, &p->server, err) < 0 ||
        rpc_server_add(p->server, service_methods, service_methods_n, p->service, -1, err) < 0 ||
        cl_unix_listen(options.socket, 0660, &fd, err) < 0 ||
        rpc_server_listen(p->server, fd, NULL, 0, err) < 0)
        return -1;
    (void)cl_steal_fd(&fd);
    return 0;
}

static int open_all(struct program *p, struct cl_err *err)
{
    if (cl_loop_new(&p->loop, err) < 0 ||
        audit_uids_parse(options.allowed_uids, &p->uids, err) < 0 ||
        rules_file_open(options.rules, &p->rules, err) < 0)
        return -1;
    const struct service_conf conf = {p->loop, options.dir, options.public_key, &p->uids, p->rules};
    if (service_new(&conf, &p->service, err) < 0 || listen_on(p, err) < 0 ||
        daemon_take_signals(&(struct daemon_life){.loop = p->loop}, err) < 0)
        return -1;
    return options.seccomp ? reader_seccomp(err) : 0;
}

static void close_all(struct program *p)
{
    rpc_server_free(p->server);
    cl_loop_free(p->loop); /* buries the calls */
    service_free(p->service);
    rules_file_free(p->rules);
}

static int run(struct cl_err *err)
{
    struct program p = {0};
    (void)prctl(PR_SET_DUMPABLE, 0);
    int rc = open_all(&p, err);
    if (rc == 0) {
        log_event(LOG_STARTED, "dir='%s'", options.dir);
        cl_loop_run(p.loop);
    }
    close_all(&p);
    if (rc == 0)
        log_event(LOG_STOPPED, "status=0");
    return rc;
}

int main(int argc, char **argv)
{
    struct daemon d = {
        .name = "audit-reader",
        .brief = "reads the audit log for schedulers; can change nothing",
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
