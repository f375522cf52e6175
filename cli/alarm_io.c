/* cli/alarm_io.c - see cli/alarm.h. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/alarm.h"
#include "cli/cli.h"
#include "cli/output.h"

enum {
    STATE_VERSION = 1,
    STATE_MAX = 32 * 1024 * 1024,
    WRITE_EVERY_S = 10,
    LOOK_US = 20 * 1000,
    SETUP_FAILED = 126,
    NOT_FOUND = 127,
};

struct alarm {
    const char *path;           /* borrowed */
    char *const *program;       /* borrowed */
    char since[CL_RFC3339_LEN]; /* nothing older is told */
    char at[CL_RFC3339_LEN];    /* the newest record that was seen */
    json_t *seen;               /* owned: stream -> the newest record of which all is told */
    json_t *coming;             /* owned: the same, with those that are looked at now */
    json_t *told;               /* owned: of what is in `coming` alone: "name subject stream seq" */
    uint64_t written_ns;
};

uint64_t alarm_read_from(const struct alarm *a)
{
    uint64_t ns = cl_rfc3339_ns(a->at), earlier = DETECT_QUIET_S * CL_NS_PER_S;
    return ns > earlier ? ns - earlier : 0;
}

/* --- the state ----------------------------------------------------------------------------------
 */

static int read_state(struct alarm *a, struct cl_err *err)
{
    CL_AUTO(cl_buf_fini) struct cl_buf text;
    struct cl_err why = {0};
    json_error_t bad;
    int version;
    const char *since, *at;
    json_t *seen, *told;
    cl_buf_init(&text, STATE_MAX);
    if (cl_file_read(AT_FDCWD, a->path, &text, &why) < 0) {
        if (why.sys == ENOENT)
            return 0;
        if (err)
            *err = why;
        return -1;
    }
    json_t *root = json_loadb((const char *)text.data, text.len, 0, &bad);
    int rc = root ? json_unpack_ex(root, &bad, 0, "{s:i, s:s, s:s, s:o, s:o}", "version", &version,
                                   "since", &since, "at", &at, "seen", &seen, "told", &told)
                  : -1;
    if (rc == 0 && version != STATE_VERSION)
        rc = cl_fail(err, CL_E_UNIMPL, 0, "'%s' is of another release (version %d)", a->path,
                     version);
    else if (rc < 0 || !cl_rfc3339_ns(since) || !cl_rfc3339_ns(at) || !json_is_object(seen) ||
             !json_is_object(told))
        rc = cl_fail(err, CL_E_DATALOSS, 0,
                     "'%s' is no state of an alarm: %s\nmove it away, and findings since now are "
                     "told",
                     a->path, rc < 0 ? bad.text : "a time that is none");
    if (rc == 0) {
        (void)snprintf(a->since, sizeof a->since, "%s", since);
        (void)snprintf(a->at, sizeof a->at, "%s", at);
        (void)json_object_update(a->seen, seen);
        (void)json_object_update(a->coming, seen);
        (void)json_object_update(a->told, told);
    }
    json_decref(root);
    return rc;
}

static int write_state(struct alarm *a, struct cl_err *err)
{
    json_t *root = json_pack("{s:i, s:s, s:s, s:O, s:O}", "version", STATE_VERSION, "since",
                             a->since, "at", a->at, "seen", a->seen, "told", a->told);
    char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    int rc = text ? cl_file_write(a->path, text, strlen(text), 0600, err)
                  : cl_fail(err, CL_E_NOMEM, 0, "the state of an alarm");
    free(text);
    json_decref(root);
    a->written_ns = cl_now_ns();
    return rc;
}

static uint64_t seq_in(const json_t *streams, const char *stream)
{
    return (uint64_t)json_integer_value(json_object_get(streams, stream));
}

void alarm_see(struct alarm *a, const struct detect_record *r)
{
    if (r->seq > seq_in(a->coming, r->stream))
        (void)json_object_set_new(a->coming, r->stream, json_integer((json_int_t)r->seq));
    if (strcmp(r->ts, a->at) > 0)
        (void)snprintf(a->at, sizeof a->at, "%s", r->ts);
}

int alarm_settle(struct alarm *a, struct cl_err *err)
{
    (void)json_object_update(a->seen, a->coming);
    (void)json_object_clear(a->told);
    if (cl_now_ns() - a->written_ns < WRITE_EVERY_S * CL_NS_PER_S)
        return 0;
    return write_state(a, err);
}

/* --- the program --------------------------------------------------------------------------------
 */

static void become_program(const struct alarm *a, const struct finding *f, int in)
{
    static const int reset[] = {SIGINT, SIGTERM, SIGPIPE};
    for (size_t i = 0; i < CL_COUNT(reset); i++)
        (void)signal(reset[i], SIG_DFL);
    if (setpgid(0, 0) < 0 || dup2(in, STDIN_FILENO) < 0 ||
        setenv("CLOCHE_FINDING", f->name, 1) < 0 ||
        setenv("CLOCHE_SEVERITY", detect_severity_name(f->severity), 1) < 0)
        _exit(SETUP_FAILED);
    (void)execvp(a->program[0], a->program);
    _exit(errno == ENOENT ? NOT_FOUND : SETUP_FAILED);
}

