/* cli/cell.c - see cli/cell.h. */
#include "cli/cell.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "cli/capture.h"
#include "cli/output.h"

enum { INTERRUPT_CALL_S = 10, EXIT_INTERRUPTED = EXIT_SIGNAL + 2 };

static const struct {
    const char *name;
    Cloche__V1__Language language;
} languages[] = {
    {"python", CLOCHE__V1__LANGUAGE__LANGUAGE_PYTHON},
    {"bash", CLOCHE__V1__LANGUAGE__LANGUAGE_BASH},
    {"javascript", CLOCHE__V1__LANGUAGE__LANGUAGE_JAVASCRIPT},
};

static const struct {
    const char *mime, *suffix;
} suffixes[] = {
    {"image/png", "png"},         {"image/jpeg", "jpg"},
    {"image/svg+xml", "svg"},     {"text/html", "html"},
    {"text/markdown", "md"},      {"text/latex", "tex"},
    {"application/json", "json"}, {"application/javascript", "js"},
};

struct cell {
    const struct cell_spec *spec;
    struct capture capture;
    json_t *results, *error; /* owned */
    int code;
    json_t *ended; /* owned */
};

Cloche__V1__Language cell_language(const char *name)
{
    for (size_t i = 0; i < CL_COUNT(languages); i++)
        if (strcmp(languages[i].name, name) == 0)
            return languages[i].language;
    return CLOCHE__V1__LANGUAGE__LANGUAGE_UNSPECIFIED;
}

const char *cell_language_name(Cloche__V1__Language language)
{
    for (size_t i = 0; i < CL_COUNT(languages); i++)
        if (languages[i].language == language)
            return languages[i].name;
    return "";
}

const char *cell_outcome_text(Cloche__V1__CellOutcome outcome)
{
    static const char *const texts[] = {"unspecified", "ok",        "error",
                                        "interrupted", "timed_out", "exited",
                                        "oom_killed",  "restarted", "failed"};
    return (size_t)outcome < CL_COUNT(texts) ? texts[outcome] : "unspecified";
}

int cell_exit_code(Cloche__V1__CellOutcome outcome, int status)
{
    static const int codes[] = {
        [CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_OK] = EXIT_OK,
        [CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_ERROR] = EXIT_FAILED,
        [CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_INTERRUPTED] = EXIT_INTERRUPTED,
        [CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_TIMED_OUT] = EXIT_TIMED_OUT,
        [CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_EXITED] = EXIT_FAILED,
        [CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_OOM_KILLED] = EXIT_SIGNAL + 9,
        [CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_RESTARTED] = EXIT_FAILED,
        [CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_FAILED] = EXIT_CLOCHE,
    };
    bool own_code = outcome == CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_ERROR ||
                    outcome == CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_EXITED;
    if (own_code && status != 0)
        return status & 0xff;
    return (size_t)outcome < CL_COUNT(codes) ? codes[outcome] : EXIT_CLOCHE;
}

static const char *suffix_of(const char *mime)
{
    for (size_t i = 0; i < CL_COUNT(suffixes); i++)
        if (strcmp(suffixes[i].mime, mime) == 0)
            return suffixes[i].suffix;
    return NULL;
}

/* --- for people -------------------------------------------------------------------------------
 */

/* The next free name in the folder; what is there is never overwritten. */
static int save_form(const char *dir, const Cloche__V1__MimeData *d, struct cl_err *err)
{
    enum { TRIES = 10000 };
    const char *suffix = suffix_of(d->mime_type);
    for (int i = 1; i < TRIES; i++) {
        char path[4096];
        (void)snprintf(path, sizeof path, "%s/result-%d.%s", dir, i, suffix ? suffix : "bin");
        CL_AUTO(cl_closep) int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (fd < 0 && errno == EEXIST)
            continue;
        if (fd < 0)
            return cl_fail(err, CL_E_SYS, errno, "create '%s'", path);
        if (cl_write_all(fd, d->data.data, d->data.len, err) < 0)
            return cl_wrap(err, "'%s'", path);
        (void)printf("[%s, %zu bytes: %s]\n", d->mime_type, d->data.len, path);
        return 0;
    }
    return cl_fail(err, CL_E_TOOBIG, 0, "'%s' holds %d results already", dir, TRIES);
}

