/* trail/spans.c - see trail/spans.h.
 *
 * What is open is kept as JSON, in the shape in which it is sent: a unit is
 *   {"trace": ID, "sampled": BOOL, "self": SPAN or null, "open": {KEY: SPAN}}
 * A span that its caller does not sample is in no trace, and dropped at its end.  As long as one is
 * open it has what it takes of our room in `bytes`, and a cell its `context`.
 */
#include "trail/spans.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "observability/traceparent.h"
#include "trail/span.h"

enum { SAMPLED = 1, KEY = 200 };

struct spans {
    json_t *units;            /* owned: id -> unit */
    json_t *done;             /* owned: spans */
    size_t bytes, done_bytes; /* of what is open, and of what is done, as text */
    uint64_t left_out;
    char ts[CL_RFC3339_LEN]; /* the newest */
};

/* One record, and the unit that it is about. */
struct fact {
    struct spans *s;
    const char *ts, *event, *tenant, *unit_id;
    const json_t *fields;
    json_t *unit; /* borrowed */
};

static const char *str(const struct fact *f, const char *name)
{
    const char *s = json_string_value(json_object_get(f->fields, name));
    return s ? s : "";
}

static json_int_t num(const struct fact *f, const char *name)
{
    return json_integer_value(json_object_get(f->fields, name));
}

static bool is(const struct fact *f, const char *name, const char *value)
{
    return strcmp(str(f, name), value) == 0;
}

/* What a record's `trace` says; "" = nothing. */
struct context {
    char trace[TRACE_ID_HEX + 1], parent[SPAN_ID_HEX + 1];
    bool sampled;
};
static struct context context_of(const struct fact *f)
{
    struct context c = {.sampled = true};
    char text[TRACEPARENT_TEXT];
    if (!traceparent_read(str(f, "trace"), text))
        return c;
    memcpy(c.trace, text + TRACEPARENT_TRACE, TRACE_ID_HEX);
    memcpy(c.parent, text + TRACEPARENT_SPAN, SPAN_ID_HEX);
    c.sampled = strtoul(text + TRACEPARENT_SPAN + SPAN_ID_HEX + 1, NULL, 16) & SAMPLED;
    return c;
}

/* --- spans --------------------------------------------------------------------------------------
 */

static json_t *new_span(const struct fact *f, const char *key, enum span_kind kind,
                        const char *name)
{
    char id[SPAN_ID_HEX + 1], what[KEY]; /* a unit may wait, start and pause more than once */
    (void)snprintf(what, sizeof what, "%s %s", f->ts, key);
    span_id(f->unit_id, what, SPAN_ID_HEX, id);
    json_t *span = span_new(id, name, kind, f->ts);
    span_set_text(span, "cloche.tenant", f->tenant);
    span_set_text(span, "cloche.unit", f->unit_id);
    return span;
}

/* Where the unit's spans are. */
static void put_in_units(const struct fact *f, json_t *span)
{
    const char *parent =
        json_string_value(json_object_get(json_object_get(f->unit, "self"), "spanId"));
    if (json_is_true(json_object_get(f->unit, "sampled")))
        span_place(span, json_string_value(json_object_get(f->unit, "trace")),
                   parent ? parent : "");
}

/* In the trace of who asked for it, with a link to the unit's. */
static void put_in_callers(const struct fact *f, json_t *span)
{
    struct context c = context_of(f);
    if (!c.trace[0]) {
        put_in_units(f, span);
    } else if (c.sampled) {
        span_place(span, c.trace, c.parent);
        span_link(span, json_object_get(f->unit, "self"));
    }
}

static size_t bytes_of(const json_t *span)
{
    return (size_t)json_integer_value(json_object_get(span, "bytes"));
}

static bool take_room(struct spans *s, json_t *span, size_t n)
{
    if (n > SPANS_BYTES - s->bytes)
        return false;
    s->bytes += n;
    return json_object_set_new(span, "bytes", json_integer((json_int_t)(bytes_of(span) + n))) == 0;
}

