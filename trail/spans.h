/* trail/spans.h - the audit log as spans of distributed traces, in OTLP's JSON.
 *
 *   unit (job, sandbox, snapshot) ─┬─ queue, start, paused     how long it waited for what
 *                                  ├─ exec, code               what was asked of it
 *                                  ├─ net                      a flow to the outside
 *                                  └─ port                     a connection from there
 *
 * A call that came with a trace context goes on in its trace, else a unit has a trace of its own;
 * an exec or cell of another trace than its sandbox's has a link to that.  What the guest's kernel
 * saw, names that were asked for, refusals and files are events of the span that they belong to.
 * Ids are made of what they name, so who reads a log again makes the same spans.  As samplers do
 * that follow their parent, what a caller does not sample is left out.
 *
 * Records come in the order of their time; of what began before the first one there is no span.
 *
 * Owns:    what is open, and what is done and was not taken.
 * Limits:  SPANS_UNITS at once (then the oldest goes), SPANS_OPEN open spans of each,
 *          SPAN_EVENTS of a span, SPANS_BYTES of all that is open, as text: without them code in
 *          guests decides how much memory this takes.  What is over is left out and counted, events
 *          of a span in its droppedEventsCount.
 * Thread:  any.  Pure; texts are user code's, as long as trail/span.h lets them be.
 * Source:  OTLP 1.x, opentelemetry/proto/trace/v1/trace.proto, in its JSON form; names of
 *          attributes are OpenTelemetry's where it has one (process.*, server.*, network.*).
 */
#ifndef CL_TRAIL_SPANS_H
#define CL_TRAIL_SPANS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/own.h"
#include "base/util.h"

enum {
    SPANS_UNITS = 16384,
    SPANS_OPEN = 1024,
    SPAN_EVENTS = 128, /* OpenTelemetry's own limit */
    SPANS_BYTES = 32 * 1024 * 1024,
    SPANS_DONE = 512,
    SPANS_TAKE_BYTES = 4 * 1024 * 1024, /* collectors take 20 MiB */
};

struct spans;
int spans_new(struct spans **ret_spans, struct cl_err *err) CL_MUST;
/* NULL is a no-op. */
void spans_free(struct spans *s);
CL_DEFINE_AUTO(struct spans, spans_free)

/* One record: its stream ("tenant/acme"; others say nothing about units), time, event, fields. */
struct spans_record {
    const char *stream, *ts, *event;
    const json_t *fields;
};
void spans_feed(struct spans *s, const struct spans_record *r);
/* What is still open ends now, marked as unfinished: nothing more will be told. */
void spans_cut(struct spans *s);

/* It is time to take what is done, though more is there to feed: it has no limit of its own. */
bool spans_is_full(const struct spans *s);
/* The first of what is done, SPANS_TAKE_BYTES or one, as an ExportTraceServiceRequest; the
 * caller's.  NULL without any, or without memory. */
json_t *spans_take(struct spans *s);
/* Units, spans and events that were left out because of the limits. */
uint64_t spans_left_out(const struct spans *s);

/* What is open, to go on with later; the caller's. */
json_t *spans_state(const struct spans *s);
/* Go on with that; DATALOSS for what is none. */
int spans_restore(struct spans *s, const json_t *state, struct cl_err *err) CL_MUST;

#endif
