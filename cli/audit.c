/* cli/audit.c - the audit log: tail, query, tree, findings, alarm, verify, head.
 *
 * Owns:    nothing beyond a command.
 * Thread:  the only one; blocks on the disk or the service.
 * Where the log's folder can be read no service is needed; as root its files belong to cloche-audit
 * and the group cloche.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "audit/files.h"
#include "audit/verify.h"
#include "base/mem.h"
#include "base/own.h"
#include "base/text.h"
#include "cli/alarm.h"
#include "cli/ocsf.h"
#include "cli/output.h"
#include "cli/paths.h"
#include "cli/records.h"
#include "cli/values.h"
#include "trail/detect.h"
#include "trail/rules.h"
#include "trail/sheaf.h"
#include "trail/tree.h"

enum { TAIL_LINES = 20, TREE_RECORDS = 4 * 1024 * 1024 };

typedef void record_fn(void *arg, const struct audit_record *r, const json_t *fields);

/* A record's fields as JSON, while fn runs. */
static int with_fields(const struct audit_record *r, record_fn *fn, void *arg, struct cl_err *err)
{
    json_t *fields = json_loadb(r->fields, r->fields_n, 0, NULL);
    if (!fields)
        return cl_fail(err, CL_E_DATALOSS, 0, "record %" PRIu64 " of %s is no JSON", r->seq,
                       r->stream);
    fn(arg, r, fields);
    json_decref(fields);
    return 0;
}

/* --- tail, query --------------------------------------------------------------------------------
 */

static int print_record(void *arg, const struct audit_record *r, const char *line, size_t n,
                        struct cl_err *err)
{
    const struct cli_opts *o = arg;
    (void)err;
    if (o->json)
        (void)printf("%.*s\n", (int)n, line); /* one object a line, as it lies in the log */
    else
        (void)printf("%s  %-16s  %-14s  %.*s\n", r->ts, r->stream, r->event, (int)r->fields_n,
                     r->fields);
    return 0;
}

/* Until stdout is gone. */
static int flush_round(void *arg, struct cl_err *err)
{
    (void)arg;
    return fflush(stdout) == 0 ? 0 : cl_fail(err, CL_E_SYS, errno, "stdout");
}

