/* cli/supervisor_io.c - see cli/supervisor.h. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/loop.h"
#include "base/notify.h"
#include "base/own.h"
#include "cli/child_log.h"
#include "cli/supervisor.h"

enum { CRASHES_MAX = 3, FDS_WANTED = 65536, LISTEN_FD = 3 };

#define POLL_NS (30 * CL_NS_PER_MS)
#define BACKOFF_FIRST_NS (200 * CL_NS_PER_MS)
#define BACKOFF_MAX_NS (10 * CL_NS_PER_S)
#define STABLE_NS (30 * CL_NS_PER_S)
#define START_MAX_NS (30 * CL_NS_PER_S)
#define DRAIN_NS \
    (29500 * CL_NS_PER_MS) /* `down` promises 30 s, of which a worker's pauses have 20 */
#define TRIM_NS (5 * CL_NS_PER_S)

enum { LEFTOVER_POLLS = 600, LEFTOVER_POLL_US = 50 * 1000 };
enum sup_state { SUP_STARTING = 1, SUP_RUNNING, SUP_STOPPING, SUP_DONE };

struct supervisor;

struct child {
    struct supervisor *sup;
    const struct proc *proc;
    struct cl_child watch;
    struct cl_timer again;
    pid_t pid; /* 0 = does not run */
    uint64_t started_ns, backoff_ns;
    unsigned restarts, crashes; /* crashes: before it was up for the first time */
    bool log_grows;             /* it cannot be trimmed, which was said */
};

struct supervisor {
    const struct plan *plan;
    struct cl_loop *loop;
    struct child children[PLAN_PROCS];
    struct cl_timer poll, drain, trim;
    enum sup_state state;
    size_t starting; /* children before it are up */
    uint64_t since_ns;
    int ready_fd;
    bool failed;
    struct cl_err err;
};

/* --- telling
 * -------------------------------------------------------------------------------------- */

/* The same to systemd, where that started us; a remedy is for the journal alone. */
static void tell_manager(const char *word, const char *text)
{
    if (strcmp(word, "ready") == 0) {
        cl_notify("READY=1");
        cl_notify_status("serves at %s", text);
    } else if (strcmp(word, "say") == 0) {
        cl_notify_status("starting %s", text);
    } else if (strcmp(word, "fail") == 0) {
        cl_notify_status("%s", text);
    }
}

static void tell(int ready_fd, const char *word, const char *text)
{
    char line[CL_ERR_TEXT + 64];
    int n = snprintf(line, sizeof line, "%s %s\n", word, text);
    if (ready_fd >= 0 && n > 0)
        (void)!write(ready_fd, line, CL_MIN((size_t)n, sizeof line - 1));
    cli_say("supervisor: %s %s", word, text);
    tell_manager(word, text);
}

static json_t *child_json(const struct child *c)
{
    char url[ENDPOINT_TEXT + 32] = "";
    if (c->proc->metrics[0])
        (void)snprintf(url, sizeof url, "http://%s/metrics", c->proc->metrics);
    return json_pack("{s:s, s:i, s:i, s:s}", "name", c->proc->name, "pid", (int)c->pid, "restarts",
                     (int)c->restarts, "metrics", url);
}

static json_t *state_json(const struct supervisor *s)
{
    const struct plan *p = s->plan;
    json_t *list = json_array();
    for (size_t i = 0; i < PLAN_PROCS; i++)
        (void)json_array_append_new(list, child_json(&s->children[i]));
    return json_pack("{s:i, s:i, s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o}", "version",
                     1, "pid", (int)getpid(), "since_ns", (json_int_t)s->since_ns, "state_dir",
                     p->paths.state, "run_dir", p->paths.run, "endpoint", p->endpoint, "mcp",
                     p->mcp, "tcp", p->tcp, "metrics", p->procs[PROC_SCHEDULER].metrics, "ca",
                     p->ca, "audit_dir", p->audit_dir, "template_dir", p->template_dir, "processes",
                     list);
}

static void write_state(const struct supervisor *s)
{
    char path[PATH_TEXT];
    struct cl_err err = {0};
    json_t *o = state_json(s);
    char *text = o ? json_dumps(o, JSON_INDENT(1)) : NULL;
    path_join(path, s->plan->paths.run, "supervisor.json");
    if (text && cl_file_write(path, text, strlen(text), 0644, &err) < 0)
        cli_say("supervisor: %s, ignoring", err.text);
    free(text);
    json_decref(o);
}

/* --- a child
 * ---------------------------------------------------------------------------------------- */

static void raise_limits(void)
{
    struct rlimit lim;
    if (getrlimit(RLIMIT_NOFILE, &lim) < 0)
        return;
    lim.rlim_cur = CL_MIN(lim.rlim_max, (rlim_t)FDS_WANTED);
    (void)setrlimit(RLIMIT_NOFILE, &lim);
}

