/* audit/verify_dir.c - the walk over a folder of streams: the thin part of audit/verify.h.
 *
 * First the host streams, noting every tenant checkpoint they hold; then the tenant streams, each
 * of which must hold every record that the host noted.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "audit/files.h"
#include "audit/sign.h"
#include "audit/verify.h"
#include "base/mem.h"

enum {
    CLAIMS_MAX = 1 << 26
}; /* tenant checkpoints in memory: 2 years of one tenant, each second */

struct claim {
    uint64_t seq;
    char stream[AUDIT_STREAM];
    char hash[AUDIT_HASH_TEXT];
};

struct walk {
    const struct audit_verify_conf *conf;
    struct audit_report *report;
    struct audit_public_key *key; /* owned */
    struct claim *claims;         /* owned; in the order of the host stream */
    size_t n_claims, cap;
    const char *stream; /* under way */
    size_t claim_at;    /* tenant streams: next claim to look for */
    bool head_seen;
};

/* The first thing that is wrong stays. */
static void report_bad(struct walk *w, enum audit_verdict verdict, const char *stream, uint64_t seq,
                       const char *file, uint64_t offset, const char *reason)
{
    struct audit_report *r = w->report;
    if (r->verdict != AUDIT_OK && !(r->verdict == AUDIT_TORN && verdict == AUDIT_BAD))
        return;
    r->verdict = verdict;
    (void)snprintf(r->stream, sizeof r->stream, "%s", stream);
    (void)snprintf(r->file, sizeof r->file, "%s", file);
    (void)snprintf(r->reason, sizeof r->reason, "%.250s", reason);
    r->seq = seq;
    r->offset = offset;
}

/* --- one stream ----------------------------------------------------------------------------- */

static int walk_stream(struct walk *w, const char *stream, struct audit_stream_check *check,
                       bool *ret_ok, struct cl_err *err)
{
    unsigned first, last;
    *ret_ok = true;
    if (audit_file_range(w->conf->dir, stream, &first, &last, err) < 0)
        return -1;
    if (last > 0 && first != 1) {
        *ret_ok = false;
        report_bad(w, AUDIT_BAD, stream, 1, "", 0, "the first file of the stream is missing");
        return 0;
    }
    for (unsigned i = first; i <= last && last > 0 && *ret_ok; i++) {
        char path[AUDIT_PATH];
        const char *data;
        size_t n;
        struct cl_err why = {0};
        audit_file_path(w->conf->dir, stream, i, path);
        if (audit_file_map(path, &data, &n, &why) < 0) {
            if (why.code != CL_E_NOTFOUND) {
                if (err)
                    *err = why;
                return -1;
            }
            *ret_ok = false;
            report_bad(w, AUDIT_BAD, stream, check->chain.next_seq, path, 0, "the file is missing");
            break;
        }
        enum audit_verdict v = audit_stream_check_feed(check, data, n, i == last, &why);
        audit_file_unmap(data, n);
        if (v != AUDIT_OK) {
            *ret_ok = false;
            report_bad(w, v, stream, check->bad_seq, path, check->bad_offset, why.text);
        }
    }
    struct audit_report *r = w->report;
    r->streams++;
    r->records += check->records;
    r->checkpoints += check->checkpoints;
    r->gaps += check->gaps;
    r->recovered += check->recovered;
    r->unsigned_tail += check->chain.next_seq - 1 - check->signed_seq;
    return 0;
}

/* --- the host's ----------------------------------------------------------------------------- */

static void compare_head(struct walk *w, const struct audit_record *r)
{
    const char *want = w->conf->expect_head;
    if (!want)
        return;
    const char *colon = strchr(want, ':');
    char seq[24];
    (void)snprintf(seq, sizeof seq, "%" PRIu64, r->seq);
    if (colon && (strlen(seq) != (size_t)(colon - want) || memcmp(seq, want, strlen(seq)) != 0))
        return;
    if (strcmp(colon ? colon + 1 : want, r->hash) == 0)
        w->head_seen = true;
}

static int on_host_record(const struct audit_record *r, void *arg, struct cl_err *err)
{
    struct walk *w = arg;
    compare_head(w, r);
    if (strcmp(r->event, audit_event_name(AUDIT_TENANT_CHECKPOINT)) != 0)
        return 0;
    if (cl_grow(&w->claims, &w->cap, w->n_claims + 1, CLAIMS_MAX, sizeof *w->claims, err) < 0)
        return -1;
    struct claim *c = &w->claims[w->n_claims];
    if (!audit_field_str(r->fields, r->fields_n, "stream", c->stream, sizeof c->stream) ||
        !audit_field_str(r->fields, r->fields_n, "hash", c->hash, sizeof c->hash) ||
        !audit_field_num(r->fields, r->fields_n, "seq", &c->seq))
        return cl_fail(err, CL_E_INVALID, 0, "a tenant checkpoint without its fields");
    w->n_claims++;
    return 0;
}