static void give_room(struct spans *s, const json_t *span)
{
    s->bytes -= CL_MIN(bytes_of(span), s->bytes);
}

/* It is the unit's from now on, or left out. */
static void open_span(const struct fact *f, const char *key, json_t *span)
{
    json_t *open = json_object_get(f->unit, "open"), *before = json_object_get(open, key);
    give_room(f->s, before);
    if ((json_object_size(open) < SPANS_OPEN || before) && take_room(f->s, span, span_size(span))) {
        (void)json_object_set_new(open, key, span);
        return;
    }
    (void)json_object_del(open, key);
    json_decref(span);
    f->s->left_out++;
}

static void open_units(const struct fact *f, const char *key)
{
    json_t *span = new_span(f, key, SPAN_INTERNAL, key);
    SPAN_SET(span, f->fields, {"worker", "cloche.worker"}, {"attempt", "cloche.attempt"},
             {"lease", "cloche.lease"});
    put_in_units(f, span);
    open_span(f, key, span);
}

static json_t *find(const struct fact *f, const char *key)
{
    return json_object_get(json_object_get(f->unit, "open"), key);
}

static void finish(struct spans *s, json_t *span, const char *ts)
{
    span_end(span, ts);
    give_room(s, span);
    s->done_bytes += span_is_placed(span) ? bytes_of(span) : 0;
    (void)json_object_del(span, "context");
    (void)json_object_del(span, "bytes");
    if (span_is_placed(span))
        (void)json_array_append(s->done, span);
}

/* It may be open or not. */
static void close_span(const struct fact *f, const char *key)
{
    json_t *span = find(f, key);
    if (!span)
        return;
    finish(f->s, span, f->ts);
    (void)json_object_del(json_object_get(f->unit, "open"), key);
}

/* --- events -------------------------------------------------------------------------------------
 */

/* Everything of it that is no id of where it stands already. */
static json_t *event_of(const struct fact *f)
{
    static const struct span_field renamed[] = {
        {"argv", "process.command_args"}, {"path", "file.path"},
        {"pid", "process.pid"},           {"parent", "process.parent_pid"},
        {"uid", "process.user.id"},       {"address", "network.peer.address"},
        {"port", "network.peer.port"},    {"name", "dns.question.name"},
        {"addresses", "dns.answers"}};
    static const char *const left_out[] = {"unit",   "exec",     "context", "again",
                                           "number", "guest_ns", "cut"};
    json_t *event = span_event(f->event, f->ts);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)f->fields, name, value)
    {
        char key[KEY];
        bool is_wanted = true;
        (void)snprintf(key, sizeof key, "cloche.%s", name);
        for (size_t i = 0; i < CL_COUNT(left_out); i++)
            is_wanted = is_wanted && strcmp(name, left_out[i]) != 0;
        for (size_t i = 0; i < CL_COUNT(renamed); i++)
            if (strcmp(name, renamed[i].field) == 0)
                (void)snprintf(key, sizeof key, "%s", renamed[i].key);
        if (is_wanted)
            span_set(event, key, value);
    }
    return event;
}

static void add_event(const struct fact *f, json_t *span)
{
    if (!json_is_object(span))
        return;
    if (span_events(span) >= SPAN_EVENTS) {
        span_drop_event(span);
        return;
    }
    json_t *event = event_of(f);
    if (take_room(f->s, span, span_size(event))) {
        span_add_event(span, event);
    } else {
        json_decref(event);
        span_drop_event(span);
        f->s->left_out++;
    }
}

/* The span of the exec or cell that did it, else the unit's. */
static void on_event(const struct fact *f)
{
    const char *exec = str(f, "exec"), *context = str(f, "context");
    json_t *span = exec[0] ? find(f, exec) : NULL;
    const char *key;
    json_t *each;
    if (!span && context[0]) {
        json_object_foreach(json_object_get(f->unit, "open"), key, each)
        {
            const char *of = json_string_value(json_object_get(each, "context"));
            span = of && strcmp(of, context) == 0 ? each : span;
        }
    }
    add_event(f, span ? span : json_object_get(f->unit, "self"));
}

