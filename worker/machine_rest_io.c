/* worker/machine_rest_io.c - a machine to rest and back; see worker/machine.h.
 *
 * Its agent is held first, as for a copy, so that what it left needs no channel of this process.
 * One that is older than that, or does not answer, is put to rest all the same, and not kept.
 */
#include "base/mem.h"
#include "worker/machine_priv.h"

enum {
    REST_STATE_MIB = 64, /* of devices, with room */
    REST_HOLD_S = 10,    /* for its agent to come to rest */
    REST_MIB_MS = 10,    /* to write or read one of memory, on a host that is slow or busy */
};

void machine_limit_time(struct machine *m)
{
    uint64_t of_memory = (uint64_t)m->template->memory_mib * REST_MIB_MS * CL_NS_PER_MS;
    cl_timer_start(&m->timeout, m->host->start_timeout_ns + of_memory);
}

uint64_t machine_rest_most(const struct machine *m)
{
    return (m->template->memory_mib + REST_STATE_MIB) * CL_MIB;
}

static void tell_rest(struct machine *m, const struct cl_err *err)
{
    vm_done_fn *done = m->rest_done;
    m->rest_done = NULL;
    if (done)
        done(m->rest_arg, err);
}

void machine_goes_on(struct machine *m)
{
    m->state = MACHINE_CLAIMED;
    cl_timer_stop(&m->timeout);
    guest_set_resting(m->guest, false);
    m->clock_asked_ns = 0;
    machine_check_clock(m);
    machine_usage_goes_on(m);
}

/* Nobody else could let it go on any more; its agent hears of us first of all. */
static int become_claimed_again(struct machine *m, struct cl_err *err)
{
    int rc = m->is_restored ? guest_release_copy(m->guest, m->rest_past, err)
             : m->is_held   ? guest_release(m->guest, err)
                            : 0;
    m->is_restored = m->is_held = false;
    rest_free(m->rest);
    m->rest = NULL;
    if (rc == 0)
        machine_goes_on(m);
    return rc;
}

/* The way to rest ends where it began. */
static void stay_awake(struct machine *m, const struct cl_err *why)
{
    struct cl_err err = {0}, reason = *why;
    if (machine_driver(m)->resume(m->vm, &err) < 0 || become_claimed_again(m, &err) < 0) {
        machine_fail(m, &err);
        return;
    }
    /* Refused while it holds more than that: then the limit stays. */
    (void)!machine_limit_cgroup(m, machine_copies(m), NULL);
    tell_rest(m, &reason);
}

static void on_stored(void *arg, const struct cl_err *err)
{
    struct machine *m = arg;
    m->is_stored = true;
    if (err)
        m->rest_why = *err;
    machine_end_if_quiet(m);
}

static void on_saved(void *arg, const struct cl_err *err)
{
    struct machine *m = arg;
    struct cl_err why = {0};
    struct vm_stats stats;
    if (m->state != MACHINE_SAVING)
        return; /* it ends */
    cl_timer_stop(&m->timeout);
    if (err)
        why = *err;
    if (err || rest_seal(m->rest, &why) < 0) {
        stay_awake(m, &why);
        return;
    }
    if (machine_driver(m)->stats(m->vm, &stats, NULL) == 0)
        m->spent_cpu_ns += stats.cpu_ns;
    m->state = MACHINE_STORING;
    m->is_stored = false;
    if (rest_store(m->rest, m->host->state_dir, on_stored, m, &why) < 0)
        stay_awake(m, &why);
    else
        machine_driver(m)->stop(m->vm);
}

/* Its monitor is asked; 0, or it is CLAIMED as before. */
static int begin_saving(struct machine *m, struct cl_err *err)
{
    if (rest_new(m->host->loop, machine_rest_most(m), &m->rest, err) < 0)
        return -1;
    if (machine_limit_cgroup(m, 2 * machine_copies(m), err) < 0 ||
        machine_driver(m)->save(m->vm, rest_files(m->rest), on_saved, m, err) < 0) {
        rest_free(m->rest);
        m->rest = NULL;
        return -1;
    }
    machine_forget_moment(m);
    m->state = MACHINE_SAVING;
    guest_set_resting(m->guest, true);
    machine_limit_time(m);
    return 0;
}

/* The way to rest ends before its VM was frozen. */
static void keep_on(struct machine *m, const struct cl_err *why)
{
    struct cl_err err = {0};
    if (become_claimed_again(m, &err) < 0)
        machine_fail(m, &err);
    else
        tell_rest(m, why);
}

