/* cli/audit.c - the audit log, read where it lies: tail, query, tree, findings, alarm, verify,
 * head.
 *
 * Owns:    for one command: cursors into the streams, the lines that matched.
 * Thread:  the only one; blocks on the disk.
 * Needs no running service; as root the files belong to cloche-audit and its group.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "audit/files.h"
#include "audit/verify.h"
#include "base/buf.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/own.h"
#include "cli/alarm.h"
#include "cli/detect.h"
#include "cli/ocsf.h"
#include "cli/output.h"
#include "cli/paths.h"
#include "cli/rules.h"
#include "cli/tree.h"
#include "cli/values.h"

enum { CURSORS_MAX = 4096, HITS_MAX = 4 * 1024 * 1024, TAIL_LINES = 20, FOLLOW_US = 300 * 1000 };

struct cursor {
    char stream[AUDIT_STREAM];
    unsigned file;
    size_t at;
};

/* A record that matched; the line is a copy. */
struct hit {
    char ts[CL_RFC3339_LEN];
    uint64_t order; /* of reading: keeps records of one microsecond as they were */
    char *line;     /* owned */
};

struct reader {
    const struct cli_opts *o;
    char dir[PATH_TEXT];
    char since[VALUE_TEXT], until[VALUE_TEXT];
    struct cursor *cursors; /* owned */
    size_t n_cursors, cap_cursors;
    struct hit *hits; /* owned */
    size_t n_hits, cap_hits;
    uint64_t order;
};

/* --- which records
 * ----------------------------------------------------------------------------------- */

static bool is_checkpoint(const struct audit_record *r)
{
    return strcmp(r->event, "checkpoint") == 0 || strcmp(r->event, "tenant.checkpoint") == 0;
}

static bool matches(const struct reader *rd, const struct audit_record *r)
{
    char unit[128] = "";
    const struct cli_opts *o = rd->o;
    if (o->event ? strcmp(r->event, o->event) != 0 : is_checkpoint(r) && !o->all)
        return false;
    if ((rd->since[0] && strcmp(r->ts, rd->since) < 0) ||
        (rd->until[0] && strcmp(r->ts, rd->until) >= 0))
        return false;
    if (!o->unit)
        return true;
    return (audit_field_str(r->fields, r->fields_n, "unit", unit, sizeof unit) ||
            audit_field_str(r->fields, r->fields_n, "object", unit, sizeof unit)) &&
           strcmp(unit, o->unit) == 0;
}

static int add_stream(const char *stream, void *arg, struct cl_err *err)
{
    struct reader *rd = arg;
    for (size_t i = 0; i < rd->n_cursors; i++)
        if (strcmp(rd->cursors[i].stream, stream) == 0)
            return 0;
    if (cl_grow(&rd->cursors, &rd->cap_cursors, rd->n_cursors + 1, CURSORS_MAX, sizeof *rd->cursors,
                err) < 0)
        return -1;
    struct cursor *c = &rd->cursors[rd->n_cursors++];
    *c = (struct cursor){0};
    (void)snprintf(c->stream, sizeof c->stream, "%s", stream);
    return 0;
}

/* Streams that are there now; new ones appear while we follow. */
static int find_streams(struct reader *rd, struct cl_err *err)
{
    char one[AUDIT_STREAM];
    if (rd->o->tenant || rd->o->stream) {
        (void)snprintf(one, sizeof one, "%s%s", rd->o->stream ? "" : "tenant/",
                       rd->o->stream ? rd->o->stream : rd->o->tenant);
        return add_stream(one, rd, err);
    }
    if (access(rd->dir, R_OK) < 0)
        return cl_fail(
            err, cl_code_from_errno(errno), 0,
            "the audit folder '%s' cannot be read\nrun `cloche up` first, or name it with --dir; "
            "it may need root",
            rd->dir);
    struct cl_err ignored = {0};
    if (audit_each_stream(rd->dir, "host", add_stream, rd, &ignored) < 0 &&
        ignored.code != CL_E_NOTFOUND && ignored.sys != ENOENT) {
        if (err)
            *err = ignored;
        return -1;
    }
    return audit_each_stream(rd->dir, "tenant", add_stream, rd, &ignored) < 0 &&
                   ignored.sys != ENOENT && ignored.code != CL_E_NOTFOUND
               ? cl_fail(err, ignored.code, 0, "%s", ignored.text)
               : 0;
}