/* Its sockets to where sd_listen_fds(3) has them; by way of numbers above, so that none lands on
 * another that has not moved yet. */
static int hand_over(const struct proc *proc)
{
    int above[PROC_LISTENERS];
    char pid[24], count[24];
    for (size_t i = 0; i < proc->n_listeners; i++)
        if ((above[i] = fcntl(proc->listeners[i], F_DUPFD_CLOEXEC, LISTEN_FD + PROC_LISTENERS)) < 0)
            return -1;
    for (size_t i = 0; i < proc->n_listeners; i++)
        if (dup2(above[i], LISTEN_FD + (int)i) < 0)
            return -1;
    (void)snprintf(pid, sizeof pid, "%d", (int)getpid());
    (void)snprintf(count, sizeof count, "%zu", proc->n_listeners);
    return setenv("LISTEN_PID", pid, 1) < 0 || setenv("LISTEN_FDS", count, 1) < 0 ? -1 : 0;
}

/* In the child, which has one thread as the supervisor has. */
static _Noreturn void become(const struct proc *proc, char *const *argv, int log_fd, pid_t parent)
{
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)setpgid(0, 0); /* the terminal's Ctrl-C is the supervisor's business */
    raise_limits();
    (void)umask(077);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (dup2(null, 0) < 0 || dup2(log_fd, 1) < 0 || dup2(log_fd, 2) < 0 || hand_over(proc) < 0)
        _exit(125);
    int exe = open(proc->program, O_PATH | O_CLOEXEC); /* the folder may be closed to the user */
    if (exe < 0 || chdir("/") < 0)
        _exit(125);
    if (geteuid() == 0 && proc->uid != 0 &&
        (setgroups(0, NULL) < 0 || setresgid(proc->gid, proc->gid, proc->gid) < 0 ||
         setresuid(proc->uid, proc->uid, proc->uid) < 0))
        _exit(125);
    /* After the change of uid, which clears it; then the parent must still be there. */
    if (prctl(PR_SET_PDEATHSIG, proc->death_signal) < 0 || getppid() != parent)
        _exit(125);
    (void)execv(proc->program, argv);
    (void)execveat(exe, "", argv, environ, AT_EMPTY_PATH);
    static const char text[] = "exec failed\n";
    (void)!write(2, text, sizeof text - 1);
    _exit(127);
}

static void on_child(pid_t pid, int status, void *arg);

static int child_log(const struct proc *proc, int *ret_fd, struct cl_err *err)
{
    if (proc->log[0])
        return child_log_open(proc->log, ret_fd, err);
    *ret_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, LISTEN_FD + PROC_LISTENERS);
    return *ret_fd >= 0 ? 0 : cl_fail(err, CL_E_SYS, errno, "stderr");
}

static int child_start(struct child *c, struct cl_err *err)
{
    char *argv[PROC_ARGS + 1];
    pid_t parent = getpid();
    CL_AUTO(cl_closep) int log_fd = -1;
    if (child_log(c->proc, &log_fd, err) < 0)
        return -1;
    for (size_t i = 0; i < c->proc->n_args; i++)
        argv[i] = (char *)(uintptr_t)c->proc->args[i];
    argv[c->proc->n_args] = NULL;
    pid_t pid = fork();
    if (pid < 0)
        return cl_fail(err, CL_E_SYS, errno, "start %s", c->proc->name);
    if (pid == 0)
        become(c->proc, argv, log_fd, parent);
    c->pid = pid;
    c->started_ns = cl_now_ns();
    if (cl_child_watch(&c->watch, c->sup->loop, pid, on_child, c, err) < 0) {
        (void)kill(pid, SIGKILL);
        return -1;
    }
    return 0;
}

static bool child_accepts(const struct child *c)
{
    CL_AUTO(cl_closep) int fd = -1;
    return !c->proc->ready_socket[0] || cl_unix_connect(c->proc->ready_socket, &fd, NULL) == 0;
}

/* --- stopping
 * ----------------------------------------------------------------------------------------- */

static void stop_next(struct supervisor *s)
{
    for (size_t i = PLAN_PROCS; i-- > 0;) {
        if (s->children[i].pid == 0)
            continue;
        (void)kill(s->children[i].pid, SIGTERM);
        return;
    }
    s->state = SUP_DONE;
    cl_loop_stop(s->loop);
}

static void begin_stop(struct supervisor *s)
{
    if (s->state == SUP_STOPPING || s->state == SUP_DONE)
        return;
    s->state = SUP_STOPPING;
    cl_notify("STOPPING=1");
    cl_timer_stop(&s->poll);
    for (size_t i = 0; i < PLAN_PROCS; i++)
        cl_timer_stop(&s->children[i].again);
    cl_timer_start(&s->drain, DRAIN_NS);
    stop_next(s);
}

