/* worker/worker_io.c - see worker/worker.h. */
#include "worker/claim.h"
#include "worker/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "observability/log.h"
#include "observability/metrics.h"
#include "rpc/targets.h"
#include "rpc/tls.h"
#include "worker/clock_watch.h"
#include "worker/digest.h"
#include "worker/kvm.h"
#include "worker/probe.h"
#include "worker/qemu.h"
#include "worker/seccomp.h"
#include "worker/session.h"
#include "worker/image_files.h"
#include "worker/snapshot_cache.h"
#include "worker/stop.h"
#include "worker/template_watch.h"

enum {
    VCPUS_PER_CPU = 8, /* guests sleep most of the time */
    MEMORY_PERCENT = 80,
    SLOT_MIB = 128, /* a slot for each, when nothing else says how many */
    PARK_TTL_S = 30,
    START_TIMEOUT_S = 120, /* a sick machine boots slowly, and TCG boots on the CPU */
    SELF_MAX = 256 << 20,  /* bytes of this program, with sanitizers */
};

struct worker {
    const struct worker_options *o; /* borrowed */
    struct cl_loop *loop;           /* borrowed */
    struct claim claim;             /* owned */
    struct host_probe probe;
    struct qemu_settings qemu;
    struct kvm_settings kvm;
    struct machine_host host;
    struct template_maker makers[POOL_MAKERS]; /* the preferred first */
    size_t n_makers;
    struct snapshot_cache *cache; /* NULL = none */
    struct image_files *files;
    struct pool *pool;
    struct units units;
    struct units_past past;
    struct session *session;
    struct metrics *metrics;
    struct metrics_server *metrics_server;
    SSL_CTX *tls;
    char id[CL_ID_MAX];
    char vm_dir[PATH_MAX], spool_dir[PATH_MAX], kept_dir[PATH_MAX], record_dir[PATH_MAX];
    char guard[PATH_MAX], net_path[PATH_MAX], monitor_dir[PATH_MAX];
    struct monitor_build monitor;
    struct vm_net_settings net;
    struct template_watch *watch; /* after the pool, which it has keep them */
    struct clock_watch clock;
    struct stop stop;
    struct cl_timer stopping; /* until the last VM is gone */
    void (*done)(void *arg);
    void *done_arg;
};

static int load_id(struct worker *w, struct cl_err *err)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/id", w->o->state_dir);
    struct cl_buf text;
    cl_buf_init(&text, CL_ID_MAX);
    int rc = cl_file_read(AT_FDCWD, path, &text, NULL);
    if (rc == 0 && text.len < sizeof w->id)
        memcpy(w->id, text.data, text.len);
    cl_buf_fini(&text);
    w->id[strcspn(w->id, "\n")] = '\0';
    if (cl_id_is(w->id, "wrk"))
        return 0;
    cl_id_new("wrk", w->id);
    return cl_file_write(path, w->id, strlen(w->id), 0600, err);
}

static int make_dirs(struct worker *w, struct cl_err *err)
{
    (void)snprintf(w->vm_dir, sizeof w->vm_dir, "%s/vms", w->o->state_dir);
    (void)snprintf(w->spool_dir, sizeof w->spool_dir, "%s/spool", w->o->state_dir);
    return cl_mkdir_p(w->vm_dir, 0700, err) < 0 || cl_mkdir_p(w->spool_dir, 0700, err) < 0 ? -1 : 0;
}

/* Of the keys, by default; "" = nowhere.  Other workers of the host have folders of their own. */
static void default_record_dir(struct worker *w)
{
    const char *run = w->probe.is_root ? "/run" : getenv("XDG_RUNTIME_DIR");
    if (run && run[0])
        (void)snprintf(w->record_dir, sizeof w->record_dir, "%s/cloche-paused/%s", run, w->id);
}