/* --- reading
 * --------------------------------------------------------------------------------------------- */

static int keep(struct reader *rd, const struct audit_record *r, const char *line, size_t n,
                struct cl_err *err)
{
    if (cl_grow(&rd->hits, &rd->cap_hits, rd->n_hits + 1, HITS_MAX, sizeof *rd->hits, err) < 0)
        return cl_wrap(err, "too many records match");
    char *copy = cl_strndup(line, n);
    if (!copy)
        return cl_fail(err, CL_E_NOMEM, 0, "record");
    struct hit *h = &rd->hits[rd->n_hits++];
    (void)snprintf(h->ts, sizeof h->ts, "%s", r->ts);
    h->order = rd->order++;
    h->line = copy;
    return 0;
}

/* Whole lines from the cursor on; an unfinished last one waits for the next time. */
static int read_file(struct reader *rd, struct cursor *c, struct cl_err *err)
{
    char path[AUDIT_PATH];
    const char *data;
    size_t n;
    int rc = 0;
    audit_file_path(rd->dir, c->stream, c->file, path);
    if (audit_file_map(path, &data, &n, err) < 0)
        return -1;
    while (rc == 0 && c->at < n) {
        struct audit_record r;
        const char *end = memchr(data + c->at, '\n', n - c->at);
        if (!end)
            break;
        size_t len = (size_t)(end - data) - c->at;
        if (audit_record_parse(data + c->at, len, &r, NULL) < 0)
            cli_say("%s: a bad record at byte %zu; see `cloche audit verify`", path, c->at);
        else if (matches(rd, &r))
            rc = keep(rd, &r, data + c->at, len, err);
        c->at += len + 1;
    }
    audit_file_unmap(data, n);
    return rc;
}

static int read_stream(struct reader *rd, struct cursor *c, struct cl_err *err)
{
    unsigned first, last;
    if (audit_file_range(rd->dir, c->stream, &first, &last, err) < 0)
        return -1;
    if (last == 0)
        return rd->o->follow
                   ? 0
                   : cl_fail(err, CL_E_NOTFOUND, 0, "no stream '%s' in '%s'", c->stream, rd->dir);
    if (c->file == 0)
        c->file = first;
    for (;;) {
        if (read_file(rd, c, err) < 0)
            return -1;
        if (c->file >= last)
            return 0;
        c->file++;
        c->at = 0;
    }
}

static int by_time(const void *a, const void *b)
{
    const struct hit *x = a, *y = b;
    int d = strcmp(x->ts, y->ts);
    return d != 0 ? d : (x->order > y->order) - (x->order < y->order);
}

static int read_all(struct reader *rd, struct cl_err *err)
{
    if (find_streams(rd, err) < 0)
        return -1;
    for (size_t i = 0; i < rd->n_cursors; i++)
        if (read_stream(rd, &rd->cursors[i], err) < 0)
            return -1;
    if (rd->n_hits > 0)
        qsort(rd->hits, rd->n_hits, sizeof *rd->hits, by_time);
    return 0;
}

typedef void record_fn(void *arg, const struct audit_record *r, const json_t *fields);

/* What was read, in the order of time. */
static int each_hit(const struct reader *rd, record_fn *fn, void *arg, struct cl_err *err)
{
    for (size_t i = 0; i < rd->n_hits; i++) {
        struct audit_record r;
        const char *line = rd->hits[i].line;
        if (audit_record_parse(line, strlen(line), &r, err) < 0)
            return -1;
        json_t *fields = json_loadb(r.fields, r.fields_n, 0, NULL);
        if (!fields)
            return cl_fail(err, CL_E_DATALOSS, 0, "record %" PRIu64 " of %s is no JSON", r.seq,
                           r.stream);
        fn(arg, &r, fields);
        json_decref(fields);
    }
    return 0;
}

/* --- printing
 * -------------------------------------------------------------------------------------------- */

