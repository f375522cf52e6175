/* cli/repl.c - `cloche repl`: an interpreter in a sandbox, line by line or from a pipe. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/id.h"
#include "base/mem.h"
#include "cli/cell.h"
#include "cli/output.h"
#include "cloche/v1/sandbox.pb-c.h"
#include "proto/copy.h"

enum {
    CODE_MAX = 1024 * 1024, /* of one cell, as the service has it */
    CREATE_TIMEOUT_S = 180,
};

/* Somebody thinks at the prompt: its own sandbox waits longer than others. */
#define REPL_TTL_NS (3600 * CL_NS_PER_S)

struct repl {
    struct client *client; /* borrowed */
    struct cell_spec spec;
    struct cl_buf in; /* read, not used */
    struct cl_fd_watch watch;
    bool eof, waiting, dropped; /* dropped: ^C took what was typed */
};

/* --- lines -------------------------------------------------------------------------------------
 */

static void on_interrupt(int signo, void *arg)
{
    (void)signo;
    struct repl *r = arg;
    if (!r->waiting) {
        cell_interrupt(r->client, &r->spec);
        return;
    }
    r->dropped = true;
    cl_buf_clear(&r->in);
    cl_loop_stop(client_loop(r->client));
}

static int read_some(struct repl *r, struct cl_err *err)
{
    enum { STEP = 4096 };
    if (cl_buf_reserve(&r->in, STEP, err) < 0)
        return cl_wrap(err, "code");
    ssize_t n = read(STDIN_FILENO, r->in.data + r->in.len, STEP);
    if (n < 0 && errno != EINTR && errno != EAGAIN)
        return cl_fail(err, CL_E_SYS, errno, "read stdin");
    r->eof = n == 0;
    r->in.len += n > 0 ? (size_t)n : 0;
    return 0;
}

static void on_readable(int fd, int what, void *arg)
{
    (void)fd, (void)what;
    struct repl *r = arg;
    cl_loop_stop(client_loop(r->client));
}

/* Append a line to `code`; *ret_got is false at the end of the input, or when ^C came. */
static int read_line(struct repl *r, struct cl_buf *code, bool *ret_got, struct cl_err *err)
{
    const uint8_t *end;
    *ret_got = false;
    while (!(end = r->in.len ? memchr(r->in.data, '\n', r->in.len) : NULL)) {
        if (r->eof && r->in.len == 0)
            return 0;
        if (r->eof)
            break;
        r->waiting = true;
        cl_fd_watch_set(&r->watch, true);
        cl_loop_run(client_loop(r->client));
        cl_fd_watch_set(&r->watch, false);
        r->waiting = false;
        if (r->dropped)
            return 0;
        if (read_some(r, err) < 0)
            return -1;
    }
    size_t n = end ? (size_t)(end - r->in.data) + 1 : r->in.len;
    if (cl_buf_append(code, r->in.data, n, err) < 0)
        return cl_wrap(err, "code");
    cl_buf_consume(&r->in, n);
    *ret_got = true;
    return 0;
}

/* Does this line open what later lines close?  Then an empty line ends the cell. */
static bool is_open(const uint8_t *line, size_t n)
{
    static const char *const words[] = {"do", "then", "else"};
    while (n > 0 && strchr(" \t\r\n", line[n - 1]))
        n--;
    if (n == 0)
        return false;
    if (strchr(":\\,([{|", line[n - 1]) || line[0] == '@')
        return true;
    for (size_t i = 0; i < CL_COUNT(words); i++) {
        size_t len = strlen(words[i]);
        if (n >= len && memcmp(line + n - len, words[i], len) == 0 &&
            (n == len || strchr(" \t;", line[n - len - 1])))
            return true;
    }
    return false;
}

static bool is_blank(const uint8_t *line, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r\n", line[i]))
            return false;
    return true;
}

