/* worker/vm_base_io.c - see worker/vm_base.h. */
#include "worker/vm_base.h"

#include <errno.h>
#include <fcntl.h>

#include "base/own.h"
#include "worker/disk.h"

void vm_base_init(struct vm *vm, const struct vm_birth *birth)
{
    *vm = (struct vm){.process = {.loop = birth->loop,
                                  .what = birth->what,
                                  .events = birth->process_events,
                                  .arg = vm},
                      .template = template_ref(birth->spec->template),
                      .events = *birth->events,
                      .arg = birth->arg,
                      .origin = birth->spec->origin,
                      .channel = -1,
                      .wire = -1,
                      .disk = -1};
}

void vm_base_fini(struct vm *vm)
{
    vm_process_fini(&vm->process);
    cl_closep(&vm->channel);
    cl_closep(&vm->wire);
    cl_closep(&vm->disk);
    template_unref(vm->template);
}

/* A clone's disk holds what the booted VM's held when its snapshot was made: the guest's RAM knows
 * that file system. */
static int make_disk(struct vm *vm, const struct vm_spec *spec, struct cl_err *err)
{
    struct template *t = vm->template;
    bool boot = vm->origin == VM_BOOT;
    if (disk_make(spec->disk_dir, boot ? t->scratch_fd : t->disk_fd, vm->disk_bytes, &vm->disk,
                  err) < 0)
        return -1;
    if (boot) {
        cl_closep(&t->disk_fd);
        t->disk_fd = fcntl(vm->disk, F_DUPFD_CLOEXEC, 3);
    }
    return t->disk_fd < 0 ? cl_fail(err, CL_E_SYS, errno, "scratch disk") : 0;
}

int vm_base_open_disk(struct vm *vm, const struct vm_spec *spec, int *ret_fd, struct cl_err *err)
{
    *ret_fd = -1;
    vm->disk_bytes = DISK_DEFAULT_MIB * CL_MIB;
    if (vm->template->scratch_fd < 0)
        return 0;
    if (make_disk(vm, spec, err) < 0)
        return -1;
    *ret_fd = fcntl(vm->disk, F_DUPFD_CLOEXEC, 3);
    return *ret_fd < 0 ? cl_fail(err, CL_E_SYS, errno, "scratch disk") : 0;
}

int vm_base_open_wire(struct vm *vm, int type, int *ret_fd, struct cl_err *err)
{
    *ret_fd = -1;
    return vm->template->network ? vm_pair(type, &vm->wire, ret_fd, err) : 0;
}

int vm_base_take_wire(struct vm *vm)
{
    return cl_steal_fd(&vm->wire);
}

void vm_base_await_save(struct vm *vm, vm_done_fn *done, void *arg)
{
    vm->saved = done;
    vm->saved_arg = arg;
}

void vm_base_finish_save(struct vm *vm, const struct cl_err *err)
{
    vm_done_fn *done = vm->saved;
    vm->saved = NULL;
    if (done)
        done(vm->saved_arg, err);
}

void vm_base_end(struct vm *vm, const struct cl_err *why, void (*destroy)(void *vm))
{
    vm_base_finish_save(vm, why);
    vm->events.on_end(vm->arg, why);
    cl_loop_bury(vm->process.loop, &vm->grave, destroy, vm);
}

/* --- verbs ----------------------------------------------------------------------------------- */

int vm_base_channel(const struct vm *vm)
{
    return vm->channel;
}

uint64_t vm_base_disk_taken(const struct vm *vm)
{
    return vm->disk < 0 ? UINT64_MAX : disk_taken(vm->disk);
}

void vm_base_set_deadline(struct vm *vm, uint64_t deadline_ns)
{
    vm_process_set_deadline(&vm->process, deadline_ns);
}

void vm_base_stop(struct vm *vm)
{
    vm_process_kill(&vm->process, CL_E_CANCELLED, "stopped");
}

int vm_base_stats(const struct vm *vm, struct vm_stats *ret_stats, struct cl_err *err)
{
    return vm_process_stats(&vm->process, ret_stats, err);
}

pid_t vm_base_pid(const struct vm *vm)
{
    return vm->process.pid;
}

pid_t vm_base_guard_pid(const struct vm *vm)
{
    return vm->process.guard_pid;
}
