/* worker/machine_copy_io.c - a machine is copied while it lives; see worker/machine.h.
 *
 * Its agent is held first, so that nothing is on its way over the channel: what a copy has of that
 * is the agent's end only.  Then its monitor writes what it is, its disk is copied while it stands
 * still, and it goes on.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/own.h"
#include "observability/log.h"
#include "worker/disk.h"
#include "worker/machine_priv.h"
#include "worker/vm_process.h"

static void tell(struct cl_list *copies, struct seed *seed, const struct cl_err *err)
{
    while (!cl_list_empty(copies)) {
        struct machine_copy *c = CL_LIST_ENTRY(copies->next, struct machine_copy, link);
        cl_list_unlink(&c->link);
        c->done(c->arg, seed, err);
    }
}

void machine_copy_over(struct machine *m, const struct cl_err *why)
{
    tell(&m->copies, NULL, why);
    tell(&m->next_copies, NULL, why);
}

/* --- moments that have names ------------------------------------------------------------------ */

static void name(char to[static MACHINE_MOMENT], const char *moment)
{
    (void)snprintf(to, MACHINE_MOMENT, "%s", moment);
}

void machine_forget_moment(void *machine)
{
    struct machine *m = machine;
    cl_timer_stop(&m->kept_end);
    m->host->kept -= m->kept_seed != NULL;
    seed_unref(m->kept_seed);
    m->kept_seed = NULL;
}

static void keep_seed(struct machine *m, struct seed *seed)
{
    machine_forget_moment(m);
    if (m->host->kept >= MACHINE_KEPT_MAX)
        return;
    m->host->kept++;
    m->kept_seed = seed_ref(seed);
    cl_timer_start(&m->kept_end, MACHINE_KEPT_S * CL_NS_PER_S);
}

static void give_kept(struct machine *m, const struct machine_copy *copy)
{
    cl_timer_start(&m->kept_end, MACHINE_KEPT_S * CL_NS_PER_S);
    copy->done(copy->arg, m->kept_seed, NULL);
}

/* One that there is no room for is over at once. */
static void keep_moment(struct machine *m, struct seed *seed)
{
    if (!m->now[0])
        return;
    name(m->past[m->past_at++ % MACHINE_PAST], m->kept);
    name(m->kept, m->now);
    keep_seed(m, seed);
}

static bool is_over(const struct machine *m, const char *moment)
{
    for (size_t i = 0; i < CL_COUNT(m->past); i++)
        if (strcmp(m->past[i], moment) == 0)
            return true;
    return strcmp(m->kept, moment) == 0;
}

/* Those whom the copy waits with; NULL when it cannot be of that moment. */
static struct cl_list *find_batch(struct machine *m, const char *moment, struct cl_err *err)
{
    if (!moment[0])
        return &m->next_copies;
    if (strcmp(moment, m->now) == 0)
        return &m->copies;
    if (is_over(m, moment))
        (void)cl_fail(err, CL_E_UNAVAILABLE, 0, "the moment '%s' is over: fork another", moment);
    else if (m->next[0] && strcmp(moment, m->next) != 0)
        (void)cl_fail(err, CL_E_UNAVAILABLE, 0, "it is copied for others; try again in a moment");
    else {
        name(m->next, moment);
        return &m->next_copies;
    }
    return NULL;
}

/* --- a seed ----------------------------------------------------------------------------------- */

/* Ask its agent to be still, for those who wait in next_copies. */
static int begin(struct machine *m, struct cl_err *err)
{
    if (guest_hold(m->guest, err) < 0)
        return -1;
    m->state = MACHINE_HOLDING;
    cl_timer_stop(&m->clock);
    cl_timer_start(&m->timeout, m->host->start_timeout_ns);
    CL_LIST_FOREACH (node, &m->next_copies) {
        cl_list_unlink(node);
        cl_list_push(&m->copies, node);
    }
    name(m->now, m->next);
    name(m->next, "");
    return 0;
}

static void give_up_next(struct machine *m, const struct cl_err *why)
{
    name(m->next, "");
    tell(&m->next_copies, NULL, why);
}

/* It goes on, with a seed or without. */
static void finish(struct machine *m, const struct cl_err *why)
{
    struct cl_err err = {0};
    struct seed *seed = m->seed;
    bool was_frozen = m->state == MACHINE_COPYING;
    m->seed = NULL;
    disk_copy_free(m->disk_copy);
    m->disk_copy = NULL;
    if ((was_frozen && machine_driver(m)->resume(m->vm, &err) < 0) ||
        guest_release(m->guest, &err) < 0) {
        seed_unref(seed);
        machine_fail(m, &err); /* those who wait are told at its end */
        return;
    }
    /* Refused while it holds more than that: then the limit stays. */
    if (was_frozen)
        (void)!machine_limit_cgroup(m, machine_copies(m), NULL);
    machine_goes_on(m);
    log_event(LOG_GUEST_COPIED, "vm=%s unit=%s still_us=%llu text='%s'", m->saved.name,
              m->saved.unit_id,
              (unsigned long long)(was_frozen ? (cl_now_ns() - m->frozen_ns) / CL_NS_PER_US : 0),
              why ? why->text : "");
    if (!why)
        keep_moment(m, seed);
    name(m->now, "");
    tell(&m->copies, why ? NULL : seed, why);
    seed_unref(seed);
    if (m->state == MACHINE_CLAIMED && !cl_list_empty(&m->next_copies) && begin(m, &err) < 0)
        give_up_next(m, &err);
}

