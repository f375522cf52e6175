/* cli/up.c - `cloche up`, `down`, `status`. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/notify.h"
#include "base/own.h"
#include "cli/client.h"
#include "cli/output.h"
#include "cli/plan.h"
#include "cli/ready.h"
#include "cli/supervisor.h"
#include "cli/up.h"

enum {
    READY_FD = 3,
    LINE_MAX_TEXT = 1024,
    DOWN_QUIET_MS = 2000,
    DOWN_MAX_MS = 35000,
    REEXEC_ARGS = 32
};
#define STATUS_NS (15 * CL_NS_PER_S)

/* --- up
 * ------------------------------------------------------------------------------------------- */

/* The holder of the lock alone takes the ports: whoever comes second finds it running. */
static int supervise(const struct cli_opts *o, struct plan *plan, int ready_fd, struct cl_err *err)
{
    int rc = plan_listen(o, plan, err);
    if (rc == 0)
        rc = plan_arguments(o, plan, err);
    if (rc == 0)
        rc = supervisor_run(plan, ready_fd, err);
    if (rc < 0)
        supervisor_tell_failure(ready_fd, err);
    plan_close(plan);
    return rc;
}

static int up_foreground(const struct cli_opts *o, struct plan *plan)
{
    struct cl_err err = {0};
    CL_AUTO(cl_closep) int lock = -1;
    int ready_fd = o->ready_fd == UINT64_MAX ? -1 : (int)o->ready_fd;
    cl_notify_open();
    if (ready_fd >= 0)
        (void)fcntl(ready_fd, F_SETFD, FD_CLOEXEC);
    if (supervisor_lock(plan->paths.run, &lock, &err) < 0 || supervise(o, plan, ready_fd, &err) < 0)
        return cli_report(&err);
    return EXIT_OK;
}

/* The supervisor is this program again, detached: a fresh image, no inherited state. */
static _Noreturn void exec_supervisor(const struct plan *plan, int ready_fd,
                                      const struct cli_opts *o)
{
    char log[PATH_TEXT], warm[32];
    const char *argv[REEXEC_ARGS] = {
        "cloche",          "up",        "--foreground",  "--ready-fd=3", "--state-dir",
        plan->paths.state, "--run-dir", plan->paths.run, "--templates",  plan->templates};
    size_t n = 10;
    const struct {
        const char *name, *value;
    } asked[] = {{"--metrics", o->metrics},
                 {"--mcp", o->mcp},
                 {"--worker-listen", o->worker_listen},
                 {"--listen", o->listen},
                 {"--driver", o->driver},
                 {"--net-private", o->net_private},
                 {"--build-net", o->build_net},
                 {"--rules", plan->rules[0] ? plan->rules : NULL}};
    for (size_t i = 0; i < CL_COUNT(asked); i++) {
        if (!asked[i].value)
            continue;
        argv[n++] = asked[i].name;
        argv[n++] = asked[i].value;
    }
    if (o->insecure_listen)
        argv[n++] = "--insecure-listen";
    if (o->no_users)
        argv[n++] = "--no-users";
    if (o->warm != UINT64_MAX) {
        (void)snprintf(warm, sizeof warm, "--warm=%llu", (unsigned long long)o->warm);
        argv[n++] = warm;
    }
    path_join(log, plan->paths.state, "log/supervisor.log");
    int null = open("/dev/null", O_RDONLY);
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0640);
    if (dup2(ready_fd, READY_FD) < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0 ||
        chdir("/") < 0)
        _exit(125);
    (void)close_range(READY_FD + 1, ~0U, 0);
    (void)execv("/proc/self/exe", (char *const *)(uintptr_t)argv);
    _exit(127);
}

static int spawn_supervisor(const struct plan *plan, const struct cli_opts *o, int *ret_fd,
                            struct cl_err *err)
{
    int pipe_fd[2];
    if (pipe2(pipe_fd, O_CLOEXEC) < 0)
        return cl_fail(err, CL_E_SYS, errno, "pipe");
    pid_t pid = fork();
    if (pid == 0) { /* twice, so that the supervisor is nobody's child and has no terminal */
        (void)setsid();
        if (fork() == 0)
            exec_supervisor(plan, pipe_fd[1], o);
        _exit(0);
    }
    (void)close(pipe_fd[1]);
    *ret_fd = pipe_fd[0];
    if (pid < 0)
        return cl_fail(err, CL_E_SYS, errno, "fork");
    (void)waitpid(pid, NULL, 0);
    return 0;
}

