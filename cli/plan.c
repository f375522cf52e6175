/* cli/plan.c - see cli/plan.h. */
#include "cli/plan.h"
#include "cli/signers.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/own.h"
#include "trail/rules.h"

enum { REDIS_CONF_MAX = 8192 };

int address_host(const char *address, char *host, size_t size, struct cl_err *err)
{
    const char *colon = strrchr(address, ':');
    size_t n = colon ? (size_t)(colon - address) : 0;
    bool bracketed = n > 2 && address[0] == '[' && address[n - 1] == ']';
    if (n == 0 || !colon[1] || strspn(colon + 1, "0123456789") != strlen(colon + 1) || n >= size ||
        (!bracketed && memchr(address, ':', n)))
        return cl_fail(
            err, CL_E_INVALID, 0,
            "'%.64s' is not HOST:PORT\ngive it as 0.0.0.0:7443, example.org:7443 or [::1]:7443",
            address);
    (void)snprintf(host, size, "%.*s", (int)(n - 2 * bracketed), address + bracketed);
    return 0;
}

bool address_is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strncmp(address, "[::1]:", 6) == 0 ||
           strncmp(address, "localhost:", 10) == 0;
}

void address_as_reached(const char *address, const char *through, char *out, size_t size)
{
    char host[256], by[256] = "127.0.0.1";
    bool any = address_host(address, host, sizeof host, NULL) == 0 &&
               (strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0);
    if (any && strncmp(through, "unix:", 5) != 0 && address_host(through, by, sizeof by, NULL) < 0)
        any = false;
    const char *port = strrchr(address, ':');
    if (any)
        (void)snprintf(out, size, strchr(by, ':') ? "[%s]%s" : "%s%s", by, port);
    else
        (void)snprintf(out, size, "%s", address);
}

/* --- templates
 * ------------------------------------------------------------------------------------- */

bool plan_template_is_built(const char *template_dir, const char *name)
{
    char path[PATH_TEXT];
    int n = snprintf(path, sizeof path, "%s/%s/current/manifest.json", template_dir, name);
    return n < PATH_TEXT && access(path, R_OK) == 0;
}

static void add_name(char *out, size_t size, const char *name)
{
    size_t n = strlen(out);
    (void)snprintf(out + n, size - n, "%s%s", n ? " " : "", name);
}

/* As the worker finds them (worker/template_watch.h). */
void plan_add_images(const char *template_dir, char *out, size_t size)
{
    char path[PATH_TEXT];
    DIR *dir = opendir(template_dir);
    for (const struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        int n = snprintf(path, sizeof path, "%s/%s/current/source", template_dir, e->d_name);
        if (n < PATH_TEXT && cl_name_is_valid(e->d_name) && access(path, F_OK) == 0)
            add_name(out, size, e->d_name);
    }
    if (dir)
        (void)closedir(dir);
}

void plan_list_built(const struct plan *p, char *out, size_t size)
{
    char names[PROC_ARG];
    (void)snprintf(names, sizeof names, "%s", p->templates);
    out[0] = '\0';
    char *save = NULL;
    for (char *name = strtok_r(names, ", ", &save); name; name = strtok_r(NULL, ", ", &save)) {
        if (strcmp(name, "images") == 0)
            plan_add_images(p->template_dir, out, size);
        else if (plan_template_is_built(p->template_dir, name))
            add_name(out, size, name);
    }
}

void plan_template_dir(const struct cli_paths *p, char out[static PATH_TEXT])
{
    static const char built_by_root[] = "/var/lib/cloche/templates";
    const char *given = getenv("CLOCHE_TEMPLATE_DIR");
    path_join(out, p->state, "templates");
    if (given && given[0])
        (void)snprintf(out, PATH_TEXT, "%s", given);
    else if (!plan_template_is_built(out, "base") && !plan_template_is_built(out, "python") &&
             (plan_template_is_built(built_by_root, "base") ||
              plan_template_is_built(built_by_root, "python")))
        (void)snprintf(out, PATH_TEXT, "%s", built_by_root);
}