static void print_hit(const struct reader *rd, const struct hit *h)
{
    struct audit_record r;
    if (rd->o->json) {
        (void)puts(h->line); /* one object a line, as it lies in the log */
        return;
    }
    if (audit_record_parse(h->line, strlen(h->line), &r, NULL) < 0)
        return;
    (void)printf("%s  %-16s  %-14s  %.*s\n", r.ts, r.stream, r.event, (int)r.fields_n, r.fields);
}

static void drop_hits(struct reader *rd)
{
    for (size_t i = 0; i < rd->n_hits; i++)
        cl_free(rd->hits[i].line);
    rd->n_hits = 0;
}

static void reader_fini(struct reader *rd)
{
    drop_hits(rd);
    cl_free(rd->hits);
    cl_free(rd->cursors);
}

static int audit_dir(const struct cli_opts *o, char out[static PATH_TEXT], struct cl_err *err)
{
    struct cli_paths p;
    if (o->dir) {
        (void)snprintf(out, PATH_TEXT, "%s", o->dir);
        return 0;
    }
    if (paths_resolve(o, &p, err) < 0)
        return -1;
    path_join(out, p.state, "audit");
    return 0;
}

static int reader_init(struct reader *rd, const struct cli_opts *o, struct cl_err *err)
{
    *rd = (struct reader){.o = o};
    uint64_t now = cl_wall_ns();
    if (audit_dir(o, rd->dir, err) < 0 ||
        (o->since && value_time(o->since, now, rd->since, err) < 0) ||
        (o->until && value_time(o->until, now, rd->until, err) < 0))
        return -1;
    return 0;
}

/* `last` = how many of the hits; then follow if asked. */
static int show(struct reader *rd, size_t last, struct cl_err *err)
{
    if (read_all(rd, err) < 0)
        return -1;
    for (size_t i = rd->n_hits > last ? rd->n_hits - last : 0; i < rd->n_hits; i++)
        print_hit(rd, &rd->hits[i]);
    while (rd->o->follow && fflush(stdout) == 0) {
        drop_hits(rd);
        (void)usleep(FOLLOW_US);
        if (read_all(rd, err) < 0)
            return -1;
        for (size_t i = 0; i < rd->n_hits; i++)
            print_hit(rd, &rd->hits[i]);
    }
    return 0;
}

static int show_records(const struct cli_opts *o, size_t last)
{
    struct cl_err err = {0};
    CL_AUTO(reader_fini) struct reader rd;
    if (reader_init(&rd, o, &err) < 0 || show(&rd, last, &err) < 0)
        return cli_report(&err);
    return EXIT_OK;
}

static int cmd_tail(const struct cli_opts *o, const struct args *a)
{
    (void)a;
    return show_records(o, o->lines ? (size_t)o->lines : TAIL_LINES);
}

static int cmd_query(const struct cli_opts *o, const struct args *a)
{
    (void)a;
    return show_records(o, o->lines ? (size_t)o->lines : SIZE_MAX);
}

/* --- findings
 * ---------------------------------------------------------------------------------------------
 */

enum { EXIT_FOUND = 3 };

static json_t *finding_json(const struct cli_opts *o, const struct finding *f)
{
    if (o->ocsf)
        return ocsf_finding(f);
    return json_pack("{s:s, s:s, s:o, s:I, s:s, s:s, s:o, s:s, s:s, s:s, s:s, s:I}", "severity",
                     detect_severity_name(f->severity), "name", f->name, "subject",
                     out_string(f->subject), "count", (json_int_t)f->count, "first", f->first,
                     "last", f->last, "value", out_string(f->value), "technique", f->technique,
                     "what", f->what, "then", f->then, "stream", f->stream, "seq",
                     (json_int_t)f->seq);
}

static void print_finding(const struct cli_opts *o, const struct finding *f)
{
    char subject[DETECT_SUBJECT], value[DETECT_VALUE];
    if (o->json || o->ocsf) {
        json_t *row = finding_json(o, f);
        (void)json_dumpf(row, stdout, JSON_COMPACT); /* one a line, as records are */
        (void)putchar('\n');
        json_decref(row);
        return;
    }
    out_clean(f->subject, subject, sizeof subject);
    out_clean(f->value, value, sizeof value);
    (void)printf("%-6s  %s  %s\n        %.19s to %.19s, %" PRIu64 " times; the last: %s\n"
                 "        %s\n        then: %s\n",
                 detect_severity_name(f->severity), f->name, subject, f->first, f->last, f->count,
                 value, f->what, f->then);
}

