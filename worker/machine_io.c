/* worker/machine_io.c - see worker/machine.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/own.h"
#include "base/proc.h"
#include "observability/log.h"
#include "proto/guest_frame.h"
#include "worker/disk.h"
#include "worker/guest_clock.h"
#include "worker/machine_priv.h"
#include "worker/vm_state.h"
#include "worker/warmup.h"

enum {
    ENTROPY_BYTES = 64,
    QEMU_OVERHEAD_MIB = 256,
    QEMU_PIDS = 64,
    NET_MIB = 256, /* libslirp holds some 256 KiB a flow of TCP, and there are up to 512 */
    NET_PIDS = 4,
    CGROUP_TRIES = 50,
    BROKEN_WAIT_MS = 1000,
    CLOCK_AGAIN_S = 1, /* a host that is that slow is not asked to do much more */
};

void machine_fail(struct machine *m, const struct cl_err *why)
{
    if (m->why.code == CL_OK)
        m->why = *why;
    machine_stop(m);
}

/* --- uid and cgroup: reused only when nothing runs there any more ----------------------------- */

static int take_uid(struct machine_host *host)
{
    for (int i = 0; host->uid_base && i < MACHINE_UIDS; i++) {
        if (!host->uid_used[i]) {
            host->uid_used[i] = 1;
            return i;
        }
    }
    return -1;
}

static void machine_destroy(void *obj)
{
    struct machine *m = obj;
    if (m->uid_slot >= 0)
        m->host->uid_used[m->uid_slot] = 0;
    m->host->count--;
    cl_timer_fini(&m->timeout);
    cl_timer_fini(&m->clock);
    machine_usage_fini(m);
    cl_timer_fini(&m->reap);
    machine_forget_moment(m);
    cl_timer_fini(&m->kept_end);
    vm_net_free(m->net);
    cl_free(m->grant);
    rest_free(m->rest);
    seed_unref(m->seed);
    disk_copy_free(m->disk_copy);
    machine_forget_kept(m);
    vm_body_close(&m->body);
    template_unref(m->template);
    cl_free(m);
}

static void on_reap(void *arg)
{
    struct machine *m = arg;
    bool is_gone = cgroup_remove(&m->net_cgroup);
    if ((!cgroup_remove(&m->cgroup) || !is_gone) && ++m->reap_tries < CGROUP_TRIES) {
        cgroup_kill(&m->cgroup);
        cl_timer_start(&m->reap, 20 * CL_NS_PER_MS);
        return;
    }
    cl_loop_bury(m->host->loop, &m->grave, machine_destroy, m);
}

/* "DIR:DIR" more in a list. */
static int add_dirs(const struct cgroup *cg, char list[static VM_STATE_CGROUPS], struct cl_err *err)
{
    for (int i = 0; i < cg->n; i++) {
        size_t at = strlen(list);
        int n = snprintf(list + at, VM_STATE_CGROUPS - at, "%s%s", at ? ":" : "", cg->dirs[i]);
        if (n < 0 || (size_t)n >= VM_STATE_CGROUPS - at)
            return cl_fail(err, CL_E_TOOBIG, 0, "the names of a VM's cgroups are too long");
    }
    return 0;
}

/* Not its VM's, which its guardian kills whole: cloche-net has a last word after that. */
static int make_net_cgroup(struct machine *m, struct cl_err *err)
{
    char name[sizeof m->saved.name + 8];
    const struct cgroup_limits limits = {
        .memory_bytes = NET_MIB * CL_MIB, .pids = NET_PIDS, .cpus = 1};
    (void)snprintf(name, sizeof name, "%s-net", m->saved.name);
    return cgroup_make(&m->host->cgroups, name, &limits, &m->net_cgroup, err) < 0
               ? -1
               : add_dirs(&m->net_cgroup, m->saved.cgroups, err);
}

/* Of guest memory, so many: the monitor's group is charged for each page. */
int machine_limit_cgroup(struct machine *m, unsigned copies, struct cl_err *err)
{
    struct cgroup_limits limits = {
        .memory_bytes = (copies * m->template->memory_mib + QEMU_OVERHEAD_MIB) * CL_MIB,
        .pids = QEMU_PIDS,
        .cpus = m->template->vcpus + 1,
    };
    return cgroup_make(&m->host->cgroups, m->saved.name, &limits, &m->cgroup, err);
}

/* A page of a boot may be in a snapshot, too, or of a clone in its template's. */
unsigned machine_copies(const struct machine *m)
{
    return (m->origin == VM_BOOT) == machine_driver(m)->snapshot_is_copy ? 2 : 1;
}

