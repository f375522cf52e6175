/* tests/sim/policy/test_dispatch.c - tenants, their limits and one fair queue in a made-up world:
 * jobs arrive in bursts, workers are small and die, time is a counter.
 *
 * The world does with policy/ what the scheduler does: a rate decides who may come (GCRA), the
 * queue who is next, the quota who may go, a lease ends by its job or by its worker's death.
 * It checks at every step: no limit is passed, nobody starves who could go, equal tenants that
 * wait are served in turns, and at the end each job has ended once and the books are empty.
 *
 * usage: test_dispatch [SEED]   one world, told step by step
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/conf.h"
#include "base/id.h"
#include "policy/fairq.h"
#include "policy/quota.h"

enum {
    TENANTS = 5,
    WORKERS = 3,
    JOBS = 600,
    STEPS = 1000, /* while jobs come */
    STEP_US = 1000,
    PERIOD_MS = 500,
    SEEDS = 100,
    REQUEUES_MAX = 3, /* attempts of a job whose worker died */
};

enum job_state { JOB_NONE, JOB_QUEUED, JOB_RUNNING, JOB_ENDED, JOB_LOST };

struct job {
    struct fairq_item item;
    enum job_state state;
    int tenant, worker, attempts;
    uint64_t begun_us, ends_us;
    struct quota_need need;
};

struct tenant {
    char name[8];
    struct quota_limits limits;
    struct quota_usage usage;
    uint64_t tat_us, interval_us, burst;
    uint64_t came_us[64]; /* when its last arrivals were let in: the oracle of the rate */
    size_t came;
};

struct worker {
    int free;
    bool is_alive;
    uint64_t back_us;
};

struct world {
    uint64_t seed, now_us;
    struct fairq *queue;
    struct tenant tenants[TENANTS];
    struct worker workers[WORKERS];
    struct job jobs[JOBS];
    size_t n_jobs;
    long turns[TENANTS][TENANTS]; /* dispatches of i since i and j both wait and may go */
    size_t dispatched, requeued, refused, lost;
    bool is_told;
};

static uint32_t chance(uint32_t below)
{
    uint32_t r;
    cl_random(&r, sizeof r);
    return r % below;
}

#define TELL(w, ...) ((w)->is_told ? (void)printf(__VA_ARGS__) : (void)0)
#define HOLDS(w, cond) ((cond) ? (void)0 : broken(w, #cond))

static void broken(const struct world *w, const char *what)
{
    fail_msg("seed %" PRIu64 " at %" PRIu64 " us: %s", w->seed, w->now_us, what);
}

/* --- the world ------------------------------------------------------------------------------- */

static void make_tenant(struct tenant *t, int i)
{
    (void)snprintf(t->name, sizeof t->name, "t%d", i);
    t->limits = (struct quota_limits){.period_ms = PERIOD_MS};
    for (int d = 0; d < DIM_NR; d++)
        t->limits.dim[d] = 1 << 20;
    t->limits.dim[DIM_SANDBOXES] = 1 + chance(6);
    t->limits.dim[DIM_VCPU] = 1000 * (1 + chance(8));
    t->limits.dim[DIM_CPU] = 200 + chance(4000);
    t->interval_us = chance(3) ? 500 + chance(4000) : 0;
    t->burst = 1 + chance(20);
}

static void make_world(struct world *w, uint64_t seed)
{
    *w = (struct world){.seed = seed, .is_told = w->is_told};
    cl_test_seed_random(seed);
    assert_int_equal(fairq_new(TENANTS, JOBS, &w->queue, NULL), 0);
    for (int i = 0; i < TENANTS; i++) {
        make_tenant(&w->tenants[i], i);
        assert_int_equal(fairq_tenant_set(w->queue, w->tenants[i].name, 1, JOBS, NULL), 0);
    }
    for (int i = 0; i < WORKERS; i++)
        w->workers[i] = (struct worker){.free = 1 + (int)chance(4), .is_alive = true};
}

static struct tenant *tenant_of(struct world *w, const struct job *j)
{
    return &w->tenants[j->tenant];
}

/* Let in by the rate at most burst + span / interval calls in any span: what GCRA promises. */
static void check_rate(struct world *w, struct tenant *t)
{
    enum { KEPT = CL_COUNT(t->came_us) };
    t->came_us[t->came++ % KEPT] = w->now_us;
    for (size_t back = 1; t->interval_us && back < KEPT && back < t->came; back++) {
        uint64_t span = w->now_us - t->came_us[(t->came - 1 - back) % KEPT];
        HOLDS(w, back + 1 <= t->burst + 1 + span / t->interval_us);
    }
}