/* Lines of the supervisor until it is ready or gives up; STATE when it ends without a word, which
 * it does when another one runs. */
static int hear_supervisor(int fd, const struct plan *plan, struct cl_err *err)
{
    char line[LINE_MAX_TEXT], remedy[LINE_MAX_TEXT] = "see the log";
    CL_AUTO(cl_fclosep) FILE *f = fdopen(fd, "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        const char *text = strchr(line, ' ');
        text = text ? text + 1 : "";
        if (strncmp(line, "say ", 4) == 0)
            cli_say("starting %s", text);
        else if (strncmp(line, "remedy ", 7) == 0)
            (void)snprintf(remedy, sizeof remedy, "%s", text);
        else if (strncmp(line, "fail ", 5) == 0)
            return cl_fail(err, CL_E_SYS, 0, "%.250s\n%.120s", text, remedy);
        else if (strncmp(line, "ready ", 6) == 0)
            return 0;
    }
    return cl_fail(err, CL_E_STATE, 0,
                   "the supervisor ended before it was ready\nsee %s/log/supervisor.log",
                   plan->paths.state);
}

/* The commands that ask the service must ask this instance, whatever the environment names. */
static int wait_ready(const struct cli_opts *o, const struct plan *plan, struct cl_err *err)
{
    struct cli_opts own = *o;
    own.state_dir = plan->paths.state;
    own.run_dir = plan->paths.run;
    (void)unsetenv("CLOCHE_ENDPOINT");
    (void)unsetenv("CLOCHE_API_KEY");
    (void)unsetenv("CLOCHE_KEY_FILE");
    return readiness_wait(&own, plan, err);
}

static int running_pid(const struct plan *plan)
{
    json_t *state = supervisor_state(plan->paths.run);
    int pid = (int)json_integer_value(json_object_get(state, "pid"));
    json_decref(state);
    return pid;
}

/* Nothing to do, but for who was to supervise: systemd would take his end for a failure without a
 * cause. */
static int meet_running(const struct cli_opts *o, const struct plan *plan, struct cl_err *err)
{
    int pid = running_pid(plan);
    if (o->foreground)
        return cl_fail(err, CL_E_STATE, 0,
                       "it runs already (supervisor %d)\nend that with `cloche down`", pid);
    cli_say("it runs already (supervisor %d, %s)", pid, plan->endpoint);
    return 0;
}

int cmd_up(const struct cli_opts *o, const struct args *a)
{
    (void)a;
    struct cl_err err = {0};
    int fd = -1;
    CL_AUTO(cl_freep) struct plan *plan = cl_zalloc(sizeof *plan);
    if (!plan)
        (void)cl_fail(&err, CL_E_NOMEM, 0, "plan");
    if (!plan || plan_make(o, plan, &err) < 0)
        return cli_report(&err);
    if (supervisor_is_running(plan->paths.run))
        return meet_running(o, plan, &err) < 0 || wait_ready(o, plan, &err) < 0 ? cli_report(&err)
                                                                                : EXIT_OK;
    if (plan_prepare(o, plan, &err) < 0)
        return cli_report(&err);
    if (o->foreground)
        return up_foreground(o, plan);
    if (spawn_supervisor(plan, o, &fd, &err) < 0)
        return cli_report(&err);
    if (hear_supervisor(fd, plan, &err) < 0) {
        /* Two at once: the one that lost the race finds the other's supervisor. */
        if (err.code != CL_E_STATE || !supervisor_is_running(plan->paths.run))
            return cli_report(&err);
        (void)meet_running(o, plan, &err);
    }
    if (wait_ready(o, plan, &err) < 0)
        return cli_report(&err);
    if (plan->tcp[0])
        cli_say("listening on %s%s%s", plan->tcp, plan->ca[0] ? ", CA " : " without TLS", plan->ca);
    return EXIT_OK;
}