/* --- what records say ---------------------------------------------------------------------------
 */

static void on_admit(const struct fact *f)
{
    char name[SPAN_NAME];
    struct context c = context_of(f);
    span_name(name, str(f, "kind"), str(f, "template"));
    json_t *span = new_span(f, "unit", SPAN_SERVER, name);
    SPAN_SET(span, f->fields, {"argv", "process.command_args"}, {"template", "cloche.template"},
             {"subject", "user.id"}, {"key", "cloche.key"}, {"fork_of", "cloche.fork_of"});
    if (c.trace[0])
        (void)json_object_set_new(f->unit, "trace", json_string(c.trace));
    (void)json_object_set_new(f->unit, "sampled", json_boolean(c.sampled));
    if (c.sampled)
        span_place(span, json_string_value(json_object_get(f->unit, "trace")), c.parent);
    give_room(f->s, json_object_get(f->unit, "self"));
    if (take_room(f->s, span, span_size(span))) {
        (void)json_object_set_new(f->unit, "self", span);
    } else {
        (void)json_object_set_new(f->unit, "self", json_null());
        json_decref(span);
        f->s->left_out++;
    }
    open_units(f, "queue");
}

static void on_dispatch(const struct fact *f)
{
    close_span(f, "queue");
    open_units(f, "start");
}

static void on_unit_start(const struct fact *f)
{
    close_span(f, "start");
}

static void on_requeue(const struct fact *f)
{
    json_t *span = find(f, "start");
    if (span)
        span_fail(span, str(f, "reason"));
    close_span(f, "start");
    on_event(f);
    open_units(f, "queue");
}

static void on_vm_start(const struct fact *f)
{
    json_t *self = json_object_get(f->unit, "self");
    if (json_is_object(self))
        SPAN_SET(self, f->fields, {"driver", "cloche.driver"},
                 {"guest_separation", "cloche.guest_separation"}, {"source", "cloche.source"},
                 {"snapshot", "cloche.snapshot"}, {"memory_mib", "cloche.memory_mib"},
                 {"vcpu_milli", "cloche.vcpu_milli"});
}

/* Whether its user code, or we, made it fail; a signal or a number is its own, too. */
static void judge(json_t *span, const struct fact *f)
{
    char why[SPAN_NAME];
    json_int_t code = num(f, "exit"), signal = num(f, "signal");
    SPAN_SET(span, f->fields, {"outcome", "cloche.outcome"}, {"reason", "cloche.reason"},
             {"exit", "process.exit.code"}, {"signal", "cloche.signal"});
    bool is_over = is(f, "outcome", "EXITED");
    if (is(f, "outcome", "CANCELLED") || (is_over && code == 0 && signal == 0))
        return;
    if (is_over)
        (void)snprintf(why, sizeof why, "%s %" JSON_INTEGER_FORMAT, signal ? "signal" : "exit code",
                       signal ? signal : code);
    else
        span_name(why, str(f, "outcome"), str(f, "reason"));
    span_fail(span, why);
}

static void close_all(const struct fact *f, const char *mark)
{
    json_t *open = json_object_get(f->unit, "open");
    const char *key;
    json_t *span;
    json_object_foreach(open, key, span)
    {
        span_set_text(span, "cloche.end", mark);
        finish(f->s, span, f->ts);
    }
    (void)json_object_clear(open);
}

static void on_unit_end(const struct fact *f)
{
    json_t *self = json_object_get(f->unit, "self");
    close_all(f, "with its unit");
    if (json_is_object(self)) {
        judge(self, f);
        SPAN_SET(self, f->fields, {"cpu_ms", "cloche.cpu_ms"}, {"attempt", "cloche.attempt"});
        finish(f->s, self, f->ts);
    }
    (void)json_object_del(f->s->units, f->unit_id);
}

