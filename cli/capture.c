/* cli/capture.c - see cli/capture.h. */
#include "cli/capture.h"

#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "cli/follow.h"
#include "cli/output.h"
#include "cli/values.h"

enum { SHA256_SIZE = 32 };

void capture_init(struct capture *c)
{
    *c = (struct capture){0};
    cl_buf_init(&c->stream[0], CAPTURE_MAX);
    cl_buf_init(&c->stream[1], CAPTURE_MAX);
}

void capture_fini(struct capture *c)
{
    cl_buf_fini(&c->stream[0]);
    cl_buf_fini(&c->stream[1]);
}

void capture_add(struct capture *c, int stream, const void *data, size_t n)
{
    c->cut[stream] = c->cut[stream] || cl_buf_append(&c->stream[stream], data, n, NULL) < 0;
}

/* Length of the character at s, or 0 when there is none. */
static size_t character(const char *s, size_t n)
{
    for (size_t k = 1; k <= 4 && k <= n; k++)
        if (cl_utf8_is_valid(s, k))
            return k;
    return 0;
}

static json_t *text_json(const struct cl_buf *b)
{
    const char *data = b->data ? (const char *)b->data : "";
    json_t *v = json_stringn(data, b->len);
    if (v)
        return v;
    struct cl_buf fixed;
    cl_buf_init(&fixed, (size_t)CAPTURE_MAX * 3);
    for (size_t at = 0; at < b->len;) {
        size_t k = character(data + at, b->len - at);
        if (cl_buf_append(&fixed, k ? data + at : "\xef\xbf\xbd", k ? k : 3, NULL) < 0)
            break;
        at += k ? k : 1;
    }
    v = json_stringn(fixed.data ? (const char *)fixed.data : "", fixed.len);
    cl_buf_fini(&fixed);
    return v ? v : json_string("");
}

static json_t *total_json(const Cloche__V1__StreamTotal *t)
{
    char hex[2 * SHA256_SIZE + 1] = "";
    if (!t)
        return json_null();
    if (t->sha256.len == SHA256_SIZE)
        cl_hex(t->sha256.data, t->sha256.len, hex);
    return json_pack("{s:I, s:I, s:s, s:b}", "bytes", (json_int_t)t->bytes, "kept_bytes",
                     (json_int_t)t->kept_bytes, "sha256", hex, "truncated", t->truncated);
}

json_t *result_json(const Cloche__V1__ExecResult *r)
{
    if (!r)
        return json_null();
    const Cloche__V1__Usage *u = r->usage;
    return json_pack("{s:s, s:i, s:i, s:s, s:o, s:{s:I, s:I, s:I}, s:o, s:o}", "outcome",
                     value_outcome((int)r->outcome), "exit_code", value_exit_code(r), "signal",
                     (int)r->signal, "reason", value_reason((int)r->reason), "message",
                     out_string(r->message), "usage", "cpu_ns", (json_int_t)(u ? u->cpu_ns : 0),
                     "wall_ns", (json_int_t)(u ? u->wall_ns : 0), "peak_memory_bytes",
                     (json_int_t)(u ? u->peak_memory_bytes : 0), "stdout_total",
                     total_json(r->stdout), "stderr_total", total_json(r->stderr));
}

json_t *capture_text(const struct capture *c, int stream)
{
    return text_json(&c->stream[stream]);
}

json_t *capture_json(const struct capture *c, const struct follow_result *r, const char *id_name)
{
    json_t *o = r->result ? result_json(r->result) : json_object();
    (void)json_object_set_new(o, id_name, json_string(r->id));
    (void)json_object_set_new(o, "exit_code", json_integer(r->exit_code));
    (void)json_object_set_new(o, "attempt", json_integer(r->attempt));
    (void)json_object_set_new(o, "worker", out_string(r->worker));
    (void)json_object_set_new(o, "driver", out_string(r->driver));
    (void)json_object_set_new(o, "stdout", text_json(&c->stream[0]));
    (void)json_object_set_new(o, "stderr", text_json(&c->stream[1]));
    (void)json_object_set_new(o, "truncated", json_boolean(c->cut[0] || c->cut[1]));
    return o;
}