/* Who follows gets each finding of `least` severity as it is made: the alarm, else stdout. */
struct feeding {
    struct detect *d;
    const struct cli_opts *o;
    enum detect_severity least;
    struct alarm *alarm; /* or NULL */
    struct cl_err err;   /* of it */
    uint64_t forgotten;  /* of the detections, as was said */
};

static void raise_alarm(struct feeding *f, const struct finding *made)
{
    json_t *row = finding_json(f->o, made);
    if (f->err.code == CL_OK)
        (void)!alarm_raise(f->alarm, made, row, &f->err);
    json_decref(row);
}

static void feed_one(void *arg, const struct audit_record *r, const json_t *fields)
{
    struct feeding *f = arg;
    struct detect_record record = {r->stream, r->ts, r->event, r->seq, fields};
    const struct finding *made = detect_feed(f->d, &record);
    if (f->alarm)
        alarm_see(f->alarm, &record);
    if (!made || made->severity < f->least)
        return;
    if (f->alarm)
        raise_alarm(f, made);
    else if (f->o->follow)
        print_finding(f->o, made);
}

/* Until stdout is gone, or the state of the alarm cannot be written. */
static int follow_findings(struct reader *rd, struct feeding *f, struct cl_err *err)
{
    while (fflush(stdout) == 0) {
        drop_hits(rd);
        if (f->alarm && alarm_settle(f->alarm, err) < 0)
            return -1;
        if (detect_forgotten(f->d) > 2 * f->forgotten) {
            f->forgotten = detect_forgotten(f->d);
            cli_say("%" PRIu64 " things that count together had no room to be remembered",
                    f->forgotten);
        }
        (void)usleep(FOLLOW_US);
        if (read_all(rd, err) < 0 || each_hit(rd, feed_one, f, err) < 0)
            return -1;
        if (f->err.code != CL_OK) {
            *err = f->err;
            return -1;
        }
    }
    return 0;
}

static int by_severity(const void *a, const void *b)
{
    const struct finding *x = *(const struct finding *const *)a,
                         *y = *(const struct finding *const *)b;
    return x->severity != y->severity ? (int)y->severity - (int)x->severity
                                      : strcmp(x->first, y->first);
}

/* The gravest first. */
static size_t show_findings(const struct cli_opts *o, const struct detect *d,
                            enum detect_severity least)
{
    const struct finding **all = cl_zalloc_array(detect_count(d) + 1, sizeof *all);
    size_t n = 0;
    for (size_t i = 0; all && i < detect_count(d); i++)
        if (detect_at(d, i)->severity >= least)
            all[n++] = detect_at(d, i);
    if (n > 0)
        qsort(all, n, sizeof *all, by_severity);
    for (size_t i = 0; i < n; i++)
        print_finding(o, all[i]);
    cl_free(all);
    if (detect_forgotten(d))
        cli_say("%" PRIu64 " things had no room to be remembered: look at less at a time (--since, "
                "--tenant)",
                detect_forgotten(d));
    return n;
}

/* NULL where none are asked for. */
static int load_rules(const struct cli_opts *o, struct rules **ret_rules, struct cl_err *err)
{
    CL_AUTO(cl_buf_fini) struct cl_buf text;
    cl_buf_init(&text, RULES_BYTES + 1);
    if (!o->rules)
        return 0;
    if (cl_file_read(AT_FDCWD, o->rules, &text, err) < 0)
        return -1;
    return rules_parse(o->rules, (const char *)text.data, text.len, ret_rules, err);
}

static int find(struct reader *rd, enum detect_severity least, struct alarm *alarm, size_t *ret_n,
                struct cl_err *err)
{
    CL_AUTO(rules_freep) struct rules *own = NULL;
    CL_AUTO(detect_freep) struct detect *d = NULL;
    if (load_rules(rd->o, &own, err) < 0 || detect_new(own, &d, err) < 0)
        return -1;
    struct feeding f = {.d = d, .o = rd->o, .least = least, .alarm = alarm};
    if (rd->o->follow)
        detect_follow(d);
    if (read_all(rd, err) < 0 || each_hit(rd, feed_one, &f, err) < 0)
        return -1;
    if (rd->o->follow)
        return follow_findings(rd, &f, err);
    *ret_n = show_findings(rd->o, d, least);
    return 0;
}

