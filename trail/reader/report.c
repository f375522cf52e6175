/* trail/reader/report.c - AuditService.Tree and Findings: what the records say together. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "observability/log.h"
#include "trail/reader/service_priv.h"
#include "trail/tree.h"

#define FINDINGS_SPAN (UINT64_C(24) * 3600 * CL_NS_PER_S)

static int fields_of(const struct audit_record *r, json_t **ret_fields, struct cl_err *err)
{
    *ret_fields = json_loadb(r->fields, r->fields_n, 0, NULL);
    return *ret_fields ? 0
                       : cl_fail(err, CL_E_NOMEM, 0, "record %llu of %s",
                                 (unsigned long long)r->seq, r->stream);
}

/* --- the tree -----------------------------------------------------------------------------------
 */

static int begin_tree(struct reading *q, struct cl_err *err)
{
    const Cloche__V1__AuditServiceTreeRequest *r =
        (const Cloche__V1__AuditServiceTreeRequest *)q->request;
    struct walk_filter f = reading_filter(r->stream, r->unit, r->since, r->until);
    if (!r->unit[0])
        return cl_fail(err, CL_E_INVALID, 0, "unit: name the job or sandbox");
    return walk_new(reading_conf(q)->dir, &f, &q->walk, err) < 0
               ? -1
               : sheaf_new(SERVICE_TREE_RECORDS, &q->sheaf, err);
}

static int step_tree(struct reading *q, struct cl_err *err)
{
    return walk_step(q->walk, WALK_STEP, sheaf_keep, q->sheaf, err);
}

static int grow(void *arg, const struct audit_record *r, const char *line, size_t n,
                struct cl_err *err)
{
    json_t *fields;
    (void)line, (void)n;
    if (fields_of(r, &fields, err) < 0)
        return -1;
    tree_add(arg, r->ts, r->event, fields);
    json_decref(fields);
    return 0;
}

static int done_tree(struct reading *q, struct cl_err *err)
{
    const Cloche__V1__AuditServiceTreeRequest *r =
        (const Cloche__V1__AuditServiceTreeRequest *)q->request;
    Cloche__V1__AuditServiceTreeResponse m = CLOCHE__V1__AUDIT_SERVICE_TREE_RESPONSE__INIT;
    CL_AUTO(tree_freep) struct tree *t = NULL;
    m.records = sheaf_count(q->sheaf);
    if (m.records == 0)
        return cl_fail(err, CL_E_NOTFOUND, 0, "no record about '%.40s'", r->unit);
    if (tree_new(r->unit, &t, err) < 0 || sheaf_tell(q->sheaf, grow, t, err) < 0)
        return -1;
    m.tree = json_dumps(tree_root(t), JSON_COMPACT);
    size_t n = m.tree ? strlen(m.tree) : 0;
    if (m.tree && n <= SERVICE_TREE_BYTES)
        reading_reply(q, &m.base);
    free(m.tree);
    if (n == 0)
        return cl_fail(err, CL_E_NOMEM, 0, "tree");
    return n <= SERVICE_TREE_BYTES
               ? 0
               : cl_fail(err, CL_E_TOOBIG, 0,
                         "the tree has %zu bytes, more than %d\nask for a part of the time", n,
                         SERVICE_TREE_BYTES);
}

const struct reading_kind reading_tree = {begin_tree, step_tree, done_tree};

/* --- findings -----------------------------------------------------------------------------------
 */

static int begin_findings(struct reading *q, struct cl_err *err)
{
    const Cloche__V1__AuditServiceFindingsRequest *r =
        (const Cloche__V1__AuditServiceFindingsRequest *)q->request;
    struct walk_filter f = reading_filter(r->stream, NULL, r->since, r->until);
    struct cl_err why;
    if (!f.since_ns)
        f.since_ns = cl_wall_ns() - FINDINGS_SPAN;
    q->rules = rules_file_now(reading_conf(q)->rules, &why);
    if (why.code != CL_OK)
        log_event(LOG_RULES_BAD, "text='%s'", why.text);
    return walk_new(reading_conf(q)->dir, &f, &q->walk, err) < 0
               ? -1
               : detect_new(q->rules, &q->detect, err);
}