/* --- what is decided
 * -------------------------------------------------------------------------------- */

static void set_proc(struct plan *p, enum proc_id id, const char *name, const char *socket,
                     int death_signal)
{
    struct proc *proc = &p->procs[id];
    (void)snprintf(proc->name, sizeof proc->name, "%s", name);
    proc->uid = geteuid();
    proc->gid = getegid();
    proc->death_signal = death_signal;
    char file[PROC_NAME + 16];
    (void)snprintf(file, sizeof file, "log/%s.log", name);
    path_join(proc->log, p->paths.state, file);
    (void)snprintf(file, sizeof file, "cloche-%s", name);
    path_join(proc->program, p->paths.bin, file);
    if (socket)
        path_join(proc->ready_socket, p->paths.run, socket);
}

static int check_lengths(const struct plan *p, struct cl_err *err)
{
    /* sockaddr_un holds 108 bytes; the longest socket is supervisor's or worker's. */
    if (strlen(p->paths.run) + sizeof "/worker.sock" > 107 || strlen(p->paths.run) > 90)
        return cl_fail(err, CL_E_INVALID, 0,
                       "the run folder '%.100s' is too long for unix sockets (107 bytes)\n"
                       "choose a shorter --run-dir (CLOCHE_RUN_DIR)",
                       p->paths.run);
    if (strlen(p->paths.state) > 300)
        return cl_fail(err, CL_E_INVALID, 0,
                       "the state folder's path is too long\nchoose a shorter --state-dir");
    return 0;
}

/* MCP carries the credential of whoever calls, so in plain text it stays on this host. */
static int check_addresses(const struct cli_opts *o, struct cl_err *err)
{
    char host[256];
    if (o->listen && address_host(o->listen, host, sizeof host, err) < 0)
        return cl_wrap(err, "--listen");
    if (o->worker_listen && address_host(o->worker_listen, host, sizeof host, err) < 0)
        return cl_wrap(err, "--worker-listen");
    if (o->metrics && strcmp(o->metrics, "none") != 0 &&
        address_host(o->metrics, host, sizeof host, err) < 0)
        return cl_wrap(err, "--metrics");
    if (o->mcp && address_host(o->mcp, host, sizeof host, err) < 0)
        return cl_wrap(err, "--mcp");
    if (o->mcp && !address_is_loopback(o->mcp))
        return cl_fail(
            err, CL_E_INVALID, 0,
            "--mcp '%.64s' is not HOST:PORT of loopback\nelsewhere run cloche-gateway by "
            "itself, with a certificate",
            o->mcp);
    return 0;
}

int plan_make(const struct cli_opts *o, struct plan *p, struct cl_err *err)
{
    *p = (struct plan){0};
    if (o->log_to_stderr && !o->foreground)
        return cl_fail(err, CL_E_INVALID, 0,
                       "--log-to-stderr without --foreground\na supervisor that is left behind has "
                       "no stderr: its processes log to STATE/log");
    if (paths_resolve(o, &p->paths, err) < 0 || check_lengths(p, err) < 0 ||
        check_addresses(o, err) < 0)
        return -1;
    if (o->rules && path_absolute(p->rules, o->rules, err) < 0)
        return -1;
    p->switch_users = p->paths.is_root && !o->no_users;
    set_proc(p, PROC_REDIS, "redis", "redis.sock", SIGTERM);
    set_proc(p, PROC_AUDIT, "audit", "audit.sock", SIGTERM);
    set_proc(p, PROC_READER, "audit-reader", "reader.sock", SIGTERM);
    /* It holds nothing that the books do not, so it need not be asked kindly. */
    set_proc(p, PROC_SCHEDULER, "scheduler", "api.sock", SIGKILL);
    set_proc(p, PROC_GATEWAY, "gateway", NULL, SIGTERM);
    set_proc(p, PROC_WORKER, "worker", NULL, SIGTERM);
    for (size_t i = 0; i < PLAN_PROCS && o->log_to_stderr; i++)
        p->procs[i].log[0] = '\0';
    (void)snprintf(p->procs[PROC_REDIS].program, PATH_TEXT, "/usr/bin/redis-server");
    (void)snprintf(p->endpoint, sizeof p->endpoint, "unix:%s/api.sock", p->paths.run);
    (void)snprintf(p->templates, sizeof p->templates, "%s",
                   o->templates ? o->templates : "base,python,code,images");
    path_join(p->audit_dir, p->paths.state, "audit");
    path_join(p->key_file, p->paths.state, "admin.key");
    plan_template_dir(&p->paths, p->template_dir);
    if (o->worker_listen)
        (void)snprintf(p->worker_tcp, sizeof p->worker_tcp, "%s", o->worker_listen);
    if (o->listen)
        (void)snprintf(p->tcp, sizeof p->tcp, "%s", o->listen);
    if (p->tcp[0] && !address_is_loopback(p->tcp) && !o->insecure_listen)
        path_join(p->ca, p->paths.state, "tls/ca.pem");
    return 0;
}