/* Without a place for keys that an operator did not name, paused sandboxes end with this worker. */
static int make_record_dir(struct worker *w, struct cl_err *err)
{
    const char *named = w->o->paused_keys;
    bool is_named = named[0] && strcmp(named, "none") != 0;
    struct cl_err why = {0};
    if (is_named) {
        (void)snprintf(w->record_dir, sizeof w->record_dir, "%s/%s", named, w->id);
        return cl_mkdir_p(w->record_dir, 0700, err) < 0 ? cl_wrap(err, "--paused-keys") : 0;
    }
    if (!named[0])
        default_record_dir(w);
    if (!w->record_dir[0] || cl_mkdir_p(w->record_dir, 0700, &why) < 0) {
        log_event(LOG_KEPT_NOWHERE, "text='%s'", why.text);
        w->record_dir[0] = '\0';
    }
    return 0;
}

static int make_kept_dirs(struct worker *w, struct cl_err *err)
{
    if (make_record_dir(w, err) < 0)
        return -1;
    if (w->record_dir[0])
        (void)snprintf(w->kept_dir, sizeof w->kept_dir, "%s/paused", w->o->state_dir);
    return w->record_dir[0] ? cl_mkdir_p(w->kept_dir, 0700, err) : 0;
}

/* Without a copy it is run where it is. */
static void copy_monitor(struct worker *w, const char *program)
{
    struct cl_err why = {0};
    (void)snprintf(w->monitor_dir, sizeof w->monitor_dir, "%s/monitors", w->o->state_dir);
    if (access(program, X_OK) == 0 && monitor_copy(w->monitor_dir, program, &w->monitor, &why) == 0)
        return;
    w->monitor = (struct monitor_build){.path = ""};
    (void)snprintf(w->monitor.path, sizeof w->monitor.path, "%s", program);
    if (why.code)
        log_event(LOG_MONITOR_NOT_KEPT, "text='%s'", why.text);
}

/* Of this program: another one may warm a template up in another way. */
static int digest_self(char ret_sha256[static TEMPLATE_HEX], struct cl_err *err)
{
    struct cl_buf bytes;
    cl_buf_init(&bytes, SELF_MAX);
    int rc = cl_file_read(AT_FDCWD, "/proc/self/exe", &bytes, err);
    if (rc == 0)
        digest_hex(bytes.data, bytes.len, ret_sha256);
    cl_buf_fini(&bytes);
    return rc;
}

/* Without one its templates are booted, which takes longer. */
static void open_cache(struct worker *w)
{
    char dir[PATH_MAX];
    struct cl_err why = {0};
    struct snapshot_cache_options options = {
        .host = &w->host, .dir = w->o->snapshot_cache, .recipe.watch = w->o->guest_events};
    if (strcmp(options.dir, "none") == 0)
        return;
    if (!options.dir[0]) {
        (void)snprintf(dir, sizeof dir, "%s/snapshots", w->o->state_dir);
        options.dir = dir;
    }
    if (digest_self(options.recipe.worker, &why) < 0 ||
        snapshot_cache_open(&options, &w->cache, &why) < 0)
        log_event(LOG_SNAPSHOT_NOT_CACHED, "text='%s'", why.text);
}

/* What the host can do is asked of the monitors too. */
static int probe(struct worker *w, struct cl_err *err)
{
    char vmm[PATH_MAX];
    if (probe_find_program(w->o->guard, "cloche-guard", w->guard, err) < 0 ||
        probe_find_program(w->o->vmm, "cloche-vmm", vmm, err) < 0)
        return -1;
    if (access(w->guard, X_OK) < 0)
        return cl_fail(err, CL_E_NOTFOUND, errno, "'%s' (set it with --guard)", w->guard);
    copy_monitor(w, vmm);
    host_probe(&(struct probe_programs){w->o->qemu, w->monitor.path}, &w->probe);
    (void)snprintf(w->monitor.build, sizeof w->monitor.build, "%s", w->probe.vmm_build);
    return 0;
}

static int set_network(struct worker *w, struct cl_err *err)
{
    w->net = (struct vm_net_settings){.binary = "", .gid = (gid_t)w->o->vm_gid};
    if (!w->o->network)
        return 0;
    if (probe_find_program(w->o->net, "cloche-net", w->net_path, err) < 0)
        return -1;
    if (access(w->net_path, X_OK) < 0)
        return cl_fail(err, CL_E_NOTFOUND, errno, "'%s' (set it with --net, or --network=no)",
                       w->net_path);
    w->net.binary = w->net_path;
    return vm_net_settings_read(&w->net, w->o->net_private, w->o->net_dns, err);
}