static int feed(void *arg, const struct audit_record *r, const char *line, size_t n,
                struct cl_err *err)
{
    struct reading *q = arg;
    json_t *fields;
    (void)line, (void)n;
    if (fields_of(r, &fields, err) < 0)
        return -1;
    const struct detect_record record = {r->stream, r->ts, r->event, r->seq, fields};
    (void)detect_feed(q->detect, &record);
    json_decref(fields);
    return 0;
}

static int step_findings(struct reading *q, struct cl_err *err)
{
    return walk_step(q->walk, WALK_STEP, feed, q, err);
}

struct finding_row {
    Cloche__V1__Finding m;
    Cloche__V1__Time first, last;
};

static char *text(const char *s)
{
    return (char *)(uintptr_t)(s ? s : "");
}

static void fill(struct finding_row *row, const struct finding *f)
{
    cloche__v1__finding__init(&row->m);
    cloche__v1__time__init(&row->first);
    cloche__v1__time__init(&row->last);
    row->first.unix_ns = cl_rfc3339_ns(f->first);
    row->last.unix_ns = cl_rfc3339_ns(f->last);
    row->m.severity =
        (Cloche__V1__FindingSeverity)((int)f->severity +
                                      CLOCHE__V1__FINDING_SEVERITY__FINDING_SEVERITY_LOW);
    row->m.name = text(f->name);
    row->m.subject = text(f->subject);
    row->m.value = text(f->value);
    row->m.count = f->count;
    row->m.first = &row->first;
    row->m.last = &row->last;
    row->m.technique = text(f->technique);
    row->m.what = text(f->what);
    row->m.then = text(f->then);
    row->m.stream = text(f->stream);
    row->m.seq = f->seq;
}

static int reply_findings(struct reading *q, const struct finding *const *found, size_t n,
                          struct cl_err *err)
{
    Cloche__V1__AuditServiceFindingsResponse m = CLOCHE__V1__AUDIT_SERVICE_FINDINGS_RESPONSE__INIT;
    size_t shown = CL_MIN(n, (size_t)SERVICE_FINDINGS);
    struct finding_row *rows = cl_zalloc_array(shown, sizeof *rows);
    Cloche__V1__Finding **list = cl_zalloc_array(shown, sizeof *list);
    int rc = rows && list ? 0 : cl_fail(err, CL_E_NOMEM, 0, "findings");
    for (size_t i = 0; rc == 0 && i < shown; i++) {
        fill(&rows[i], found[i]);
        list[i] = &rows[i].m;
    }
    m.findings = list;
    m.n_findings = shown;
    m.more = n > shown;
    m.forgotten = detect_forgotten(q->detect);
    m.unreadable = walk_unreadable(q->walk);
    if (rc == 0)
        reading_reply(q, &m.base);
    cl_free(rows);
    cl_free(list);
    return rc;
}

static int done_findings(struct reading *q, struct cl_err *err)
{
    const Cloche__V1__AuditServiceFindingsRequest *r =
        (const Cloche__V1__AuditServiceFindingsRequest *)q->request;
    const struct finding **found;
    size_t n;
    int least = (int)r->severity - CLOCHE__V1__FINDING_SEVERITY__FINDING_SEVERITY_LOW;
    if (least > DETECT_HIGH)
        return cl_fail(err, CL_E_INVALID, 0, "severity %d: LOW, MEDIUM or HIGH", (int)r->severity);
    if (detect_sorted(q->detect, (enum detect_severity)CL_MAX(least, 0), &found, &n, err) < 0)
        return -1;
    int rc = reply_findings(q, found, n, err);
    cl_free(found);
    return rc;
}

const struct reading_kind reading_findings = {begin_findings, step_findings, done_findings};