/* One cell; false in *ret_got at the end. */
static int read_cell(struct repl *r, struct cl_buf *code, bool *ret_got, struct cl_err *err)
{
    bool open = false;
    cl_buf_clear(code);
    do {
        size_t at = code->len;
        (void)fputs(open ? "... " : ">>> ", stderr);
        if (read_line(r, code, ret_got, err) < 0)
            return -1;
        if (r->dropped) {
            r->dropped = open = false;
            cl_buf_clear(code);
            (void)fputc('\n', stderr);
            *ret_got = true;
            return 0;
        }
        if (!*ret_got)
            break;
        const uint8_t *line = code->data + at;
        size_t n = code->len - at;
        open = open ? !is_blank(line, n) : is_open(line, n);
    } while (open);
    *ret_got = *ret_got || code->len > 0;
    return 0;
}

/* --- two ways of use ----------------------------------------------------------------------------
 */

static int run_buf(struct repl *r, struct cl_buf *code, int *ret_code, struct cl_err *err)
{
    if (memchr(code->data, 0, code->len))
        return cl_fail(err, CL_E_INVALID, 0, "the code holds a NUL byte");
    if (cl_buf_append(code, "", 1, err) < 0)
        return cl_wrap(err, "code");
    return cell_run(r->client, &r->spec, (const char *)code->data, ret_code, err);
}

/* Everything that comes is one cell.  ^C means the cell only once there is one. */
static int run_piped(struct repl *r, int *ret_code, struct cl_err *err)
{
    while (!r->eof)
        if (read_some(r, err) < 0)
            return -1;
    if (cl_loop_on_signal(client_loop(r->client), SIGINT, on_interrupt, r, err) < 0)
        return -1;
    return run_buf(r, &r->in, ret_code, err);
}

static int run_interactive(struct repl *r, int *ret_code, struct cl_err *err)
{
    struct cl_buf code;
    bool got = true;
    int rc = 0;
    cl_buf_init(&code, CODE_MAX + 1);
    cl_fd_watch_set(&r->watch, false);
    (void)fprintf(stderr, "sandbox %s; ^C interrupts, ^D leaves\n", r->spec.sandbox);
    while (rc == 0 && got) {
        rc = read_cell(r, &code, &got, err);
        if (rc == 0 && got && code.len > 0 && !is_blank(code.data, code.len))
            rc = run_buf(r, &code, ret_code, err);
        if (rc < 0 && (err->code == CL_E_STATE || err->code == CL_E_INVALID)) {
            (void)cli_report(err); /* of this cell alone */
            *err = (struct cl_err){0};
            rc = 0;
        }
    }
    (void)fputc('\n', stderr);
    *ret_code = EXIT_OK;
    cl_buf_fini(&code);
    return rc;
}

static int run_repl(struct repl *r, int *ret_code, struct cl_err *err)
{
    struct cl_loop *loop = client_loop(r->client);
    bool is_tty = isatty(STDIN_FILENO);
    cl_buf_init(&r->in, CODE_MAX + 1);
    int rc = 0;
    if (is_tty)
        rc = cl_loop_on_signal(loop, SIGINT, on_interrupt, r, err);
    if (rc == 0 && is_tty)
        rc = cl_fd_watch_init(&r->watch, loop, STDIN_FILENO, CL_READ, on_readable, r, err);
    if (rc == 0)
        rc = is_tty ? run_interactive(r, ret_code, err) : run_piped(r, ret_code, err);
    cl_fd_watch_fini(&r->watch);
    cl_buf_fini(&r->in);
    return rc;
}

/* --- the command --------------------------------------------------------------------------------
 */

static int create_sandbox(struct client *client, const struct cli_opts *o, const char *template,
                          char out[static CL_ID_MAX], struct cl_err *err)
{
    static const struct client_method create =
        CLIENT_METHOD("SandboxService", "Create", create_response);
    Cloche__V1__CreateRequest req = CLOCHE__V1__CREATE_REQUEST__INIT;
    ProtobufCMessage *msg = NULL;
    req.template_ = pb_text(template);
    req.ttl_ns = o->ttl ? o->ttl : REPL_TTL_NS;
    if (client_unary(client, &create, &req.base, CREATE_TIMEOUT_S * CL_NS_PER_S, &msg, err) < 0)
        return -1;
    (void)snprintf(out, CL_ID_MAX, "%s", ((Cloche__V1__CreateResponse *)msg)->sandbox->id);
    pb_free(msg);
    return 0;
}