static void on_disk(void *arg, int fd, const struct cl_err *err)
{
    struct machine *m = arg;
    m->seed->disk = fd;
    finish(m, err);
}

static void on_saved(void *arg, const struct cl_err *err)
{
    struct machine *m = arg;
    struct cl_err why = {0};
    if (m->state != MACHINE_COPYING)
        return; /* it ends */
    if (err)
        why = *err;
    if (err || rest_seal(m->seed->rest, &why) < 0) {
        finish(m, &why);
        return;
    }
    if (m->body.disk < 0) {
        finish(m, NULL);
        return;
    }
    cl_timer_stop(&m->timeout); /* the rest is the host's work, and as long as its disk */
    m->seed->disk_bytes = m->body.disk_bytes;
    const struct disk_copy_spec spec = {m->host->state_dir, m->body.disk, on_disk, m};
    if (disk_copy_start(m->host->loop, &spec, &m->disk_copy, &why) < 0)
        finish(m, &why);
}

void machine_copies_held(struct machine *m, const struct guest_past *past)
{
    struct cl_err why = {0};
    if (cl_list_empty(&m->copies)) {
        (void)cl_fail(&why, CL_E_CANCELLED, 0, "nobody waits for it any more");
        finish(m, &why);
        return;
    }
    struct rest *rest;
    if (rest_new(m->host->loop, machine_rest_most(m), &rest, &why) < 0 ||
        seed_new(m->template, rest, &m->seed, &why) < 0) {
        finish(m, &why);
        return;
    }
    m->seed->past = *past;
    if (machine_limit_cgroup(m, 2 * machine_copies(m), &why) < 0 ||
        machine_driver(m)->save(m->vm, rest_files(m->seed->rest), on_saved, m, &why) < 0) {
        finish(m, &why);
        return;
    }
    m->state = MACHINE_COPYING;
    m->frozen_ns = cl_now_ns();
    guest_set_resting(m->guest, true);
    machine_limit_time(m);
}

void machine_copy_late(struct machine *m)
{
    struct cl_err why = {0};
    (void)cl_fail(&why, CL_E_GUEST, 0, "its agent did not come to rest in time");
    finish(m, &why);
}

/* --- of one at rest -----------------------------------------------------------------------------
 */

static void finish_at_rest(struct machine *m, const struct cl_err *why)
{
    struct seed *seed = m->seed;
    m->seed = NULL;
    disk_copy_free(m->disk_copy);
    m->disk_copy = NULL;
    if (!why && m->for_good)
        keep_seed(m, seed);
    tell(&m->copies, why ? NULL : seed, why);
    seed_unref(seed);
}

static void on_rest_disk(void *arg, int fd, const struct cl_err *err)
{
    struct machine *m = arg;
    m->seed->disk = fd;
    finish_at_rest(m, err);
}

static void on_rest_loaded(void *arg, const struct cl_err *err)
{
    struct machine *m = arg;
    struct cl_err why = {0};
    if (m->state != MACHINE_AT_REST)
        return; /* it ends */
    if (err || m->body.disk < 0) {
        finish_at_rest(m, err);
        return;
    }
    m->seed->disk_bytes = m->body.disk_bytes;
    if (m->for_good) {
        m->seed->lends = true;
        finish_at_rest(m,
                       vm_reopen(m->body.disk, O_RDONLY, &m->seed->disk, &why) < 0 ? &why : NULL);
        return;
    }
    const struct disk_copy_spec spec = {m->host->state_dir, m->body.disk, on_rest_disk, m};
    if (disk_copy_start(m->host->loop, &spec, &m->disk_copy, &why) < 0)
        finish_at_rest(m, &why);
}

static void on_rest_template(void *arg, const struct cl_err *err)
{
    struct machine *m = arg;
    struct cl_err why = {0};
    if (err || rest_load(m->seed->rest, on_rest_loaded, m, &why) < 0)
        finish_at_rest(m, err ? err : &why);
}

/* Whatever is asked for while it rests is of that moment. */
static int name_rest(struct machine *m, const char *moment, struct cl_err *err)
{
    if (!moment[0] || (m->kept_at_rest && strcmp(moment, m->kept) == 0))
        return 0;
    if (is_over(m, moment))
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "the moment '%s' is over: fork another", moment);
    name(m->past[m->past_at++ % MACHINE_PAST], m->kept);
    name(m->kept, moment);
    m->kept_at_rest = true;
    return 0;
}

