/* cli/traces.c - `cloche audit traces`: what happened in jobs and sandboxes, for a tracing system.
 *
 * Who follows goes on where the one before stopped: the state file has how far each stream was read
 * and what was open then.  It is written behind what was sent, so one that dies may send the newest
 * spans again, with the same ids.
 *
 * Owns:    nothing beyond a command.
 * Thread:  the only one; blocks on the disk, the service and the collector.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "cli/collector.h"
#include "cli/output.h"
#include "cli/records.h"
#include "cli/values.h"
#include "trail/spans.h"

enum {
    STATE_VERSION = 1,
    TELL_EVERY_S = 60,
    STATE_MAX = 128 * 1024 * 1024,
    WRITE_SHARE = 20, /* writing takes no more than this part of the time */
};

struct tracing {
    const struct cli_opts *o;
    struct spans *spans;         /* owned */
    struct collector *collector; /* owned; NULL = stdout */
    char state[PATH_TEXT];       /* "" = none is kept */
    char since[CL_RFC3339_LEN];  /* nothing older is read */
    json_t *seen;                /* owned: stream -> its newest record that was fed */
    bool is_dirty;
    uint64_t write_at_ns;
    uint64_t left_out, tell_at_ns; /* what was left out, as was told */
};

static void tracing_fini(struct tracing *t)
{
    spans_free(t->spans);
    collector_close(t->collector);
    json_decref(t->seen);
}

/* --- the state ----------------------------------------------------------------------------------
 */

static int write_state(struct tracing *t, struct cl_err *err)
{
    uint64_t began = cl_now_ns();
    json_t *root = json_pack("{s:i, s:s, s:O, s:o}", "version", STATE_VERSION, "since", t->since,
                             "seen", t->seen, "open", spans_state(t->spans));
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    int rc = text ? cl_file_write(t->state, text, strlen(text), 0600, err)
                  : cl_fail(err, CL_E_NOMEM, 0, "the state of traces");
    free(text);
    json_decref(root);
    uint64_t now = cl_now_ns();
    t->write_at_ns = now + WRITE_SHARE * (now - began);
    t->is_dirty = false;
    return rc;
}

static int take_state(struct tracing *t, const json_t *root, struct cl_err *err)
{
    int version = 0;
    const char *since = NULL;
    json_t *seen = NULL, *open = NULL;
    int rc = json_unpack((json_t *)(uintptr_t)root, "{s:i, s:s, s:o, s:o}", "version", &version,
                         "since", &since, "seen", &seen, "open", &open);
    if (rc == 0 && version != STATE_VERSION)
        return cl_fail(err, CL_E_UNIMPL, 0, "'%s' is of another release (version %d)", t->state,
                       version);
    if (rc < 0 || !cl_rfc3339_ns(since) || !json_is_object(seen))
        return cl_fail(err, CL_E_DATALOSS, 0, "'%s' is no state of traces", t->state);
    (void)snprintf(t->since, sizeof t->since, "%s", since);
    (void)json_object_update(t->seen, seen);
    return spans_restore(t->spans, open, err);
}

static int read_state(struct tracing *t, struct cl_err *err)
{
    CL_AUTO(cl_buf_fini) struct cl_buf text;
    struct cl_err why = {0};
    cl_buf_init(&text, STATE_MAX);
    if (cl_file_read(AT_FDCWD, t->state, &text, &why) < 0) {
        if (why.sys == ENOENT)
            return write_state(t, err); /* whether it can be, before it must */
        if (err)
            *err = why;
        return -1;
    }
    json_t *root = json_loadb((const char *)text.data, text.len, 0, NULL);
    int rc = take_state(t, root, err);
    json_decref(root);
    return rc == 0 ? 0 : cl_wrap(err, "move '%.200s' away, and traces begin anew", t->state);
}

/* --- records ------------------------------------------------------------------------------------
 */

static int send_done(struct tracing *t, struct cl_err *err)
{
    int rc = 0;
    for (json_t *some; rc == 0 && (some = spans_take(t->spans)) != NULL; json_decref(some)) {
        if (t->collector) {
            rc = collector_send(t->collector, some, err);
        } else {
            (void)json_dumpf(some, stdout, JSON_COMPACT); /* one request a line */
            (void)putchar('\n');
        }
    }
    return rc;
}

static int feed(void *arg, const struct audit_record *r, const char *line, size_t n,
                struct cl_err *err)
{
    struct tracing *t = arg;
    (void)line, (void)n;
    json_t *fields = json_loadb(r->fields, r->fields_n, 0, NULL);
    const struct spans_record record = {r->stream, r->ts, r->event, fields};
    spans_feed(t->spans, &record);
    json_decref(fields);
    (void)json_object_set_new(t->seen, r->stream, json_integer((json_int_t)r->seq));
    t->is_dirty = true;
    return spans_is_full(t->spans) ? send_done(t, err) : 0;
}

static void tell_left_out(struct tracing *t)
{
    uint64_t left_out = spans_left_out(t->spans);
    if (left_out == t->left_out || cl_now_ns() < t->tell_at_ns)
        return;
    cli_say("%llu spans and events more than the limits allow (docs/traces.md): left out",
            (unsigned long long)(left_out - t->left_out));
    t->left_out = left_out;
    t->tell_at_ns = cl_now_ns() + TELL_EVERY_S * CL_NS_PER_S;
}