/* --- down
 * ------------------------------------------------------------------------------------------- */

static bool ends_within(int pidfd, int ms)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    return poll(&p, 1, ms) > 0;
}

/* Records of what rests: wrk_ID/sbx_ID in the folder of the plan, and snp_ID of snapshots. */
static size_t count_records(const struct cli_paths *p, const char *of)
{
    char pattern[PATH_TEXT];
    glob_t found = {0};
    path_join(pattern, p->run, of);
    size_t n = glob(pattern, GLOB_NOSORT, NULL, &found) == 0 ? found.gl_pathc : 0;
    globfree(&found);
    return n;
}

static void say_paused(const struct cli_paths *p)
{
    size_t boxes = count_records(p, "paused/wrk_*/sbx_*"),
           snapshots = count_records(p, "paused/wrk_*/snp_*");
    if (boxes > 0)
        cli_say("%zu paused %s for `cloche up`", boxes,
                boxes == 1 ? "sandbox waits" : "sandboxes wait");
    if (snapshots > 0)
        cli_say("%zu %s kept for `cloche up`", snapshots,
                snapshots == 1 ? "snapshot is" : "snapshots are");
}

/* Its end is that of its process, not of its lock, which it gives back a little before. */
int cmd_down(const struct cli_opts *o, const struct args *a)
{
    (void)a;
    struct cl_err err = {0};
    struct cli_paths p;
    if (paths_resolve(o, &p, &err) < 0)
        return cli_report(&err);
    json_t *state = supervisor_state(p.run);
    pid_t pid = (pid_t)json_integer_value(json_object_get(state, "pid"));
    json_decref(state);
    CL_AUTO(cl_closep) int fd = pid > 1 ? pidfd_open(pid, 0) : -1;
    if (!supervisor_is_running(p.run)) {
        cli_say("it does not run (%s)", p.run);
        return EXIT_OK;
    }
    if (fd < 0)
        (void)cl_fail(&err, CL_E_STATE, 0,
                      "the supervisor comes up or goes down just now\ntry again in a second");
    else if (pidfd_send_signal(fd, SIGTERM, NULL, 0) < 0)
        (void)cl_fail(
            &err, CL_E_DENIED, 0,
            "the supervisor cannot be signalled\nrun this as the user who ran `cloche up`");
    if (err.code != CL_OK)
        return cli_report(&err);
    bool has_ended = ends_within(fd, DOWN_QUIET_MS);
    if (!has_ended) {
        cli_say("waiting for sandboxes to be paused and jobs to end");
        has_ended = ends_within(fd, DOWN_MAX_MS - DOWN_QUIET_MS);
    }
    if (!has_ended) {
        (void)pidfd_send_signal(fd, SIGKILL, NULL, 0); /* its children end with it */
        (void)ends_within(fd, DOWN_QUIET_MS);
        cli_say("the supervisor did not end in time and was killed");
    }
    say_paused(&p);
    return EXIT_OK;
}

/* --- status
 * -------------------------------------------------------------------------------------------- */

