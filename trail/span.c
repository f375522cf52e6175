/* trail/span.c - see trail/span.h. */
#include "trail/span.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/utf8.h"

enum { STATUS_ERROR = 2, WORD = 100, ID_TEXT = 400, DECIMAL = 24, DIGEST = 32 };

static json_t *clipped(const char *text)
{
    return json_stringn(text, cl_utf8_clip(text, strlen(text), SPAN_TEXT));
}

static json_t *nanos(const char *ts)
{
    char decimal[DECIMAL];
    (void)snprintf(decimal, sizeof decimal, "%" PRIu64, cl_rfc3339_ns(ts));
    return json_string(decimal);
}

void span_name(char name[static SPAN_NAME], const char *what, const char *text)
{
    (void)snprintf(name, SPAN_NAME, "%.40s %.*s", what, (int)cl_utf8_clip(text, strlen(text), WORD),
                   text);
}

void span_id(const char *unit, const char *what, size_t hex, char *ret_id)
{
    uint8_t digest[DIGEST];
    char text[ID_TEXT];
    (void)snprintf(text, sizeof text, "%s %s", unit, what);
    if (EVP_Digest(text, strlen(text), digest, NULL, EVP_sha256(), NULL) != 1)
        memset(digest, 1, sizeof digest); /* without memory: not zero, which is no id */
    cl_hex(digest, hex / 2, ret_id);
}

/* --- attributes ---------------------------------------------------------------------------------
 */

static json_t *any_list(const json_t *list)
{
    json_t *values = json_array();
    for (size_t i = 0; i < json_array_size(list) && i < SPAN_WORDS; i++) {
        const char *word = json_string_value(json_array_get(list, i));
        (void)json_array_append_new(values,
                                    json_pack("{s:o}", "stringValue", clipped(word ? word : "")));
    }
    return json_pack("{s:{s:o}}", "arrayValue", "values", values);
}

/* An AnyValue; NULL for what has none here. */
static json_t *any_value(const json_t *v)
{
    char decimal[DECIMAL];
    if (json_string_length(v) > 0)
        return json_pack("{s:o}", "stringValue", clipped(json_string_value(v)));
    if (json_is_boolean(v))
        return json_pack("{s:b}", "boolValue", json_is_true(v));
    if (json_array_size(v) > 0)
        return any_list(v);
    if (!json_is_integer(v))
        return NULL;
    (void)snprintf(decimal, sizeof decimal, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    return json_pack("{s:s}", "intValue", decimal);
}

void span_set(json_t *of, const char *key, const json_t *value)
{
    json_t *any = any_value(value);
    if (any)
        (void)json_array_append_new(json_object_get(of, "attributes"),
                                    json_pack("{s:s, s:o}", "key", key, "value", any));
}

void span_set_text(json_t *of, const char *key, const char *text)
{
    json_t *value = json_string(text);
    span_set(of, key, value);
    json_decref(value);
}

void span_set_fields(json_t *of, const json_t *fields, const struct span_field *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        span_set(of, names[i].key, json_object_get(fields, names[i].field));
}

/* --- events -------------------------------------------------------------------------------------
 */

json_t *span_event(const char *name, const char *ts)
{
    return json_pack("{s:s, s:o, s:[]}", "name", name, "timeUnixNano", nanos(ts), "attributes");
}

size_t span_events(const json_t *span)
{
    return json_array_size(json_object_get(span, "events"));
}

void span_add_event(json_t *span, json_t *event)
{
    (void)json_array_append_new(json_object_get(span, "events"), event);
}

void span_drop_event(json_t *span)
{
    json_int_t n = json_integer_value(json_object_get(span, "droppedEventsCount"));
    if (n < (json_int_t)UINT32_MAX)
        (void)json_object_set_new(span, "droppedEventsCount", json_integer(n + 1));
}

/* --- spans --------------------------------------------------------------------------------------
 */

json_t *span_new(const char *id, const char *name, enum span_kind kind, const char *ts)
{
    return json_pack("{s:s, s:s, s:i, s:o, s:[], s:[]}", "spanId", id, "name", name, "kind",
                     (int)kind, "startTimeUnixNano", nanos(ts), "attributes", "events");
}

void span_place(json_t *span, const char *trace, const char *parent)
{
    (void)json_object_set_new(span, "traceId", json_string(trace));
    if (parent[0])
        (void)json_object_set_new(span, "parentSpanId", json_string(parent));
}

bool span_is_placed(const json_t *span)
{
    return json_object_get(span, "traceId") != NULL;
}

void span_link(json_t *span, const json_t *other)
{
    json_t *trace = json_object_get(other, "traceId"), *id = json_object_get(other, "spanId");
    if (trace)
        (void)json_object_set_new(span, "links",
                                  json_pack("[{s:O, s:O}]", "traceId", trace, "spanId", id));
}

void span_fail(json_t *span, const char *why)
{
    json_t *status = json_pack("{s:i, s:o}", "code", STATUS_ERROR, "message", clipped(why));
    (void)json_object_set_new(span, "status", status);
}

static uint64_t number(const json_t *decimal)
{
    const char *text = json_string_value(decimal);
    return text ? strtoull(text, NULL, 10) : 0;
}

void span_end(json_t *span, const char *ts)
{
    json_t *began = json_object_get(span, "startTimeUnixNano"), *now = nanos(ts);
    (void)json_object_set(span, "endTimeUnixNano", number(now) >= number(began) ? now : began);
    json_decref(now);
}

size_t span_size(const json_t *of)
{
    return json_dumpb(of, NULL, 0, JSON_COMPACT);
}

bool span_is_one(const json_t *span)
{
    return json_is_string(json_object_get(span, "spanId")) &&
           json_is_string(json_object_get(span, "startTimeUnixNano")) &&
           json_is_array(json_object_get(span, "attributes")) &&
           json_is_array(json_object_get(span, "events"));
}
