/* mcp/code.c - the tool run_code: a cell in an interpreter that keeps its state. */
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/own.h"
#include "base/utf8.h"
#include "cloche/v1/code.pb-c.h"
#include "mcp/ask_priv.h"
#include "mcp/call_priv.h"
#include "mcp/tools_priv.h"

enum {
    CODE_TIMEOUT_S = 50, /* clients give up after 60 s */
    GRACE_S = 30,
    IMAGES_MAX = 16,                /* of one call: a loop that plots must not fill a context */
    IMAGES_BYTES = 4 * 1024 * 1024, /* of all of them, before base64 */
    RESULT_TEXT_MAX = 256 * 1024,   /* text of all results */
};

struct cell {
    struct mcp_output output;
    struct cl_buf text; /* text of the results */
    json_t *images;     /* owned: content items */
    size_t image_bytes, images_left_out;
    json_t *structured; /* owned until the end */
    bool failed;
};

static void cell_free(void *obj)
{
    struct cell *w = obj;
    mcp_output_fini(&w->output);
    cl_buf_fini(&w->text);
    json_decref(w->images);
    json_decref(w->structured);
    cl_free(w);
}

/* --- what a cell shows --------------------------------------------------------------------------
 */

static void add_image(struct cell *w, const Cloche__V1__MimeData *d)
{
    if (json_array_size(w->images) >= IMAGES_MAX || w->image_bytes + d->data.len > IMAGES_BYTES) {
        w->images_left_out++;
        return;
    }
    CL_AUTO(cl_freep) char *coded = cl_zalloc(4 * ((d->data.len + 2) / 3) + 1);
    if (!coded)
        return;
    (void)EVP_EncodeBlock((unsigned char *)coded, d->data.data, (int)d->data.len);
    w->image_bytes += d->data.len;
    (void)json_array_append_new(w->images, json_pack("{s:s, s:s, s:s}", "type", "image", "data",
                                                     coded, "mimeType", d->mime_type));
}

static void add_text(struct cell *w, const Cloche__V1__MimeData *d, bool is_main)
{
    CL_AUTO(cl_freep) char *clean = mcp_text_clean(d->data.data, d->data.len, false, false);
    if (!clean)
        return;
    size_t n = cl_utf8_clip(clean, strlen(clean), RESULT_TEXT_MAX);
    (void)!cl_buf_printf(&w->text, NULL, "%.*s\n", (int)n, clean); /* over the cap: left out */
    if (is_main)
        mcp_json_set(w->structured, "result", json_stringn(clean, n));
}

/* The forms that a model can use, best first: pictures as pictures, else the plainest text. */
static void take_result(struct cell *w, const Cloche__V1__CellResult *m)
{
    static const char *const texts[] = {"text/markdown", "text/plain", "application/json",
                                        "text/latex",    "text/html",  "image/svg+xml"};
    const Cloche__V1__MimeData *image = NULL, *text = NULL;
    for (size_t i = 0; i < m->n_data; i++) {
        const char *type = m->data[i]->mime_type;
        if (!image && (strcmp(type, "image/png") == 0 || strcmp(type, "image/jpeg") == 0))
            image = m->data[i];
    }
    for (size_t t = 0; t < CL_COUNT(texts) && !text; t++) {
        for (size_t i = 0; i < m->n_data && !text; i++)
            text = strcmp(m->data[i]->mime_type, texts[t]) == 0 ? m->data[i] : NULL;
    }
    if (image)
        add_image(w, image);
    if (text && (!image || m->is_main_result))
        add_text(w, text, m->is_main_result);
}

json_t *mcp_cell_error(const Cloche__V1__CellError *m)
{
    return json_pack("{s:s, s:s, s:s}", "name", m->name, "value", m->value, "traceback",
                     m->traceback);
}

static void take_error(struct cell *w, const Cloche__V1__CellError *m)
{
    w->failed = true;
    mcp_json_set(w->structured, "error", mcp_cell_error(m));
}

static void take_start(struct cell *w, const Cloche__V1__CellStarted *m)
{
    mcp_json_set(w->structured, "context_id", json_string(m->context_id));
    mcp_json_set(w->structured, "execution_count", json_integer(m->execution_count));
    mcp_json_set(w->structured, "fresh", json_boolean(m->fresh));
}

/* --- the end ------------------------------------------------------------------------------------
 */

static const struct {
    const char *name, *text;
} outcomes[] = {
    {"failed", "it could not be run"},
    {"ok", ""},
    {"error", "the code failed"},
    {"interrupted", "interrupted"},
    {"timed_out", "timed out and was interrupted: allow more with timeout_seconds, or run it in "
                  "the background with exec_start"},
    {"exited", "the interpreter ended: its variables are gone, the next call starts a new one"},
    {"oom_killed", "out of memory: the interpreter was killed and its variables are gone; use "
                   "less, or make a larger sandbox (sandbox_create with memory_mib)"},
    {"restarted", "the interpreter was restarted"},
    {"failed", "the sandbox could not run it to its end"},
};

const char *mcp_outcome_name(Cloche__V1__CellOutcome outcome)
{
    return outcomes[(size_t)outcome < CL_COUNT(outcomes) ? (size_t)outcome : 0].name;
}

