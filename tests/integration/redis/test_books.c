/* tests/integration/redis/test_books.c - each call of the books against a real Redis. */
#include "tests/integration/redis/calls.h"

static void on_tenants(const struct books_tenant *rows, size_t n, const char *next,
                       const struct cl_err *err, void *arg)
{
    (void)arg, (void)next;
    got.n = n;
    if (n > 0) {
        got.tenant = rows[0];
        (void)snprintf(got.blob, sizeof got.blob, "%.*s", (int)rows[0].blob_n,
                       (const char *)rows[0].blob);
    }
    note(err);
}
static void on_keys(const struct books_key *rows, size_t n, const char *next,
                    const struct cl_err *err, void *arg)
{
    (void)arg, (void)next;
    got.n = n;
    if (n > 0)
        got.key = rows[0];
    note(err);
}
static void on_workers(const struct books_worker *rows, size_t n, const char *next,
                       const struct cl_err *err, void *arg)
{
    (void)arg, (void)next;
    got.n = n;
    if (n > 0) {
        got.worker = rows[0];
        (void)snprintf(got.blob, sizeof got.blob, "%.*s", (int)rows[0].blob_n,
                       (const char *)rows[0].blob);
    }
    note(err);
}
static void on_blob(const void *blob, size_t n, const struct cl_err *err, void *arg)
{
    (void)arg;
    if (blob)
        (void)snprintf(got.blob, sizeof got.blob, "%.*s", (int)n, (const char *)blob);
    note(err);
}
static void on_head(const struct books_head *head, const struct cl_err *err, void *arg)
{
    (void)arg;
    if (head)
        got.head = *head;
    note(err);
}

/* --- tests ---------------------------------------------------------------------------------- */

