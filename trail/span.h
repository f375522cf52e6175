/* trail/span.h - one span of a trace, in OTLP's JSON.
 *
 *   {"traceId", "spanId", "parentSpanId"?, "name", "kind", "startTimeUnixNano",
 *    "endTimeUnixNano", "attributes": [], "events": [], "links"?, "status"?}
 *
 * Limits:  SPAN_TEXT bytes of a text, SPAN_WORDS of a list; texts are cut between characters.
 * Thread:  any.  Pure; without memory something is missing, never torn.
 * Source:  OTLP 1.x, opentelemetry/proto/trace/v1/trace.proto, and its JSON mapping: ids are
 *          hexadecimal, 64-bit numbers decimal text, enums numbers.
 */
#ifndef CL_TRAIL_SPAN_H
#define CL_TRAIL_SPAN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    SPAN_TEXT = 1024,
    SPAN_WORDS = 64,
    SPAN_NAME = 160, /* of a span; "exec " and a program's name */
};
enum span_kind { SPAN_INTERNAL = 1, SPAN_SERVER = 2, SPAN_CLIENT = 3 }; /* Span.SpanKind */

/* "exec gcc": what, and at most 100 bytes of the text. */
void span_name(char name[static SPAN_NAME], const char *what, const char *text);
/* An id of `hex` digits that is always the same for the same names. */
void span_id(const char *unit, const char *what, size_t hex, char *ret_id);

/* In no trace yet; the caller's. */
json_t *span_new(const char *id, const char *name, enum span_kind kind, const char *ts);
/* parent: "" = none. */
void span_place(json_t *span, const char *trace, const char *parent);
bool span_is_placed(const json_t *span);
/* What it belongs with in another trace; nothing where that is in none. */
void span_link(json_t *span, const json_t *other);
/* Error, and why. */
void span_fail(json_t *span, const char *why);
/* At this time, but not before it began. */
void span_end(json_t *span, const char *ts);
/* Is it one, as far as the above need? */
bool span_is_one(const json_t *span);

/* How long a span or event is as text. */
size_t span_size(const json_t *of);

/* An event, the caller's, and how many a span has. */
json_t *span_event(const char *name, const char *ts);
size_t span_events(const json_t *span);
void span_add_event(json_t *span, json_t *event);
void span_drop_event(json_t *span);

/* An attribute of a span or event: text, a number, truth, a list of text.  None for what is empty,
 * and for others. */
void span_set(json_t *of, const char *key, const json_t *value);
void span_set_text(json_t *of, const char *key, const char *text);
/* Fields of a record, under the names that they have out there. */
struct span_field {
    const char *field, *key;
};
void span_set_fields(json_t *of, const json_t *fields, const struct span_field *names, size_t n);
#define SPAN_SET(of, fields, ...) \
    do { \
        static const struct span_field names_[] = {__VA_ARGS__}; \
        span_set_fields(of, fields, names_, CL_COUNT(names_)); \
    } while (0)

#endif