static int walk_host(const char *stream, void *arg, struct cl_err *err)
{
    struct walk *w = arg;
    struct audit_stream_check check;
    bool ok;
    audit_stream_check_init(&check, stream, w->key);
    check.on_record = on_host_record;
    check.arg = w;
    if (walk_stream(w, stream, &check, &ok, err) < 0)
        return -1;
    memcpy(w->report->host_stream, check.chain.stream, sizeof w->report->host_stream);
    memcpy(w->report->host_head, check.chain.head, sizeof w->report->host_head);
    w->report->host_seq = check.chain.next_seq - 1;
    return 0;
}

/* --- the tenants' --------------------------------------------------------------------------- */

static struct claim *next_claim(struct walk *w)
{
    while (w->claim_at < w->n_claims && strcmp(w->claims[w->claim_at].stream, w->stream) != 0)
        w->claim_at++;
    return w->claim_at < w->n_claims ? &w->claims[w->claim_at] : NULL;
}

static int on_tenant_record(const struct audit_record *r, void *arg, struct cl_err *err)
{
    struct walk *w = arg;
    struct claim *c;
    while ((c = next_claim(w)) != NULL && c->seq <= r->seq) {
        if (c->seq == r->seq && strcmp(c->hash, r->hash) != 0)
            return cl_fail(err, CL_E_INVALID, 0, "the host stream knows another record here");
        w->claim_at++;
    }
    return 0;
}

static int walk_tenant(const char *stream, void *arg, struct cl_err *err)
{
    struct walk *w = arg;
    struct audit_stream_check check;
    bool ok;
    if (w->conf->tenant && strcmp(stream + strlen("tenant/"), w->conf->tenant) != 0)
        return 0;
    w->stream = stream;
    w->claim_at = 0;
    audit_stream_check_init(&check, stream, w->key);
    check.on_record = on_tenant_record;
    check.arg = w;
    if (walk_stream(w, stream, &check, &ok, err) < 0)
        return -1;
    const struct claim *c = next_claim(w);
    if (ok && c) {
        char reason[AUDIT_REASON];
        (void)snprintf(reason, sizeof reason,
                       "cut: it ends at %" PRIu64 ", the host stream holds its checkpoint %" PRIu64,
                       check.chain.next_seq - 1, c->seq);
        report_bad(w, AUDIT_BAD, stream, check.chain.next_seq, "", 0, reason);
    }
    return 0;
}

/* A tenant that the host stream names and the folder lacks: its whole stream was taken away. */
static int find_missing(struct walk *w, struct cl_err *err)
{
    for (size_t i = 0; i < w->n_claims; i++) {
        unsigned first, last;
        const char *stream = w->claims[i].stream;
        if (i > 0 && strcmp(stream, w->claims[i - 1].stream) == 0)
            continue;
        if (w->conf->tenant &&
            strcmp(stream + CL_MIN(strlen(stream), strlen("tenant/")), w->conf->tenant) != 0)
            continue;
        if (audit_file_range(w->conf->dir, stream, &first, &last, err) < 0)
            return -1;
        if (last == 0)
            report_bad(w, AUDIT_BAD, stream, 1, "", 0,
                       "the stream is missing; the host stream holds its checkpoints");
    }
    return 0;
}

int audit_verify_dir(const struct audit_verify_conf *conf, struct audit_report *ret,
                     struct cl_err *err)
{
    struct audit_report report = {0};
    struct walk w = {.conf = conf, .report = &report};
    int rc = audit_public_key_open(conf->public_key, &w.key, err);
    if (rc == 0)
        rc = audit_each_stream(conf->dir, "host", walk_host, &w, err);
    if (rc == 0 && report.streams == 0 && !conf->may_lack_host)
        rc = cl_fail(
            err, CL_E_NOTFOUND, 0,
            "no host stream in '%s'\na log must have one; for a copy of a tenant's stream: --copy",
            conf->dir);
    if (rc == 0)
        rc = audit_each_stream(conf->dir, "tenant", walk_tenant, &w, err);
    if (rc == 0)
        rc = find_missing(&w, err);
    if (rc == 0 && conf->expect_head && !w.head_seen)
        report_bad(&w, AUDIT_BAD, report.host_stream, report.host_seq, "", 0,
                   "the expected head is not in the host stream: it was cut or replaced");
    report.head_checked = conf->expect_head && w.head_seen;
    cl_free(w.claims);
    audit_public_key_free(w.key);
    if (rc == 0)
        *ret = report;
    return rc;
}
