/* tests/integration/redis/test_lead.c - who leads a group of schedulers, and that the books refuse
 * what others say, against a real Redis. */
#include "redis/books_lead.h"
#include "tests/integration/redis/calls.h"

enum { TTL_MS = 1500, LONG_MS = 60000 };

static struct books_leader leader;
static struct books_scheduler listed[8];
static char about[8][16];
static int deposed; /* how often the books said so */

static void on_leader(const struct books_leader *l, const struct cl_err *err, void *arg)
{
    (void)arg;
    leader = l ? *l : (struct books_leader){0};
    note(err);
}

static void on_schedulers(const struct books_scheduler *rows, size_t n, const struct cl_err *err,
                          void *arg)
{
    (void)arg;
    got.n = n;
    for (size_t i = 0; i < n && i < CL_COUNT(listed); i++) {
        listed[i] = rows[i];
        (void)snprintf(about[i], sizeof about[i], "%.*s", (int)rows[i].about_n,
                       (const char *)rows[i].about);
    }
    note(err);
}

static void on_deposed(void *arg)
{
    (void)arg;
    deposed++;
}

/* A scheduler of the group "test": a connection of its own. */
static struct books *join(const char *group)
{
    struct books *b;
    struct books_conf conf = {.target = server.target,
                              .durability = RDB_DUR_ALWAYS,
                              .group = group,
                              .on_deposed = on_deposed};
    assert_int_equal(books_new(loop, &conf, &b, NULL), 0);
    for (int i = 0; i < 500 && !books_is_ready(b); i++)
        cl_loop_turn(loop, 20 * CL_NS_PER_MS);
    assert_true(books_is_ready(b));
    return b;
}

static void ask(struct books *b, const char *id, uint64_t ttl_ms, uint64_t dead)
{
    const struct books_claim claim = {
        .id = id, .dead = dead, .ttl_ms = ttl_ms, .proof = id, .about = "about", .about_n = 5};
    wait_answer(books_lead(b, &claim, on_leader, NULL, NULL));
    assert_int_equal(got.err.code, CL_OK);
}

static void expect_lead(struct books *b, const char *id, uint64_t ttl_ms, uint64_t epoch)
{
    ask(b, id, ttl_ms, 0);
    assert_true(leader.is_us);
    assert_int_equal(leader.epoch, epoch);
    assert_string_equal(leader.id, id);
}

static void expect_other(struct books *b, const char *id, const char *other, uint64_t epoch)
{
    ask(b, id, LONG_MS, 0);
    assert_false(leader.is_us);
    assert_int_equal(leader.epoch, epoch);
    assert_string_equal(leader.id, other);
    assert_string_equal(leader.proof, other);
}

static void put_head(struct books *b, uint64_t seq)
{
    struct books_head head = {.host = "a", .seq = seq};
    memset(head.hash, '0', sizeof head.hash - 1);
    wait_answer(books_audit_head_set(b, &head, on_done, NULL, NULL));
}

static void expect_counts(struct books *b, uint64_t seq)
{
    put_head(b, seq);
    assert_int_equal(got.err.code, CL_OK);
}

/* Nothing that it says counts. */
static void expect_refused(struct books *b)
{
    int before = deposed;
    put_head(b, 1000);
    assert_int_equal(got.err.code, CL_E_UNAVAILABLE);
    assert_non_null(strstr(got.err.text, "another scheduler leads"));
    assert_int_equal(deposed, before + 1);
    wait_answer(books_tenant_delete(b, "lead", on_done, NULL, NULL));
    assert_int_equal(got.err.code, CL_E_UNAVAILABLE);
}

static void close_both(struct books *a, struct books *b)
{
    books_free(a);
    books_free(b);
    cl_loop_turn(loop, 0);
}

static void test_one_leads_and_the_books_refuse_the_others(void **state)
{
    (void)state;
    struct books *a = join("one"), *b = join("one");
    expect_counts(a, 1); /* before anybody leads */
    expect_lead(a, "sch_a", LONG_MS, 1);
    uint64_t since = leader.since_ms;
    expect_other(b, "sch_b", "sch_a", 1);
    expect_refused(b); /* it has no term */
    expect_counts(a, 2);
    expect_lead(a, "sch_a", LONG_MS, 1); /* again: the same term goes on */
    assert_int_equal(leader.since_ms, since);
    put_tenant("lead", 10, 0, 100); /* of another group, "main", which nobody leads */
    close_both(a, b);
}

static void test_who_resigns_is_followed_at_once(void **state)
{
    (void)state;
    struct books *a = join("two"), *b = join("two");
    expect_lead(a, "sch_a", LONG_MS, 1);
    wait_answer(books_resign(b, "sch_b", on_done, NULL, NULL)); /* not its to give */
    expect_other(b, "sch_b", "sch_a", 1);
    wait_answer(books_resign(a, "sch_a", on_done, NULL, NULL));
    assert_int_equal(got.err.code, CL_OK);
    expect_counts(a, 1); /* until another begins */
    expect_lead(b, "sch_b", LONG_MS, 2);
    expect_refused(a);
    expect_other(a, "sch_a", "sch_b", 2);
    close_both(a, b);
}

static void test_who_is_dead_is_followed_at_once(void **state)
{
    (void)state;
    struct books *a = join("three"), *b = join("three");
    expect_lead(a, "sch_a", LONG_MS, 1);
    ask(b, "sch_b", LONG_MS, 7); /* another's death */
    assert_false(leader.is_us);
    ask(b, "sch_b", LONG_MS, 1);
    assert_true(leader.is_us);
    assert_int_equal(leader.epoch, 2);
    ask(a, "sch_a", LONG_MS, 1); /* the epoch that was dead has nothing to do with this one */
    assert_false(leader.is_us);
    expect_refused(a);
    close_both(a, b);
}