static void arrive(struct world *w)
{
    int who = (int)chance(TENANTS);
    struct tenant *t = &w->tenants[who];
    uint64_t retry_us = 0;
    if (w->n_jobs == JOBS)
        return;
    if (!gcra_step(&t->tat_us, w->now_us, t->interval_us, t->burst, &retry_us)) {
        uint64_t tat_us = t->tat_us;
        HOLDS(w, retry_us > 0);
        HOLDS(w, gcra_step(&tat_us, w->now_us + retry_us, t->interval_us, t->burst, &retry_us));
        w->refused++;
        return;
    }
    check_rate(w, t);
    struct job *j = &w->jobs[w->n_jobs++];
    *j = (struct job){.state = JOB_QUEUED, .tenant = who};
    j->need.dim[DIM_VCPU] = 250 * (1 + chance(4));
    j->need.dim[DIM_SANDBOXES] = 1;
    j->need.dim[DIM_CPU] = 1 + chance(100);
    fairq_item_init(&j->item, 1);
    assert_int_equal(fairq_push(w->queue, t->name, &j->item, NULL), 0);
}

/* --- dispatch and ends ------------------------------------------------------------------------ */

static struct worker *free_worker(struct world *w)
{
    for (int i = 0; i < WORKERS; i++) {
        if (w->workers[i].is_alive && w->workers[i].free > 0)
            return &w->workers[i];
    }
    return NULL;
}

static bool fits(struct world *w, const struct job *j)
{
    return quota_over(&tenant_of(w, j)->usage, &tenant_of(w, j)->limits, &j->need) == DIM_NR;
}

/* Equal tenants that both wait take turns; with the others the count begins anew. */
static void count_turn(struct world *w, int served, const bool *waits)
{
    for (int a = 0; a < TENANTS; a++) {
        for (int b = 0; b < TENANTS; b++) {
            if (!waits[a] || !waits[b])
                w->turns[a][b] = 0;
            else if (a == served && b != served)
                w->turns[a][b]++;
        }
    }
    for (int other = 0; other < TENANTS && served >= 0; other++)
        HOLDS(w, labs(w->turns[served][other] - w->turns[other][served]) <= 1);
}

static void waiting_tenants(const struct world *w, bool *ret)
{
    for (int t = 0; t < TENANTS; t++)
        ret[t] = fairq_tenant_count(w->queue, w->tenants[t].name) > 0;
}

/* Whom its quota stops is not in turn. */
static void leave_out_blocked(const struct world *w, bool *waits)
{
    for (int t = 0; t < TENANTS; t++)
        waits[t] = waits[t] && !fairq_is_blocked(w->queue, w->tenants[t].name);
}

/* The fairest job whose quota has room; who has none steps aside. */
static struct job *next_job(struct world *w)
{
    struct fairq_item *item;
    while ((item = fairq_pop(w->queue, NULL, NULL)) != NULL) {
        struct job *j = CL_CONTAINER(item, struct job, item);
        const char *name = tenant_of(w, j)->name;
        if (fits(w, j))
            return j;
        assert_int_equal(fairq_unpop(w->queue, name, item, NULL), 0);
        fairq_block(w->queue, name);
    }
    return NULL;
}

static bool dispatch(struct world *w)
{
    bool waits[TENANTS];
    waiting_tenants(w, waits);
    struct worker *on = free_worker(w);
    struct job *j = on ? next_job(w) : NULL;
    leave_out_blocked(w, waits);
    count_turn(w, j ? j->tenant : -1, waits);
    if (!j)
        return false;
    HOLDS(w, j->state == JOB_QUEUED);
    quota_take(&tenant_of(w, j)->usage, &j->need);
    on->free--;
    j->state = JOB_RUNNING;
    j->worker = (int)(on - w->workers);
    j->attempts++;
    j->begun_us = w->now_us;
    j->ends_us = w->now_us + STEP_US * (1 + chance(40));
    w->dispatched++;
    TELL(w, "%8" PRIu64 " job %td of %s runs on worker %d\n", w->now_us, j - w->jobs,
         tenant_of(w, j)->name, j->worker);
    return true;
}

static void settle(struct world *w, struct job *j)
{
    fairq_unblock(w->queue, tenant_of(w, j)->name);
    uint64_t burnt = quota_burnt_cpu_ms(&j->need, (w->now_us - j->begun_us) / 1000);
    quota_settle(&tenant_of(w, j)->usage, &j->need, burnt, 0);
    w->workers[j->worker].free++;
}

static void end_jobs(struct world *w)
{
    for (size_t i = 0; i < w->n_jobs; i++) {
        struct job *j = &w->jobs[i];
        if (j->state != JOB_RUNNING || j->ends_us > w->now_us)
            continue;
        settle(w, j);
        j->state = JOB_ENDED;
    }
}