static int show_form(const struct cell *c, const Cloche__V1__MimeData *d, bool has_text,
                     struct cl_err *err)
{
    bool is_text = strcmp(d->mime_type, "text/plain") == 0;
    if (is_text) {
        (void)fwrite(d->data.data, 1, d->data.len, stdout);
        (void)putchar('\n');
        return 0;
    }
    if (c->spec->save)
        return save_form(c->spec->save, d, err);
    if (!has_text || strncmp(d->mime_type, "image/", 6) == 0)
        (void)printf("[%s, %zu bytes; --save DIR keeps it]\n", d->mime_type, d->data.len);
    return 0;
}

static int show_result(struct cell *c, const Cloche__V1__CellResult *r, struct cl_err *err)
{
    bool has_text = false;
    for (size_t i = 0; i < r->n_data; i++)
        has_text |= strcmp(r->data[i]->mime_type, "text/plain") == 0;
    for (size_t i = 0; i < r->n_data; i++)
        if (show_form(c, r->data[i], has_text, err) < 0)
            return -1;
    for (size_t i = 0; i < r->n_omitted_mime_types; i++)
        cli_say("a result of type %s was too large", r->omitted_mime_types[i]);
    return 0;
}

void cell_show_error(const Cloche__V1__CellError *e)
{
    size_t n = strlen(e->traceback);
    (void)fflush(stdout);
    if (n > 0)
        (void)fprintf(stderr, "%s%s", e->traceback, e->traceback[n - 1] == '\n' ? "" : "\n");
    else
        (void)fprintf(stderr, "%s: %s\n", e->name, e->value);
}

/* --- as JSON ----------------------------------------------------------------------------------
 */

json_t *cell_error_json(const Cloche__V1__CellError *e)
{
    return e ? json_pack("{s:s, s:s, s:s}", "name", e->name, "value", e->value, "traceback",
                         e->traceback)
             : json_null();
}

/* Text as it is, bytes as base64. */
static json_t *form_json(const Cloche__V1__MimeData *d)
{
    bool binary = strncmp(d->mime_type, "image/", 6) == 0 && strcmp(d->mime_type, "image/svg+xml");
    if (!binary)
        return json_stringn_nocheck((const char *)d->data.data, d->data.len);
    size_t room = 4 * ((d->data.len + 2) / 3) + 1;
    unsigned char *text = cl_zalloc(room);
    json_t *o = NULL;
    if (text && EVP_EncodeBlock(text, d->data.data, (int)d->data.len) >= 0)
        o = json_string((const char *)text);
    cl_free(text);
    return o;
}

static void keep_result(struct cell *c, const Cloche__V1__CellResult *r)
{
    json_t *forms = json_object();
    for (size_t i = 0; i < r->n_data; i++)
        (void)json_object_set_new(forms, r->data[i]->mime_type, form_json(r->data[i]));
    (void)json_array_append_new(
        c->results, json_pack("{s:o, s:b}", "data", forms, "is_main_result", r->is_main_result));
}

static json_t *cell_json(struct cell *c, const Cloche__V1__CellEnded *e)
{
    return json_pack("{s:s, s:i, s:i, s:s, s:i, s:I, s:o, s:o, s:b, s:I, s:I, s:O, s:O, s:i}",
                     "outcome", cell_outcome_text(e->outcome), "exit_code", (int)e->exit_code,
                     "signal", (int)e->signal, "message", e->message, "execution_count",
                     (int)e->execution_count, "wall_ns", (json_int_t)e->wall_ns, "stdout",
                     capture_text(&c->capture, 0), "stderr", capture_text(&c->capture, 1),
                     "truncated",
                     (e->stdout && e->stdout->truncated) || (e->stderr && e->stderr->truncated) ||
                         e->results_dropped > 0,
                     "stdout_bytes", (json_int_t)(e->stdout ? e->stdout->bytes : 0), "stderr_bytes",
                     (json_int_t)(e->stderr ? e->stderr->bytes : 0), "results", c->results, "error",
                     c->error ? c->error : json_null(), "results_dropped", (int)e->results_dropped);
}

/* --- the stream -------------------------------------------------------------------------------
 */

