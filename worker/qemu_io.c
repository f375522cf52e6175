/* worker/qemu_io.c - the processes, sockets and monitor of QEMU VMs; see worker/qemu.h.
 *
 *   NONE -> SPAWNED -> UP <-> PAUSED <- SAVING_CLONE <- UP
 *              \        \-> SAVING
 *               \___________/---> ENDING -> freed
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/own.h"
#include "worker/qemu.h"
#include "worker/qmp.h"
#include "worker/vm_base.h"

enum {
    QMP_LINES_PER_TURN = 32,
    CONT_TRIES = 200, /* after a save: QEMU says that it is done before it is */
    CONT_AGAIN_MS = 10,
};

enum qemu_state {
    QEMU_SPAWNED = 1,
    QEMU_UP,
    QEMU_PAUSED,
    QEMU_SAVING,
    QEMU_SAVING_CLONE,
    QEMU_ENDING
};

struct qemu_vm {
    struct vm base;
    enum qemu_state state;
    bool goes_on;   /* from a rest */
    int cont_tries; /* left, of going on after a save; 0 once it does */
    struct cl_timer cont_again;
    int qmp; /* owned */
    struct cl_fd_watch qmp_watch;
    struct cl_buf qmp_in;
};

static struct qemu_vm *of(struct vm *vm)
{
    return CL_CONTAINER(vm, struct qemu_vm, base);
}

static const struct qemu_settings *settings; /* set once by qemu_driver() */

/* --- QMP ------------------------------------------------------------------------------------ */

static int qmp_send_fd(struct qemu_vm *q, const char *text, const int *fd, struct cl_err *err)
{
    if (!vm_send(q->qmp, text, strlen(text), fd, fd ? 1 : 0))
        return cl_fail(err, CL_E_UNAVAILABLE, errno, "QEMU's monitor does not listen");
    return 0;
}

static int qmp_send(struct qemu_vm *q, const char *text, struct cl_err *err)
{
    return qmp_send_fd(q, text, NULL, err);
}

static void give_up(struct qemu_vm *q, enum cl_code code, const char *text)
{
    vm_process_kill(&q->base.process, code, text);
}

static const char cont_command[] = "{\"execute\":\"cont\"}\n";

static void on_cont_again(void *arg)
{
    struct qemu_vm *q = arg;
    struct cl_err err = {0};
    if (q->state == QEMU_UP && qmp_send(q, cont_command, &err) < 0)
        give_up(q, err.code, err.text);
}

static void on_migrated(struct qemu_vm *q)
{
    struct cl_err err = {0};
    if (q->state == QEMU_SAVING) {
        vm_base_finish_save(&q->base, NULL);
        give_up(q, CL_E_CANCELLED, "its snapshot is made");
    } else if (q->state == QEMU_SAVING_CLONE) {
        q->state = QEMU_PAUSED;
        q->cont_tries = CONT_TRIES;
        vm_base_finish_save(&q->base, NULL);
    } else if (q->state == QEMU_SPAWNED && q->goes_on && qmp_send(q, cont_command, &err) < 0) {
        give_up(q, err.code, err.text); /* it was saved frozen */
    }
}

/* A save that fails leaves the VM as it was: frozen, and good to go on.  After one that does not,
 * its migration may not be finalized yet, and going on is refused so long. */
static void on_failed(struct qemu_vm *q, const char *text)
{
    struct cl_err err = {0};
    const char *why = text[0] ? text : "QEMU could not restore or save the VM";
    if (q->state == QEMU_UP && q->cont_tries > 0) {
        q->cont_tries--;
        cl_timer_start(&q->cont_again, CONT_AGAIN_MS * CL_NS_PER_MS);
        return;
    }
    if (q->state != QEMU_SAVING_CLONE) {
        give_up(q, CL_E_GUEST, why);
        return;
    }
    q->state = QEMU_PAUSED;
    (void)cl_fail(&err, CL_E_UNAVAILABLE, 0, "the VM could not be saved: %s", why);
    vm_base_finish_save(&q->base, &err);
}

static void on_qmp_line(struct qemu_vm *q, const struct qmp_line *line)
{
    switch (line->kind) {
    case QMP_EVENT_RESUME:
        q->cont_tries = 0;
        if (q->state == QEMU_SPAWNED && q->base.origin == VM_CLONE) {
            q->state = QEMU_UP;
            q->base.events.on_up(q->base.arg);
        }
        break;
    case QMP_MIGRATED:
        on_migrated(q);
        break;
    case QMP_MIGRATE_FAILED:
    case QMP_ERROR:
        on_failed(q, line->text);
        break;
    case QMP_OTHER:
    case QMP_GREETING:
    case QMP_RETURN:
    case QMP_EVENT_STOP:
    case QMP_EVENT_SHUTDOWN:
        break;
    }
}

