/* audit/verify.c - the pure core of audit/verify.h: one stream, fed file by file. */
#include "audit/verify.h"

#include <stdio.h>
#include <string.h>

#include "audit/sign.h"

void audit_stream_check_init(struct audit_stream_check *check, const char *stream,
                             const struct audit_public_key *key)
{
    memset(check, 0, sizeof *check);
    audit_chain_init(&check->chain, stream);
    check->key = key;
}

static int count_record(struct audit_stream_check *check, const struct audit_record *r,
                        struct cl_err *err)
{
    enum audit_event ev = audit_event_by_name(r->event, strlen(r->event));
    check->records++;
    check->gaps += ev == AUDIT_GAP;
    check->recovered += ev == AUDIT_RECOVERED;
    if (ev == AUDIT_CHECKPOINT) {
        if (check->key && audit_checkpoint_check(check->key, r, err) < 0)
            return -1;
        check->checkpoints++;
        check->signed_seq = r->seq;
    }
    return check->on_record ? check->on_record(r, check->arg, err) : 0;
}

int audit_stream_check_next(struct audit_stream_check *check, const struct audit_record *r,
                            struct cl_err *err)
{
    struct audit_chain before = check->chain;
    if (audit_chain_follow(&check->chain, r, err) == 0 && count_record(check, r, err) == 0)
        return 0;
    check->chain = before;
    return -1;
}

static enum audit_verdict bad(struct audit_stream_check *check, size_t at,
                              enum audit_verdict verdict)
{
    check->bad_offset = at;
    check->bad_seq = check->chain.next_seq;
    return verdict;
}

enum audit_verdict audit_stream_check_feed(struct audit_stream_check *check, const char *data,
                                           size_t n, bool last, struct cl_err *err)
{
    for (size_t at = 0; at < n;) {
        const char *line = data + at;
        const char *end = memchr(line, '\n', n - at);
        if (!end) {
            (void)cl_fail(err, CL_E_DATALOSS, 0, "an unfinished line of %zu bytes", n - at);
            return bad(check, at, last ? AUDIT_TORN : AUDIT_BAD);
        }
        struct audit_record r;
        if (audit_record_parse(line, (size_t)(end - line), &r, err) < 0 ||
            audit_stream_check_next(check, &r, err) < 0)
            return bad(check, at, AUDIT_BAD);
        at = (size_t)(end - data) + 1;
    }
    return AUDIT_OK;
}