static int begin_at_rest(struct machine *m, struct cl_err *err)
{
    struct rest *rest;
    if (rest_share(m->rest, m->host->loop, &rest, err) < 0 ||
        seed_new(m->template, rest, &m->seed, err) < 0)
        return -1;
    m->seed->past = *m->rest_past;
    m->seed->is_elsewhere = m->is_restored;
    m->filing.done = on_rest_template;
    m->filing.arg = m;
    if (template_load(m->template, &m->filing, err) == 0)
        return 0;
    seed_unref(m->seed);
    m->seed = NULL;
    return -1;
}

/* What it left stays as it is, and is loaded once for all who ask meanwhile; if it never wakes,
 * also for those who ask soon after. */
static int copy_at_rest(struct machine *m, struct machine_copy *copy, struct cl_err *err)
{
    if (!m->is_held || !m->rest_past)
        return cl_fail(err, CL_E_STATE, 0, "it was paused without its agent: resume it first");
    if (name_rest(m, copy->moment, err) < 0)
        return -1;
    if (m->for_good && m->kept_seed) {
        give_kept(m, copy);
        return 0;
    }
    cl_list_push(&m->copies, &copy->link);
    if (m->seed || begin_at_rest(m, err) == 0)
        return 0;
    cl_list_unlink(&copy->link);
    return -1;
}

int machine_copy(struct machine *m, struct machine_copy *copy, struct cl_err *err)
{
    if (!machine_driver(m)->save)
        return cl_fail(err, CL_E_UNIMPL, 0, "VMs of the driver '%s' cannot be forked",
                       machine_driver(m)->name);
    if (!m->template->holds)
        return cl_fail(err, CL_E_UNIMPL, 0,
                       "the template's agent is older than forks: build the template again");
    if (m->broken)
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "the VM is ending");
    if (m->state == MACHINE_AT_REST)
        return copy_at_rest(m, copy, err);
    bool is_free = m->state == MACHINE_CLAIMED;
    if (m->rest_done || (!is_free && m->state != MACHINE_HOLDING && m->state != MACHINE_COPYING))
        return cl_fail(err, CL_E_STATE, 0, "it does not run");
    if (copy->moment[0] && m->kept_seed && strcmp(copy->moment, m->kept) == 0) {
        give_kept(m, copy);
        return 0;
    }
    struct cl_list *batch = find_batch(m, copy->moment, err);
    if (!batch)
        return -1;
    cl_list_push(batch, &copy->link);
    if (is_free && begin(m, err) < 0) {
        cl_list_unlink(&copy->link);
        name(m->next, "");
        return -1;
    }
    return 0;
}

/* --- a copy that rests --------------------------------------------------------------------------
 */

static void on_laid_down(void *arg, const struct cl_err *err)
{
    struct machine *m = arg;
    if (err) {
        machine_fail(m, err);
        return;
    }
    m->state = MACHINE_AT_REST;
    m->events.on_ready(m->arg);
}

static int take_seed(struct machine *m, const struct seed *seed, int disk, struct cl_err *err)
{
    m->state = MACHINE_STORING;
    m->is_held = true;
    m->is_restored = seed->is_elsewhere;
    m->saved.code_started = 1;
    m->rest_past = cl_zalloc(sizeof *m->rest_past);
    int rc = vm_body_open_copy(&m->body, disk, seed->disk_bytes, err);
    if (rc == 0 && !m->rest_past)
        rc = cl_fail(err, CL_E_NOMEM, 0, "machine");
    if (rc == 0)
        rc = rest_copy(seed->rest, m->host->loop, &m->rest, err);
    if (rc < 0)
        return -1;
    *m->rest_past = seed->past;
    return rest_store(m->rest, m->host->state_dir, on_laid_down, m, err);
}

int machine_lay_down(struct machine_host *host, const struct seed_share *of,
                     const struct machine_events *events, void *arg, struct machine **ret_machine,
                     struct cl_err *err)
{
    const struct birth b = {host, of->seed->template, VM_CLONE, false, NULL, -1, events, arg};
    struct machine *m;
    int disk = of->disk;
    if (machine_conceive(&b, &m, err) < 0) {
        cl_closep(&disk);
        return -1;
    }
    if (take_seed(m, of->seed, disk, err) < 0 ||
        vm_state_save(host->state_dir, &m->saved, err) < 0 || /* of its cgroups */
        machine_open_guest(m, of->seed->past.next_stream, err) < 0) {
        machine_abort(m, err);
        return -1;
    }
    guest_take_up(m->guest, m->rest_past);
    guest_set_resting(m->guest, true);
    *ret_machine = m;
    return 0;
}

int machine_claim_at_rest(struct machine *m, const struct machine_claim *claim, struct cl_err *err)
{
    CL_ASSERT(m->state == MACHINE_AT_REST);
    return machine_take_claim(m, claim, err) < 0
               ? -1
               : vm_state_save(m->host->state_dir, &m->saved, err);
}