static void on_drain(void *arg)
{
    struct supervisor *s = arg;
    for (size_t i = 0; i < PLAN_PROCS; i++)
        if (s->children[i].pid > 0)
            (void)kill(s->children[i].pid, SIGKILL);
}

static void on_signal(int signo, void *arg)
{
    (void)signo;
    begin_stop(arg);
}

static void give_up(struct supervisor *s, const struct cl_err *err)
{
    if (!s->failed)
        s->err = *err;
    s->failed = true;
    begin_stop(s);
}

/* --- starting and starting again
 * ------------------------------------------------------------------------ */

static const char *where_it_logs(const struct proc *proc)
{
    return proc->log[0] ? proc->log : "its messages above";
}

static void say_exit(const struct child *c, int status, char *out, size_t size)
{
    if (WIFSIGNALED(status))
        (void)snprintf(out, size, "%s was killed by signal %d", c->proc->name, WTERMSIG(status));
    else
        (void)snprintf(out, size, "%s ended with status %d", c->proc->name, WEXITSTATUS(status));
}

static void on_again(void *arg)
{
    struct child *c = arg;
    struct cl_err err = {0};
    c->restarts++;
    if (child_start(c, &err) < 0) {
        cli_say("supervisor: %s", err.text);
        cl_timer_start(&c->again, c->backoff_ns);
    }
    write_state(c->sup);
}

static void on_child(pid_t pid, int status, void *arg)
{
    (void)pid;
    struct child *c = arg;
    struct supervisor *s = c->sup;
    char how[64], words[256] = "";
    c->pid = 0;
    say_exit(c, status, how, sizeof how);
    if (s->state == SUP_STOPPING) {
        stop_next(s);
        return;
    }
    bool first = s->state == SUP_STARTING && &s->children[s->starting] == c;
    if (first && ++c->crashes >= CRASHES_MAX) {
        struct cl_err err;
        child_log_last_line(c->proc->log, words, sizeof words);
        (void)cl_fail(&err, CL_E_SYS, 0, "%s: %s\nsee %s", how, words, where_it_logs(c->proc));
        give_up(s, &err);
        return;
    }
    if (cl_now_ns() - c->started_ns > STABLE_NS)
        c->backoff_ns = 0;
    c->backoff_ns = c->backoff_ns ? CL_MIN(c->backoff_ns * 2, BACKOFF_MAX_NS) : BACKOFF_FIRST_NS;
    cli_say("supervisor: %s, starting it again", how);
    cl_timer_start(&c->again, c->backoff_ns);
    write_state(s);
}

static void on_poll(void *arg)
{
    struct supervisor *s = arg;
    struct child *c = &s->children[s->starting];
    struct cl_err err = {0};
    if (c->pid == 0 || !child_accepts(c)) {
        if (cl_now_ns() - s->since_ns > START_MAX_NS) {
            (void)cl_fail(&err, CL_E_DEADLINE, 0,
                          "%s does not accept connections after 30 s\nsee %s", c->proc->name,
                          where_it_logs(c->proc));
            give_up(s, &err);
        }
        return;
    }
    if (++s->starting == PLAN_PROCS) {
        s->state = SUP_RUNNING;
        cl_timer_stop(&s->poll);
        write_state(s);
        tell(s->ready_fd, "ready", s->plan->endpoint);
        return;
    }
    tell(s->ready_fd, "say", s->children[s->starting].proc->name);
    if (child_start(&s->children[s->starting], &err) < 0)
        give_up(s, &err);
    write_state(s);
}

static void on_trim(void *arg)
{
    struct supervisor *s = arg;
    struct cl_err err = {0};
    for (size_t i = 0; i < PLAN_PROCS; i++) {
        struct child *c = &s->children[i];
        if (!c->proc->log[0] || child_log_trim(c->proc->log, CHILD_LOG_MAX, &err) == 0 ||
            c->log_grows)
            continue;
        c->log_grows = true;
        cli_say("supervisor: %s, ignoring", err.text);
    }
}

/* --- life
 * ------------------------------------------------------------------------------------------------
 */

/* What a supervisor that was killed left behind ends as soon as its sandboxes are paused; do not
 * start over it. */