static struct vm_host vm_host_of(const struct worker *w)
{
    return (struct vm_host){.guard = w->guard,
                            .namespaces = w->probe.namespaces,
                            .is_root = w->probe.is_root,
                            .gid = (gid_t)w->o->vm_gid};
}

/* A monitor is cloche-vmm; without one it is QEMU. */
static void add_maker(struct worker *w, const struct vm_driver *driver,
                      const struct monitor_build *monitor, const char *cpu)
{
    w->makers[w->n_makers++] =
        (struct template_maker){.driver = driver,
                                .vmm_build = monitor ? monitor->build : w->probe.qemu_build,
                                .monitor = monitor,
                                .cpu = cpu,
                                .tsc_khz = w->probe.tsc_khz};
}

static int add_qemu(struct worker *w, bool kvm, struct cl_err *err)
{
    if (kvm && !host_probe_has_kvm(&w->probe))
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "driver qemu/kvm: %s", w->probe.driver_why);
    if (!w->probe.qemu_build[0])
        return cl_fail(err, CL_E_NOTFOUND, 0, "no QEMU at '%s': install qemu-system-x86",
                       w->o->qemu);
    if (w->qemu.binary)
        return cl_fail(err, CL_E_INVALID, 0, "drivers: qemu/kvm and qemu/tcg at once");
    w->qemu = (struct qemu_settings){
        .binary = w->o->qemu, .host = vm_host_of(w), .kvm = kvm, .tsc_khz = w->probe.tsc_khz};
    add_maker(w, qemu_driver(&w->qemu), NULL, kvm ? w->probe.cpu_id : "");
    return 0;
}

static int add_kvm(struct worker *w, const char *name, enum kvm_entry entry, struct cl_err *err)
{
    bool native = entry == KVM_ENTRY_NATIVE;
    if (!(native ? w->probe.vmm_can : w->probe.xenpv_can))
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "driver %s: %s", name,
                       native ? w->probe.vmm_why : w->probe.xenpv_why);
    w->kvm.host = vm_host_of(w);
    add_maker(w, kvm_driver(&w->kvm, entry), &w->monitor, w->probe.cpu_id);
    return 0;
}

static int add_driver(struct worker *w, const char *name, struct cl_err *err)
{
    if (w->n_makers == POOL_MAKERS)
        return cl_fail(err, CL_E_INVALID, 0, "more than %d drivers", POOL_MAKERS);
    if (strcmp(name, "kvm") == 0)
        return add_kvm(w, name, KVM_ENTRY_NATIVE, err);
    if (strcmp(name, "kvm/xenpv") == 0)
        return add_kvm(w, name, KVM_ENTRY_XENPV, err);
    if (strcmp(name, "kvm/xenpv-shared") == 0)
        return add_kvm(w, name, KVM_ENTRY_XENPV_SHARED, err);
    if (strcmp(name, "qemu/kvm") == 0 || strcmp(name, "qemu/tcg") == 0)
        return add_qemu(w, strcmp(name, "qemu/kvm") == 0, err);
    return cl_fail(err, CL_E_INVALID, 0,
                   "unknown driver '%s': auto, or of kvm, kvm/xenpv, kvm/xenpv-shared, qemu/kvm, "
                   "qemu/tcg the preferred first, with commas",
                   name);
}

static int add_drivers(struct worker *w, const char *list, struct cl_err *err)
{
    char names[CL_CONF_STR];
    (void)snprintf(names, sizeof names, "%s", list);
    char *rest = names;
    for (char *name; (name = strsep(&rest, ",")) != NULL;) {
        if (add_driver(w, name, err) < 0)
            return -1;
    }
    return 0;
}

