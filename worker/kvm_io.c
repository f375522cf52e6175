/* worker/kvm_io.c - the processes and control sockets of cloche-vmm; see worker/kvm.h.
 *
 *   STARTING ─► UP ⇄ PAUSED ◄─ SAVING_CLONE ◄─ UP
 *       │       └──► SAVING
 *       └──────────────┴──────► ENDING ─► freed
 */
#include "worker/kvm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/own.h"
#include "net/control.h"
#include "vmm/control.h"
#include "vmm/net.h"
#include "vmm/xenpv.h"
#include "worker/vm_base.h"

_Static_assert((int)NET_MTU == (int)NET_LINK_MTU, "both ends of a wire");

enum { CONTROL_FD = 4, EVENTS_PER_TURN = 8, XENPV_MEM_MAX_MIB = XENPV_MEM_MAX >> 20 };

enum kvm_state { KVM_STARTING = 1, KVM_UP, KVM_PAUSED, KVM_SAVING, KVM_SAVING_CLONE, KVM_ENDING };

struct kvm_vm {
    struct vm base;
    enum kvm_state state;
    int control;           /* owned */
    struct cl_list asking; /* of struct vm_counts_query; one question is under way for all */
    struct cl_fd_watch control_watch;
};

static struct kvm_vm *of(struct vm *vm)
{
    return CL_CONTAINER(vm, struct kvm_vm, base);
}

static const struct kvm_settings *settings; /* by kvm_driver() */

/* What an entry needs of its guest.  kvm-clock is the one clock that is right after a restore, and
 * nothing but a triple fault resets; a Xen-PV guest has Xen's clock and asks its shim. */
static const struct {
    const char *cmdline;
    uint8_t flags; /* enum control_boot */
} entries[] = {
    [KVM_ENTRY_NATIVE] = {"clocksource=kvm-clock reboot=t", 0},
    [KVM_ENTRY_XENPV] = {"clocksource=xen", CONTROL_BOOT_BY_XENPV | CONTROL_BOOT_ISOLATED},
    [KVM_ENTRY_XENPV_SHARED] = {"clocksource=xen", CONTROL_BOOT_BY_XENPV},
};

static enum kvm_entry entry_of(const struct kvm_vm *k);

/* --- what the monitor says ------------------------------------------------------------------- */

static void on_saved(struct kvm_vm *k)
{
    struct cl_err err = {0};
    if (k->state == KVM_SAVING_CLONE) {
        k->state = KVM_PAUSED;
        vm_base_finish_save(&k->base, NULL);
    }
    if (k->state != KVM_SAVING)
        return;
    bool good = state_mac_make(&settings->key, k->base.template, &err) == 0;
    vm_base_finish_save(&k->base, good ? NULL : &err);
    vm_process_kill(&k->base.process, CL_E_CANCELLED, "its snapshot is made");
}

static void on_not_saved(struct kvm_vm *k, const char *why)
{
    struct cl_err err = {0};
    if (k->state != KVM_SAVING_CLONE)
        return;
    k->state = KVM_PAUSED;
    (void)cl_fail(&err, CL_E_UNAVAILABLE, 0, "the VM could not be saved: %s", why);
    vm_base_finish_save(&k->base, &err);
}

static void tell_counts(struct kvm_vm *k, const struct vm_counts *counts, const struct cl_err *err)
{
    while (!cl_list_empty(&k->asking)) {
        struct vm_counts_query *q = CL_LIST_ENTRY(k->asking.next, struct vm_counts_query, link);
        cl_list_unlink(&q->link);
        q->fn(q->arg, counts, err);
    }
}

static void on_event(struct kvm_vm *k, const struct control_message *m)
{
    if (m->type == CONTROL_UP && k->state == KVM_STARTING) {
        k->state = KVM_UP;
        k->base.events.on_up(k->base.arg);
    } else if (m->type == CONTROL_SAVED) {
        on_saved(k);
    } else if (m->type == CONTROL_NOT_SAVED) {
        on_not_saved(k, m->ended.text);
    } else if (m->type == CONTROL_STATS_ARE) {
        tell_counts(k, &m->stats.counts, NULL);
    } else if (m->type == CONTROL_ENDED) {
        vm_process_kill(&k->base.process,
                        m->ended.cause == CONTROL_END_STOPPED ? CL_E_CANCELLED : CL_E_GUEST,
                        m->ended.text);
    }
}