static int make_cgroup(struct machine *m, struct cl_err *err)
{
    if (machine_limit_cgroup(m, machine_copies(m), err) < 0)
        return -1;
    if (add_dirs(&m->cgroup, m->cgroup_arg, err) < 0)
        return -1;
    memcpy(m->saved.cgroups, m->cgroup_arg, sizeof m->saved.cgroups);
    return 0;
}

/* --- identity and warm-ups ------------------------------------------------------------------ */

static int send_identity(struct machine *m, const char *hostname, const struct machine_claim *claim,
                         struct cl_err *err)
{
    uint8_t entropy[ENTROPY_BYTES], id[16];
    char machine_id[33], host[64];
    cl_random(entropy, sizeof entropy);
    cl_random(id, sizeof id);
    cl_hex(id, sizeof id, machine_id);
    (void)snprintf(host, sizeof host, "%s", hostname);
    for (char *c = host; *c; c++)
        *c = *c == '_' ? '-' : *c; /* RFC 1123 host names have no underscore */
    Cloche__V1__GuestLimits limits = CLOCHE__V1__GUEST_LIMITS__INIT;
    limits.pids = claim ? claim->pids : 0;
    limits.scratch_bytes = claim ? claim->scratch_bytes : 0;
    Cloche__V1__GuestIdentity identity = CLOCHE__V1__GUEST_IDENTITY__INIT;
    identity.entropy.data = entropy;
    identity.entropy.len = sizeof entropy;
    m->clock_told_ns = cl_now_ns();
    identity.wall_clock_ns = cl_wall_ns();
    identity.hostname = host;
    identity.machine_id = machine_id;
    identity.limits = &limits;
    identity.watch = m->host->watch;
    identity.count_calls = m->host->watch && claim && claim->count_calls;
    return guest_identify(m->guest, &identity, err);
}

static void become_ready(struct machine *m, enum machine_state state)
{
    m->state = state;
    cl_timer_stop(&m->timeout);
    m->events.on_ready(m->arg);
}

static void warm_failed(struct machine *m, const char *what, int code, const char *text)
{
    struct cl_err why = {0};
    (void)cl_fail(&why, CL_E_GUEST, 0, "%s of template '%s' failed (%d) %.120s", what,
                  m->template->m.name, code, text);
    machine_fail(m, &why);
}

static void warm_frame(void *arg, const Cloche__V1__GuestFrame *frame)
{
    struct machine *m = arg;
    switch ((int)frame->body_case) { /* hostile: any value, and generated */
    case CLOCHE__V1__GUEST_FRAME__BODY_EXEC_ENDED: {
        const Cloche__V1__GuestExecEnded *end = frame->exec_ended;
        if (end->end != CLOCHE__V1__GUEST_END__GUEST_END_EXITED || end->exit_code != 0)
            warm_failed(m, "warm-up", end->exit_code, end->error);
        break;
    }
    case CLOCHE__V1__GUEST_FRAME__BODY_CONTEXT_RESULT:
        if (frame->context_result->error_number != 0)
            warm_failed(m, "a code context", frame->context_result->error_number,
                        frame->context_result->error);
        break;
    case CLOCHE__V1__GUEST_FRAME__BODY_CELL_ENDED:
        if (frame->cell_ended->end != CLOCHE__V1__GUEST_CELL_END__GUEST_CELL_END_OK)
            warm_failed(m, "warm-up code", (int)frame->cell_ended->end, frame->cell_ended->error);
        break;
    case CLOCHE__V1__GUEST_FRAME__BODY_DATA:
        guest_stream_consume(m->warm_stream, frame->data->bytes.len);
        break;
    default:
        break;
    }
}

static void warm_on(struct machine *m);

static void warm_close(void *arg, const struct cl_err *why)
{
    struct machine *m = arg;
    if (m->state != MACHINE_WARMING)
        return;
    if (why)
        machine_fail(m, why);
    else
        warm_on(m);
}

static void warm_room(void *arg)
{
    (void)arg;
}

static int warm_open(struct machine *m, Cloche__V1__GuestFrame *frame, struct cl_err *err)
{
    static const struct guest_stream_events events = {warm_frame, warm_room, warm_close};
    return guest_open(m->guest, frame, &events, m, &m->warm_stream, err);
}