static int choose_drivers(struct worker *w, struct cl_err *err)
{
    bool is_auto = strcmp(w->o->driver, "auto") == 0;
    cl_random(w->kvm.key.bytes, sizeof w->kvm.key.bytes);
    return add_drivers(w, is_auto ? w->probe.drivers : w->o->driver, err);
}

static bool is_shared_only(const struct worker *w)
{
    for (size_t i = 0; i < w->n_makers; i++) {
        if (!w->makers[i].driver->is_shared)
            return false;
    }
    return true;
}

static void on_bad_template(void *arg, const char *template, const struct cl_err *why)
{
    (void)arg;
    log_event(LOG_TEMPLATE_BAD, "template=%s text='%s'", template, why->text);
}

static int keep_template(void *arg, const char *name, struct cl_err *err)
{
    struct worker *w = arg;
    return pool_keep(w->pool, name, err);
}

static void forget_template(void *arg, const char *name)
{
    struct worker *w = arg;
    pool_forget(w->pool, name);
}

static int watch_templates(struct worker *w, struct cl_err *err)
{
    struct template_watch_options options = {.dir = w->o->template_dir,
                                             .names = w->o->templates,
                                             .keep = keep_template,
                                             .forget = forget_template,
                                             .arg = w};
    return template_watch_new(&options, w->loop, &w->watch, err);
}

static void on_pool_changed(void *arg)
{
    struct worker *w = arg;
    if (w->session)
        session_pool_changed(w->session);
}

static void on_snapshot_made(void *arg, const char *from)
{
    struct worker *w = arg;
    metrics_add(w->metrics, METRIC_TEMPLATE_SNAPSHOTS, from, NULL, 1);
}

static void unit_started(void *arg, struct unit *u)
{
    struct worker *w = arg;
    metrics_add(w->metrics, METRIC_WARM_HEADS, machine_template(u->machine)->driver->name,
                u->source, 1);
    metrics_observe(w->metrics, METRIC_ACQUIRE_SECONDS, u->source, NULL,
                    u->ready_ns - u->assigned_ns);
    session_unit_events.on_started(w->session, u);
}

static void unit_ended(void *arg, struct unit *u)
{
    struct worker *w = arg;
    if (u->assign->network_grant) {
        metrics_add(w->metrics, METRIC_NETWORK_BYTES, "sent", NULL, u->sent_bytes);
        metrics_add(w->metrics, METRIC_NETWORK_BYTES, "received", NULL, u->received_bytes);
    }
    session_unit_events.on_ended(w->session, u);
}

static void exec_ended(void *arg, struct unit *u, struct exec *e)
{
    struct worker *w = arg;
    session_unit_events.on_exec_ended(w->session, u, e);
}

static bool unit_watched(void *arg, struct unit *u, Cloche__V1__UnitWatched *m)
{
    struct worker *w = arg;
    if (!session_unit_events.on_watched(w->session, u, m))
        return false;
    metrics_add(w->metrics, METRIC_GUEST_EVENTS, NULL, NULL, m->n_events);
    metrics_add(w->metrics, METRIC_NETWORK_EVENTS, NULL, NULL, m->n_network);
    return true;
}

static void unit_idle(void *arg, struct unit *u)
{
    struct worker *w = arg;
    session_unit_events.on_idle(w->session, u);
}

static void unit_room(void *arg)
{
    struct worker *w = arg;
    session_unit_events.on_room(w->session);
}

static void unit_taken(void *arg, struct unit *u)
{
    struct worker *w = arg;
    session_unit_events.on_taken(w->session, u);
}

static void unit_order(void *arg, struct rpc_call *call)
{
    struct worker *w = arg;
    session_unit_events.on_order(w->session, call);
}

static void report_lost(struct worker *w, const struct vm_state *state, const char *why)
{
    struct cl_err err = {0};
    if (session_report_lost(w->session, state, why, &err) < 0)
        log_event(LOG_VM_SWEPT, "vm=%s text='%s'", state->name, err.text);
}