static void on_qmp(int fd, int what, void *arg)
{
    (void)what;
    struct qemu_vm *q = arg;
    struct cl_err err = {0};
    uint8_t bytes[4096];
    ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            cl_fd_watch_set(&q->qmp_watch, false);
        return;
    }
    if (cl_buf_append(&q->qmp_in, bytes, (size_t)n, &err) < 0) {
        give_up(q, CL_E_PEER, "QEMU's monitor sent an endless line");
        return;
    }
    for (int i = 0; i < QMP_LINES_PER_TURN; i++) {
        uint8_t *end = memchr(q->qmp_in.data, '\n', q->qmp_in.len);
        struct qmp_line line;
        if (!end)
            return;
        size_t len = (size_t)(end - q->qmp_in.data);
        int rc = qmp_parse((const char *)q->qmp_in.data, len, &line, &err);
        cl_buf_consume(&q->qmp_in, len + 1);
        if (rc < 0) {
            give_up(q, CL_E_PEER, err.text);
            return;
        }
        on_qmp_line(q, &line);
    }
}

/* --- end ------------------------------------------------------------------------------------ */

static void qemu_free(void *vm)
{
    struct qemu_vm *q = of(vm);
    vm_base_fini(&q->base);
    cl_fd_watch_fini(&q->qmp_watch);
    cl_timer_fini(&q->cont_again);
    cl_closep(&q->qmp);
    cl_buf_fini(&q->qmp_in);
    cl_free(q);
}

static void on_process_end(void *arg, const struct cl_err *why)
{
    of(arg)->state = QEMU_ENDING;
    vm_base_end(arg, why, qemu_free);
}

static void on_started(void *arg)
{
    struct qemu_vm *q = of(arg);
    if (q->base.origin == VM_BOOT && q->state == QEMU_SPAWNED) {
        q->state = QEMU_UP;
        q->base.events.on_up(q->base.arg);
    }
}

/* --- start ---------------------------------------------------------------------------------- */

static int open_ends(struct qemu_vm *q, const struct vm_spec *spec, struct vm_fds *far,
                     struct cl_err *err)
{
    struct template *t = q->base.template;
    bool boot = q->base.origin == VM_BOOT;
    int state = spec->rest ? spec->rest->state : t->state_fd;
    if (vm_process_open(&q->base.process, far, err) < 0 ||
        vm_base_open_body(&q->base, &far->at[QEMU_FD_CHANNEL], &far->at[QEMU_FD_DISK], err) < 0 ||
        vm_pair(SOCK_STREAM, &q->qmp, &far->at[QEMU_FD_QMP], err) < 0 ||
        vm_reopen(t->ram_fd, O_RDWR, &far->at[QEMU_FD_RAM], err) < 0 ||
        vm_reopen(state, boot ? O_RDWR : O_RDONLY, &far->at[QEMU_FD_STATE], err) < 0 ||
        vm_reopen(t->rootfs_fd, O_RDONLY, &far->at[QEMU_FD_ROOTFS], err) < 0)
        return -1;
    if (!boot)
        return 0;
    far->at[QEMU_FD_CONSOLE] = fcntl(far->at[STDERR_FILENO], F_DUPFD_CLOEXEC, 3);
    if (far->at[QEMU_FD_CONSOLE] < 0)
        return cl_fail(err, CL_E_SYS, errno, "console");
    if (vm_reopen(t->kernel_fd, O_RDONLY, &far->at[QEMU_FD_KERNEL], err) < 0)
        return -1;
    return vm_reopen(t->initrd_fd, O_RDONLY, &far->at[QEMU_FD_INITRD], err);
}

static int spawn(struct qemu_vm *q, const struct vm_spec *spec, struct vm_fds *far,
                 struct cl_err *err)
{
    struct qemu_args qemu;
    if (qemu_args_build(settings, spec, &qemu, err) < 0)
        return -1;
    struct vm_command command = {
        .host = &settings->host, .spec = spec, .jail = settings->kvm ? "k" : "", .argv = qemu.argv};
    int rc = vm_process_spawn(&q->base.process, &command, far, err);
    qemu_args_fini(&qemu);
    return rc;
}

static const char clone_commands[] =
    "{\"execute\":\"qmp_capabilities\"}\n"
    "{\"execute\":\"migrate-set-capabilities\",\"arguments\":{\"capabilities\":["
    "{\"capability\":\"x-ignore-shared\",\"state\":true},{\"capability\":\"events\",\"state\":true}"
    "]}}\n"
    "{\"execute\":\"migrate-incoming\",\"arguments\":{\"uri\":\"fd:7\"}}\n";
_Static_assert(QEMU_FD_STATE == 7, "clone_commands names it");

static const char boot_commands[] =
    "{\"execute\":\"qmp_capabilities\"}\n"
    "{\"execute\":\"migrate-set-capabilities\",\"arguments\":{\"capabilities\":["
    "{\"capability\":\"x-ignore-shared\",\"state\":true},{\"capability\":\"events\",\"state\":true}"
    "]}}\n";

/* Not stopped first: the stored run state would be "paused", and each clone would need a "cont".
 * Outgoing migration takes only fds that came by getfd; exec: and spawn=deny exclude each other. */
static const char getfd_command[] =
    "{\"execute\":\"getfd\",\"arguments\":{\"fdname\":\"state\"}}\n";
static const char save_command[] =
    "{\"execute\":\"migrate\",\"arguments\":{\"uri\":\"fd:state\"}}\n";