static int warm_command(struct machine *m, const struct template_warmup *w, struct cl_err *err)
{
    Cloche__V1__GuestExec exec = CLOCHE__V1__GUEST_EXEC__INIT;
    exec.argv = (char **)(uintptr_t)w->argv;
    while (w->argv[exec.n_argv])
        exec.n_argv++;
    exec.no_stdin = true;
    exec.user = CLOCHE__V1__GUEST_USER__GUEST_USER_USER;
    exec.seccomp = CLOCHE__V1__GUEST_SECCOMP_TIER__GUEST_SECCOMP_TIER_STANDARD;
    GUEST_FRAME(frame, 0, EXEC, exec, &exec);
    return warm_open(m, &frame, err);
}

static int warm_context(struct machine *m, const struct template_context *c, struct cl_err *err)
{
    Cloche__V1__GuestContextOp op = CLOCHE__V1__GUEST_CONTEXT_OP__INIT;
    op.kind = CLOCHE__V1__GUEST_CONTEXT_KIND__GUEST_CONTEXT_KIND_CREATE;
    op.id = (char *)(uintptr_t)c->id;
    op.language = (Cloche__V1__GuestLanguage)c->language; /* the same numbers */
    GUEST_FRAME(frame, 0, CONTEXT_OP, context_op, &op);
    return warm_open(m, &frame, err);
}

static int warm_cell(struct machine *m, const struct template_context *c, const char *code,
                     struct cl_err *err)
{
    Cloche__V1__GuestCell cell = CLOCHE__V1__GUEST_CELL__INIT;
    cell.id = (char *)(uintptr_t)c->id;
    cell.code = (char *)(uintptr_t)code;
    cell.warm_up = true;
    GUEST_FRAME(frame, 0, CELL, cell, &cell);
    return warm_open(m, &frame, err);
}

static int warm_identity(struct machine *m, struct cl_err *err)
{
    m->state = MACHINE_IDENTIFYING;
    return send_identity(m, "warm", NULL, err);
}

/* Take the next step, or be ready.  Each has the whole time limit: importing takes long, and a
 * guest that gets from step to step is not stuck. */
static void warm_on(struct machine *m)
{
    struct warmup_step step;
    struct cl_err err = {0};
    int rc = 0;
    bool more =
        m->warm && warmup_step(&m->template->m, m->origin == VM_BOOT, m->warm_next++, &step);
    if (!more || (step.kind == WARMUP_REHEARSE && !machine_driver(m)->record)) {
        become_ready(m, MACHINE_READY);
        return;
    }
    cl_timer_start(&m->timeout, m->host->start_timeout_ns);
    switch (step.kind) {
    case WARMUP_COMMAND:
        rc = warm_command(m, step.command, &err);
        break;
    case WARMUP_CONTEXT:
        rc = warm_context(m, step.context, &err);
        break;
    case WARMUP_PRELOAD:
        rc = warm_cell(m, step.context, step.context->preload, &err);
        break;
    case WARMUP_CELL:
        rc = warm_cell(m, step.context, step.context->warm_up, &err);
        break;
    case WARMUP_REHEARSE:
        rc = machine_driver(m)->record(m->vm, &err);
        break;
    case WARMUP_IDENTITY:
        rc = warm_identity(m, &err);
        break;
    }
    if (rc < 0)
        machine_fail(m, &err);
    else if (step.kind == WARMUP_REHEARSE) /* the next step waits for it in its place */
        warm_on(m);
}

/* --- the guest's clock ------------------------------------------------------------------------ */

static void look_at_clock_in(struct machine *m, uint64_t ns)
{
    if (m->host->clock_every_ns > 0)
        cl_timer_start(&m->clock, CL_MIN(ns, m->host->clock_every_ns));
}

/* The next question waits for the answer to this one: a guest that does not read is not asked
 * twice. */
static void on_clock(void *arg)
{
    struct machine *m = arg;
    if (m->state != MACHINE_CLAIMED)
        return;
    m->clock_asked_ns = cl_now_ns();
    if (guest_ping(m->guest, m->clock_asked_ns, NULL) < 0) {
        m->clock_asked_ns = 0; /* a full queue: it has more urgent frames to read */
        look_at_clock_in(m, m->host->clock_every_ns);
    }
}

static void on_pong(void *arg, const Cloche__V1__GuestPong *pong)
{
    struct machine *m = arg;
    if (m->clock_asked_ns == 0 || pong->token != m->clock_asked_ns)
        return;
    struct guest_clock_reading r = {.asked_ns = m->clock_asked_ns,
                                    .answered_ns = cl_now_ns(),
                                    .host_ns = cl_wall_ns(),
                                    .guest_ns = pong->wall_clock_ns};
    m->clock_asked_ns = 0;
    if (pong->wall_clock_ns == 0)
        return; /* an agent of minor 0 */
    int64_t lag_ns = guest_clock_lag(&r);
    if (lag_ns != 0 && guest_shift_clock(m->guest, lag_ns, NULL) == 0)
        log_event(LOG_GUEST_CLOCK, "vm=%s unit=%s lag_us=%lld", m->saved.name, m->saved.unit_id,
                  (long long)(lag_ns / 1000));
    look_at_clock_in(m, guest_clock_is_unsure(r.asked_ns, r.answered_ns)
                            ? CLOCK_AGAIN_S * CL_NS_PER_S
                            : m->host->clock_every_ns);
}