/* One at rest has a state file, too, for its cgroups. */
static void on_lost(void *arg, const struct vm_state *state)
{
    struct worker *w = arg;
    if (units_has_record(&w->units, state->unit_id))
        return;
    log_event(LOG_VM_SWEPT, "vm=%s unit=%s lease=%s", state->name, state->unit_id, state->lease_id);
    report_lost(w, state, "its worker died");
}

static void on_not_restored(void *arg, const Cloche__V1__Assign *a, const struct cl_err *why)
{
    struct vm_state state = {.fence = a->fence, .code_started = 1};
    char text[CL_ERR_TEXT];
    (void)snprintf(state.tenant, sizeof state.tenant, "%s", a->tenant);
    (void)snprintf(state.unit_id, sizeof state.unit_id, "%s", a->unit_id);
    (void)snprintf(state.lease_id, sizeof state.lease_id, "%s", a->lease_id);
    (void)snprintf(text, sizeof text, "it was paused, and cannot go on: %s", why->text);
    report_lost(arg, &state, text);
}

static int restore_units(struct worker *w, struct cl_err *err)
{
    w->past = (struct units_past){.template_dir = w->o->template_dir,
                                  .public_key = w->o->template_key,
                                  .makers = w->makers,
                                  .n_makers = w->n_makers,
                                  .monitor_dir = w->monitor_dir,
                                  .older_monitors = w->o->older_monitors,
                                  .host = &w->host,
                                  .files = w->files,
                                  .lost = on_not_restored,
                                  .arg = w};
    w->units.past = &w->past;
    return units_restore(&w->units, err);
}

static int open_pool(struct worker *w, struct cl_err *err)
{
    struct pool_options options = {
        .host = &w->host,
        .template_dir = w->o->template_dir,
        .public_key = w->o->template_key,
        .n_makers = w->n_makers,
        .warm = (uint32_t)w->o->warm,
        .starts = w->probe.cpus,
        .cache = w->cache,
        .files = w->files,
        .bad = on_bad_template,
        .snapshot_made = on_snapshot_made,
    };
    memcpy(options.makers, w->makers, sizeof options.makers);
    return pool_new(&options, on_pool_changed, w, &w->pool, err);
}

static unsigned count_older(const struct worker *w)
{
    unsigned n = 0;
    CL_LIST_FOREACH (node, (struct cl_list *)(uintptr_t)&w->units.all) {
        const struct unit *u = CL_LIST_ENTRY(node, struct unit, link);
        const struct template *t = u->machine ? machine_template(u->machine) : NULL;
        n += t && t->monitor.sha256[0] && strcmp(t->monitor.sha256, w->monitor.sha256) != 0;
    }
    return n;
}

static void refresh_metrics(void *arg)
{
    struct worker *w = arg;
    struct pool_flavour_info infos[POOL_FLAVOURS];
    size_t n = pool_list(w->pool, infos, POOL_FLAVOURS);
    metrics_clear(w->metrics, METRIC_POOL_PARKED);
    for (size_t i = 0; i < n; i++) {
        metrics_add(w->metrics, METRIC_POOL_PARKED, infos[i].template->m.name, NULL,
                    infos[i].parked);
        metrics_set(w->metrics, METRIC_POOL_FAILURES, infos[i].template->m.name, NULL,
                    infos[i].failures);
    }
    metrics_set(w->metrics, METRIC_VMS, NULL, NULL, w->host.count);
    metrics_set(w->metrics, METRIC_OLDER_MONITORS, NULL, NULL, count_older(w));
    metrics_set(w->metrics, METRIC_SLOTS, "used", NULL, w->units.used_slots);
}

static int open_metrics(struct worker *w, struct cl_err *err)
{
    uint16_t port;
    if (metrics_new(&w->metrics, err) < 0)
        return -1;
    metrics_set(w->metrics, METRIC_BUILD_INFO, "worker", CLOCHE_VERSION, 1);
    if (w->o->metrics[0] && !cl_is_loopback(w->o->metrics) && !w->o->insecure_listen)
        return cl_fail(
            err, CL_E_INVALID, 0,
            "metrics on '%s' are not loopback: put a TLS proxy before them, or --insecure-listen",
            w->o->metrics);
    return w->o->metrics[0] ? metrics_serve(w->loop, w->o->metrics, w->metrics, refresh_metrics, w,
                                            &w->metrics_server, &port, err)
                            : 0;
}