/* One event; false when there is none (any more). */
static bool receive(struct kvm_vm *k)
{
    struct control_message raw, m;
    struct cl_err err = {0};
    ssize_t n = recv(k->control, &raw, sizeof raw, MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) { /* its end is told by the guardian */
        cl_fd_watch_set(&k->control_watch, false);
        return false;
    }
    if (control_parse_event(&raw, (size_t)n, &m, &err) < 0) {
        cl_fd_watch_set(&k->control_watch, false);
        vm_process_kill(&k->base.process, CL_E_GUEST, err.text);
        return false;
    }
    on_event(k, &m);
    return true;
}

static void on_control(int fd, int what, void *arg)
{
    (void)fd, (void)what;
    struct kvm_vm *k = arg;
    for (int i = 0; i < EVENTS_PER_TURN && receive(k); i++)
        continue;
}

/* --- what it is told ------------------------------------------------------------------------- */

static int send_message(struct kvm_vm *k, const struct control_message *m, const int *fds, size_t n,
                        struct cl_err *err)
{
    if (!vm_send(k->control, m, sizeof *m, fds, n))
        return cl_fail(err, CL_E_UNAVAILABLE, errno, "cloche-vmm does not listen");
    return 0;
}

static int tell(struct kvm_vm *k, enum control_type type, struct cl_err *err)
{
    struct control_message m = {.type = type};
    return send_message(k, &m, NULL, 0, err);
}

static int send_cmdline(struct kvm_vm *k, struct cl_err *err)
{
    struct control_message m = {.type = CONTROL_CMDLINE};
    int n = snprintf(m.cmdline.text, sizeof m.cmdline.text, "%s %s", k->base.template->m.cmdline,
                     entries[entry_of(k)].cmdline);
    if (n < 0 || n > CONTROL_CMDLINE_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "a kernel command line of %d bytes", n);
    m.cmdline.bytes = (uint32_t)n;
    return send_message(k, &m, NULL, 0, err);
}

/* --- start ----------------------------------------------------------------------------------- */

/* What a monitor is given, by enum control_fd. */
struct gifts {
    int at[CONTROL_FDS]; /* owned; -1 = none */
};

static void gifts_close(struct gifts *g)
{
    for (int i = 0; i < CONTROL_FDS; i++)
        cl_closep(&g->at[i]);
}

/* A boot writes the memory that becomes the snapshot; a clone reads it and writes copies, so the
 * files are opened for reading only: a second lock besides their seals. */
static int open_memory(const struct kvm_vm *k, const struct vm_spec *spec, struct gifts *g,
                       struct cl_err *err)
{
    const struct template *t = k->base.template;
    const struct vm_rest *rest = spec->rest;
    bool boot = spec->origin == VM_BOOT;
    int flags = boot ? O_RDWR : O_RDONLY;
    if (vm_reopen(t->ram_fd, flags, &g->at[CONTROL_FD_RAM], err) < 0 ||
        vm_reopen(rest ? rest->state : t->state_fd, flags, &g->at[CONTROL_FD_STATE], err) < 0 ||
        (rest && vm_reopen(rest->memory, O_RDONLY, &g->at[CONTROL_FD_DELTA], err) < 0))
        return -1;
    if (!boot) /* what a VM left is its own affair; a template's is everybody's */
        return rest ? 0 : state_mac_check(&settings->key, t, err);
    if (vm_reopen(t->kernel_fd, O_RDONLY, &g->at[CONTROL_FD_KERNEL], err) < 0)
        return -1;
    return vm_reopen(t->initrd_fd, O_RDONLY, &g->at[CONTROL_FD_INITRD], err);
}

static int open_gifts(struct kvm_vm *k, const struct vm_spec *spec, const struct vm_fds *far,
                      struct gifts *g, struct cl_err *err)
{
    bool boot = spec->origin == VM_BOOT;
    int *channel = &g->at[CONTROL_FD_CHANNEL], *console = &g->at[CONTROL_FD_CONSOLE];
    g->at[CONTROL_FD_KVM] = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    if (g->at[CONTROL_FD_KVM] < 0)
        return cl_fail(err, CL_E_SYS, errno, "open /dev/kvm");
    if (vm_base_open_body(&k->base, channel, &g->at[CONTROL_FD_SCRATCH], err) < 0)
        return -1;
    if (boot) /* the console goes where stderr goes: its last lines explain a boot that fails */
        *console = fcntl(far->at[STDERR_FILENO], F_DUPFD_CLOEXEC, 3);
    if ((boot && (*console < 0 || fcntl(*console, F_SETFL, O_NONBLOCK) < 0)) ||
        fcntl(*channel, F_SETFL, O_NONBLOCK) < 0)
        return cl_fail(err, CL_E_SYS, errno, "console and channel");
    if (vm_reopen(k->base.template->rootfs_fd, O_RDONLY, &g->at[CONTROL_FD_ROOT], err) < 0 ||
        vm_base_open_wire(&k->base, SOCK_SEQPACKET, &g->at[CONTROL_FD_NET], err) < 0)
        return -1;
    return open_memory(k, spec, g, err);
}