/* --- events of the guest and the VM ---------------------------------------------------------- */

static void identify_for_warmup(struct machine *m)
{
    struct cl_err err = {0};
    if (warm_identity(m, &err) < 0)
        machine_fail(m, &err);
}

static bool has_feature(const Cloche__V1__GuestHello *hello, const char *name)
{
    for (size_t i = 0; i < hello->n_features; i++)
        if (strcmp(hello->features[i], name) == 0)
            return true;
    return false;
}

/* Before any tenant's code, so it is believed for the clones, which say no Hello of their own. */
static void on_hello(void *arg, const Cloche__V1__GuestHello *hello)
{
    struct machine *m = arg;
    if (m->state != MACHINE_STARTING || m->origin != VM_BOOT)
        return;
    m->template->dials = has_feature(hello, "dial");
    m->template->holds = has_feature(hello, "hold");
    m->template->cell_env = has_feature(hello, "cell-env");
    identify_for_warmup(m);
}

/* A guest that cannot be watched is as useful; the log tells of which VMs it has no word. */
static void note_watch(struct machine *m, const Cloche__V1__GuestIdentityDone *done)
{
    const char *why = !m->host->watch      ? "switched off"
                      : done->watched      ? ""
                      : done->unwatched[0] ? done->unwatched
                                           : "its template is too old: build it again";
    (void)snprintf(m->unwatched, sizeof m->unwatched, "%.150s", why);
    if (why[0] && m->host->watch && m->origin == VM_BOOT && m->state == MACHINE_IDENTIFYING)
        log_event(LOG_GUEST_UNWATCHED, "template=%s driver=%s text='%s'", m->template->m.name,
                  machine_driver(m)->name, m->unwatched);
    const char *uncounted = why[0]               ? why
                            : done->uncounted[0] ? done->uncounted
                                                 : "its template is too old: build it again";
    (void)snprintf(m->calls, sizeof m->calls, "%s%.150s",
                   done->counted ? "" : "not counted: ", done->counted ? "counted" : uncounted);
}

static void on_watched(void *arg, const Cloche__V1__GuestEvents *batch)
{
    struct machine *m = arg;
    if (machine_is_awake(m) && m->events.on_watched)
        m->events.on_watched(m->arg, batch);
}

static void on_identity(void *arg, const Cloche__V1__GuestIdentityDone *done)
{
    struct machine *m = arg;
    if (done->error[0]) {
        struct cl_err why = {0};
        (void)cl_fail(&why, CL_E_GUEST, 0, "the agent could not take its identity: %.200s",
                      done->error);
        machine_fail(m, &why);
        return;
    }
    note_watch(m, done);
    if (m->state == MACHINE_CLAIMING) {
        become_ready(m, MACHINE_CLAIMED);
        machine_usage_goes_on(m);
        if (guest_clock_is_unsure(m->clock_told_ns, cl_now_ns()))
            machine_check_clock(m);
        else
            look_at_clock_in(m, m->host->clock_every_ns);
    } else if (m->state == MACHINE_IDENTIFYING) {
        m->state = MACHINE_WARMING;
        warm_on(m);
    }
}

static void on_held(void *arg, const struct guest_past *past)
{
    struct machine *m = arg;
    if (m->state != MACHINE_HOLDING)
        return; /* it ends */
    if (m->rest_done)
        machine_rests_held(m, past);
    else
        machine_copies_held(m, past);
}

/* The VM itself may be about to end: its own words explain more than a closed channel. */
static void on_broken(void *arg, const struct cl_err *why)
{
    struct machine *m = arg;
    if (m->why.code == CL_OK)
        m->why = *why;
    m->broken = true;
    cl_timer_start(&m->timeout, BROKEN_WAIT_MS * CL_NS_PER_MS);
}

static void on_stats(void *arg, const Cloche__V1__GuestStats *stats)
{
    machine_usage_take(arg, stats);
}