/* NULL where all schedulers are on unix sockets. */
static int load_tls(const struct worker_options *o, SSL_CTX **ret_tls, struct cl_err *err)
{
    struct tls_files files = {.cert = o->tls_cert, .key = o->tls_key, .ca = o->tls_ca};
    struct target_kinds kinds;
    *ret_tls = NULL;
    if (target_kinds_read(o->scheduler, &kinds, err) < 0)
        return cl_wrap(err, "scheduler");
    return kinds.n_loopback + kinds.n_remote == 0 ? 0 : tls_client_new(&files, ret_tls, err);
}

int worker_reload(struct worker *w, struct cl_err *err)
{
    SSL_CTX *fresh;
    pool_set_warm(w->pool, (uint32_t)w->o->warm);
    session_set_disk_reserve(w->session, w->o->disk_reserve);
    w->host.disk_reserve = w->o->disk_reserve;
    if (load_tls(w->o, &fresh, err) < 0)
        return -1;
    if (fresh) {
        session_set_tls(w->session, fresh);
        SSL_CTX_free(w->tls);
        w->tls = fresh;
    }
    return 0;
}

static int open_session(struct worker *w, struct cl_err *err)
{
    if (load_tls(w->o, &w->tls, err) < 0)
        return -1;
    uint64_t memory = w->o->memory ? w->o->memory : w->probe.memory_bytes / 100 * MEMORY_PERCENT;
    uint64_t vcpus = w->o->vcpus ? w->o->vcpus : (uint64_t)w->probe.cpus * VCPUS_PER_CPU;
    uint64_t slots = w->o->slots ? w->o->slots : CL_MIN(memory / CL_MIB / SLOT_MIB, (uint64_t)1024);
    struct session_options options = {
        .loop = w->loop,
        .target = w->o->scheduler,
        .tls = w->tls,
        .worker_id = w->id,
        .driver = w->makers[0].driver->name,
        .is_shared = is_shared_only(w),
        .units = &w->units,
        .pool = w->pool,
        .capacity_vcpu_milli = vcpus * 1000,
        .capacity_memory_mib = memory / CL_MIB,
        .slots = (uint32_t)slots,
        .state_dir = w->o->state_dir,
        .disk_reserve = w->o->disk_reserve,
    };
    return session_new(&options, &w->session, err);
}

/* Guests go on with the old time until they are told. */
static void on_clock_set(void *arg)
{
    struct worker *w = arg;
    CL_LIST_FOREACH (node, &w->units.all) {
        struct unit *u = CL_LIST_ENTRY(node, struct unit, link);
        if (u->machine)
            machine_check_clock(u->machine);
    }
}

static void raise_fd_limit(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) < 0)
        return;
    r.rlim_cur = r.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &r); /* best effort: fewer fds are fewer VMs, and said so */
}

static void on_stopping(void *arg)
{
    struct worker *w = arg;
    if (w->host.count == 0 && w->done) {
        void (*done)(void *) = w->done;
        w->done = NULL;
        done(w->done_arg);
        return;
    }
    cl_timer_start(&w->stopping, 20 * CL_NS_PER_MS);
}