/* --- what is made
 * ------------------------------------------------------------------------------------- */

static int own_dir(const char *path, mode_t mode, uid_t uid, gid_t gid, struct cl_err *err)
{
    if (cl_mkdir_p(path, mode, err) < 0)
        return cl_wrap(err, "folder '%s'", path);
    if (geteuid() == 0 && chown(path, uid, gid) < 0)
        return cl_fail(err, CL_E_SYS, errno, "give '%s' to its user", path);
    if (chmod(path, mode) < 0)
        return cl_fail(err, CL_E_SYS, errno, "set the mode of '%s' (is it yours?)", path);
    return 0;
}

static int state_dir(const struct plan *p, const char *name, mode_t mode, uid_t uid, gid_t gid,
                     struct cl_err *err)
{
    char path[PATH_TEXT];
    path_join(path, p->paths.state, name);
    return own_dir(path, mode, uid, gid, err);
}

static int make_folders(const struct plan *p, struct cl_err *err)
{
    uid_t me = geteuid();
    gid_t g = getegid(), cloche = p->switch_users ? p->gid_cloche : g;
    bool split = p->switch_users;
    mode_t open = split ? 0755 : 0700;
    /* Sticky: each process makes its socket here and cannot take another's away. */
    if (own_dir(p->paths.state, open, me, g, err) < 0 ||
        own_dir(p->paths.run, split ? 01775 : 0700, me, cloche, err) < 0 ||
        state_dir(p, "log", open, me, g, err) < 0 || state_dir(p, "worker", 0711, me, g, err) < 0 ||
        state_dir(p, "templates", 0755, me, g, err) < 0 ||
        state_dir(p, "redis", 0750, split ? p->uid_redis : me, cloche, err) < 0 ||
        state_dir(p, "audit", 0750, split ? p->uid_audit : me, cloche, err) < 0 ||
        state_dir(p, "gateway", 0700, split ? p->uid_cloche : me, cloche, err) < 0 ||
        state_dir(p, "scheduler", 0700, split ? p->uid_cloche : me, cloche, err) < 0)
        return -1;
    return 0;
}

static int write_redis_conf(const struct plan *p, struct cl_err *err)
{
    char dir[PATH_TEXT], path[PATH_TEXT];
    struct cl_buf text;
    cl_buf_init(&text, REDIS_CONF_MAX);
    path_join(dir, p->paths.state, "redis");
    path_join(path, dir, "redis.conf");
    int rc = redis_conf_format(&text, dir, p->procs[PROC_REDIS].ready_socket, err);
    if (rc == 0)
        rc = cl_file_write(path, text.data, text.len, 0644, err);
    cl_buf_fini(&text);
    return rc;
}