static void on_exec_start(const struct fact *f)
{
    char name[SPAN_NAME];
    const char *path = json_string_value(json_array_get(json_object_get(f->fields, "argv"), 0));
    const char *base = path ? strrchr(path, '/') : NULL;
    span_name(name, "exec", base ? base + 1 : path ? path : "");
    json_t *span = new_span(f, str(f, "exec"), SPAN_SERVER, name);
    SPAN_SET(span, f->fields, {"argv", "process.command_args"},
             {"cwd", "process.working_directory"}, {"uid", "process.user.id"},
             {"exec", "cloche.exec"});
    put_in_callers(f, span);
    open_span(f, str(f, "exec"), span);
}

static void on_exec_end(const struct fact *f)
{
    json_t *span = find(f, str(f, "exec"));
    if (!span)
        return;
    judge(span, f);
    SPAN_SET(span, f->fields, {"stdout_bytes", "cloche.stdout_bytes"},
             {"stderr_bytes", "cloche.stderr_bytes"});
    close_span(f, str(f, "exec"));
}

static void on_code_run(const struct fact *f)
{
    char name[SPAN_NAME];
    span_name(name, "code", str(f, "context"));
    json_t *span = new_span(f, str(f, "cell"), SPAN_SERVER, name);
    SPAN_SET(span, f->fields, {"cell", "cloche.cell"}, {"context", "cloche.context"},
             {"bytes", "cloche.code_bytes"}, {"code_sha256", "cloche.code_sha256"});
    (void)json_object_set_new(span, "context", json_string(str(f, "context")));
    put_in_callers(f, span);
    open_span(f, str(f, "cell"), span);
}

static void on_code_end(const struct fact *f)
{
    json_t *span = find(f, str(f, "cell"));
    if (!span)
        return;
    SPAN_SET(span, f->fields, {"outcome", "cloche.outcome"},
             {"result_bytes", "cloche.result_bytes"}, {"stdout_bytes", "cloche.stdout_bytes"},
             {"stderr_bytes", "cloche.stderr_bytes"});
    if (!is(f, "outcome", "ok"))
        span_fail(span, str(f, "outcome"));
    close_span(f, str(f, "cell"));
}

static void flow_key(const struct fact *f, char key[static KEY])
{
    (void)snprintf(key, KEY, "flow %" JSON_INTEGER_FORMAT, num(f, "flow"));
}

static void on_net_open(const struct fact *f)
{
    char key[KEY], name[SPAN_NAME];
    const char *to = str(f, "name")[0] ? str(f, "name") : str(f, "address");
    flow_key(f, key);
    span_name(name, str(f, "protocol"), to);
    json_t *span = new_span(f, key, SPAN_CLIENT, name);
    span_set_text(span, "server.address", to);
    SPAN_SET(span, f->fields, {"port", "server.port"}, {"protocol", "network.transport"},
             {"address", "network.peer.address"}, {"rule", "cloche.rule"});
    put_in_units(f, span);
    open_span(f, key, span);
}

static void on_net_close(const struct fact *f)
{
    char key[KEY];
    flow_key(f, key);
    json_t *span = find(f, key);
    if (span)
        SPAN_SET(span, f->fields, {"sent_bytes", "cloche.sent_bytes"},
                 {"received_bytes", "cloche.received_bytes"}, {"end", "cloche.end"});
    close_span(f, key);
}

static void on_port_open(const struct fact *f)
{
    char name[SPAN_NAME];
    (void)snprintf(name, sizeof name, "port %" JSON_INTEGER_FORMAT, num(f, "port"));
    json_t *span = new_span(f, str(f, "connection"), SPAN_SERVER, name);
    SPAN_SET(span, f->fields, {"port", "server.port"}, {"connection", "cloche.connection"},
             {"link", "cloche.link"});
    put_in_units(f, span);
    open_span(f, str(f, "connection"), span);
}