/* All that was written is sent. */
static int settle(void *arg, struct cl_err *err)
{
    struct tracing *t = arg;
    tell_left_out(t);
    if (send_done(t, err) < 0)
        return -1;
    if (!t->collector && fflush(stdout) != 0)
        return cl_fail(err, CL_E_SYS, errno, "stdout");
    return t->state[0] && t->is_dirty && cl_now_ns() >= t->write_at_ns ? write_state(t, err) : 0;
}

/* --- the command --------------------------------------------------------------------------------
 */

/* Behind what was seen; the caller's. */
static struct walk_place *places_of(const json_t *seen, size_t *ret_n)
{
    const char *stream;
    json_t *seq;
    struct walk_place *places = cl_zalloc_array(json_object_size(seen) + 1, sizeof *places);
    *ret_n = 0;
    json_object_foreach((json_t *)(uintptr_t)seen, stream, seq)
    {
        if (places)
            places[(*ret_n)++] = (struct walk_place){stream, (uint64_t)json_integer_value(seq) + 1};
    }
    return places;
}

static int follow(struct tracing *t, struct records *rs, struct cl_err *err)
{
    size_t n;
    CL_AUTO(cl_freep) struct walk_place *places = NULL;
    json_t *kept = NULL;
    if (t->state[0] && read_state(t, err) < 0)
        return -1;
    kept = json_deep_copy(t->seen); /* its names are borrowed */
    places = places_of(kept, &n);
    records_from(rs, places, n);
    records_since(rs, cl_rfc3339_ns(t->since));
    int rc =
        places ? records_follow(rs, feed, settle, t, err) : cl_fail(err, CL_E_NOMEM, 0, "places");
    json_decref(kept);
    return rc;
}

static int read_all(struct tracing *t, struct records *rs, struct cl_err *err)
{
    if (records_read(rs, feed, t, err) < 0)
        return -1;
    spans_cut(t->spans);
    return settle(t, err);
}

/* In this instance's state, unless the option says; only who follows and sends has one. */
static int find_state(struct tracing *t, struct cl_err *err)
{
    struct cli_paths p;
    if (!t->o->follow || !t->o->to)
        return 0;
    if (t->o->state_file) {
        (void)snprintf(t->state, sizeof t->state, "%s", t->o->state_file);
        return 0;
    }
    if (paths_resolve(t->o, &p, err) < 0)
        return -1;
    path_join(t->state, p.state, "traces.json");
    return 0;
}

static int open_tracing(struct tracing *t, struct cl_err *err)
{
    uint64_t since_ns = 0;
    bool begins_now = t->o->follow && t->o->to;
    const char *since = t->o->since ? t->o->since : begins_now ? "0s" : "1970-01-02";
    if (value_time(since, cl_wall_ns(), &since_ns, err) < 0)
        return -1;
    cl_rfc3339(since_ns, t->since);
    t->seen = json_object();
    return spans_new(&t->spans, err) < 0 || find_state(t, err) < 0 ||
                   (t->o->to && collector_open(t->o->to, &t->collector, err) < 0)
               ? -1
               : 0;
}

static int cmd_traces(const struct cli_opts *o, const struct args *a)
{
    (void)a;
    struct cl_err err = {0};
    CL_AUTO(tracing_fini) struct tracing t = {.o = o};
    CL_AUTO(records_closep) struct records *rs = NULL;
    if (records_open(o, RECORDS_ALL, &rs, &err) < 0 || open_tracing(&t, &err) < 0 ||
        (o->follow ? follow(&t, rs, &err) : read_all(&t, rs, &err)) < 0)
        return cli_report(&err);
    return EXIT_OK;
}

static const struct arg_opt traces_opts[] = {
    {"follow", 'f', ARG_FLAG, OPT(follow), NULL, "go on as records come"},
    {"to", 0, ARG_STRING, OPT(to), "URL",
     "send them to this collector (OTLP/HTTP), as in http://127.0.0.1:4318; else to stdout"},
    {"state", 0, ARG_STRING, OPT(state_file), "FILE",
     "with -f --to: how far it got (default: traces.json of this instance's state)"},
    {"dir", 0, ARG_STRING, OPT(dir), "DIR", "the audit folder (default: this instance's)"},
    {"tenant", 0, ARG_STRING, OPT(tenant), "NAME", "only this tenant's stream"},
    {"unit", 0, ARG_STRING, OPT(unit), "ID", "only this job or sandbox"},
    {"since", 0, ARG_STRING, OPT(since), "TIME",
     "2026-01-02, 2026-01-02T03:04:05Z or 10m (ago); with -f --to and no state yet: now"},
    {"until", 0, ARG_STRING, OPT(until), "TIME", "likewise"},
    OPT_DIRS};

const struct cli_command traces_commands[] = {
    {"audit traces", "[-f] [--to URL] [OPTIONS]",
     "jobs, sandboxes and what was asked of them as spans, for a tracing system",
     "OpenTelemetry's OTLP, as JSON: a span for each job, sandbox, exec, code cell, flow and "
     "connection\n"
     "to a port, with what the guest's kernel saw as events.  Calls that came with a trace "
     "context\n"
     "(`traceparent`) go on in that trace: docs/traces.md.  Without -f what still runs ends now, "
     "marked\n"
     "cloche.end=unfinished.  With -f --to it goes on where the one before stopped, also over "
     "restarts,\n"
     "and waits for a collector that is away.\n\n"
     "  cloche audit traces -f --to http://127.0.0.1:4318\n"
     "  cloche audit traces --unit sbx_01... > spans.jsonl\n",
     SPEC(traces_opts, 0, 0), cmd_traces, false},
};
const size_t traces_commands_n = CL_COUNT(traces_commands);