static const struct guest_events guest_events = {.on_hello = on_hello,
                                                 .on_identity = on_identity,
                                                 .on_stats = on_stats,
                                                 .on_pong = on_pong,
                                                 .on_watched = on_watched,
                                                 .on_held = on_held,
                                                 .on_broken = on_broken};

static void on_up(void *arg)
{
    struct machine *m = arg;
    if (m->state == MACHINE_WAKING)
        machine_has_woken(m);
    if (m->state != MACHINE_STARTING || m->origin == VM_BOOT)
        return; /* being stopped; or Hello comes when the agent is up */
    if (m->warm)
        identify_for_warmup(m);
    else
        become_ready(m, MACHINE_READY);
}

/* With the VM and its network both gone there is nothing more to hear of it. */
void machine_end_if_quiet(struct machine *m)
{
    if (m->vm || m->net_runs)
        return;
    if (m->state == MACHINE_STORING) {
        machine_come_to_rest(m);
        return;
    }
    m->events.on_end(m->arg, &m->end_why);
    cl_timer_start(&m->reap, 0);
}

/* There is no VM any more. */
static void be_gone(struct machine *m, const struct cl_err *why)
{
    m->state = MACHINE_ENDING;
    cl_timer_stop(&m->timeout);
    cl_timer_stop(&m->clock);
    machine_usage_stop(m);
    bool is_told = !m->broken || why->code == CL_E_CANCELLED; /* then it has no words of its own */
    m->end_why = m->why.code && is_told ? m->why : *why;
    machine_copy_over(m, &m->end_why);
    m->broken = true; /* who hears of a stream's end waits for ours */
    guest_free(m->guest, &m->end_why);
    m->guest = NULL;
    vm_state_forget(m->host->state_dir, m->saved.name);
    if (m->net_runs)
        vm_net_finish(m->net);
    machine_end_if_quiet(m);
}

static void on_vm_end(void *arg, const struct cl_err *why)
{
    struct machine *m = arg;
    m->vm = NULL;
    if (m->state == MACHINE_STORING) {
        if (m->net_runs)
            vm_net_finish(m->net);
        machine_end_if_quiet(m);
        return;
    }
    if (m->state != MACHINE_WAKING || !machine_falls_asleep_again(m, why))
        be_gone(m, why);
}

/* --- its network --------------------------------------------------------------------------------
 */

/* Hostile as all that a guest's packets caused: a sum never shrinks, and stays within the grant. */
static void note_past(struct net_grant *grant, const struct net_event *e)
{
    struct net_past *past = &grant->past;
    past->number = CL_MAX(past->number, e->number);
    if (e->kind == NET_EVENT_OPEN)
        past->flow = CL_MAX(past->flow, (uint64_t)e->flow);
    if (e->kind != NET_EVENT_TOTALS)
        return;
    past->sent = CL_MIN(CL_MAX(past->sent, e->sent), grant->egress_bytes);
    past->received = CL_MAX(past->received, e->received);
}

static void on_network(void *arg, const struct net_event *event)
{
    struct machine *m = arg;
    note_past(m->grant, event);
    if (m->events.on_network)
        m->events.on_network(m->arg, event);
}

/* A VM whose packets nobody sees does not go on.  But the wire ends with the VM, too, and then its
 * own words explain more. */
static void on_net_end(void *arg, const struct cl_err *why)
{
    struct machine *m = arg;
    m->net_runs = false;
    if (m->vm && m->state != MACHINE_ENDING && m->state != MACHINE_STORING)
        on_broken(m, why);
    machine_end_if_quiet(m);
}

int machine_start_net(struct machine *m, struct cl_err *err)
{
    static const struct vm_net_events events = {on_network, on_net_end};
    struct vm_net_spec spec = {
        .settings = m->host->net,
        .wire = machine_driver(m)->take_wire(m->vm),
        .uid = m->uid_slot >= 0 ? m->host->uid_base + (uid_t)m->uid_slot : 0,
        .cgroup = &m->net_cgroup,
        .grant = m->grant,
    };
    if (spec.wire < 0)
        return cl_fail(err, CL_E_STATE, 0, "a VM without a network card was given network");
    if (vm_net_start(m->host->loop, &spec, &events, m, &m->net, err) < 0)
        return -1;
    m->net_runs = true;
    return 0;
}