static int send_setup(struct kvm_vm *k, const struct vm_spec *spec, const struct gifts *g,
                      struct cl_err *err)
{
    bool boot = spec->origin == VM_BOOT;
    struct control_message m = {.type = boot ? CONTROL_BOOT : CONTROL_RESTORE,
                                .setup = {.version = CONTROL_VERSION,
                                          .vcpus = k->base.template->vcpus,
                                          .mem_bytes = k->base.template->memory_mib * CL_MIB,
                                          .flags = entries[entry_of(k)].flags}};
    /* A template's state bears a key of this process (worker/state_mac.h), which saved it or read
     * it from the cache of this start of the host. */
    m.setup.flags |= boot ? CONTROL_BOOT_OWN_RAM : spec->is_elsewhere ? 0 : CONTROL_RESTORE_HERE;
    static const uint8_t mac[CONTROL_MAC_BYTES] = NET_GUEST_MAC;
    if (g->at[CONTROL_FD_NET] >= 0)
        memcpy(m.setup.mac, mac, sizeof mac);
    int fds[CONTROL_FDS];
    size_t n = 0;
    for (unsigned i = 0; i < CONTROL_FDS; i++) {
        if (g->at[i] < 0)
            continue;
        m.setup.fds |= 1U << i;
        fds[n++] = g->at[i];
    }
    return send_message(k, &m, fds, n, err);
}

static int spawn(struct kvm_vm *k, const struct vm_spec *spec, struct vm_fds *far,
                 struct cl_err *err)
{
    char control[16];
    (void)snprintf(control, sizeof control, "%d", CONTROL_FD);
    char *argv[] = {k->base.template->monitor.path, control, NULL};
    struct vm_command command = {.host = &settings->host, .spec = spec, .jail = "b", .argv = argv};
    return vm_process_spawn(&k->base.process, &command, far, err);
}

/* Everything is said before there is anybody to hear it: the socket keeps it. */
static int start_all(struct kvm_vm *k, const struct vm_spec *spec, struct vm_fds *far,
                     struct gifts *gifts, struct cl_err *err)
{
    bool boot = spec->origin == VM_BOOT;
    if (vm_process_open(&k->base.process, far, err) < 0 ||
        vm_pair(SOCK_SEQPACKET, &k->control, &far->at[CONTROL_FD], err) < 0 ||
        open_gifts(k, spec, far, gifts, err) < 0 || send_setup(k, spec, gifts, err) < 0 ||
        (boot && send_cmdline(k, err) < 0) || tell(k, CONTROL_START, err) < 0 ||
        cl_fd_watch_init(&k->control_watch, k->base.process.loop, k->control, CL_READ, on_control,
                         k, err) < 0)
        return -1;
    return spawn(k, spec, far, err);
}

static void kvm_free(void *vm)
{
    struct kvm_vm *k = of(vm);
    vm_base_fini(&k->base);
    cl_fd_watch_fini(&k->control_watch);
    cl_closep(&k->control);
    cl_free(k);
}

static void on_started(void *arg)
{
    (void)arg; /* it is up when it says so */
}

static void on_process_end(void *arg, const struct cl_err *why)
{
    struct cl_err err = {0};
    of(arg)->state = KVM_ENDING;
    (void)cl_fail(&err, CL_E_UNAVAILABLE, 0, "the VM has ended");
    tell_counts(of(arg), NULL, &err);
    vm_base_end(arg, why, kvm_free);
}

static int kvm_start(struct cl_loop *loop, const struct vm_spec *spec,
                     const struct vm_events *events, void *arg, struct vm **ret_vm,
                     struct cl_err *err)
{
    const struct vm_birth birth = {loop, spec,         events,
                                   arg,  "cloche-vmm", {on_started, on_process_end}};
    struct kvm_vm *k = cl_zalloc(sizeof *k);
    if (!k)
        return cl_fail(err, CL_E_NOMEM, 0, "vm");
    vm_base_init(&k->base, &birth);
    k->state = KVM_STARTING;
    k->control = -1;
    cl_list_init(&k->asking);
    struct vm_fds far;
    struct gifts gifts;
    vm_fds_init(&far);
    memset(gifts.at, 0xff, sizeof gifts.at);
    int rc = start_all(k, spec, &far, &gifts, err);
    vm_fds_close(&far);
    gifts_close(&gifts);
    if (rc < 0) {
        kvm_free(&k->base);
        return -1;
    }
    *ret_vm = &k->base;
    return 0;
}

