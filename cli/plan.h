/* cli/plan.h - what `up` starts: five processes, their arguments, users, sockets and folders.
 *
 * Owns:    its text, in place; the ports, once plan_listen() has taken them.
 * Thread:  start-up.
 */
#ifndef CL_CLI_PLAN_H
#define CL_CLI_PLAN_H

#include <sys/types.h>

#include "cli/cli.h"
#include "cli/paths.h"

enum {
    PLAN_PROCS = 6,
    PROC_ARGS = 40,
    PROC_ARG = 640,
    PROC_NAME = 16,
    PROC_LISTENERS = 2,
    ENDPOINT_TEXT = 320,
};

enum proc_id { PROC_REDIS, PROC_AUDIT, PROC_READER, PROC_SCHEDULER, PROC_GATEWAY, PROC_WORKER };

struct proc {
    char name[PROC_NAME];
    char program[PATH_TEXT];
    char args[PROC_ARGS][PROC_ARG];
    size_t n_args;
    uid_t uid;
    gid_t gid;
    int death_signal;              /* what it gets when the supervisor dies */
    char ready_socket[PATH_TEXT];  /* accepts when it is up; "" = up at once */
    char log[PATH_TEXT];           /* "" = the supervisor's stderr */
    char metrics[ENDPOINT_TEXT];   /* "" or HOST:PORT */
    int listeners[PROC_LISTENERS]; /* owned: TCP ports that are held for it */
    size_t n_listeners;
};

struct plan {
    struct cli_paths paths;
    struct proc procs[PLAN_PROCS];
    char endpoint[ENDPOINT_TEXT];   /* "unix:/run/cloche/api.sock" */
    char tcp[ENDPOINT_TEXT];        /* "" or HOST:PORT */
    char mcp[ENDPOINT_TEXT];        /* HOST:PORT of the gateway */
    char worker_tcp[ENDPOINT_TEXT]; /* "" or HOST:PORT, for workers of other hosts */
    char ca[PATH_TEXT];             /* "" = no TLS */
    char audit_dir[PATH_TEXT], template_dir[PATH_TEXT], key_file[PATH_TEXT];
    char templates[PROC_ARG];
    char rules[PATH_TEXT]; /* "" = none */
    bool switch_users;
    uid_t uid_cloche, uid_audit, uid_reader, uid_redis;
    gid_t gid_cloche;
};

/* Decide everything but ports; pure but for looking at paths. */
int plan_make(const struct cli_opts *o, struct plan *ret, struct cl_err *err) CL_MUST;
/* Users, folders, keys, certificates, redis.conf; idempotent. */
int plan_prepare(const struct cli_opts *o, struct plan *p, struct cl_err *err) CL_MUST;
/* ports.c: take the ports of metrics and MCP; the supervisor's, as long as it lives. */
int plan_listen(const struct cli_opts *o, struct plan *p, struct cl_err *err) CL_MUST;
void plan_close(struct plan *p);
/* Arguments, once users, files and ports are there. */
int plan_arguments(const struct cli_opts *o, struct plan *p, struct cl_err *err) CL_MUST;
/* Where templates are: CLOCHE_TEMPLATE_DIR, the state folder, or those that root built. */
void plan_template_dir(const struct cli_paths *p, char out[static PATH_TEXT]);
bool plan_template_is_built(const char *template_dir, const char *name);
/* Of the wanted templates those that are built, separated by spaces; cut where size ends. */
void plan_list_built(const struct plan *p, char *out, size_t size);
/* Add those that are made of container images, in the same way. */
void plan_add_images(const char *template_dir, char *out, size_t size);

/* --- parts -------------------------------------------------------------------------------------
 */

/* users.c: find or make the system users (root only). */
int users_ensure(struct plan *p, struct cl_err *err) CL_MUST;
/* Can this user pass through all folders above path?  DENIED names the one that is closed. */
int users_check_path(const char *path, struct cl_err *err) CL_MUST;

/* Can this user read the file?  DENIED when not. */
int users_check_file(const char *path, uid_t uid, gid_t gid, struct cl_err *err) CL_MUST;

/* redis_conf.c: the text of redis.conf. */
struct cl_buf;
int redis_conf_format(struct cl_buf *out, const char *dir, const char *socket,
                      struct cl_err *err) CL_MUST;

/* certs.c: STATE/tls/{ca,server}.{pem,key} for this host; made anew when they do not fit. */
int certs_ensure(const char *dir, const char *host, struct cl_err *err) CL_MUST;

/* "[::1]:80", "example.org:80" -> the host without brackets; INVALID otherwise. */
int address_host(const char *address, char *host, size_t size, struct cl_err *err) CL_MUST;
bool address_is_loopback(const char *address);
/* `address` as others reach it: of a host that listens on all its addresses (0.0.0.0, [::]) the one
 * by which we came, `through`, HOST:PORT; by a unix socket we are there. */
void address_as_reached(const char *address, const char *through, char *out, size_t size);

#endif
