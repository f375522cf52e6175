/* scheduler/cell_notes.c - see scheduler/cell_notes.h. */
#include "scheduler/cell_notes.h"

#include <jansson.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "proto/copy.h"
#include "scheduler/call_text.h"

static const char *const kinds[NOTE_NR] = {
    [NOTE_RESULT] = "result",       [NOTE_ERROR] = "error",     [NOTE_VALUE] = "value",
    [NOTE_TRACEBACK] = "traceback", [NOTE_REFUSED] = "refused", [NOTE_FOUND] = "found",
};

void notes_init(struct cell_notes *n)
{
    *n = (struct cell_notes){0};
    for (size_t i = 0; i < CL_COUNT(n->out); i++)
        cl_buf_init(&n->out[i], NOTES_OUTPUT_MAX);
}

void notes_next(struct cell_notes *n)
{
    for (size_t i = 0; i < NOTE_NR; i++) {
        cl_free(n->told[i]);
        n->told[i] = NULL;
    }
    if (n->end)
        pb_free(&n->end->base);
    if (n->own)
        pb_free(&n->own->base);
    n->end = NULL;
    n->own = NULL;
    n->spoilt = false;
}

void notes_fini(struct cell_notes *n)
{
    notes_next(n);
    for (size_t i = 0; i < CL_COUNT(n->out); i++)
        cl_buf_fini(&n->out[i]);
}

static bool is_json(const char *text, size_t size)
{
    json_error_t why;
    json_t *v =
        json_loadb(text, size, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);
    json_decref(v);
    return v != NULL;
}

/* The note that a form of a result is; NOTE_NR = none. */
static size_t note_of(const char *mime_type)
{
    size_t prefix = strlen(CALL_MIME), i = 0;
    if (strncmp(mime_type, CALL_MIME, prefix) != 0)
        return NOTE_NR;
    while (i < NOTE_NR && strcmp(kinds[i], mime_type + prefix) != 0)
        i++;
    return i;
}

static int take_form(struct cell_notes *n, const Cloche__V1__MimeData *form, struct cl_err *err)
{
    size_t at = note_of(form->mime_type), size = form->data.len;
    const char *text = (const char *)form->data.data;
    if (at == NOTE_NR)
        return 0;
    if (size > NOTES_RESULT_MAX || (size && memchr(text, '\0', size)) ||
        (size && !cl_utf8_is_valid(text, size)) || (at == NOTE_RESULT && !is_json(text, size))) {
        n->spoilt = true;
        return 0;
    }
    char *copy = cl_zalloc(size + 1);
    if (!copy)
        return cl_fail(err, CL_E_NOMEM, 0, "what a call returned");
    if (size)
        memcpy(copy, text, size);
    cl_free(n->told[at]);
    n->told[at] = copy;
    return 0;
}

static int take_output(struct cell_notes *n, const Cloche__V1__Output *o, struct cl_err *err)
{
    struct cl_buf *out = &n->out[o->stream == CLOCHE__V1__STREAM__STREAM_STDERR];
    return cl_buf_append(out, o->data.data, CL_MIN(o->data.len, out->max - out->len), err);
}

int notes_take(struct cell_notes *n, const Cloche__V1__RunCodeResponse *m, struct cl_err *err)
{
    ProtobufCMessage *copy = NULL;
    int rc = 0;
    switch ((int)m->event_case) { /* a newer worker may say more */
    case CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_OUTPUT:
        return take_output(n, m->output, err);
    case CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_RESULT:
        for (size_t i = 0; rc == 0 && i < m->result->n_data; i++)
            rc = take_form(n, m->result->data[i], err);
        return rc;
    case CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_ERROR:
        if (!n->own && (rc = pb_copy(&m->error->base, &copy, err)) == 0)
            n->own = (Cloche__V1__CellError *)copy;
        return rc;
    case CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_ENDED:
        if (!n->end && (rc = pb_copy(&m->ended->base, &copy, err)) == 0)
            n->end = (Cloche__V1__CellEnded *)copy;
        return rc;
    default:
        return 0;
    }
}

Cloche__V1__CellOutcome notes_outcome(const struct cell_notes *n, const char **ret_message)
{
    *ret_message = n->end ? n->end->message : "";
    if (!n->end)
        return CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_FAILED;
    if (n->end->outcome != CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_OK)
        return n->end->outcome;
    if (n->told[NOTE_ERROR])
        return CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_ERROR;
    if (n->told[NOTE_RESULT] && !n->spoilt)
        return CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_OK;
    *ret_message = n->spoilt ? "what it returned is not JSON in UTF-8 of at most 1 MiB, or has a "
                               "number that no double can hold"
                             : "it ended without a result";
    return CLOCHE__V1__CELL_OUTCOME__CELL_OUTCOME_FAILED;
}

Cloche__V1__CellError *notes_error(struct cell_notes *n)
{
    static char none[] = "";
    if (n->own || !n->told[NOTE_ERROR])
        return n->own;
    cloche__v1__cell_error__init(&n->error);
    n->error.name = n->told[NOTE_ERROR];
    n->error.value = n->told[NOTE_VALUE] ? n->told[NOTE_VALUE] : none;
    n->error.traceback = n->told[NOTE_TRACEBACK] ? n->told[NOTE_TRACEBACK] : none;
    return &n->error;
}