static int cmd_findings(const struct cli_opts *o, const struct args *a)
{
    (void)a;
    struct cl_err err = {0};
    size_t n = 0;
    enum detect_severity least = DETECT_LOW;
    CL_AUTO(reader_fini) struct reader rd = {0};
    if (o->severity && detect_severity_parse(o->severity, &least, &err) < 0)
        return cli_report_as(&err, EXIT_USAGE);
    if (reader_init(&rd, o, &err) < 0 || find(&rd, least, NULL, &n, &err) < 0)
        return cli_report(&err);
    if (n == 0 && !o->json && !o->ocsf)
        cli_say("nothing was found");
    return n > 0 ? EXIT_FOUND : EXIT_OK;
}

/* In this instance's state, unless the option says. */
static int alarm_state(const struct cli_opts *o, char out[static PATH_TEXT], struct cl_err *err)
{
    struct cli_paths p;
    if (o->state_file) {
        (void)snprintf(out, PATH_TEXT, "%s", o->state_file);
        return 0;
    }
    if (paths_resolve(o, &p, err) < 0)
        return -1;
    path_join(out, p.state, "alarm.json");
    return 0;
}

static int cmd_alarm(const struct cli_opts *o, const struct args *a)
{
    struct cl_err err = {0};
    size_t n = 0;
    char state[PATH_TEXT], from[CL_RFC3339_LEN];
    enum detect_severity least = DETECT_MEDIUM;
    struct cli_opts own = *o;
    CL_AUTO(alarm_closep) struct alarm *alarm = NULL;
    CL_AUTO(reader_fini) struct reader rd = {0};
    own.follow = true;
    own.since = o->since ? o->since : "0s";
    if (a->n_tail == 0) {
        (void)cl_fail(&err, CL_E_INVALID, 0, "name the program that is told: -- PROGRAM [ARG...]");
        return cli_report_as(&err, EXIT_USAGE);
    }
    if (o->severity && detect_severity_parse(o->severity, &least, &err) < 0)
        return cli_report_as(&err, EXIT_USAGE);
    if (reader_init(&rd, &own, &err) < 0 || alarm_state(o, state, &err) < 0 ||
        alarm_open(state, rd.since, a->tail, &alarm, &err) < 0)
        return cli_report(&err);
    alarm_read_from(alarm, from);
    (void)snprintf(rd.since, sizeof rd.since, "%s", from);
    (void)find(&rd, least, alarm, &n, &err); /* it does not end but by an error */
    return cli_report(&err);
}

/* --- tree
 * ------------------------------------------------------------------------------------------------
 */

static void grow_one(void *arg, const struct audit_record *r, const json_t *fields)
{
    tree_add(arg, r->ts, r->event, fields);
}

static int grow_tree(struct tree *t, const struct reader *rd, struct cl_err *err)
{
    if (each_hit(rd, grow_one, t, err) < 0)
        return -1;
    return tree_records(t) > 0 ? 0
                               : cl_fail(err, CL_E_NOTFOUND, 0, "no record about '%.40s' in '%s'",
                                         rd->o->unit, rd->dir);
}

static int cmd_tree(const struct cli_opts *o, const struct args *a)
{
    struct cl_err err = {0};
    struct cli_opts own = *o;
    own.unit = a->pos[0];
    CL_AUTO(reader_fini) struct reader rd;
    CL_AUTO(tree_freep) struct tree *t = NULL;
    if (reader_init(&rd, &own, &err) < 0 || read_all(&rd, &err) < 0 ||
        tree_new(own.unit, &t, &err) < 0 || grow_tree(t, &rd, &err) < 0)
        return cli_report(&err);
    if (o->json)
        return out_json(json_incref((json_t *)(uintptr_t)tree_root(t)));
    tree_print(t, o->all, stdout);
    return EXIT_OK;
}

/* --- verify, head
 * ------------------------------------------------------------------------------------------- */