/* Its status, or -1 when it was too slow. */
static int await(pid_t pid)
{
    int status;
    uint64_t end = cl_now_ns() + ALARM_RUN_S * CL_NS_PER_S;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (cl_now_ns() > end) {
            (void)kill(-pid, SIGKILL);
            (void)kill(pid, SIGKILL); /* its group may not be there yet */
            (void)waitpid(pid, &status, 0);
            return -1;
        }
        (void)usleep(LOOK_US);
    }
    return status;
}

/* Why it did not take it; "" = it did. */
static void run(const struct alarm *a, const struct finding *f, const char *line,
                char why[static CL_ERR_TEXT])
{
    int fds[2];
    (void)snprintf(why, CL_ERR_TEXT, "cannot be started: %s", strerror(errno));
    if (pipe2(fds, O_CLOEXEC) < 0)
        return;
    pid_t pid = fork();
    if (pid == 0)
        become_program(a, f, fds[0]);
    (void)close(fds[0]);
    /* Far less than a pipe holds; one that does not read it has its reasons. */
    if (pid > 0)
        (void)!write(fds[1], line, strlen(line));
    (void)close(fds[1]);
    int status = pid > 0 ? await(pid) : -1;
    if (pid > 0 && status == -1)
        (void)snprintf(why, CL_ERR_TEXT, "took longer than %d s", ALARM_RUN_S);
    else if (pid > 0 && WIFSIGNALED(status))
        (void)snprintf(why, CL_ERR_TEXT, "was killed by signal %d", WTERMSIG(status));
    else if (pid > 0 && WEXITSTATUS(status) == NOT_FOUND)
        (void)snprintf(why, CL_ERR_TEXT, "is not there, or does not find what it runs");
    else if (pid > 0 && WEXITSTATUS(status) != 0)
        (void)snprintf(why, CL_ERR_TEXT, "ended with %d", WEXITSTATUS(status));
    else if (pid > 0)
        why[0] = '\0';
}

/* --- telling ------------------------------------------------------------------------------------
 */

static bool is_new(const struct alarm *a, const struct finding *f, const char *id)
{
    return strcmp(f->first, a->since) >= 0 && f->seq > seq_in(a->seen, f->stream) &&
           !json_object_get(a->told, id);
}

int alarm_raise(struct alarm *a, const struct finding *f, const json_t *row, struct cl_err *err)
{
    char id[sizeof f->subject + sizeof f->stream + 80], subject[DETECT_SUBJECT], why[CL_ERR_TEXT];
    (void)snprintf(id, sizeof id, "%s %s %s %llu", f->name, f->subject, f->stream,
                   (unsigned long long)f->seq);
    if (!is_new(a, f, id))
        return 0;
    char *text = json_dumps(row, JSON_COMPACT), *line = NULL;
    if (!text || asprintf(&line, "%s\n", text) < 0) {
        free(text);
        return cl_fail(err, CL_E_NOMEM, 0, "an alarm");
    }
    for (unsigned wait = 1;; wait = CL_MIN(2 * wait, (unsigned)ALARM_AGAIN_MAX_S)) {
        run(a, f, line, why);
        if (!why[0])
            break;
        cl_text_clean(f->subject, subject, sizeof subject);
        cli_say("'%s' %s when it was told of %s of %s; again in %u s", a->program[0], why, f->name,
                subject, wait);
        (void)sleep(wait);
    }
    free(line);
    free(text);
    if (json_object_set_new(a->told, id, json_string(f->first)) < 0)
        return cl_fail(err, CL_E_NOMEM, 0, "an alarm");
    return write_state(a, err);
}

/* --- life ---------------------------------------------------------------------------------------
 */

int alarm_open(const char *state_path, const char *since, char *const *program,
               struct alarm **ret_alarm, struct cl_err *err)
{
    CL_AUTO(alarm_closep) struct alarm *a = cl_zalloc(sizeof *a);
    if (!a || !(a->seen = json_object()) || !(a->coming = json_object()) ||
        !(a->told = json_object()))
        return cl_fail(err, CL_E_NOMEM, 0, "an alarm");
    a->path = state_path;
    a->program = program;
    (void)snprintf(a->since, sizeof a->since, "%s", since);
    (void)snprintf(a->at, sizeof a->at, "%s", since);
    if (read_state(a, err) < 0 || write_state(a, err) < 0) /* whether it can be, before it must */
        return -1;
    (void)signal(SIGPIPE, SIG_IGN);
    *ret_alarm = CL_STEAL(&a);
    return 0;
}

void alarm_close(struct alarm *a)
{
    if (!a)
        return;
    json_decref(a->seen);
    json_decref(a->coming);
    json_decref(a->told);
    cl_free(a);
}