static void on_timeout(void *arg)
{
    struct machine *m = arg;
    struct cl_err why = {0};
    if (m->state == MACHINE_ENDING && !m->vm) { /* it was at rest */
        (void)cl_fail(&why, CL_E_CANCELLED, 0, "stopped");
        be_gone(m, &why);
        return;
    }
    if (m->broken) {
        machine_stop(m);
        return;
    }
    if (m->state == MACHINE_HOLDING) {
        if (m->rest_done)
            machine_rests_unheld(m);
        else
            machine_copy_late(m);
        return;
    }
    static const char *const doing[] = {
        [MACHINE_STARTING] = "come up",
        [MACHINE_IDENTIFYING] = "take its identity",
        [MACHINE_WARMING] = "finish its warm-ups",
        [MACHINE_CLAIMING] = "take its identity",
        [MACHINE_COPYING] = "get copied",
        [MACHINE_SAVING] = "get saved",
        [MACHINE_WAKING] = "go on",
    };
    const char *what =
        (size_t)m->state < CL_COUNT(doing) && doing[m->state] ? doing[m->state] : "answer";
    (void)cl_fail(&why, CL_E_GUEST, 0, "the VM did not %s in time", what);
    machine_fail(m, &why);
}

/* --- verbs ---------------------------------------------------------------------------------- */

int machine_start_vm(struct machine *m, struct cl_err *err)
{
    static const struct vm_events events = {on_up, on_vm_end};
    struct vm_spec spec = {
        .name = m->saved.name,
        .template = m->template,
        .origin = m->origin,
        .uid = m->uid_slot >= 0 ? m->host->uid_base + (uid_t)m->uid_slot : 0,
        .cgroups = m->cgroup_arg,
        .body = &m->body,
        .is_elsewhere = m->seed ? m->seed->is_elsewhere : m->is_restored,
        .rest = m->rest   ? rest_files(m->rest)
                : m->seed ? rest_files(m->seed->rest)
                          : NULL,
    };
    return machine_driver(m)->start(m->host->loop, &spec, &events, m, &m->vm, err);
}

static int open_body(struct machine *m, int disk, struct cl_err *err)
{
    return m->seed ? vm_body_open_copy(&m->body, disk, m->seed->disk_bytes, err)
                   : vm_body_open(&m->body, m->template, m->origin, m->host->state_dir, err);
}

int machine_open_guest(struct machine *m, uint64_t first_stream, struct cl_err *err)
{
    return guest_new(m->host->loop, m->body.channel, first_stream, &guest_events, m, &m->guest,
                     err);
}

static int open_guest(struct machine *m, int disk, struct cl_err *err)
{
    uint64_t first = m->seed                ? m->seed->past.next_stream
                     : m->origin == VM_BOOT ? GUEST_STREAMS_BOOTED
                                            : GUEST_STREAMS_RESTORED;
    return open_body(m, disk, err) < 0 ? -1 : machine_open_guest(m, first, err);
}

/* Only what a sweep can find may run. */
void machine_let_start(struct machine *m, uint64_t deadline_ns)
{
    struct cl_err err = {0};
    m->saved.guard_pid = machine_driver(m)->guard_pid(m->vm);
    m->saved.guard_start = cl_proc_start_time(m->saved.guard_pid);
    if (vm_state_save(m->host->state_dir, &m->saved, &err) < 0)
        machine_fail(m, &err);
    else
        machine_set_deadline(m, deadline_ns);
}

static struct machine *conceive(const struct birth *b)
{
    struct machine *m = cl_zalloc(sizeof *m);
    if (!m)
        return NULL;
    *m = (struct machine){.host = b->host,
                          .template = template_ref(b->template),
                          .seed = b->seed ? seed_ref(b->seed) : NULL,
                          .events = *b->events,
                          .arg = b->arg,
                          .origin = b->origin,
                          .state = MACHINE_STARTING,
                          .warm = b->warm,
                          .body = VM_BODY_NONE,
                          .uid_slot = take_uid(b->host)};
    cl_list_init(&m->copies);
    cl_list_init(&m->next_copies);
    cl_list_init(&m->usage.queries);
    cl_list_init(&m->filing.link);
    b->host->count++;
    (void)snprintf(m->saved.name, sizeof m->saved.name, "vm-%llu",
                   (unsigned long long)++b->host->serial);
    return m;
}

void machine_abort(struct machine *m, const struct cl_err *why)
{
    guest_free(m->guest, why);
    (void)cgroup_remove(&m->net_cgroup);
    (void)cgroup_remove(&m->cgroup);
    vm_state_forget(m->host->state_dir, m->saved.name);
    machine_destroy(m);
}

