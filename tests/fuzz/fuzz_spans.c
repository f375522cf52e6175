/* Records of any shape as spans: what comes out is whole, has ended, and what is kept can be gone
 * on with.  A line is {"e": EVENT, "t": TIME, "f": FIELDS}. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "trail/spans.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_span(const json_t *span)
{
    const char *trace, *id, *began, *ended;
    int kind;
    json_t *copy = (json_t *)(uintptr_t)span;
    CL_ASSERT(json_unpack(copy, "{s:s, s:s, s:s, s:s, s:i}", "traceId", &trace, "spanId", &id,
                          "startTimeUnixNano", &began, "endTimeUnixNano", &ended, "kind",
                          &kind) == 0);
    CL_ASSERT(strlen(trace) == 32 && strlen(id) == 16 &&
              strtoull(began, NULL, 10) <= strtoull(ended, NULL, 10));
    CL_ASSERT(json_array_size(json_object_get(span, "events")) <= SPAN_EVENTS);
    CL_ASSERT(!json_object_get(span, "context"));
}

static void check_sent(struct spans *s)
{
    json_t *sent = spans_take(s), *scope, *span;
    size_t i;
    if (!sent)
        return;
    CL_ASSERT(json_unpack(sent, "{s:[{s:[o]}]}", "resourceSpans", "scopeSpans", &scope) == 0);
    json_array_foreach(json_object_get(scope, "spans"), i, span)
    {
        check_span(span);
    }
    json_decref(sent);
}

static void feed(struct spans *s, const char *line, size_t n)
{
    json_t *root = json_loadb(line, n, 0, NULL), *fields = NULL;
    const char *event, *ts;
    if (root && json_unpack(root, "{s:s, s:s, s:o}", "e", &event, "t", &ts, "f", &fields) == 0) {
        const struct spans_record r = {"tenant/a", ts, event, fields};
        spans_feed(s, &r);
    }
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct spans *s = NULL;
    struct cl_err err = {0};
    if (spans_new(&s, &err) < 0) {
        CL_ASSERT(err.code == CL_E_NOMEM);
        return 0;
    }
    for (size_t at = 0, n; at < size; at += n + 1) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        n = end ? (size_t)(end - data) - at : size - at;
        feed(s, (const char *)data + at, n);
    }
    json_t *kept = spans_state(s);
    CL_ASSERT(spans_restore(s, kept, &err) == 0);
    json_decref(kept);
    check_sent(s);
    spans_cut(s);
    check_sent(s);
    spans_free(s);
    return 0;
}