static int show_records(const struct cli_opts *o, size_t newest)
{
    struct cl_err err = {0};
    CL_AUTO(records_closep) struct records *rs = NULL;
    void *arg = (void *)(uintptr_t)o;
    if (records_open(o, newest, &rs, &err) < 0 ||
        (o->follow ? records_follow(rs, print_record, flush_round, arg, &err)
                   : records_read(rs, print_record, arg, &err)) < 0)
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
    return show_records(o, o->lines ? (size_t)o->lines : RECORDS_ALL);
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
    cl_text_clean(f->subject, subject, sizeof subject);
    cl_text_clean(f->value, value, sizeof value);
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

static int feed_record(void *arg, const struct audit_record *r, const char *line, size_t n,
                       struct cl_err *err)
{
    struct feeding *f = arg;
    (void)line, (void)n;
    if (with_fields(r, feed_one, f, err) < 0)
        return -1;
    if (f->err.code == CL_OK)
        return 0;
    *err = f->err;
    return -1;
}

/* Until stdout is gone, or the state of the alarm cannot be written. */
static int settle_round(void *arg, struct cl_err *err)
{
    struct feeding *f = arg;
    if (f->alarm && alarm_settle(f->alarm, err) < 0)
        return -1;
    if (detect_forgotten(f->d) > 2 * f->forgotten) {
        f->forgotten = detect_forgotten(f->d);
        cli_say("%" PRIu64 " things that count together had no room to be remembered",
                f->forgotten);
    }
    return flush_round(NULL, err);
}

/* The gravest first. */
static int show_findings(const struct feeding *f, size_t *ret_n, struct cl_err *err)
{
    const struct finding **all;
    if (detect_sorted(f->d, f->least, &all, ret_n, err) < 0)
        return -1;
    for (size_t i = 0; i < *ret_n; i++)
        print_finding(f->o, all[i]);
    cl_free(all);
    if (detect_forgotten(f->d))
        cli_say("%" PRIu64 " things had no room to be remembered: look at less at a time (--since, "
                "--tenant)",
                detect_forgotten(f->d));
    return 0;
}

static int find(const struct cli_opts *o, struct records *rs, struct feeding *f, size_t *ret_n,
                struct cl_err *err)
{
    CL_AUTO(rules_freep) struct rules *own = NULL;
    CL_AUTO(detect_freep) struct detect *d = NULL;
    if (rules_load(o->rules ? o->rules : "", &own, err) < 0 || detect_new(own, &d, err) < 0)
        return -1;
    f->d = d;
    f->o = o;
    if (o->follow) {
        detect_follow(d);
        return records_follow(rs, feed_record, settle_round, f, err);
    }
    return records_read(rs, feed_record, f, err) < 0 ? -1 : show_findings(f, ret_n, err);
}

static int cmd_findings(const struct cli_opts *o, const struct args *a)
{
    (void)a;
    struct cl_err err = {0};
    size_t n = 0;
    struct feeding f = {.least = DETECT_LOW};
    CL_AUTO(records_closep) struct records *rs = NULL;
    if (o->severity && detect_severity_parse(o->severity, &f.least, &err) < 0)
        return cli_report_as(&err, EXIT_USAGE);
    if (records_open(o, RECORDS_ALL, &rs, &err) < 0 || find(o, rs, &f, &n, &err) < 0)
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
    char state[PATH_TEXT], since[CL_RFC3339_LEN];
    uint64_t since_ns = 0;
    struct cli_opts own = *o;
    CL_AUTO(alarm_closep) struct alarm *alarm = NULL;
    CL_AUTO(records_closep) struct records *rs = NULL;
    struct feeding f = {.least = DETECT_MEDIUM};
    own.follow = true;
    if (a->n_tail == 0) {
        (void)cl_fail(&err, CL_E_INVALID, 0, "name the program that is told: -- PROGRAM [ARG...]");
        return cli_report_as(&err, EXIT_USAGE);
    }
    if (o->severity && detect_severity_parse(o->severity, &f.least, &err) < 0)
        return cli_report_as(&err, EXIT_USAGE);
    if (value_time(o->since ? o->since : "0s", cl_wall_ns(), &since_ns, &err) < 0)
        return cli_report(&err);
    cl_rfc3339(since_ns, since);
    if (records_open(&own, RECORDS_ALL, &rs, &err) < 0 || alarm_state(o, state, &err) < 0 ||
        alarm_open(state, since, a->tail, &alarm, &err) < 0)
        return cli_report(&err);
    records_since(rs, alarm_read_from(alarm));
    f.alarm = alarm;
    (void)find(&own, rs, &f, &n, &err); /* it does not end but by an error */
    return cli_report(&err);
}

/* --- tree
 * ------------------------------------------------------------------------------------------------
 */

static void grow_one(void *arg, const struct audit_record *r, const json_t *fields)
{
    tree_add(arg, r->ts, r->event, fields);
}

static int grow(void *arg, const struct audit_record *r, const char *line, size_t n,
                struct cl_err *err)
{
    (void)line, (void)n;
    return with_fields(r, grow_one, arg, err);
}

static int grow_tree(struct tree *t, struct records *rs, const char *unit, struct cl_err *err)
{
    CL_AUTO(sheaf_freep) struct sheaf *all = NULL;
    if (sheaf_new(TREE_RECORDS, &all, err) < 0 || records_read(rs, sheaf_keep, all, err) < 0 ||
        sheaf_tell(all, grow, t, err) < 0)
        return -1;
    return tree_records(t) > 0 ? 0
                               : cl_fail(err, CL_E_NOTFOUND, 0, "no record about '%.40s'", unit);
}

static int cmd_tree(const struct cli_opts *o, const struct args *a)
{
    struct cl_err err = {0};
    struct cli_opts own = *o;
    own.unit = a->pos[0];
    CL_AUTO(records_closep) struct records *rs = NULL;
    CL_AUTO(tree_freep) struct tree *t = NULL;
    if (records_open(&own, RECORDS_ALL, &rs, &err) < 0 || tree_new(own.unit, &t, &err) < 0 ||
        grow_tree(t, rs, own.unit, &err) < 0)
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
    if (records_dir(o, dir, err) < 0)
        return -1;
    path_join(key, dir, "audit.key.pub");
    if (o->public_key)
        (void)snprintf(key, sizeof key, "%s", o->public_key);
    struct audit_verify_conf conf = {.dir = dir,
                                     .public_key = key,
                                     .expect_head = o->expect_head,
                                     .may_lack_host = o->is_copy,
                                     .tenant = o->tenant};
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
                 " not yet signed, %" PRIu64 " gaps, %" PRIu64 " recoveries\n",
                 r->records, r->streams, r->checkpoints, r->unsigned_tail, r->gaps, r->recovered);
    if (r->host_stream[0])
        (void)printf("host head: %" PRIu64 ":%s\n", r->host_seq, r->host_head);
    if (!r->host_stream[0])
        (void)printf("without the host's stream a cut of a stream's end cannot be excluded\n");
    else if (!r->head_checked)
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

static int note_head(void *arg, const struct audit_record *r, const char *line, size_t n,
                     struct cl_err *err)
{
    struct head *head = arg;
    (void)line, (void)n, (void)err;
    head->seq = r->seq;
    (void)snprintf(head->hash, sizeof head->hash, "%s", r->hash);
    (void)snprintf(head->ts, sizeof head->ts, "%s", r->ts);
    (void)snprintf(head->stream, sizeof head->stream, "%s", r->stream);
    return 0;
}

static int note_name(const char *stream, void *arg, struct cl_err *err)
{
    (void)err;
    (void)snprintf(arg, AUDIT_STREAM, "%s", stream);
    return 0;
}

static int read_head(const struct cli_opts *o, struct head *ret, struct cl_err *err)
{
    char dir[PATH_TEXT], stream[AUDIT_STREAM] = "";
    struct cli_opts own = *o;
    CL_AUTO(records_closep) struct records *rs = NULL;
    if (records_dir(o, dir, err) < 0 ||
        (!o->tenant && audit_each_stream(dir, "host", note_name, stream, err) < 0))
        return -1;
    own.dir = dir; /* it is to be noted elsewhere, so it is read where it lies */
    own.all = true;
    own.stream = stream[0] ? stream : NULL;
    if (!o->tenant && !stream[0])
        return cl_fail(err, CL_E_NOTFOUND, 0, "no stream in '%s'", dir);
    if (records_open(&own, 1, &rs, err) < 0 || records_read(rs, note_head, ret, err) < 0)
        return -1;
    return ret->seq ? 0 : cl_fail(err, CL_E_NOTFOUND, 0, "no record in '%s'", dir);
}

static int cmd_head(const struct cli_opts *o, const struct args *a)
{
    (void)a;
    struct cl_err err = {0};
    struct head head = {0};
    if (read_head(o, &head, &err) < 0)
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
        {"event",    0, \
         ARG_STRING, OPT(event), \
         "unit.end", "only this one; guest.* = those that begin so, !api.call = all but this"}, \
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
    {"copy", 0, ARG_FLAG, OPT(is_copy), NULL,
     "the folder is a copy (audit mirror): there need be no host stream"},
    {"expect-head", 0, ARG_STRING, OPT(expect_head), "H",
     "a head noted elsewhere: <hash> or <seq>:<hash>"},
    {"key", 0, ARG_STRING, OPT(public_key), "FILE", "public key (default: DIR/audit.key.pub)"}};
static const struct arg_opt head_opts[] = {OPT_JSON, OPT_AUDIT_DIR, OPT_TENANT};

const struct cli_command audit_commands[] = {
    {"audit tail", "[-f] [FILTERS]", "the newest audit records",
     "From the log's files where they can be read here, else from the service, which gives what "
     "the\n"
     "key may see (scope `audit`): docs/reading.md.\n\n"
     "  cloche audit tail -f --tenant acme\n",
     SPEC(tail_opts, 0, 0), cmd_tail, false},
    {"audit query", "[FILTERS]", "search the audit log",
     "From the log's files where they can be read here, else from the service: docs/reading.md.\n\n"
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
     "  cloche audit verify --copy --dir ~/acme-log\n"
     "  cloche audit head > /mnt/elsewhere/head\n"
     "  cloche audit verify --expect-head $(cat /mnt/elsewhere/head)\n",
     SPEC(verify_opts, 0, 0), cmd_verify, false},
    {"audit head", "[--json]", "the newest record of the host stream, to note elsewhere", NULL,
     SPEC(head_opts, 0, 0), cmd_head, false},
};
const size_t audit_commands_n = CL_COUNT(audit_commands);