static int start_all(struct qemu_vm *q, const struct vm_spec *spec, struct vm_fds *far,
                     struct cl_err *err)
{
    if (open_ends(q, spec, far, err) < 0 ||
        vm_base_open_wire(&q->base, SOCK_DGRAM, &far->at[QEMU_FD_WIRE], err) < 0 ||
        qmp_send(q, spec->origin == VM_BOOT ? boot_commands : clone_commands, err) < 0 ||
        cl_timer_init(&q->cont_again, q->base.process.loop, on_cont_again, q, err) < 0 ||
        cl_fd_watch_init(&q->qmp_watch, q->base.process.loop, q->qmp, CL_READ, on_qmp, q, err) < 0)
        return -1;
    return spawn(q, spec, far, err);
}

static int qemu_start(struct cl_loop *loop, const struct vm_spec *spec,
                      const struct vm_events *events, void *arg, struct vm **ret_vm,
                      struct cl_err *err)
{
    const struct vm_birth birth = {loop, spec, events, arg, "QEMU", {on_started, on_process_end}};
    struct qemu_vm *q = cl_zalloc(sizeof *q);
    if (!q)
        return cl_fail(err, CL_E_NOMEM, 0, "vm");
    vm_base_init(&q->base, &birth);
    q->state = QEMU_SPAWNED;
    q->goes_on = spec->rest != NULL;
    q->qmp = -1;
    cl_buf_init(&q->qmp_in, QMP_LINE_MAX);
    struct vm_fds far;
    vm_fds_init(&far);
    int rc = start_all(q, spec, &far, err);
    vm_fds_close(&far);
    if (rc < 0) {
        qemu_free(&q->base);
        return -1;
    }
    *ret_vm = &q->base;
    return 0;
}

/* --- verbs ---------------------------------------------------------------------------------- */

static int qemu_pause(struct vm *vm, struct cl_err *err)
{
    of(vm)->state = QEMU_PAUSED;
    return qmp_send(of(vm), "{\"execute\":\"stop\"}\n", err);
}

static int qemu_resume(struct vm *vm, struct cl_err *err)
{
    of(vm)->state = QEMU_UP;
    return qmp_send(of(vm), cont_command, err);
}

static int qemu_grow_disk(struct vm *vm, uint64_t bytes, struct cl_err *err)
{
    char text[128];
    if (vm->body->disk < 0 || bytes <= vm->body->disk_bytes)
        return 0;
    (void)snprintf(text, sizeof text,
                   "{\"execute\":\"block_resize\",\"arguments\":{\"device\":\"scratch\","
                   "\"size\":%" PRIu64 "}}\n",
                   bytes);
    vm->body->disk_bytes = bytes;
    return qmp_send(of(vm), text, err);
}

static int qemu_snapshot(struct vm *vm, vm_done_fn *done, void *arg, struct cl_err *err)
{
    struct qemu_vm *q = of(vm);
    CL_ASSERT(vm->origin == VM_BOOT && q->state == QEMU_UP);
    CL_AUTO(cl_closep) int state = -1;
    if (vm_reopen(vm->template->state_fd, O_RDWR, &state, err) < 0 ||
        qmp_send_fd(q, getfd_command, &state, err) < 0 || qmp_send(q, save_command, err) < 0)
        return -1;
    q->state = QEMU_SAVING;
    vm_base_await_save(vm, done, arg);
    return 0;
}

/* Its memory is private, so that it goes into the stream with the rest; by default no faster than a
 * gigabit line. */
static int qemu_save(struct vm *vm, const struct vm_rest *rest, vm_done_fn *done, void *arg,
                     struct cl_err *err)
{
    static const char prepare[] =
        "{\"execute\":\"stop\"}\n"
        "{\"execute\":\"migrate-set-parameters\",\"arguments\":{\"max-bandwidth\":68719476736}}\n";
    struct qemu_vm *q = of(vm);
    CL_ASSERT(vm->origin == VM_CLONE && q->state == QEMU_UP);
    CL_AUTO(cl_closep) int state = -1;
    if (vm_reopen(rest->state, O_RDWR, &state, err) < 0 || qmp_send(q, prepare, err) < 0 ||
        qmp_send_fd(q, getfd_command, &state, err) < 0 || qmp_send(q, save_command, err) < 0)
        return -1;
    q->state = QEMU_SAVING_CLONE;
    vm_base_await_save(vm, done, arg);
    return 0;
}

#define QEMU_VERBS \
    .start = qemu_start, .pause = qemu_pause, .resume = qemu_resume, .grow_disk = qemu_grow_disk, \
    .save = qemu_save, .snapshot = qemu_snapshot, VM_BASE_VERBS

static const struct vm_driver qemu_tcg = {.name = "qemu/tcg", QEMU_VERBS};
static const struct vm_driver qemu_kvm = {.name = "qemu/kvm", QEMU_VERBS};

const struct vm_driver *qemu_driver(const struct qemu_settings *s)
{
    settings = s;
    return s->kvm ? &qemu_kvm : &qemu_tcg;
}