/* A CA and a server's certificate in STATE/<name>, readable by the scheduler. */
static int make_certs_in(const struct plan *p, const char *name, const char *address,
                         struct cl_err *err)
{
    static const char *const keys[] = {"server.key", "ca.key"};
    char dir[PATH_TEXT], key[PATH_TEXT], host[256];
    path_join(dir, p->paths.state, name);
    if (address_host(address, host, sizeof host, err) < 0 || certs_ensure(dir, host, err) < 0)
        return -1;
    /* The fleet's CA key too: the scheduler signs workers with it. */
    size_t n = strcmp(name, "fleet") == 0 ? CL_COUNT(keys) : 1;
    for (size_t i = 0; p->switch_users && i < n; i++) {
        path_join(key, dir, keys[i]);
        if (chown(key, p->uid_cloche, p->gid_cloche) < 0)
            return cl_fail(err, CL_E_SYS, errno, "give '%s' to the user cloche", key);
    }
    return 0;
}

static int make_certs(const struct plan *p, struct cl_err *err)
{
    if (p->ca[0] && make_certs_in(p, "tls", p->tcp, err) < 0)
        return -1;
    return p->worker_tcp[0] ? make_certs_in(p, "fleet", p->worker_tcp, err) : 0;
}

/* The key's file is in the scheduler's own folder, so that it can make it; people look one up. */
static int link_admin_key(const struct plan *p, struct cl_err *err)
{
    struct stat st;
    if (lstat(p->key_file, &st) == 0)
        return 0;
    if (symlink("scheduler/admin.key", p->key_file) < 0)
        return cl_fail(err, CL_E_SYS, errno, "make the link '%s'", p->key_file);
    return 0;
}

static int make_signing_key(const struct plan *p, struct cl_err *err)
{
    char own[PATH_TEXT], key[PATH_TEXT], pub[PATH_TEXT];
    path_join(own, p->paths.state, "templates");
    path_join(key, own, "signing.key");
    path_join(pub, own, "signing.pub");
    return strcmp(own, p->template_dir) == 0 ? signers_ensure(key, pub, err) : 0;
}

/* Templates that were brought from elsewhere came without the key that signed them: the worker
 * would take none. */
static int check_signer(const struct plan *p, struct cl_err *err)
{
    char built[ENDPOINT_TEXT], pub[PATH_TEXT];
    path_join(pub, p->template_dir, "signing.pub");
    plan_list_built(p, built, sizeof built);
    if (built[0] && access(pub, R_OK) < 0)
        return cl_fail(err, CL_E_NOTFOUND, 0,
                       "no '%s', so nobody knows who signed the templates there (%s)\n"
                       "copy it from where they were built, or build them here: "
                       "cloche template build NAME",
                       pub, built);
    return 0;
}

/* Wrong rules are found here, not in the log of a process that does not come up. */
static int check_rules(const struct plan *p, struct cl_err *err)
{
    struct rules *rules;
    if (rules_load(p->rules, &rules, err) < 0)
        return -1;
    rules_free(rules);
    return p->rules[0] && p->switch_users
               ? users_check_file(p->rules, p->uid_reader, p->gid_cloche, err)
               : 0;
}

int plan_prepare(const struct cli_opts *o, struct plan *p, struct cl_err *err)
{
    (void)o;
    if (path_check_run(p->paths.run, err) < 0)
        return -1;
    if (p->switch_users && (users_ensure(p, err) < 0 || users_check_path(p->paths.state, err) < 0 ||
                            users_check_path(p->paths.run, err) < 0))
        return -1;
    if (check_rules(p, err) < 0)
        return -1;
    if (make_folders(p, err) < 0 || write_redis_conf(p, err) < 0 || make_certs(p, err) < 0 ||
        make_signing_key(p, err) < 0 || check_signer(p, err) < 0)
        return -1;
    return link_admin_key(p, err);
}

/* --- arguments
 * ---------------------------------------------------------------------------------------- */