static void test_who_is_silent_is_followed_when_its_time_is_over(void **state)
{
    (void)state;
    struct books *a = join("four"), *b = join("four");
    expect_lead(a, "sch_a", TTL_MS, 1);
    expect_other(b, "sch_b", "sch_a", 1);
    usleep(2 * TTL_MS * 1000);
    expect_counts(a, 1);                /* nobody has begun another term: */
    expect_lead(a, "sch_a", TTL_MS, 1); /* it goes on */
    expect_other(b, "sch_b", "sch_a", 1);
    usleep(2 * TTL_MS * 1000);
    expect_lead(b, "sch_b", LONG_MS, 2);
    expect_refused(a);
    ask(a, "sch_a", LONG_MS, 0); /* as leader, late */
    assert_false(leader.is_us);
    expect_counts(b, 2);
    close_both(a, b);
}

/* Nobody waits for its place: it ends, also when it asks once more. */
static void test_who_led_does_not_stand_by(void **state)
{
    (void)state;
    struct books *a = join("eight"), *b = join("eight");
    expect_lead(a, "sch_a", LONG_MS, 1);
    ask(b, "sch_b", LONG_MS, 1);
    assert_true(leader.is_us);
    assert_int_equal(leader.others, 0);
    expect_other(a, "sch_a", "sch_b", 2);
    expect_lead(b, "sch_b", LONG_MS, 2);
    assert_int_equal(leader.others, 0);
    wait_answer(books_scheduler_list(b, on_schedulers, NULL, NULL));
    assert_int_equal(got.n, 1);
    close_both(a, b);
}

/* The answer to a first claim may be lost: the same process asks again. */
static void test_a_claim_may_be_repeated(void **state)
{
    (void)state;
    struct books *a = join("five"), *b = join("five");
    expect_lead(a, "sch_a", LONG_MS, 1);
    expect_lead(b, "sch_a", LONG_MS, 1); /* on another connection, without a term */
    expect_counts(b, 1);
    close_both(a, b);
}

static void test_the_list_has_who_asked_and_who_leads(void **state)
{
    (void)state;
    struct books *a = join("six"), *b = join("six");
    wait_answer(books_scheduler_list(a, on_schedulers, NULL, NULL));
    assert_int_equal(got.n, 0);
    expect_lead(a, "sch_a", LONG_MS, 1);
    assert_int_equal(leader.others, 0);
    expect_other(b, "sch_b", "sch_a", 1);
    assert_int_equal(leader.others, 1);
    expect_lead(a, "sch_a", LONG_MS, 1);
    assert_int_equal(leader.others, 1);
    wait_answer(books_scheduler_list(b, on_schedulers, NULL, NULL));
    assert_int_equal(got.n, 2);
    size_t first = strcmp(listed[0].id, "sch_a") == 0 ? 0 : 1;
    assert_string_equal(listed[first].id, "sch_a");
    assert_string_equal(listed[1 - first].id, "sch_b");
    assert_true(listed[first].leads && !listed[1 - first].leads);
    assert_true(listed[first].since_ms > 0 && listed[1 - first].since_ms == 0);
    for (size_t i = 0; i < 2; i++) {
        assert_true(listed[i].seen_ms > 0 && listed[i].seen_ms <= listed[i].now_ms);
        assert_string_equal(about[i], "about");
    }
    wait_answer(books_resign(b, "sch_b", on_done, NULL, NULL));
    wait_answer(books_scheduler_list(a, on_schedulers, NULL, NULL));
    assert_int_equal(got.n, 1);
    close_both(a, b);
}

static void test_bad_claims_are_refused(void **state)
{
    (void)state;
    static char big[BOOKS_ABOUT_MAX + 1];
    struct cl_err err = {0};
    const struct books_claim good = {.id = "sch_a", .ttl_ms = 1, .proof = "p"};
    struct books_claim bad[] = {good, good, good, good};
    bad[0].id = "";
    bad[1].id = "0123456789012345678901234567890123456789012345678901234567890123456789";
    bad[2].proof = "";
    bad[3].about = big;
    bad[3].about_n = sizeof big;
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        assert_int_equal(books_lead(books, &bad[i], on_leader, NULL, &err), -1);
        assert_int_equal(err.code, CL_E_INVALID);
    }
}

/* The books are lost, the leader is not: it leads what there is. */
static void test_a_leader_outlives_the_loss_of_the_books(void **state)
{
    (void)state;
    char command[160];
    struct books *a = join("seven"), *b = join("seven");
    expect_lead(a, "sch_a", LONG_MS, 1);
    (void)snprintf(command, sizeof command, "redis-cli -s %s/redis.sock flushall > /dev/null",
                   server.dir);
    assert_int_equal(system(command), 0);
    expect_refused(a);
    expect_lead(a, "sch_a", LONG_MS, 2); /* above every term that there was */
    expect_counts(a, 1);
    expect_other(b, "sch_b", "sch_a", 2);
    close_both(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_leads_and_the_books_refuse_the_others),
        cmocka_unit_test(test_who_resigns_is_followed_at_once),
        cmocka_unit_test(test_who_is_dead_is_followed_at_once),
        cmocka_unit_test(test_who_is_silent_is_followed_when_its_time_is_over),
        cmocka_unit_test(test_who_led_does_not_stand_by),
        cmocka_unit_test(test_a_claim_may_be_repeated),
        cmocka_unit_test(test_the_list_has_who_asked_and_who_leads),
        cmocka_unit_test(test_bad_claims_are_refused),
        cmocka_unit_test(test_a_leader_outlives_the_loss_of_the_books),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