int machine_conceive(const struct birth *b, struct machine **ret_machine, struct cl_err *err)
{
    struct machine_host *host = b->host;
    struct machine *m = conceive(b);
    if (!m)
        return cl_fail(err, CL_E_NOMEM, 0, "machine");
    int rc = cl_timer_init(&m->timeout, host->loop, on_timeout, m, err);
    if (rc == 0)
        rc = cl_timer_init(&m->clock, host->loop, on_clock, m, err);
    if (rc == 0)
        rc = machine_usage_init(m, err);
    if (rc == 0)
        rc = cl_timer_init(&m->reap, host->loop, on_reap, m, err);
    if (rc == 0)
        rc = cl_timer_init(&m->kept_end, host->loop, machine_forget_moment, m, err);
    if (rc == 0 && host->uid_base && m->uid_slot < 0)
        rc = cl_fail(err, CL_E_TOOBIG, 0, "all %d VM uids are in use", MACHINE_UIDS);
    if (rc == 0)
        rc = make_cgroup(m, err);
    if (rc < 0)
        machine_abort(m, err);
    else
        *ret_machine = m;
    return rc;
}

static int give_birth(const struct birth *b, struct machine **ret_machine, struct cl_err *err)
{
    struct machine_host *host = b->host;
    struct machine *m;
    int disk = b->disk;
    if (machine_conceive(b, &m, err) < 0) {
        cl_closep(&disk);
        return -1;
    }
    /* Before there is a guardian: a sweep finds the cgroups in any case. */
    int rc = vm_state_save(host->state_dir, &m->saved, err);
    if (rc == 0)
        rc = open_guest(m, cl_steal_fd(&disk), err);
    if (rc == 0)
        rc = machine_start_vm(m, err);
    cl_closep(&disk);
    if (rc < 0) {
        machine_abort(m, err);
        return -1;
    }
    cl_timer_start(&m->timeout, host->start_timeout_ns);
    machine_let_start(m, cl_now_ns() + host->park_ttl_ns);
    *ret_machine = m;
    return 0;
}

int machine_start(struct machine_host *host, struct template *template, enum vm_origin origin,
                  bool warm, const struct machine_events *events, void *arg,
                  struct machine **ret_machine, struct cl_err *err)
{
    const struct birth b = {host, template, origin, warm, NULL, -1, events, arg};
    return give_birth(&b, ret_machine, err);
}

int machine_start_copy(struct machine_host *host, const struct seed_share *of,
                       const struct machine_events *events, void *arg, struct machine **ret_machine,
                       struct cl_err *err)
{
    const struct seed *seed = of->seed;
    const struct birth b = {host, seed->template, VM_CLONE, false, of->seed, of->disk, events, arg};
    if (give_birth(&b, ret_machine, err) < 0)
        return -1;
    (*ret_machine)->saved.code_started = 1; /* as soon as it is up */
    machine_limit_time(*ret_machine);
    return 0;
}

int machine_park(struct machine *m, struct cl_err *err)
{
    CL_ASSERT(m->state == MACHINE_READY);
    m->state = MACHINE_PARKED;
    return machine_driver(m)->pause(m->vm, err);
}

static int take_grant(struct machine *m, const struct net_grant *grant, struct cl_err *err)
{
    m->grant = cl_zalloc(sizeof *m->grant);
    if (!m->grant)
        return cl_fail(err, CL_E_NOMEM, 0, "a grant of network");
    *m->grant = *grant;
    return make_net_cgroup(m, err);
}

void machine_set_events(struct machine *m, const struct machine_events *events, void *arg)
{
    m->events = *events;
    m->arg = arg;
}

/* A copy is let go on first: it is still held. */
static int begin_copy(struct machine *m, struct cl_err *err)
{
    if (!m->seed)
        return 0;
    int rc = guest_release_copy(m->guest, &m->seed->past, err);
    seed_unref(m->seed);
    m->seed = NULL;
    return rc;
}

/* Whose it is. */
int machine_take_claim(struct machine *m, const struct machine_claim *claim, struct cl_err *err)
{
    struct vm_state *s = &m->saved;
    (void)snprintf(s->tenant, sizeof s->tenant, "%s", claim->tenant);
    (void)snprintf(s->unit_id, sizeof s->unit_id, "%s", claim->unit_id);
    (void)snprintf(s->lease_id, sizeof s->lease_id, "%s", claim->lease_id);
    s->fence = claim->fence;
    m->for_good = claim->for_good;
    m->count_calls = claim->count_calls;
    machine_set_deadline(m, claim->deadline_ns);
    m->disk_bytes = claim->scratch_bytes ? claim->scratch_bytes : DISK_DEFAULT_MIB * CL_MIB;
    return claim->grant ? take_grant(m, claim->grant, err) : 0;
}