static void wait_for_leftovers(const struct plan *p)
{
    json_t *old = supervisor_state(p->paths.run);
    const json_t *list = json_object_get(old, "processes");
    for (size_t i = 0; i < json_array_size(list); i++) {
        pid_t pid = (pid_t)json_integer_value(json_object_get(json_array_get(list, i), "pid"));
        char link[64], exe[PATH_TEXT] = "";
        (void)snprintf(link, sizeof link, "/proc/%d/exe", (int)pid);
        for (int k = 0; pid > 1 && k < LEFTOVER_POLLS; k++) {
            ssize_t n = readlink(link, exe, sizeof exe - 1);
            exe[n > 0 ? n : 0] = '\0';
            if (!strstr(exe, "/cloche-") && !strstr(exe, "/redis-"))
                break;
            if (k == LEFTOVER_POLLS - 1)
                (void)kill(pid, SIGKILL);
            (void)usleep(LEFTOVER_POLL_US);
        }
    }
    json_decref(old);
}

static int supervisor_init(struct supervisor *s, struct cl_err *err)
{
    if (cl_loop_new(&s->loop, err) < 0 || cl_timer_init(&s->poll, s->loop, on_poll, s, err) < 0 ||
        cl_timer_init(&s->drain, s->loop, on_drain, s, err) < 0 ||
        cl_timer_init(&s->trim, s->loop, on_trim, s, err) < 0 ||
        cl_loop_on_signal(s->loop, SIGTERM, on_signal, s, err) < 0 ||
        cl_loop_on_signal(s->loop, SIGINT, on_signal, s, err) < 0)
        return -1;
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < PLAN_PROCS; i++) {
        struct child *c = &s->children[i];
        c->sup = s;
        c->proc = &s->plan->procs[i];
        c->watch.pidfd = -1;
        if (cl_timer_init(&c->again, s->loop, on_again, c, err) < 0)
            return -1;
    }
    return 0;
}

static void supervisor_fini(struct supervisor *s)
{
    char path[PATH_TEXT];
    path_join(path, s->plan->paths.run, "supervisor.json");
    (void)unlink(path);
    for (size_t i = 0; i < PLAN_PROCS; i++) {
        cl_timer_fini(&s->children[i].again);
        cl_child_fini(&s->children[i].watch);
    }
    cl_timer_fini(&s->poll);
    cl_timer_fini(&s->drain);
    cl_timer_fini(&s->trim);
    cl_loop_free(s->loop);
}

void supervisor_tell_failure(int ready_fd, const struct cl_err *err)
{
    char text[CL_ERR_TEXT];
    (void)snprintf(text, sizeof text, "%s", err->text);
    char *line = strchr(text, '\n');
    if (line)
        *line = '\0';
    tell(ready_fd, "remedy", line ? line + 1 : cl_err_info(err->code)->remedy);
    tell(ready_fd, "fail", text);
}

int supervisor_run(const struct plan *plan, int ready_fd, struct cl_err *err)
{
    struct supervisor s = {
        .plan = plan, .state = SUP_STARTING, .since_ns = cl_now_ns(), .ready_fd = ready_fd};
    wait_for_leftovers(plan);
    s.since_ns = cl_now_ns();
    int rc = supervisor_init(&s, err);
    if (rc == 0) {
        write_state(&s);
        tell(ready_fd, "say", s.children[0].proc->name);
        rc = child_start(&s.children[0], err);
    }
    if (rc == 0) {
        cl_timer_every(&s.poll, POLL_NS);
        cl_timer_every(&s.trim, TRIM_NS);
        while (s.state != SUP_DONE)
            cl_loop_run(s.loop);
        if (s.failed) {
            if (err)
                *err = s.err;
            rc = -1;
        }
    }
    supervisor_fini(&s);
    return rc;
}

/* --- the lock and the state, for other commands
 * -------------------------------------------------------------- */

int supervisor_lock(const char *run_dir, int *ret_fd, struct cl_err *err)
{
    char path[PATH_TEXT];
    path_join(path, run_dir, "supervisor.lock");
    CL_AUTO(cl_closep) int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return cl_fail(err, CL_E_SYS, errno, "open '%s'", path);
    int held = flock(fd, LOCK_EX | LOCK_NB);
    for (int i = 0; i < 10 && held < 0; i++) { /* `status` looks at it for a moment */
        (void)usleep(10 * 1000);
        held = flock(fd, LOCK_EX | LOCK_NB);
    }
    if (held < 0)
        return cl_fail(err, CL_E_STATE, 0, "a supervisor runs already");
    *ret_fd = cl_steal_fd(&fd);
    return 0;
}

bool supervisor_is_running(const char *run_dir)
{
    char path[PATH_TEXT];
    path_join(path, run_dir, "supervisor.lock");
    CL_AUTO(cl_closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) /* another's instance: its lock is not ours to try */
        return errno == EACCES;
    return flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

json_t *supervisor_state(const char *run_dir)
{
    char path[PATH_TEXT];
    path_join(path, run_dir, "supervisor.json");
    return json_load_file(path, 0, NULL);
}