/* Its jobs come back at the head of their tenants' queues, or are lost after REQUEUES_MAX. */
static void kill_worker(struct world *w, int dead)
{
    for (size_t i = 0; i < w->n_jobs; i++) {
        struct job *j = &w->jobs[i];
        if (j->state != JOB_RUNNING || j->worker != dead)
            continue;
        settle(w, j);
        j->state = j->attempts < REQUEUES_MAX ? JOB_QUEUED : JOB_LOST;
        w->lost += j->state == JOB_LOST;
        if (j->state == JOB_QUEUED) {
            w->requeued++;
            assert_int_equal(fairq_requeue(w->queue, tenant_of(w, j)->name, &j->item, NULL), 0);
        }
    }
    w->workers[dead].is_alive = false;
    w->workers[dead].back_us = w->now_us + STEP_US * (1 + chance(60));
    TELL(w, "%8" PRIu64 " worker %d dies\n", w->now_us, dead);
}

static void workers_live_and_die(struct world *w)
{
    for (int i = 0; i < WORKERS; i++) {
        if (!w->workers[i].is_alive && w->workers[i].back_us <= w->now_us)
            w->workers[i].is_alive = true;
        else if (w->workers[i].is_alive && chance(200) == 0)
            kill_worker(w, i);
    }
}

static void check_books(struct world *w)
{
    for (int i = 0; i < TENANTS; i++) {
        struct tenant *t = &w->tenants[i];
        struct quota_usage sum = {0};
        for (size_t j = 0; j < w->n_jobs; j++) {
            if (w->jobs[j].tenant == i && w->jobs[j].state == JOB_RUNNING)
                quota_take(&sum, &w->jobs[j].need);
        }
        for (int d = 0; d < DIM_NR; d++) {
            HOLDS(w, t->usage.held[d] == sum.held[d]);
            HOLDS(w, t->usage.held[d] <= t->limits.dim[d]);
        }
    }
    for (int i = 0; i < WORKERS; i++)
        HOLDS(w, w->workers[i].free >= 0);
}

/* A new period: what was spent in the last one stops nobody any more. */
static void roll(struct world *w)
{
    for (int i = 0; i < TENANTS; i++) {
        struct tenant *t = &w->tenants[i];
        uint64_t before = t->usage.period;
        quota_roll(&t->usage, &t->limits, w->now_us / 1000);
        if (t->usage.period != before)
            fairq_unblock(w->queue, t->name);
    }
}

static void step(struct world *w, bool may_arrive)
{
    w->now_us += STEP_US;
    roll(w);
    end_jobs(w);
    workers_live_and_die(w);
    for (uint32_t n = may_arrive ? chance(4) : 0; n > 0; n--)
        arrive(w);
    while (dispatch(w)) {
    }
    check_books(w);
}

static size_t count(const struct world *w, enum job_state state)
{
    size_t n = 0;
    for (size_t i = 0; i < w->n_jobs; i++)
        n += w->jobs[i].state == state;
    return n;
}

/* Nobody comes any more.  While jobs wait, one goes within two periods: nobody starves. */
static void drain(struct world *w)
{
    uint64_t last_us = w->now_us;
    for (size_t before = w->dispatched; count(w, JOB_QUEUED) + count(w, JOB_RUNNING) > 0;) {
        step(w, false);
        if (before != w->dispatched || count(w, JOB_QUEUED) == 0)
            last_us = w->now_us;
        before = w->dispatched;
        HOLDS(w, w->now_us - last_us <= UINT64_C(2000) * PERIOD_MS);
    }
}

static void live(struct world *w, uint64_t seed)
{
    make_world(w, seed);
    for (int i = 0; i < STEPS; i++)
        step(w, true);
    drain(w);
    HOLDS(w, count(w, JOB_ENDED) + count(w, JOB_LOST) == w->n_jobs);
    HOLDS(w, fairq_count(w->queue) == 0);
    HOLDS(w, w->dispatched == w->n_jobs + w->requeued);
    check_books(w);
    fairq_free(w->queue);
    cl_test_seed_random(0);
}

static struct world world;

static void test_limits_hold_turns_are_kept_and_every_job_ends_once(void **state)
{
    (void)state;
    size_t jobs = 0, requeued = 0, refused = 0, lost = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        live(&world, seed);
        jobs += world.n_jobs;
        requeued += world.requeued;
        refused += world.refused;
        lost += world.lost;
    }
    printf("%d worlds: %zu jobs, %zu requeued, %zu lost, %zu refused by the rate\n", SEEDS, jobs,
           requeued, lost, refused);
    assert_true(requeued > 1000 && refused > 1000 && lost > 0); /* else it shows nothing */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits_hold_turns_are_kept_and_every_job_ends_once),
    };
    uint64_t seed;
    world.is_told = argc > 1;
    if (argc < 2)
        return cmocka_run_group_tests(tests, NULL, NULL);
    if (cl_parse_u64(argv[1], &seed, NULL) < 0)
        return 2;
    live(&world, seed);
    return 0;
}