static int verify(const struct cli_opts *o, struct audit_report *ret, struct cl_err *err)
{
    char dir[PATH_TEXT], key[PATH_TEXT];
    if (audit_dir(o, dir, err) < 0)
        return -1;
    path_join(key, dir, "audit.key.pub");
    if (o->public_key)
        (void)snprintf(key, sizeof key, "%s", o->public_key);
    struct audit_verify_conf conf = {dir, key, o->expect_head, o->tenant};
    return audit_verify_dir(&conf, ret, err);
}

static json_t *report_json(const struct audit_report *r)
{
    static const char *const verdicts[] = {
        [AUDIT_OK] = "ok", [AUDIT_BAD] = "bad", [AUDIT_TORN] = "torn"};
    return json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:s, s:b, s:s, s:I, s:s, s:I, s:s}",
        "verdict", verdicts[r->verdict], "streams", (json_int_t)r->streams, "records",
        (json_int_t)r->records, "checkpoints", (json_int_t)r->checkpoints, "unsigned_tail",
        (json_int_t)r->unsigned_tail, "gaps", (json_int_t)r->gaps, "recovered",
        (json_int_t)r->recovered, "host_stream", r->host_stream, "host_seq",
        (json_int_t)r->host_seq, "host_head", r->host_head, "head_checked", r->head_checked,
        "stream", r->stream, "seq", (json_int_t)r->seq, "file", r->file, "offset",
        (json_int_t)r->offset, "reason", r->reason);
}

static void print_report(const struct audit_report *r)
{
    if (r->verdict != AUDIT_OK) {
        (void)printf("%s: stream %s, record %" PRIu64 ", %s byte %" PRIu64 ": %s\n",
                     r->verdict == AUDIT_TORN ? "torn" : "bad", r->stream, r->seq, r->file,
                     r->offset, r->reason);
        return;
    }
    (void)printf("ok: %" PRIu64 " records in %" PRIu64 " streams, %" PRIu64 " checkpoints, %" PRIu64
                 " not yet signed, %" PRIu64 " gaps, %" PRIu64 " recoveries\nhost head: %" PRIu64
                 ":%s\n",
                 r->records, r->streams, r->checkpoints, r->unsigned_tail, r->gaps, r->recovered,
                 r->host_seq, r->host_head);
    if (!r->head_checked)
        (void)printf("without --expect-head a cut of the host stream's end cannot be excluded\n");
}

static int cmd_verify(const struct cli_opts *o, const struct args *a)
{
    (void)a;
    struct cl_err err = {0};
    struct audit_report report = {0};
    if (verify(o, &report, &err) < 0)
        return cli_report_as(&err, EXIT_USAGE);
    if (o->json)
        (void)out_json(report_json(&report));
    else
        print_report(&report);
    return (int)report.verdict;
}

struct head {
    uint64_t seq;
    char hash[AUDIT_HASH_TEXT], ts[CL_RFC3339_LEN], stream[AUDIT_STREAM];
};

/* The last whole record of the stream's last file. */
static int read_head(const char *stream, void *arg, struct cl_err *err)
{
    struct reader *rd = ((void **)arg)[0];
    struct head *head = ((void **)arg)[1];
    unsigned first, last;
    char path[AUDIT_PATH];
    const char *data;
    size_t n, at = 0;
    if (audit_file_range(rd->dir, stream, &first, &last, err) < 0)
        return -1;
    audit_file_path(rd->dir, stream, last, path);
    if (last == 0 || audit_file_map(path, &data, &n, err) < 0)
        return last == 0 ? 0 : -1;
    for (const char *end; (end = memchr(data + at, '\n', n - at)) != NULL && at < n;) {
        struct audit_record r;
        if (audit_record_parse(data + at, (size_t)(end - data) - at, &r, NULL) == 0) {
            head->seq = r.seq;
            (void)snprintf(head->hash, sizeof head->hash, "%s", r.hash);
            (void)snprintf(head->ts, sizeof head->ts, "%s", r.ts);
            (void)snprintf(head->stream, sizeof head->stream, "%s", r.stream);
        }
        at = (size_t)(end - data) + 1;
    }
    audit_file_unmap(data, n);
    return 0;
}