static char *cell_text(const struct mcp_call *c, const Cloche__V1__CellEnded *m, size_t outcome)
{
    const struct cell *w = mcp_work(c);
    const json_t *error = json_object_get(w->structured, "error");
    const char *traceback = mcp_json_text(error, "traceback");
    char note[160], left_out[80] = "";
    CL_AUTO(cl_freep) char *shown = mcp_output_text(&w->output);
    mcp_box_note(c, note, sizeof note);
    if (w->images_left_out)
        (void)snprintf(left_out, sizeof left_out, "\n[%zu images left out]", w->images_left_out);
    bool says = outcomes[outcome].text[0] || m->message[0];
    return cl_asprintf("%s%s%s%s%s%s%.*s%s%s%s\n%s", outcomes[outcome].text,
                       m->message[0] ? ": " : "", m->message, says ? "\n" : "", shown ? shown : "",
                       w->text.len ? "\n--- result ---\n" : "", (int)w->text.len,
                       w->text.len ? (const char *)w->text.data : "", traceback ? "\n" : "",
                       traceback ? traceback : "", left_out, note);
}

static void take_end(struct mcp_call *c, const Cloche__V1__CellEnded *m)
{
    struct cell *w = mcp_work(c);
    size_t outcome = (size_t)m->outcome < CL_COUNT(outcomes) ? (size_t)m->outcome : 0;
    json_t *o = w->structured;
    mcp_json_set(o, "outcome", json_string(outcomes[outcome].name));
    mcp_json_set(o, "timed_out",
                 json_boolean(m->outcome == CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_TIMED_OUT));
    mcp_json_set(o, "oom_killed",
                 json_boolean(m->outcome == CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_OOM_KILLED));
    mcp_json_set(o, "exit_code", json_integer(m->exit_code));
    mcp_json_set(o, "duration_ms", json_integer((json_int_t)(m->wall_ns / CL_NS_PER_MS)));
    mcp_json_set(o, "images", json_integer((json_int_t)json_array_size(w->images)));
    mcp_output_json(&w->output, o);
    struct mcp_result r = {.text = cell_text(c, m, outcome),
                           .structured = json_incref(o),
                           .content = json_incref(w->images),
                           .is_error = w->failed ||
                                       m->outcome != CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_OK};
    mcp_end_tool(c, &r);
}

static void on_event(struct mcp_call *c, const ProtobufCMessage *msg)
{
    const Cloche__V1__RunCodeResponse *m = (const Cloche__V1__RunCodeResponse *)msg;
    struct cell *w = mcp_work(c);
    char text[96];
    switch (m->event_case) {
    case CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_STARTED:
        take_start(w, m->started);
        break;
    case CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_OUTPUT:
        mcp_output_add(&w->output, m->output);
        (void)snprintf(text, sizeof text, "running, %" PRIu64 " bytes of output",
                       w->output.out.total + w->output.err.total);
        mcp_progress(c, text);
        break;
    case CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_RESULT:
        take_result(w, m->result);
        break;
    case CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_ERROR:
        take_error(w, m->error);
        break;
    case CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_ENDED:
        take_end(c, m->ended);
        break;
    case CLOCHE__V1__RUN_CODE_RESPONSE__EVENT__NOT_SET:
    case _CLOCHE__V1__RUN_CODE_RESPONSE__EVENT__CASE_IS_INT_SIZE:
        break;
    }
}

static void on_end(struct mcp_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    (void)reply;
    struct cl_err lost = {0};
    if (!err)
        (void)cl_fail(&lost, CL_E_UNAVAILABLE, 0, "the code's output ended before its result");
    mcp_end_tool_error(c, err ? err : &lost);
}

/* --- the beginning ------------------------------------------------------------------------------
 */

Cloche__V1__Language mcp_language(const json_t *args)
{
    const char *name = mcp_json_text(args, "language");
    if (name && strcmp(name, "bash") == 0)
        return CLOCHE__V1__LANGUAGE__LANGUAGE_BASH;
    if (name && strcmp(name, "javascript") == 0)
        return CLOCHE__V1__LANGUAGE__LANGUAGE_JAVASCRIPT;
    return CLOCHE__V1__LANGUAGE__LANGUAGE_PYTHON;
}

static void run_in_box(struct mcp_call *c)
{
    static const struct mcp_method_of run = MCP_RPC("CodeService", "RunCode", run_code_response);
    const json_t *args = mcp_args(c);
    struct cell *w = mcp_work(c);
    Cloche__V1__RunCodeRequest m = CLOCHE__V1__RUN_CODE_REQUEST__INIT;
    const char *context = mcp_json_text(args, "context_id");
    m.sandbox_id = mcp_pb(mcp_box(c));
    m.context_id = mcp_pb(context);
    if (!context)
        m.language = mcp_language(args);
    m.code = mcp_pb(mcp_json_text(args, "code"));
    m.timeout_ns = mcp_seconds_ns(args, "timeout_seconds", CODE_TIMEOUT_S);
    mcp_json_set(w->structured, "sandbox_id", json_string(mcp_box(c)));
    mcp_progress(c, "running");
    struct mcp_ask_spec ask = {.method = &run,
                               .request = &m.base,
                               .timeout_ns = m.timeout_ns + GRACE_S * CL_NS_PER_S,
                               .on_message = on_event,
                               .on_end = on_end};
    (void)!mcp_ask(c, &ask, NULL);
}

void mcp_tool_run_code(struct mcp_call *c)
{
    struct cl_err err = {0};
    struct cell *w = cl_zalloc(sizeof *w);
    if (!w || mcp_output_init(&w->output, mcp_args(c), &err) < 0) {
        cl_free(w);
        (void)cl_fail(&err, CL_E_NOMEM, 0, "code");
        mcp_end_tool_error(c, &err);
        return;
    }
    cl_buf_init(&w->text, RESULT_TEXT_MAX);
    w->images = json_array();
    w->structured = json_object();
    mcp_set_work(c, w, cell_free);
    mcp_box_need(c, run_in_box);
}