/* --- verbs ----------------------------------------------------------------------------------- */

static int kvm_pause(struct vm *vm, struct cl_err *err)
{
    of(vm)->state = KVM_PAUSED;
    return tell(of(vm), CONTROL_PAUSE, err);
}

static int kvm_resume(struct vm *vm, struct cl_err *err)
{
    of(vm)->state = KVM_UP;
    return tell(of(vm), CONTROL_RESUME, err);
}

static int kvm_grow_disk(struct vm *vm, uint64_t bytes, struct cl_err *err)
{
    struct control_message m = {.type = CONTROL_GROW, .grow = {.disk_bytes = bytes}};
    struct vm_body *body = vm->body;
    if (body->disk < 0 || bytes <= body->disk_bytes)
        return 0;
    if (ftruncate(body->disk, (off_t)bytes) < 0)
        return cl_fail(err, CL_E_SYS, errno, "enlarge the scratch disk");
    body->disk_bytes = bytes;
    return send_message(of(vm), &m, NULL, 0, err);
}

static int kvm_record(struct vm *vm, struct cl_err *err)
{
    return tell(of(vm), CONTROL_RECORD, err);
}

static int kvm_snapshot(struct vm *vm, vm_done_fn *done, void *arg, struct cl_err *err)
{
    struct kvm_vm *k = of(vm);
    CL_ASSERT(k->state == KVM_UP);
    if (tell(k, CONTROL_PAUSE, err) < 0 || tell(k, CONTROL_SAVE, err) < 0)
        return -1;
    k->state = KVM_SAVING;
    vm_base_await_save(vm, done, arg);
    return 0;
}

static int kvm_save(struct vm *vm, const struct vm_rest *rest, vm_done_fn *done, void *arg,
                    struct cl_err *err)
{
    struct kvm_vm *k = of(vm);
    struct control_message m = {.type = CONTROL_SAVE_CLONE};
    CL_ASSERT(k->state == KVM_UP);
    CL_AUTO(cl_closep) int state = -1, memory = -1;
    if (vm_reopen(rest->state, O_RDWR, &state, err) < 0 ||
        vm_reopen(rest->memory, O_RDWR, &memory, err) < 0 || tell(k, CONTROL_PAUSE, err) < 0 ||
        send_message(k, &m, (const int[]){state, memory}, 2, err) < 0)
        return -1;
    k->state = KVM_SAVING_CLONE;
    vm_base_await_save(vm, done, arg);
    return 0;
}

static int kvm_adopt(struct template *t, struct cl_err *err)
{
    return state_mac_make(&settings->key, t, err);
}

static int kvm_ask_counts(struct vm *vm, struct vm_counts_query *query, struct cl_err *err)
{
    struct kvm_vm *k = of(vm);
    if (k->state != KVM_UP && k->state != KVM_PAUSED)
        return cl_fail(err, CL_E_STATE, 0, "the VM does not run");
    if (cl_list_empty(&k->asking) && tell(k, CONTROL_STATS, err) < 0)
        return -1;
    cl_list_push(&k->asking, &query->link);
    return 0;
}

#define KVM_VERBS \
    .snapshot_is_copy = true, .start = kvm_start, .pause = kvm_pause, .resume = kvm_resume, \
    .grow_disk = kvm_grow_disk, .record = kvm_record, .save = kvm_save, .snapshot = kvm_snapshot, \
    .adopt = kvm_adopt, .ask_counts = kvm_ask_counts, VM_BASE_VERBS

#define XENPV_LIMITS .vcpus_max = XENPV_VCPUS_MAX, .memory_max_mib = XENPV_MEM_MAX_MIB

static const struct vm_driver drivers[] = {
    [KVM_ENTRY_NATIVE] = {.name = "kvm", KVM_VERBS},
    [KVM_ENTRY_XENPV] = {.name = "kvm/xenpv", XENPV_LIMITS, KVM_VERBS},
    [KVM_ENTRY_XENPV_SHARED] = {.name = "kvm/xenpv", .is_shared = true, XENPV_LIMITS, KVM_VERBS},
};

static enum kvm_entry entry_of(const struct kvm_vm *k)
{
    return (enum kvm_entry)(k->base.template->driver - drivers);
}

const struct vm_driver *kvm_driver(const struct kvm_settings *s, enum kvm_entry entry)
{
    settings = s;
    return &drivers[entry];
}