int machine_claim(struct machine *m, const struct machine_claim *claim, struct cl_err *err)
{
    CL_ASSERT(m->state == MACHINE_READY || m->state == MACHINE_PARKED);
    bool parked = m->state == MACHINE_PARKED;
    m->state = MACHINE_CLAIMING;
    cl_timer_start(&m->timeout, m->host->start_timeout_ns);
    if (machine_take_claim(m, claim, err) < 0 ||
        vm_state_save(m->host->state_dir, &m->saved, err) < 0 ||
        machine_driver(m)->grow_disk(m->vm, m->disk_bytes, err) < 0 ||
        (claim->grant && machine_start_net(m, err) < 0) ||
        (parked && machine_driver(m)->resume(m->vm, err) < 0) || begin_copy(m, err) < 0 ||
        send_identity(m, claim->unit_id, claim, err) < 0)
        return -1;
    return 0;
}

int machine_snapshot(struct machine *m, vm_done_fn *done, void *arg, struct cl_err *err)
{
    CL_ASSERT(m->state == MACHINE_READY && m->origin == VM_BOOT);
    return machine_driver(m)->snapshot(m->vm, done, arg, err);
}

void machine_set_deadline(struct machine *m, uint64_t deadline_ns)
{
    m->deadline_ns = deadline_ns;
    if (m->vm)
        machine_driver(m)->set_deadline(m->vm, deadline_ns);
}

void machine_check_clock(struct machine *m)
{
    if (m->clock_asked_ns == 0)
        on_clock(m);
}

int machine_mark_code_started(struct machine *m, struct cl_err *err)
{
    m->saved.code_started = 1;
    return vm_state_save(m->host->state_dir, &m->saved, err);
}

void machine_stop(struct machine *m)
{
    if (m->state == MACHINE_ENDING)
        return;
    m->state = MACHINE_ENDING;
    m->rest_done = m->keep_done = NULL;
    cl_list_unlink(&m->filing.link);
    rest_free(m->rest);
    m->rest = NULL;
    disk_copy_free(m->disk_copy);
    m->disk_copy = NULL;
    machine_forget_moment(m);
    if (m->vm)
        machine_driver(m)->stop(m->vm);
    else
        cl_timer_start(&m->timeout, 0); /* on_end never comes inside a call */
}

uint64_t machine_disk_taken(const struct machine *m)
{
    return m->body.disk >= 0 ? vm_body_disk_taken(&m->body) : 0;
}

uint64_t machine_disk_promised(const struct machine *m)
{
    uint64_t taken = m->body.disk >= 0 ? vm_body_disk_taken(&m->body) : m->disk_bytes;
    return taken < m->disk_bytes ? m->disk_bytes - taken : 0;
}

struct guest *machine_guest(struct machine *m)
{
    return m->guest;
}

struct machine_host *machine_host(struct machine *m)
{
    return m->host;
}

const struct template *machine_template(const struct machine *m)
{
    return m->template;
}

const char *machine_name(const struct machine *m)
{
    return m->saved.name;
}

bool machine_is_broken(const struct machine *m)
{
    return m->broken || (m->guest && guest_is_broken(m->guest));
}

bool machine_dials(const struct machine *m)
{
    return m->template->dials;
}

bool machine_takes_cell_env(const struct machine *m)
{
    return m->template->cell_env;
}

const char *machine_calls(const struct machine *m)
{
    return m->count_calls ? m->calls : "";
}

const char *machine_unwatched(const struct machine *m)
{
    return m->unwatched[0] ? m->unwatched : NULL;
}

bool machine_is_parked(const struct machine *m)
{
    return m->state == MACHINE_PARKED;
}

int machine_stats(const struct machine *m, struct vm_stats *ret_stats, struct cl_err *err)
{
    struct vm_stats stats = {0};
    if (!m->vm && m->spent_cpu_ns == 0)
        return cl_fail(err, CL_E_STATE, 0, "the VM has ended");
    if (m->vm && m->state != MACHINE_STORING && machine_driver(m)->stats(m->vm, &stats, err) < 0)
        return -1;
    stats.cpu_ns += m->spent_cpu_ns;
    *ret_stats = stats;
    return 0;
}

int machine_ask_counts(struct machine *m, struct vm_counts_query *query, struct cl_err *err)
{
    if (!m->vm)
        return cl_fail(err, CL_E_STATE, 0, "the VM has ended");
    if (!machine_driver(m)->ask_counts)
        return cl_fail(err, CL_E_UNIMPL, 0, "VMs of the driver '%s' count nothing",
                       machine_driver(m)->name);
    return machine_driver(m)->ask_counts(m->vm, query, err);
}