void machine_rests_held(struct machine *m, const struct guest_past *past)
{
    struct cl_err why = {0};
    m->is_held = true;
    if (!m->rest_past)
        m->rest_past = cl_zalloc(sizeof *m->rest_past);
    if (m->rest_past)
        *m->rest_past = *past;
    if (begin_saving(m, &why) < 0)
        keep_on(m, &why);
}

/* Whether a sandbox can be paused is not for its guest to say. */
void machine_rests_unheld(struct machine *m)
{
    struct cl_err why = {0};
    if (guest_release(m->guest, &why) < 0)
        machine_fail(m, &why);
    else if (begin_saving(m, &why) < 0)
        keep_on(m, &why);
}

int machine_rest(struct machine *m, vm_done_fn *done, void *arg, struct cl_err *err)
{
    bool holds = m->template->holds && m->host->kept_dir[0];
    if (m->state != MACHINE_CLAIMED)
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "it is being forked; try again in a moment");
    if (!machine_driver(m)->save)
        return cl_fail(err, CL_E_UNIMPL, 0, "VMs of the driver '%s' cannot be paused",
                       machine_driver(m)->name);
    if (m->broken)
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "the VM is ending");
    if ((holds ? guest_hold(m->guest, err) : begin_saving(m, err)) < 0)
        return -1;
    m->rest_done = done;
    m->rest_arg = arg;
    m->rest_why = (struct cl_err){0};
    cl_timer_stop(&m->clock);
    if (holds) {
        m->state = MACHINE_HOLDING;
        cl_timer_start(&m->timeout, REST_HOLD_S * CL_NS_PER_S);
    }
    return 0;
}

/* A monitor for what is in m->rest. */
static int start_waking(struct machine *m, struct cl_err *err)
{
    if (machine_limit_cgroup(m, machine_copies(m), err) < 0 || machine_start_vm(m, err) < 0)
        return -1;
    m->state = MACHINE_WAKING;
    machine_limit_time(m);
    machine_let_start(m, m->deadline_ns);
    return 0;
}

/* Once it is stored, or cannot be, and its VM and its network are gone. */
void machine_come_to_rest(struct machine *m)
{
    struct cl_err why = {0};
    if (!m->is_stored)
        return;
    vm_net_free(m->net);
    m->net = NULL;
    m->state = MACHINE_AT_REST;
    machine_usage_rests(m);
    if (m->rest_why.code == CL_OK)
        tell_rest(m, NULL);
    else if (start_waking(m, &why) < 0)
        machine_fail(m, &why);
}

static void stay_at_rest(struct machine *m, const struct cl_err *why)
{
    m->state = MACHINE_AT_REST;
    tell_rest(m, why);
}

static void on_loaded(void *arg, const struct cl_err *err)
{
    struct machine *m = arg;
    struct cl_err why = {0};
    if (!err && start_waking(m, &why) == 0)
        return;
    if (!err)
        rest_drop(m->rest);
    stay_at_rest(m, err ? err : &why);
}

static void on_template(void *arg, const struct cl_err *err)
{
    struct machine *m = arg;
    struct cl_err why = {0};
    if (err || rest_load(m->rest, on_loaded, m, &why) < 0)
        stay_at_rest(m, err ? err : &why);
}

int machine_wake(struct machine *m, vm_done_fn *done, void *arg, struct cl_err *err)
{
    CL_ASSERT(m->state == MACHINE_AT_REST);
    if (m->seed)
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "it is being forked; try again in a moment");
    bool is_here = m->template->ram_fd >= 0;
    m->filing.done = on_template;
    m->filing.arg = m;
    if ((is_here ? rest_load(m->rest, on_loaded, m, err)
                 : template_load(m->template, &m->filing, err)) < 0)
        return -1;
    m->state = MACHINE_LOADING;
    m->kept_at_rest = false;
    m->rest_done = done;
    m->rest_arg = arg;
    return 0;
}

void machine_has_woken(struct machine *m)
{
    struct cl_err err = {0}, why = m->rest_why;
    if ((m->grant && machine_start_net(m, &err) < 0) || /* nobody would see its packets */
        become_claimed_again(m, &err) < 0) {
        machine_fail(m, &err);
        return;
    }
    tell_rest(m, why.code ? &why : NULL);
}

bool machine_falls_asleep_again(struct machine *m, const struct cl_err *why)
{
    if (rest_bytes(m->rest) == 0 || !m->rest_done)
        return false; /* it never got to the disk */
    m->state = MACHINE_AT_REST;
    cl_timer_stop(&m->timeout);
    rest_drop(m->rest);
    tell_rest(m, why);
    return true;
}

uint64_t machine_rest_bytes(const struct machine *m)
{
    return m->rest ? rest_bytes(m->rest) : 0;
}