/* Processes that are alive now; the supervisor first. */
static json_t *live_processes(const json_t *state)
{
    json_t *list = json_array(), *pid = json_object_get(state, "pid");
    const json_t *all = json_object_get(state, "processes");
    (void)json_array_append_new(list, json_pack("{s:s, s:O, s:i, s:s}", "name", "supervisor", "pid",
                                                pid, "restarts", 0, "metrics", ""));
    for (size_t i = 0; i < json_array_size(all); i++) {
        json_t *one = json_array_get(all, i);
        if (json_integer_value(json_object_get(one, "pid")) > 0)
            (void)json_array_append(list, one);
    }
    return list;
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* A slow machine that has much to do is no reason to call it down. */
static void ask_service(const struct cli_opts *o, const struct cli_paths *p, struct readiness *r,
                        struct cl_err *ret_why)
{
    struct cli_opts own = *o;
    CL_AUTO(client_freep) struct client *c = NULL;
    own.state_dir = p->state;
    own.run_dir = p->run;
    if (client_open(&own, &c, ret_why) < 0 || readiness_ask(c, STATUS_NS, r, ret_why) < 0)
        *r = (struct readiness){0};
}

static json_t *status_json(const struct cli_paths *p, const json_t *state,
                           const struct readiness *r, const struct cl_err *why)
{
    char metrics[ENDPOINT_TEXT + 32] = "";
    const char *at = text_of(state, "metrics"), *tcp = text_of(state, "tcp"),
               *ca = text_of(state, "ca"), *mcp = text_of(state, "mcp");
    if (at[0])
        (void)snprintf(metrics, sizeof metrics, "http://%s/metrics", at);
    json_t *o =
        json_pack("{s:b, s:b, s:s, s:{s:s, s:s}, s:o, s:s, s:s, s:s, s:s, s:s, s:s}", "running", 1,
                  "ready", r->serving && r->worker, "driver", r->driver, "endpoints", "grpc",
                  text_of(state, "endpoint"), "metrics", metrics, "processes",
                  live_processes(state), "audit_dir", text_of(state, "audit_dir"), "state_dir",
                  p->state, "run_dir", p->run, "template_dir", text_of(state, "template_dir"),
                  "durability", "always", "templates", r->ready);
    (void)json_object_set_new(o, "preparing", json_string(r->pending));
    if (why->text[0])
        (void)json_object_set_new(o, "why", json_string(why->text));
    (void)json_object_set_new(o, "warm", json_integer(r->warm));
    json_t *endpoints = json_object_get(o, "endpoints");
    if (tcp[0])
        (void)json_object_set_new(endpoints, "tcp", json_string(tcp));
    if (ca[0])
        (void)json_object_set_new(endpoints, "ca", json_string(ca));
    if (mcp[0]) {
        (void)json_object_set_new(endpoints, "mcp", json_sprintf("http://%s/mcp", mcp));
        (void)json_object_set_new(endpoints, "e2b", json_sprintf("http://%s", mcp));
        (void)json_object_set_new(endpoints, "dashboard", json_sprintf("http://%s/dashboard", mcp));
    }
    return o;
}

static int print_down(const struct cli_opts *o, const struct cli_paths *p)
{
    if (o->json)
        (void)out_json(json_pack("{s:b, s:b, s:s, s:{}, s:[], s:s, s:s}", "running", 0, "ready", 0,
                                 "driver", "", "endpoints", "processes", "state_dir", p->state,
                                 "run_dir", p->run));
    else
        cli_say("it does not run here (%s)\n  remedy: cloche up", p->run);
    return EXIT_FAILED;
}

int cmd_status(const struct cli_opts *o, const struct args *a)
{
    (void)a;
    static const struct out_col lines[] = {{"ready", "ready"},
                                           {"driver", "driver"},
                                           {"templates", "warm templates"},
                                           {"preparing", "preparing"},
                                           {"grpc", "endpoint"},
                                           {"tcp", "tcp"},
                                           {"ca", "CA"},
                                           {"mcp", "mcp"},
                                           {"e2b", "E2B's API"},
                                           {"dashboard", "dashboard"},
                                           {"metrics", "metrics"},
                                           {"state_dir", "state"},
                                           {"audit_dir", "audit log"},
                                           {"durability", "durability"}};
    static const struct out_col cols[] = {
        {"name", "PROCESS"}, {"pid", "PID"}, {"restarts", "RESTARTS"}, {"metrics", "METRICS"}};
    struct cl_err err = {0};
    struct cli_paths p;
    struct readiness r = {0};
    if (paths_resolve(o, &p, &err) < 0)
        return cli_report(&err);
    json_t *state = supervisor_is_running(p.run) ? supervisor_state(p.run) : NULL;
    if (!state)
        return print_down(o, &p);
    ask_service(o, &p, &r, &err);
    json_t *s = status_json(&p, state, &r, &err);
    json_decref(state);
    if (o->json)
        return out_json(s);
    json_t *processes = json_incref(json_object_get(s, "processes"));
    (void)json_object_update(s, json_object_get(s, "endpoints"));
    (void)out_object(false, s, lines, CL_COUNT(lines));
    if (err.text[0])
        cli_say("not ready: %s", err.text);
    (void)putchar('\n');
    return out_rows(false, processes, cols, CL_COUNT(cols));
}