static int cmd_head(const struct cli_opts *o, const struct args *a)
{
    (void)a;
    struct cl_err err = {0};
    struct head head = {0};
    CL_AUTO(reader_fini) struct reader rd;
    char one[AUDIT_STREAM];
    int rc = reader_init(&rd, o, &err);
    void *both[] = {&rd, &head};
    (void)snprintf(one, sizeof one, "tenant/%s", o->tenant ? o->tenant : "");
    if (rc == 0)
        rc = o->tenant ? read_head(one, both, &err)
                       : audit_each_stream(rd.dir, "host", read_head, both, &err);
    if (rc == 0 && head.seq == 0)
        rc = cl_fail(&err, CL_E_NOTFOUND, 0, "no stream in '%s'", rd.dir);
    if (rc < 0)
        return cli_report(&err);
    if (o->json)
        return out_json(json_pack("{s:s, s:I, s:s, s:s}", "stream", head.stream, "seq",
                                  (json_int_t)head.seq, "hash", head.hash, "ts", head.ts));
    (void)printf("%" PRIu64 ":%s\n", head.seq, head.hash);
    return EXIT_OK;
}

/* --- rows
 * -----------------------------------------------------------------------------------------------------
 */

#define OPT_AUDIT_DIR \
    {"dir", 0, ARG_STRING, OPT(dir), "DIR", "the audit folder (default: this instance's)"}, OPT_DIRS
#define OPT_TENANT \
    { \
        "tenant", 0, ARG_STRING, OPT(tenant), "NAME", "only this tenant's stream" \
    }
#define OPTS_FILTER \
    OPT_JSON, OPT_AUDIT_DIR, OPT_TENANT, \
        {"stream", 0, ARG_STRING, OPT(stream), "host/local", "only this stream"}, \
        {"event", 0, ARG_STRING, OPT(event), "unit.end", "only this event"}, \
        {"unit", 0, ARG_STRING, OPT(unit), "ID", "only about this job or sandbox"}, \
        {"since",    0,      ARG_STRING, \
         OPT(since), "TIME", "2026-01-02, 2026-01-02T03:04:05Z or 10m (ago)"}, \
        {"until", 0, ARG_STRING, OPT(until), "TIME", "likewise"}, \
        {"all", 'a', ARG_FLAG, OPT(all), NULL, "checkpoints too"}, \
    { \
        "lines", 'n', ARG_U64, OPT(lines), "N", "only the last N" \
    }

static const struct arg_opt tail_opts[] = {
    OPTS_FILTER, {"follow", 'f', ARG_FLAG, OPT(follow), NULL, "show new records as they come"}};
static const struct arg_opt query_opts[] = {OPTS_FILTER};
#define OPT_OCSF \
    { \
        "ocsf", 0, ARG_FLAG, OPT(ocsf), NULL, "JSON as OCSF's Detection Finding, for a SIEM" \
    }
#define OPT_RULES \
    { \
        "rules", 0, ARG_STRING, OPT(rules), "FILE", \
            "rules of your own beside the detections (docs/rules.md)" \
    }
static const struct arg_opt findings_opts[] = {
    OPT_JSON,
    OPT_OCSF,
    OPT_RULES,
    OPT_AUDIT_DIR,
    OPT_TENANT,
    {"severity", 0, ARG_STRING, OPT(severity), "medium",
     "low (default), medium or high, and above"},
    {"unit", 0, ARG_STRING, OPT(unit), "ID", "only in this job or sandbox"},
    {"since", 0, ARG_STRING, OPT(since), "TIME", "2026-01-02, 2026-01-02T03:04:05Z or 10m (ago)"},
    {"until", 0, ARG_STRING, OPT(until), "TIME", "likewise"},
    {"follow", 'f', ARG_FLAG, OPT(follow), NULL, "go on as records come"}};
static const struct arg_opt alarm_opts[] = {
    OPT_OCSF,
    OPT_RULES,
    OPT_AUDIT_DIR,
    OPT_TENANT,
    {"severity", 0, ARG_STRING, OPT(severity), "high", "low, medium (default) or high, and above"},
    {"since", 0, ARG_STRING, OPT(since), "TIME",
     "where there is no state yet: what was found from then on, not from now"},
    {"state", 0, ARG_STRING, OPT(state_file), "FILE",
     "what was told (default: alarm.json of this instance's state)"}};
