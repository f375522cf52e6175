/* trail/reader/query.c - AuditService.Query: records, as they lie in the log. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "trail/reader/service_priv.h"

#define FOLLOW_NS (300 * CL_NS_PER_MS) /* how soon what was written is seen */

static const Cloche__V1__AuditServiceQueryRequest *asked(const struct reading *q)
{
    return (const Cloche__V1__AuditServiceQueryRequest *)q->request;
}

static int take_places(struct reading *q, struct walk_filter *f, struct cl_err *err)
{
    const Cloche__V1__AuditServiceQueryRequest *r = asked(q);
    if (r->n_from == 0)
        return 0;
    if (r->n_from > SERVICE_STREAMS)
        return cl_fail(err, CL_E_INVALID, 0, "from: %zu places; at most %d", r->n_from,
                       SERVICE_STREAMS);
    q->from = cl_zalloc_array(r->n_from, sizeof *q->from);
    if (!q->from)
        return cl_fail(err, CL_E_NOMEM, 0, "places");
    for (; f->n_from < r->n_from; f->n_from++)
        q->from[f->n_from] =
            (struct walk_place){r->from[f->n_from]->stream, r->from[f->n_from]->seq};
    f->from = q->from;
    return 0;
}

static int begin(struct reading *q, struct cl_err *err)
{
    const Cloche__V1__AuditServiceQueryRequest *r = asked(q);
    struct walk_filter f = reading_filter(r->stream, r->unit, r->since, r->until);
    f.events = (const char *const *)r->events;
    f.n_events = r->n_events;
    f.may_come = r->follow;
    if (take_places(q, &f, err) < 0)
        return -1;
    return r->newest ? newest_new(reading_conf(q)->dir, &f, r->newest, &q->newest, err)
                     : walk_new(reading_conf(q)->dir, &f, &q->walk, err);
}

static int send_batch(struct reading *q, bool caught_up, struct cl_err *err)
{
    Cloche__V1__AuditServiceQueryResponse m = CLOCHE__V1__AUDIT_SERVICE_QUERY_RESPONSE__INIT;
    m.records = q->batch;
    m.n_records = q->n_batch;
    m.caught_up = caught_up;
    m.unreadable = q->walk ? walk_unreadable(q->walk) : 0;
    int rc = rpc_call_send(q->call, &m.base, err);
    for (; q->n_batch > 0; q->n_batch--)
        cl_free(q->batch[q->n_batch - 1]);
    q->batch_bytes = 0;
    return rc;
}

static int each(void *arg, const struct audit_record *r, const char *line, size_t n,
                struct cl_err *err)
{
    struct reading *q = arg;
    (void)r;
    if (cl_grow(&q->batch, &q->cap_batch, q->n_batch + 1, READING_BATCH, sizeof *q->batch, err) < 0)
        return -1;
    char *copy = cl_strndup(line, n);
    if (!copy)
        return cl_fail(err, CL_E_NOMEM, 0, "record");
    q->batch[q->n_batch++] = copy;
    q->batch_bytes += n;
    return q->batch_bytes < READING_BATCH ? 0 : send_batch(q, false, err);
}

/* The newest first, then what comes behind them. */
static int step(struct reading *q, struct cl_err *err)
{
    if (!q->newest)
        return walk_step(q->walk, WALK_STEP, each, q, err);
    int more = q->is_known ? newest_tell(q->newest, WALK_STEP, each, q, err)
                           : newest_step(q->newest, WALK_STEP, err);
    if (more != 0)
        return more;
    if (q->is_known) {
        q->walk = newest_take_walk(q->newest);
        newest_free(CL_STEAL(&q->newest));
        return 0;
    }
    q->is_known = true;
    return 1;
}

static int done(struct reading *q, struct cl_err *err)
{
    if ((q->n_batch > 0 || !q->caught_up) && send_batch(q, true, err) < 0)
        return -1;
    q->caught_up = true;
    if (asked(q)->follow)
        reading_wait(q, FOLLOW_NS);
    else
        rpc_call_finish(q->call, NULL);
    return 0;
}

const struct reading_kind reading_query = {begin, step, done};