static void on_port_close(const struct fact *f)
{
    json_t *span = find(f, str(f, "connection"));
    if (!span)
        return;
    SPAN_SET(span, f->fields, {"sent_bytes", "cloche.sent_bytes"},
             {"received_bytes", "cloche.received_bytes"}, {"end", "cloche.end"});
    if (is(f, "end", "failed"))
        span_fail(span, str(f, "reason"));
    close_span(f, str(f, "connection"));
}

static void on_pause(const struct fact *f)
{
    open_units(f, "paused");
}

static void on_resume(const struct fact *f)
{
    close_span(f, "paused");
}

static void on_nothing(const struct fact *f)
{
    (void)f;
}

/* A unit is known from the first record on that opens a span. */
struct handler {
    const char *event;
    bool opens;
    void (*fn)(const struct fact *f);
};
static const struct handler handlers[] = {
    {"unit.admit", true, on_admit},       {"unit.dispatch", true, on_dispatch},
    {"unit.start", false, on_unit_start}, {"unit.requeue", true, on_requeue},
    {"unit.end", false, on_unit_end},     {"unit.pause", true, on_pause},
    {"unit.resume", false, on_resume},    {"vm.start", false, on_vm_start},
    {"vm.end", false, on_nothing},        {"exec.start", true, on_exec_start},
    {"exec.end", false, on_exec_end},     {"code.run", true, on_code_run},
    {"code.end", false, on_code_end},     {"net.open", true, on_net_open},
    {"net.close", false, on_net_close},   {"port.open", true, on_port_open},
    {"port.close", false, on_port_close}, {"guest.count", false, on_nothing},
    {"guest.calls", false, on_nothing},   {"net.count", false, on_nothing},
};
/* The guest's, names and refusals, files, cancellations ... */
static const struct handler other = {"", false, on_event};

static const struct handler *handler_of(const char *event)
{
    for (size_t i = 0; i < CL_COUNT(handlers); i++)
        if (strcmp(handlers[i].event, event) == 0)
            return &handlers[i];
    return &other;
}

/* --- feeding ------------------------------------------------------------------------------------
 */

static size_t bytes_of_unit(const json_t *unit)
{
    size_t n = bytes_of(json_object_get(unit, "self"));
    const char *key;
    json_t *span;
    json_object_foreach(json_object_get(unit, "open"), key, span)
    {
        n += bytes_of(span);
    }
    return n;
}

/* The one that was known first makes it. */
static void make_room(struct spans *s)
{
    void *oldest = json_object_iter(s->units);
    if (json_object_size(s->units) < SPANS_UNITS)
        return;
    s->bytes -= CL_MIN(bytes_of_unit(json_object_iter_value(oldest)), s->bytes);
    s->left_out++;
    (void)json_object_del(s->units, json_object_iter_key(oldest));
}

/* Made by the first record about it that opens a span; of one that began before, without one of
 * its own. */
static json_t *unit_of(const struct fact *f, bool opens)
{
    char trace[TRACE_ID_HEX + 1];
    json_t *unit = json_object_get(f->s->units, f->unit_id);
    if (unit || !opens)
        return unit;
    make_room(f->s);
    span_id(f->unit_id, "trace", TRACE_ID_HEX, trace);
    unit = json_pack("{s:s, s:b, s:n, s:{}}", "trace", trace, "sampled", 1, "self", "open");
    return json_object_set_new(f->s->units, f->unit_id, unit) == 0 ? unit : NULL;
}

void spans_feed(struct spans *s, const struct spans_record *r)
{
    static const char of[] = "tenant/";
    struct fact f = {.s = s, .ts = r->ts, .event = r->event, .fields = r->fields};
    f.unit_id = str(&f, "unit");
    if (strncmp(r->stream, of, sizeof of - 1) != 0 || !f.unit_id[0] || !cl_rfc3339_ns(r->ts))
        return;
    f.tenant = r->stream + sizeof of - 1;
    if (strcmp(r->ts, s->ts) > 0)
        (void)snprintf(s->ts, sizeof s->ts, "%s", r->ts);
    const struct handler *h = handler_of(r->event);
    f.unit = unit_of(&f, h->opens);
    if (f.unit)
        h->fn(&f);
}