static const struct arg_opt tree_opts[] = {
    OPT_JSON,
    {"all", 'a', ARG_FLAG, OPT(all), NULL, "every file that a process used"},
    OPT_AUDIT_DIR,
    OPT_TENANT,
    {"since", 0, ARG_STRING, OPT(since), "TIME", "2026-01-02, 2026-01-02T03:04:05Z or 10m (ago)"},
    {"until", 0, ARG_STRING, OPT(until), "TIME", "likewise"}};
static const struct arg_opt verify_opts[] = {
    OPT_JSON,
    OPT_AUDIT_DIR,
    OPT_TENANT,
    {"expect-head", 0, ARG_STRING, OPT(expect_head), "H",
     "a head noted elsewhere: <hash> or <seq>:<hash>"},
    {"key", 0, ARG_STRING, OPT(public_key), "FILE", "public key (default: DIR/audit.key.pub)"}};
static const struct arg_opt head_opts[] = {OPT_JSON, OPT_AUDIT_DIR, OPT_TENANT};

const struct cli_command audit_commands[] = {
    {"audit tail", "[-f] [FILTERS]", "the newest audit records",
     "  cloche audit tail -f --tenant acme\n", SPEC(tail_opts, 0, 0), cmd_tail, false},
    {"audit query", "[FILTERS]", "search the audit log",
     "  cloche audit query --unit job_01... --json\n  cloche audit query --event key.refused "
     "--since 1d\n",
     SPEC(query_opts, 0, 0), cmd_query, false},
    {"audit tree", "[OPTIONS] UNIT",
     "what happened in a job or sandbox: who did what, and what came of it",
     "Commands and code cells, the processes that came of them and what each did, its network, "
     "connections\n"
     "to its ports, files by the API.  What stands more than once stands once, with a count; of "
     "files\n"
     "that one process read, wrote, moved or removed the first twelve.  At the end: how much of "
     "what\n"
     "happened is in the log.  --json has everything.\n\n"
     "  cloche audit tree sbx_01...\n  cloche audit tree --since 10m sbx_01... | grep -E "
     "'connect|denied'\n",
     SPEC(tree_opts, 1, 1), cmd_tree, false},
    {"audit findings", "[-f] [OPTIONS]", "what in the audit log deserves a look",
     "Attacks on the guest's kernel, scans, tunnels, guessed keys, programs that were brought "
     "along, "
     "gaps\n"
     "of the log: docs/detections.md has all and their thresholds.  The gravest come first; with "
     "-f "
     "they come\n"
     "as they are made.  Exit code 0 when nothing was found, 3 when something was.\n\n"
     "  cloche audit findings --since 1d --severity medium\n"
     "  cloche audit findings -f --json | my-alarm\n",
     SPEC(findings_opts, 0, 0), cmd_findings, false},
    {"audit alarm", "[OPTIONS] -- PROGRAM [ARG...]", "run a program for each finding",
     "It follows the log as `audit findings -f` does.  The program gets a line of JSON on its "
     "stdin, and\n"
     "CLOCHE_FINDING and CLOCHE_SEVERITY; until it ends with 0 it is run again, later and later.  "
     "What\n"
     "it was told is remembered, so a restart neither repeats nor leaves out anything.  Run it as "
     "a\n"
     "service, as a user that may read the audit folder (group cloche-audit).\n\n"
     "  cloche audit alarm -- sh -c 'mail -s \"$CLOCHE_SEVERITY $CLOCHE_FINDING\" ops'\n"
     "  cloche audit alarm --severity high --since 1d -- /etc/cloche/page\n",
     SPEC_TAIL(alarm_opts, 0, 0), cmd_alarm, false},
    {"audit verify", "[OPTIONS]", "check that nothing was changed, removed or cut",
     "Exit code 0 when all is well, 1 with the first bad record, 3 for torn bytes at an end, 2 "
     "when it\n"
     "could not be checked.  Works offline with the public key.\n\n"
     "  cloche audit head > /mnt/elsewhere/head\n"
     "  cloche audit verify --expect-head $(cat /mnt/elsewhere/head)\n",
     SPEC(verify_opts, 0, 0), cmd_verify, false},
    {"audit head", "[--json]", "the newest record of the host stream, to note elsewhere", NULL,
     SPEC(head_opts, 0, 0), cmd_head, false},
};
const size_t audit_commands_n = CL_COUNT(audit_commands);