static int arg(struct proc *proc, struct cl_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static int arg(struct proc *proc, struct cl_err *err, const char *fmt, ...)
{
    CL_ASSERT(proc->n_args < PROC_ARGS);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(proc->args[proc->n_args++], PROC_ARG, fmt, ap);
    va_end(ap);
    return n >= 0 && n < PROC_ARG
               ? 0
               : cl_fail(err, CL_E_INVALID, 0, "an argument of cloche-%s is too long", proc->name);
}

static int audit_arguments(struct plan *p, struct cl_err *err)
{
    struct proc *a = &p->procs[PROC_AUDIT];
    if (p->switch_users) {
        a->uid = p->uid_audit;
        a->gid = p->gid_cloche;
    }
    if (arg(a, err, "cloche-audit") < 0 || arg(a, err, "--dir=%s", p->audit_dir) < 0 ||
        arg(a, err, "--socket=%s", a->ready_socket) < 0 ||
        arg(a, err, "--key=%s/audit.key", p->audit_dir) < 0)
        return -1;
    return p->switch_users ? arg(a, err, "--allowed_uids=0,%u", (unsigned)p->uid_cloche) : 0;
}

/* A user of its own in the group of the log: it can read what another writes. */
static int reader_arguments(struct plan *p, struct cl_err *err)
{
    struct proc *r = &p->procs[PROC_READER];
    if (p->switch_users) {
        r->uid = p->uid_reader;
        r->gid = p->gid_cloche;
    }
    if (arg(r, err, "cloche-audit-reader") < 0 || arg(r, err, "--dir=%s", p->audit_dir) < 0 ||
        arg(r, err, "--socket=%s", r->ready_socket) < 0 ||
        (p->rules[0] && arg(r, err, "--rules=%s", p->rules) < 0))
        return -1;
    return p->switch_users ? arg(r, err, "--allowed-uids=%u", (unsigned)p->uid_cloche) : 0;
}

static int scheduler_arguments(const struct cli_opts *o, struct plan *p, struct cl_err *err)
{
    struct proc *s = &p->procs[PROC_SCHEDULER];
    const char *state = p->paths.state, *run = p->paths.run;
    if (p->switch_users) {
        s->uid = p->uid_cloche;
        s->gid = p->gid_cloche;
    }
    if (arg(s, err, "cloche-scheduler") < 0 || arg(s, err, "--listen=%s", p->endpoint) < 0 ||
        arg(s, err, "--worker-listen=unix:%s/worker.sock", run) < 0 ||
        arg(s, err, "--worker-uid=%u", (unsigned)geteuid()) < 0 ||
        arg(s, err, "--redis=unix:%s/redis.sock", run) < 0 ||
        arg(s, err, "--durability=always") < 0 ||
        arg(s, err, "--audit-socket=%s/audit.sock", run) < 0 ||
        arg(s, err, "--audit-reader=%s/reader.sock", run) < 0 ||
        arg(s, err, "--pepper-file=%s/scheduler/pepper", state) < 0 ||
        arg(s, err, "--bootstrap-key-file=%s/scheduler/admin.key", state) < 0)
        return -1;
    if (p->tcp[0] && arg(s, err, "--tcp=%s", p->tcp) < 0)
        return -1;
    if (p->tcp[0] && o->insecure_listen && arg(s, err, "--insecure-listen=yes") < 0)
        return -1;
    if (p->worker_tcp[0] && (arg(s, err, "--worker-tcp=%s", p->worker_tcp) < 0 ||
                             arg(s, err, "--worker-ca=%s/fleet/ca.pem", state) < 0 ||
                             arg(s, err, "--worker-ca-key=%s/fleet/ca.key", state) < 0 ||
                             arg(s, err, "--worker-cert=%s/fleet/server.pem", state) < 0 ||
                             arg(s, err, "--worker-key=%s/fleet/server.key", state) < 0))
        return -1;
    if (p->ca[0] && (arg(s, err, "--tls-cert=%s/tls/server.pem", state) < 0 ||
                     arg(s, err, "--tls-key=%s/tls/server.key", state) < 0))
        return -1;
    return 0;
}

/* It needs the scheduler's socket and a folder for its secret, nothing else. */
static int gateway_arguments(const struct cli_opts *o, struct plan *p, struct cl_err *err)
{
    struct proc *g = &p->procs[PROC_GATEWAY];
    if (p->switch_users) {
        g->uid = p->uid_cloche;
        g->gid = p->gid_cloche;
    }
    if (arg(g, err, "cloche-gateway") < 0 || arg(g, err, "--listen=%s", p->mcp) < 0 ||
        arg(g, err, "--scheduler=%s", p->endpoint) < 0)
        return -1;
    if (o->build_net && arg(g, err, "--build-net=%s", o->build_net) < 0)
        return -1;
    return arg(g, err, "--secret-file=%s/gateway/secret", p->paths.state);
}

enum { VM_UID_BASE = 0x70000000, VM_UIDS = 4096 };

/* Instances must not share cgroups nor uids of VMs: all but the default one are named after their
 * folder. */
static uint32_t instance_name(const struct plan *p, char out[static 32])
{
    uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */
    for (const char *c = p->paths.state; *c; c++)
        h = (h ^ (unsigned char)*c) * UINT64_C(1099511628211);
    bool is_default = strcmp(p->paths.state, "/var/lib/cloche") == 0;
    (void)snprintf(out, 32, "i%08x", (unsigned)(h & 0xffffffff));
    if (is_default)
        (void)snprintf(out, 32, "default");
    return is_default ? VM_UID_BASE : VM_UID_BASE + VM_UIDS * (1 + (uint32_t)(h % 0xfff0));
}

/* The worker stays root where we are: it gives every VM a uid of its own and makes cgroups.  It
 * drops what it does not need itself. */
static int worker_arguments(const struct cli_opts *o, struct plan *p, struct cl_err *err)
{
    struct proc *w = &p->procs[PROC_WORKER];
    char instance[32];
    uint32_t uid_base = instance_name(p, instance);
    if (arg(w, err, "cloche-worker") < 0 ||
        arg(w, err, "--vm-uid-base=%u", (unsigned)uid_base) < 0 ||
        arg(w, err, "--scheduler=unix:%s/worker.sock", p->paths.run) < 0 ||
        arg(w, err, "--state-dir=%s/worker", p->paths.state) < 0 ||
        arg(w, err, "--paused-keys=%s/paused", p->paths.run) < 0 ||
        arg(w, err, "--instance=%s", instance) < 0 ||
        arg(w, err, "--template-dir=%s", p->template_dir) < 0 ||
        arg(w, err, "--template-key=%s/signing.pub", p->template_dir) < 0 ||
        arg(w, err, "--templates=%s", p->templates) < 0)
        return -1;
    if (o->warm != UINT64_MAX && arg(w, err, "--warm=%" PRIu64, o->warm) < 0)
        return -1;
    if (o->net_private && arg(w, err, "--net-private=%s", o->net_private) < 0)
        return -1;
    return o->driver ? arg(w, err, "--driver=%s", o->driver) : 0;
}

int plan_arguments(const struct cli_opts *o, struct plan *p, struct cl_err *err)
{
    struct proc *r = &p->procs[PROC_REDIS];
    if (p->switch_users) {
        r->uid = p->uid_redis;
        r->gid = p->gid_cloche;
    }
    for (size_t i = 0; i < PLAN_PROCS; i++)
        if (access(p->procs[i].program, X_OK) < 0)
            return cl_fail(err, CL_E_NOTFOUND, 0, "the program %s is missing\n%s",
                           p->procs[i].program,
                           i == PROC_REDIS ? "apt install redis-server"
                                           : "build the whole project: cmake --build build");
    if (arg(r, err, "redis-server") < 0 || arg(r, err, "%s/redis/redis.conf", p->paths.state) < 0)
        return -1;
    if (audit_arguments(p, err) < 0 || reader_arguments(p, err) < 0 ||
        scheduler_arguments(o, p, err) < 0 || gateway_arguments(o, p, err) < 0 ||
        worker_arguments(o, p, err) < 0)
        return -1;
    for (size_t i = 0; i < PLAN_PROCS; i++) {
        struct proc *proc = &p->procs[i];
        if (proc->metrics[0] && arg(proc, err, "--metrics=%s", proc->metrics) < 0)
            return -1;
    }
    return 0;
}