void spans_cut(struct spans *s)
{
    const char *id;
    json_t *unit;
    json_object_foreach(s->units, id, unit)
    {
        struct fact f = {.s = s, .ts = s->ts, .unit_id = id, .unit = unit};
        json_t *self = json_object_get(unit, "self");
        close_all(&f, "unfinished");
        if (json_is_object(self)) {
            span_set_text(self, "cloche.end", "unfinished");
            finish(s, self, s->ts);
        }
    }
    (void)json_object_clear(s->units);
}

/* --- out ----------------------------------------------------------------------------------------
 */

bool spans_is_full(const struct spans *s)
{
    return json_array_size(s->done) >= SPANS_DONE || s->done_bytes >= SPANS_TAKE_BYTES;
}

/* The first of `done` that fit, at least one; the others stay. */
static json_t *first_done(struct spans *s)
{
    json_t *first = json_array(), *rest = json_array();
    size_t i, bytes = 0;
    json_t *span;
    json_array_foreach(s->done, i, span)
    {
        bytes += span_size(span);
        (void)json_array_append(i == 0 || bytes <= SPANS_TAKE_BYTES ? first : rest, span);
    }
    json_decref(s->done);
    s->done = rest;
    if (json_array_size(rest) == 0)
        s->done_bytes = 0;
    return first;
}

json_t *spans_take(struct spans *s)
{
    if (json_array_size(s->done) == 0)
        return NULL;
    return json_pack("{s:[{s:{s:[{s:s, s:{s:s}}]}, s:[{s:{s:s, s:s}, s:o}]}]}", "resourceSpans",
                     "resource", "attributes", "key", "service.name", "value", "stringValue",
                     "cloche", "scopeSpans", "scope", "name", "cloche.audit", "version",
                     CLOCHE_VERSION, "spans", first_done(s));
}

uint64_t spans_left_out(const struct spans *s)
{
    return s->left_out;
}

json_t *spans_state(const struct spans *s)
{
    return json_deep_copy(s->units);
}

static bool is_unit(const json_t *unit)
{
    const json_t *self = json_object_get(unit, "self");
    const char *trace = json_string_value(json_object_get(unit, "trace"));
    bool ok = trace && strlen(trace) == TRACE_ID_HEX && (json_is_null(self) || span_is_one(self)) &&
              json_is_object(json_object_get(unit, "open"));
    const char *key;
    json_t *span;
    json_object_foreach(json_object_get(unit, "open"), key, span)
    {
        ok = ok && span_is_one(span);
    }
    return ok;
}

int spans_restore(struct spans *s, const json_t *state, struct cl_err *err)
{
    const char *id;
    json_t *unit;
    size_t n = 0;
    bool ok = json_is_object(state);
    json_object_foreach((json_t *)(uintptr_t)state, id, unit)
    {
        ok = ok && is_unit(unit);
        n += bytes_of_unit(unit);
    }
    if (!ok)
        return cl_fail(err, CL_E_DATALOSS, 0, "what is open is no table of spans");
    json_t *copy = json_deep_copy(state);
    if (!copy)
        return cl_fail(err, CL_E_NOMEM, 0, "spans");
    json_decref(s->units);
    s->units = copy;
    s->bytes = CL_MIN(n, (size_t)SPANS_BYTES);
    return 0;
}

/* --- life ---------------------------------------------------------------------------------------
 */

int spans_new(struct spans **ret_spans, struct cl_err *err)
{
    CL_AUTO(spans_freep) struct spans *s = cl_zalloc(sizeof *s);
    if (!s || !(s->units = json_object()) || !(s->done = json_array()))
        return cl_fail(err, CL_E_NOMEM, 0, "spans");
    *ret_spans = CL_STEAL(&s);
    return 0;
}

void spans_free(struct spans *s)
{
    if (!s)
        return;
    json_decref(s->units);
    json_decref(s->done);
    cl_free(s);
}