static void kill_sandbox(struct client *client, const char *id)
{
    static const struct client_method end = CLIENT_METHOD("SandboxService", "Kill", kill_response);
    Cloche__V1__KillRequest req = CLOCHE__V1__KILL_REQUEST__INIT;
    struct cl_err err = {0};
    req.sandbox_id = pb_text(id);
    if (client_do(client, &end, &req.base, &err) < 0)
        cli_say("the sandbox %s could not be ended (%s); it ends by itself", id, err.text);
}

static int cmd_repl(const struct cli_opts *o, const struct args *a)
{
    struct cl_err err = {0};
    char own[CL_ID_MAX] = "";
    int code = EXIT_OK;
    const char *language = o->language ? o->language : "python";
    CL_AUTO(client_freep) struct client *client = NULL;
    struct repl r = {.spec = {.sandbox = o->sandbox ? o->sandbox : own,
                              .language = cell_language(language),
                              .timeout_ns = o->timeout,
                              .json = o->json,
                              .save = o->dir}};
    int rc = 0;
    if (!r.spec.language)
        rc = cl_fail(&err, CL_E_INVALID, 0, "no language '%.40s'\nuse python, bash or javascript",
                     language);
    if (rc == 0 && o->sandbox && a->n_pos > 0)
        rc = cl_fail(&err, CL_E_INVALID, 0, "TEMPLATE and --sandbox exclude each other\ngive one");
    if (rc == 0)
        rc = client_open(o, &client, &err);
    if (rc == 0 && !o->sandbox)
        rc = create_sandbox(client, o, a->n_pos ? a->pos[0] : "python", own, &err);
    r.client = client;
    if (rc == 0)
        rc = run_repl(&r, &code, &err);
    if (own[0])
        kill_sandbox(client, own);
    return rc < 0 ? cli_report_as(&err, EXIT_CLOCHE) : code;
}

static const struct arg_opt repl_opts[] = {
    OPT_JSON,
    {"language", 0, ARG_STRING, OPT(language), "NAME", "python (default), bash or javascript"},
    {"sandbox", 0, ARG_STRING, OPT(sandbox), "ID", "use this sandbox, and leave it running"},
    {"timeout", 0, ARG_DURATION, OPT(timeout), "30s", "interrupt a cell after this (300 s)"},
    {"ttl", 0, ARG_DURATION, OPT(ttl), "10m", "idle time of the sandbox that is made (1 h)"},
    {"save", 0, ARG_STRING, OPT(dir), "DIR", "keep images, HTML and the like as files there"},
};

const struct cli_command code_commands[] = {
    {"repl", "[OPTIONS] [TEMPLATE]", "an interpreter in a sandbox that remembers",
     "At a terminal: line by line; a line that opens a block (it ends with : { ( [ , \\ | do "
     "then)\n"
     "takes the lines up to an empty one. From a pipe: everything is one cell, and the exit code\n"
     "tells: 0, 1 for an exception (bash: its status), 124 at the time limit, 130 interrupted.\n"
     "Without --sandbox a sandbox is made (TEMPLATE, default `python`) and ended afterwards.\n\n"
     "  cloche repl                                   # Python; ^C interrupts, ^D leaves\n"
     "  cloche repl code --save plots                 # IPython, figures become files\n"
     "  echo 'print(6*7)' | cloche repl --json\n"
     "  id=$(cloche sandbox create python)            # state stays from call to call:\n"
     "  echo 'x = 41' | cloche repl --sandbox $id; echo 'x + 1' | cloche repl --sandbox $id\n",
     SPEC(repl_opts, 0, 1), cmd_repl, true},
};
const size_t code_commands_n = CL_COUNT(code_commands);