static void test_a_job_goes_from_admission_to_its_terminal_record(void **state)
{
    (void)state;
    char id[CL_ID_MAX], lease[CL_ID_MAX];
    put_tenant("acme", 10, 0, 100);
    assert_true(got.created);
    admit("acme", id);
    cl_id_new("lease", lease);
    reserve("acme", id, lease, 30000);
    assert_int_equal(got.err.code, CL_OK);
    assert_int_equal(got.reserved.attempt, 1);
    uint64_t fence = got.reserved.fence;
    reserve("acme", id, lease, 30000);
    assert_true(got.reserved.replay);
    assert_true(got.reserved.fence == fence);
    struct books_hold h = hold("acme", id, lease);
    wait_answer(books_started(books, &h, &how, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    wait_answer(books_started(books, &h, &how, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ALREADY);
    wait_answer(books_usage(books, "acme", on_usage, NULL, NULL));
    assert_int_equal(got.usage.held[BOOKS_MEM], 256);
    assert_int_equal(got.usage.leases, 1);
    struct books_pair pairs[2] = {{"acme", lease, fence}, {"acme", lease, fence + 1}};
    wait_answer(books_renew(books, pairs, 2, 30000, on_renew, NULL, NULL));
    assert_int_equal(got.held[0], 1);
    assert_int_equal(got.held[1], 0);
    struct books_hold wrong = h;
    wrong.fence++;
    wait_answer(books_finish(books, &wrong, &ended, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_STALE);
    wait_answer(books_finish(books, &h, &ended, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    wait_answer(books_finish(books, &h, &ended, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ALREADY);
    wait_answer(
        books_get(books, "acme", id, BOOKS_WITH_SPEC | BOOKS_WITH_TERMINAL, on_units, NULL, NULL));
    assert_int_equal(got.n, 1);
    assert_int_equal(got.unit[0].state, BOOKS_ENDED);
    assert_int_equal(got.unit[0].outcome, 1);
    assert_string_equal(got.unit[0].worker, "wrk_1");
    assert_string_equal(got.spec, "the spec");
    assert_string_equal(got.start, "how");
    assert_true(got.unit[0].started_ms * 1000 >= got.unit[0].created_us - 1000 &&
                got.unit[0].started_ms * 1000 <= got.unit[0].changed_us);
    assert_string_equal(got.terminal, "gone");
    wait_answer(books_usage(books, "acme", on_usage, NULL, NULL));
    assert_int_equal(got.usage.held[BOOKS_MEM], 0);
    assert_int_equal(got.usage.spent[BOOKS_CPU], 7);
    assert_int_equal(got.usage.live, 0);
    check_books_close("acme");
}

static void test_an_idempotency_key_replays_or_refuses_another_body(void **state)
{
    (void)state;
    char a[CL_ID_MAX], b[CL_ID_MAX];
    put_tenant("idem", 10, 0, 100);
    cl_id_new("job", a);
    cl_id_new("job", b);
    admit_keyed("idem", a, "key-1", 1);
    assert_false(got.admitted.replay);
    admit_keyed("idem", b, "key-1", 1);
    assert_true(got.admitted.replay);
    assert_string_equal(got.admitted.id, a);
    admit_keyed("idem", b, "key-1", 2);
    assert_int_equal(got.err.code, CL_E_EXISTS);
    check_books_close("idem");
}

/* `kind`, by "key-2": the id that it is answered. */
static const char *make_keyed(enum books_kind kind, uint8_t body, bool replay)
{
    static char id[CL_ID_MAX];
    cl_id_new(books_kind_prefix(kind), id);
    admit_keyed("made", id, "key-2", body);
    assert_int_equal(got.err.code, CL_OK);
    assert_int_equal(got.admitted.replay, replay);
    return got.admitted.id;
}

static void test_an_idempotency_key_is_free_again_when_nothing_was_made(void **state)
{
    (void)state;
    char first[CL_ID_MAX], lease[CL_ID_MAX];
    put_tenant("made", 10, 0, 100);
    (void)snprintf(first, sizeof first, "%s", make_keyed(BOOKS_SANDBOX, 1, false));
    assert_string_equal(make_keyed(BOOKS_SANDBOX, 1, true), first);
    wait_answer(books_unmake(books, "made", first, on_units, NULL, NULL));
    assert_true(got.unit[0].cancel);
    (void)snprintf(first, sizeof first, "%s", make_keyed(BOOKS_SANDBOX, 2, false));
    wait_answer(books_end_unleased(books, "made", first, &ended, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    (void)snprintf(first, sizeof first, "%s", make_keyed(BOOKS_SANDBOX, 3, false));
    cl_id_new("lease", lease);
    reserve("made", first, lease, 30000);
    struct books_hold h = hold("made", first, lease);
    wait_answer(books_started(books, &h, &how, on_verdict, NULL, NULL));
    wait_answer(books_finish(books, &h, &ended, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    assert_string_equal(make_keyed(BOOKS_SANDBOX, 3, true), first); /* it ran */
    wait_answer(books_unmake(books, "made", first, on_units, NULL, NULL));
    assert_false(got.unit[0].cancel); /* and it has ended */
    (void)snprintf(first, sizeof first, "%s", make_keyed(BOOKS_JOB, 4, false));
    wait_answer(books_end_unleased(books, "made", first, &ended, on_verdict, NULL, NULL));
    assert_string_equal(make_keyed(BOOKS_JOB, 4, true), first); /* a job is there without running */
    check_books_close("made");
}

static void test_rate_queue_and_quota_refuse_with_their_own_codes(void **state)
{
    (void)state;
    char id[CL_ID_MAX], lease[CL_ID_MAX];
    put_tenant("rate", 10, 3600000000, 100);
    for (int i = 0; i < 3; i++)
        admit("rate", id);
    cl_id_new("job", id);
    admit_keyed("rate", id, NULL, 0);
    assert_int_equal(got.err.code, CL_E_RATE);
    assert_true(got.err.retry_ms > 3500000 && got.err.retry_ms <= 3600000);
    put_tenant("queue", 1, 0, 2);
    char first[CL_ID_MAX], second[CL_ID_MAX];
    admit("queue", first);
    admit("queue", second);
    cl_id_new("job", id);
    admit_keyed("queue", id, NULL, 0);
    assert_int_equal(got.err.code, CL_E_QUEUE);
    cl_id_new("lease", lease);
    reserve("queue", first, lease, 30000);
    assert_int_equal(got.err.code, CL_OK);
    struct books_hold h = hold("queue", first, lease);
    char other[CL_ID_MAX];
    cl_id_new("lease", other);
    reserve("queue", second, other, 30000);
    assert_int_equal(got.err.code, CL_E_QUOTA);
    assert_string_equal(got.err.subject, "sandboxes");
    admit("queue", id);
    wait_answer(books_requeue(books, &h, NULL, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    wait_answer(books_requeue(books, &h, NULL, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ALREADY);
    wait_answer(books_usage(books, "queue", on_usage, NULL, NULL));
    assert_int_equal(got.usage.queued, 3); /* over its bound of 2: a requeue is never refused */
    put_tenant("small", 0, 0, 2);
    cl_id_new("job", id);
    admit_keyed("small", id, NULL, 0);
    assert_int_equal(got.err.code, CL_E_QUOTA);
    assert_string_equal(got.err.subject, "sandboxes");
    cl_id_new("job", id);
    admit_keyed("nobody", id, NULL, 0);
    assert_int_equal(got.err.code, CL_E_NOTFOUND);
    check_books_close("queue");
}

static void admit_leased(const char *tenant, const char *id, const char *lease, bool refuse)
{
    struct books_admit req = {.tenant = tenant,
                              .id = id,
                              .kind = BOOKS_JOB,
                              .need = {1000, 256, 1, 5000, 100, 512},
                              .spec = "the spec",
                              .spec_n = 8,
                              .refuse_over_quota = refuse,
                              .lease = lease,
                              .worker = "wrk_1",
                              .ttl_ms = 30000};
    wait_answer(books_admit(books, &req, on_admit, NULL, NULL));
}

static void test_admission_reserves_at_once_when_it_may_and_nobody_waits(void **state)
{
    (void)state;
    char a[CL_ID_MAX], b[CL_ID_MAX], c[CL_ID_MAX], la[CL_ID_MAX], lb[CL_ID_MAX];
    put_tenant("direct", 1, 0, 100);
    cl_id_new("job", a);
    cl_id_new("job", b);
    cl_id_new("job", c);
    cl_id_new("lease", la);
    cl_id_new("lease", lb);
    admit_leased("direct", a, la, false);
    assert_int_equal(got.err.code, CL_OK);
    assert_int_equal(got.admitted.state, BOOKS_STARTING);
    assert_int_equal(got.admitted.attempt, 1);
    uint64_t fence = got.admitted.fence;
    assert_true(fence > 0);
    admit_leased("direct", a, la, false); /* sent again after a lost answer */
    assert_int_equal(got.admitted.state, BOOKS_STARTING);
    assert_int_equal(got.admitted.fence, fence);
    admit_leased("direct", b, la, false); /* a lease is for one unit */
    assert_int_equal(got.err.code, CL_E_INVALID);
    admit_leased("direct", b, lb, true);
    assert_int_equal(got.err.code, CL_E_QUOTA);
    assert_string_equal(got.err.subject, "sandboxes");
    assert_true(got.err.retry_ms > 0);
    admit_leased("direct", b, NULL, true); /* whether a worker has room or not */
    assert_int_equal(got.err.code, CL_E_QUOTA);
    admit_leased("direct", b, lb, false);
    assert_int_equal(got.admitted.state, BOOKS_QUEUED);
    struct books_hold h = {"direct", a, la, fence};
    wait_answer(books_finish(books, &h, &ended, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    admit_leased("direct", c, la, false); /* b waits, and nobody overtakes it */
    assert_int_equal(got.admitted.state, BOOKS_QUEUED);
    reserve("direct", b, lb, 30000);
    assert_int_equal(got.err.code, CL_OK);
    check_books_close("direct");
}

static void test_an_expired_lease_is_reported_until_someone_decides(void **state)
{
    (void)state;
    char id[CL_ID_MAX], lease[CL_ID_MAX];
    put_tenant("reap", 10, 0, 100);
    admit("reap", id);
    cl_id_new("lease", lease);
    reserve("reap", id, lease, 1);
    struct books_hold h = hold("reap", id, lease);
    (void)usleep(5000);
    for (int i = 0; i < 2; i++) {
        wait_answer(books_reap(books, "reap", 10, on_units, NULL, NULL));
        assert_int_equal(got.n, 1);
        assert_true(got.unit[0].reaped);
        assert_int_equal(got.unit[0].state, BOOKS_STARTING);
    }
    check_books_close("reap");
    wait_answer(books_finish(books, &h, &ended, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_STALE);
    wait_answer(books_requeue(books, &h, NULL, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    cl_id_new("lease", lease);
    reserve("reap", id, lease, 1);
    assert_int_equal(got.reserved.attempt, 2);
    (void)usleep(5000);
    wait_answer(books_reap(books, "reap", 10, on_units, NULL, NULL));
    wait_answer(books_end_unleased(books, "reap", id, &ended, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
    wait_answer(books_end_unleased(books, "reap", id, &ended, on_verdict, NULL, NULL));
    assert_int_equal(got.verdict, BOOKS_ALREADY);
    check_books_close("reap");
}

/* --- looking, keys, workers ------------------------------------------------------------------- */

static void test_lists_are_paged_newest_first_and_filtered(void **state)
{
    (void)state;
    char id[5][CL_ID_MAX];
    put_tenant("list", 10, 0, 100);
    for (int i = 0; i < 5; i++) {
        admit("list", id[i]);
        (void)usleep(2000);
    }
    wait_answer(books_end_unleased(books, "list", id[1], &ended, on_verdict, NULL, NULL));
    struct books_list req = {.tenant = "list", .kind = BOOKS_JOB, .token = "", .n = 2};
    wait_answer(books_list(books, &req, on_units, NULL, NULL));
    assert_int_equal(got.n, 2);
    assert_string_equal(got.unit[0].id, id[4]);
    char token[64];
    (void)snprintf(token, sizeof token, "%s", got.next);
    req.token = token;
    req.n = 3;
    wait_answer(books_list(books, &req, on_units, NULL, NULL));
    assert_int_equal(got.n, 3);
    assert_string_equal(got.unit[2].id, id[0]);
    assert_string_equal(got.next, "");
    req = (struct books_list){
        .tenant = "list", .kind = BOOKS_JOB, .token = "", .n = 2, .states = 1u << BOOKS_ENDED};
    wait_answer(books_list(books, &req, on_units, NULL, NULL));
    assert_int_equal(got.n, 1);
    assert_string_equal(got.unit[0].id, id[1]);
    req.kind = BOOKS_SANDBOX;
    wait_answer(books_list(books, &req, on_units, NULL, NULL));
    assert_int_equal(got.n, 0);
    wait_answer(books_live(books, &(struct books_list){.tenant = "list", .token = "", .n = 3},
                           on_units, NULL, NULL));
    assert_int_equal(got.n, 3);
    assert_string_equal(got.spec, "the spec");
    (void)snprintf(token, sizeof token, "%s", got.next);
    wait_answer(books_live(books, &(struct books_list){.tenant = "list", .token = token, .n = 3},
                           on_units, NULL, NULL));
    assert_int_equal(got.n, 1);
    wait_answer(books_get(books, "acme", id[0], 0, on_units, NULL, NULL));
    assert_int_equal(got.err.code, CL_E_NOTFOUND); /* another tenant's */
}

static void unlogged(const char *after, size_t n)
{
    const struct books_list page = {.tenant = "ends", .token = after, .n = n};
    wait_answer(books_unlogged(books, &page, on_units, NULL, NULL));
}

static void test_an_end_is_told_again_until_the_log_has_it(void **state)
{
    (void)state;
    char id[3][CL_ID_MAX], lease[CL_ID_MAX];
    put_tenant("ends", 10, 0, 100);
    for (int i = 0; i < 3; i++) {
        admit("ends", id[i]);
        (void)usleep(2000);
    }
    unlogged("", 5);
    assert_int_equal(got.n, 0);
    cl_id_new("lease", lease);
    reserve("ends", id[0], lease, 30000);
    struct books_hold h = hold("ends", id[0], lease);
    wait_answer(books_finish(books, &h, &ended, on_verdict, NULL, NULL));
    wait_answer(books_end_unleased(books, "ends", id[1], &ended, on_verdict, NULL, NULL));
    unlogged("", 1);
    assert_int_equal(got.n, 1);
    assert_string_equal(got.unit[0].id, id[0]);
    assert_true(got.unit[0].fence == h.fence && got.unit[0].attempt == 1);
    assert_string_equal(got.terminal, "gone");
    assert_string_equal(got.next, id[0]);
    unlogged(id[0], 5);
    assert_int_equal(got.n, 1);
    assert_string_equal(got.unit[0].id, id[1]);
    const char nobodys[2][CL_ID_MAX] = {"job_01m8erfm12xfvv0jxj1qhm4tr4"}; /* "" is no id */
    struct books_ids units = {"ends", nobodys, 1};
    wait_answer(books_logged(books, &units, on_done, NULL, NULL));
    assert_int_equal(got.err.code, CL_OK);
    units = (struct books_ids){"ends", (const char(*)[CL_ID_MAX])id, 2};
    wait_answer(books_logged(books, &units, on_done, NULL, NULL));
    unlogged("", 5);
    assert_int_equal(got.n, 0);
    units.n = 0;
    assert_int_equal(books_logged(books, &units, on_done, NULL, NULL), -1);
    units = (struct books_ids){"ends", nobodys, 2};
    assert_int_equal(books_logged(books, &units, on_done, NULL, NULL), -1);
    check_books_close("ends");
}

static void test_cancel_marks_a_queued_job_so_that_it_is_not_reserved(void **state)
{
    (void)state;
    char id[CL_ID_MAX], lease[CL_ID_MAX];
    put_tenant("cancel", 10, 0, 100);
    admit("cancel", id);
    wait_answer(books_cancel(books, "cancel", id, on_units, NULL, NULL));
    assert_int_equal(got.unit[0].state, BOOKS_QUEUED);
    assert_true(got.unit[0].cancel);
    cl_id_new("lease", lease);
    reserve("cancel", id, lease, 1000);
    assert_int_equal(got.err.code, CL_E_CANCELLED);
}

static void test_keys_live_in_their_tenant_and_go_with_it(void **state)
{
    (void)state;
    put_tenant("keys", 10, 0, 100);
    struct books_key key = {.id = "0123456789abcdef",
                            .tenant = "keys",
                            .subject = "ann",
                            .note = "laptop",
                            .mac = {1, 2, 0, 4},
                            .scopes = 5,
                            .expires_ms = 77};
    wait_answer(books_key_put(books, &key, on_done, NULL, NULL));
    assert_int_equal(got.err.code, CL_OK);
    wait_answer(books_key_put(books, &key, on_done, NULL, NULL));
    assert_int_equal(got.err.code, CL_OK);
    key.scopes = 6;
    wait_answer(books_key_put(books, &key, on_done, NULL, NULL));
    assert_int_equal(got.err.code, CL_E_EXISTS);
    const char *ids[] = {"0123456789abcdef", "ffffffffffffffff"};
    wait_answer(books_key_touch(books, ids, 2, on_done, NULL, NULL));
    wait_answer(books_key_get(books, ids[0], on_keys, NULL, NULL));
    assert_string_equal(got.key.note, "laptop");
    assert_int_equal(got.key.scopes, 5);
    assert_int_equal(got.key.mac[3], 4);
    assert_true(got.key.created_ms > 0 && got.key.last_used_ms > 0 && !got.key.revoked);
    wait_answer(books_key_revoke(books, "acme", ids[0], on_done, NULL, NULL));
    assert_int_equal(got.err.code, CL_E_NOTFOUND);
    wait_answer(books_key_revoke(books, NULL, ids[0], on_done, NULL, NULL));
    wait_answer(books_key_list(books, "keys", "", 10, on_keys, NULL, NULL));
    assert_int_equal(got.n, 1);
    assert_true(got.key.revoked);
    wait_answer(books_tenant_get(books, "keys", on_tenants, NULL, NULL));
    assert_string_equal(got.blob, "blob");
    assert_int_equal(got.tenant.limits.queue_max, 100);
    wait_answer(books_tenant_delete(books, "keys", on_done, NULL, NULL));
    assert_int_equal(got.err.code, CL_OK);
    wait_answer(books_key_get(books, ids[0], on_keys, NULL, NULL));
    assert_int_equal(got.err.code, CL_E_NOTFOUND);
    wait_answer(books_tenant_list(books, "", 1000, on_tenants, NULL, NULL));
    assert_true(got.n >= 5);
    wait_answer(books_tenant_delete(books, "cancel", on_done, NULL, NULL));
    assert_int_equal(got.err.code, CL_E_STATE);
}

static void test_workers_tokens_and_audit_heads_are_kept(void **state)
{
    (void)state;
    char hash[65];
    uint8_t raw[32] = {9};
    cl_hex(raw, sizeof raw, hash);
    wait_answer(books_worker_put(books, "wrk_1", NULL, 0, on_done, NULL, NULL));
    assert_int_equal(got.err.code, CL_E_NOTFOUND);
    wait_answer(books_worker_put(books, "wrk_1", "caps", 4, on_done, NULL, NULL));
    wait_answer(books_worker_put(books, "wrk_1", NULL, 0, on_done, NULL, NULL));
    wait_answer(books_worker_list(books, "", 10, on_workers, NULL, NULL));
    assert_int_equal(got.n, 1);
    assert_string_equal(got.blob, "caps");
    assert_true(got.worker.now_ms - got.worker.seen_ms < 10000);
    wait_answer(books_worker_delete(books, "wrk_1", on_done, NULL, NULL));
    wait_answer(books_worker_get(books, "wrk_1", on_workers, NULL, NULL));
    assert_int_equal(got.err.code, CL_E_NOTFOUND);
    wait_answer(books_enroll_put(books, hash, "for w2", 6, 60000, on_done, NULL, NULL));
    wait_answer(books_enroll_take(books, hash, "claim-a", on_blob, NULL, NULL));
    assert_string_equal(got.blob, "for w2");
    wait_answer(books_enroll_take(books, hash, "claim-a", on_blob, NULL, NULL));
    assert_int_equal(got.err.code, CL_OK);
    wait_answer(books_enroll_take(books, hash, "claim-b", on_blob, NULL, NULL));
    assert_int_equal(got.err.code, CL_E_UNAUTH);
    struct books_head head = {.host = "h1", .seq = 9};
    memcpy(head.hash, hash, sizeof hash);
    wait_answer(books_audit_head_set(books, &head, on_done, NULL, NULL));
    head.seq = 3;
    wait_answer(books_audit_head_set(books, &head, on_done, NULL, NULL));
    wait_answer(books_audit_head_get(books, "h1", on_head, NULL, NULL));
    assert_int_equal(got.head.seq, 9);
    assert_string_equal(got.head.hash, hash);
}

static void test_bad_arguments_are_refused_before_they_are_sent(void **state)
{
    (void)state;
    struct cl_err err = {0};
    assert_int_equal(books_get(books, "Bad Name", "job_x", 0, on_units, NULL, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
    assert_int_equal(books_get(books, "acme", "job_x", 0, on_units, NULL, &err), -1);
    assert_string_equal(err.subject, "id");
    assert_int_equal(books_worker_put(books, "a b", "", 0, on_done, NULL, &err), -1);
    assert_int_equal(books_open_calls(books), 0);
}

static void test_an_outage_delays_calls_that_may_wait_and_refuses_the_others(void **state)
{
    (void)state;
    char id[CL_ID_MAX];
    put_tenant("outage", 10, 0, 100);
    admit("outage", id);
    server_kill(&server);
    int before = got.calls;
    for (int i = 0; i < 50 && books_is_ready(books); i++)
        cl_loop_turn(loop, 10 * CL_NS_PER_MS);
    struct cl_err err = {0};
    struct books_admit req = {
        .tenant = "outage", .id = id, .kind = BOOKS_JOB, .spec = "s", .spec_n = 1};
    assert_int_equal(books_admit(books, &req, on_admit, NULL, &err), -1);
    assert_int_equal(err.code, CL_E_UNAVAILABLE);
    assert_int_equal(books_end_unleased(books, "outage", id, &ended, on_verdict, NULL, &err), 0);
    for (int i = 0; i < 30; i++)
        cl_loop_turn(loop, 10 * CL_NS_PER_MS);
    assert_int_equal(got.calls, before);
    server_run(&server);
    uint64_t end = cl_now_ns() + 15 * CL_NS_PER_S;
    while (got.calls == before && cl_now_ns() < end)
        cl_loop_turn(loop, 10 * CL_NS_PER_MS);
    assert_int_equal(got.err.code, CL_OK);
    assert_int_equal(got.verdict, BOOKS_ACCEPTED);
}

static void test_a_server_weaker_than_configured_is_refused_with_the_setting(void **state)
{
    (void)state;
    struct server weak;
    assert_true(server_start(&weak, "everysec"));
    struct books *b;
    struct books_conf conf = {
        .target = weak.target, .durability = RDB_DUR_ALWAYS, .on_state = on_state};
    assert_int_equal(books_new(loop, &conf, &b, NULL), 0);
    for (int i = 0; i < 300 && seen != RDB_REFUSED; i++)
        cl_loop_turn(loop, 10 * CL_NS_PER_MS);
    assert_int_equal(seen, RDB_REFUSED);
    assert_non_null(strstr(seen_why, "appendfsync is 'everysec', want 'always'"));
    books_free(b);
    cl_loop_turn(loop, 0);
    server_stop(&weak);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_job_goes_from_admission_to_its_terminal_record),
        cmocka_unit_test(test_an_idempotency_key_replays_or_refuses_another_body),
        cmocka_unit_test(test_an_idempotency_key_is_free_again_when_nothing_was_made),
        cmocka_unit_test(test_rate_queue_and_quota_refuse_with_their_own_codes),
        cmocka_unit_test(test_admission_reserves_at_once_when_it_may_and_nobody_waits),
        cmocka_unit_test(test_an_expired_lease_is_reported_until_someone_decides),
        cmocka_unit_test(test_lists_are_paged_newest_first_and_filtered),
        cmocka_unit_test(test_an_end_is_told_again_until_the_log_has_it),
        cmocka_unit_test(test_cancel_marks_a_queued_job_so_that_it_is_not_reserved),
        cmocka_unit_test(test_keys_live_in_their_tenant_and_go_with_it),
        cmocka_unit_test(test_workers_tokens_and_audit_heads_are_kept),
        cmocka_unit_test(test_bad_arguments_are_refused_before_they_are_sent),
        cmocka_unit_test(test_an_outage_delays_calls_that_may_wait_and_refuses_the_others),
        cmocka_unit_test(test_a_server_weaker_than_configured_is_refused_with_the_setting),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