int worker_new(struct cl_loop *loop, const struct worker_options *options,
               struct worker **ret_worker, struct cl_err *err)
{
    struct worker *w = cl_zalloc(sizeof *w);
    if (!w)
        return cl_fail(err, CL_E_NOMEM, 0, "worker");
    w->o = options;
    w->loop = loop;
    raise_fd_limit();
    if (probe(w, err) < 0)
        return -1;
    w->host = (struct machine_host){.loop = loop,
                                    .state_dir = w->vm_dir,
                                    .uid_base = w->probe.is_root ? (uid_t)options->vm_uid_base : 0,
                                    .park_ttl_ns = PARK_TTL_S * CL_NS_PER_S,
                                    .start_timeout_ns = START_TIMEOUT_S * CL_NS_PER_S,
                                    .clock_every_ns = options->clock_every,
                                    .net = &w->net,
                                    .kept_dir = w->kept_dir,
                                    .disk_reserve = options->disk_reserve,
                                    .watch = options->guest_events};
    w->units = (struct units){
        .loop = loop,
        .spool_dir = w->spool_dir,
        .keep_ns = options->output_keep,
        .net = &w->net,
        .record_dir = w->record_dir,
        .events = {unit_started, unit_ended, exec_ended, unit_watched, unit_idle, unit_room,
                   unit_taken, unit_order},
        .watch_limits = {.burst = options->guest_events_burst,
                         .interval_us = CL_NS_PER_S / CL_NS_PER_US / options->guest_events_rate},
        .arg = w};
    if (set_network(w, err) < 0 || make_dirs(w, err) < 0 ||
        claim_take(options->state_dir, options->instance, &w->claim, err) < 0 ||
        load_id(w, err) < 0 || make_kept_dirs(w, err) < 0 || choose_drivers(w, err) < 0 ||
        cl_timer_init(&w->stopping, loop, on_stopping, w, err) < 0 ||
        units_init(&w->units, err) < 0)
        return -1;
    if (options->clock_every > 0 && clock_watch_init(&w->clock, loop, on_clock_set, w, err) < 0)
        return -1;
    cgroup_root_open(options->instance, &w->host.cgroups);
    open_cache(w);
    if (image_files_new(w->loop, &w->files, err) < 0 || open_pool(w, err) < 0 ||
        open_metrics(w, err) < 0)
        return -1;
    w->units.pool = w->pool;
    if (open_session(w, err) < 0 || vm_state_sweep(w->vm_dir, on_lost, w, err) < 0)
        return -1;
    cgroup_root_sweep(&w->host.cgroups);
    if (restore_units(w, err) < 0)
        return -1;
    if (worker_seccomp(err) < 0 || watch_templates(w, err) < 0)
        return -1;
    log_event(LOG_STARTED,
              "worker=%s driver=%s why='%s' cpu='%s' tsc_khz=%llu namespaces=%d cgroups=%d "
              "transition_ns=%llu page_fault_ns=%llu",
              w->id, w->makers[0].driver->name, w->probe.driver_why, w->probe.cpu_model,
              (unsigned long long)w->probe.tsc_khz, w->probe.namespaces, w->host.cgroups.n,
              (unsigned long long)w->probe.transition_ns,
              (unsigned long long)w->probe.page_fault_ns);
    *ret_worker = w;
    return 0;
}

static void on_units_left(void *arg)
{
    struct worker *w = arg;
    cl_timer_start(&w->stopping, 0);
}

void worker_stop(struct worker *w, void (*done)(void *arg), void *arg)
{
    struct cl_err err = {0};
    w->done = done;
    w->done_arg = arg;
    session_close_for_work(w->session, "it is shutting down");
    template_watch_free(w->watch);
    w->watch = NULL;
    pool_stop(w->pool);
    w->stop = (struct stop){.loop = w->loop,
                            .units = &w->units,
                            .session = w->session,
                            .pauses = w->o->pause_on_stop && w->record_dir[0],
                            .done = on_units_left,
                            .arg = w};
    if (stop_begin(&w->stop, &err) < 0) {
        log_event(LOG_STOPPED, "text='%s'", err.text);
        done(arg);
    }
}

void worker_free(struct worker *w)
{
    if (!w)
        return;
    session_free(w->session);
    template_watch_free(w->watch);
    pool_free(w->pool);
    snapshot_cache_free(w->cache);
    image_files_free(w->files);
    units_fini(&w->units);
    clock_watch_fini(&w->clock);
    stop_fini(&w->stop);
    cl_timer_fini(&w->stopping);
    metrics_server_free(w->metrics_server);
    metrics_free(w->metrics);
    SSL_CTX_free(w->tls);
    claim_drop(&w->claim);
    (void)rmdir(w->record_dir); /* unless there is something in it */
    cgroup_root_close(&w->host.cgroups);
    cl_free(w);
}