static void take_ended(struct cell *c, const Cloche__V1__CellEnded *e)
{
    c->code = cell_exit_code(e->outcome, e->exit_code);
    if (c->spec->json) {
        c->ended = cell_json(c, e);
        return;
    }
    bool expected = e->outcome == CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_OK ||
                    e->outcome == CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_ERROR;
    if (!expected || e->message[0])
        cli_say("the cell ended: %s%s%s", cell_outcome_text(e->outcome), e->message[0] ? ", " : "",
                e->message);
}

static int on_event(void *arg, const ProtobufCMessage *msg, struct cl_err *err)
{
    struct cell *c = arg;
    const Cloche__V1__RunCodeResponse *m = (const Cloche__V1__RunCodeResponse *)msg;
    bool json = c->spec->json;
    int rc = 0;
    switch ((int)m->event_case) { /* a newer service may say more */
    case CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_OUTPUT: {
        bool is_err = m->output->stream == CLOCHE__V1__STREAM__STREAM_STDERR;
        if (json)
            capture_add(&c->capture, is_err, m->output->data.data, m->output->data.len);
        else if (cl_write_all(is_err ? STDERR_FILENO : STDOUT_FILENO, m->output->data.data,
                              m->output->data.len, err) < 0)
            rc = -1;
        break;
    }
    case CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_RESULT:
        if (json)
            keep_result(c, m->result);
        else
            rc = show_result(c, m->result, err);
        (void)fflush(stdout);
        break;
    case CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_ERROR:
        if (json)
            c->error = cell_error_json(m->error);
        else
            cell_show_error(m->error);
        break;
    case CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_ENDED:
        take_ended(c, m->ended);
        break;
    default:
        break;
    }
    return rc;
}

int cell_run(struct client *client, const struct cell_spec *spec, const char *code, int *ret_code,
             struct cl_err *err)
{
    static const struct client_method run =
        CLIENT_METHOD("CodeService", "RunCode", run_code_response);
    struct cell c = {.spec = spec, .results = json_array(), .code = EXIT_CLOCHE};
    CL_AUTO(client_stream_freep) struct client_stream *s = NULL;
    Cloche__V1__RunCodeRequest req = CLOCHE__V1__RUN_CODE_REQUEST__INIT;
    req.sandbox_id = pb_text(spec->sandbox);
    req.language = spec->language;
    req.code = pb_text(code);
    req.timeout_ns = spec->timeout_ns;
    capture_init(&c.capture);
    int rc = client_stream_open(client, &run, on_event, &c, &s, err);
    if (rc == 0)
        rc = client_stream_send(s, &req.base, err);
    if (rc == 0)
        rc = client_stream_finish(s, err);
    if (rc == 0 && c.ended)
        (void)out_json(json_incref(c.ended));
    if (rc == 0)
        *ret_code = c.code;
    capture_fini(&c.capture);
    json_decref(c.results);
    json_decref(c.error);
    json_decref(c.ended);
    return rc;
}

/* --- ^C ---------------------------------------------------------------------------------------
 */

static void nothing(struct rpc_call *call, const ProtobufCMessage *msg, void *arg)
{
    (void)call, (void)msg, (void)arg;
}

static void interrupted(struct rpc_call *call, const struct cl_err *status, void *arg)
{
    (void)call, (void)arg;
    if (status)
        cli_say("the cell could not be interrupted: %s", status->text);
}

void cell_interrupt(struct client *client, const struct cell_spec *spec)
{
    static const struct rpc_client_events events = {.on_message = nothing, .on_end = interrupted};
    struct rpc_call_spec call = {
        .path = "/cloche.v1.CodeService/InterruptContext",
        .out = &cloche__v1__interrupt_context_response__descriptor,
        .deadline_ns = cl_now_ns() + INTERRUPT_CALL_S * CL_NS_PER_S,
    };
    Cloche__V1__InterruptContextRequest m = CLOCHE__V1__INTERRUPT_CONTEXT_REQUEST__INIT;
    struct rpc_call *c = NULL;
    m.sandbox_id = pb_text(spec->sandbox);
    m.context_id = pb_text(cell_language_name(spec->language));
    if (rpc_channel_call(client_channel(client), &call, &events, NULL, &c, NULL) < 0)
        return;
    if (rpc_call_send(c, &m.base, NULL) < 0)
        rpc_call_cancel(c);
    else
        rpc_call_close_send(c);
}
