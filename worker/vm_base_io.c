/* worker/vm_base_io.c - see worker/vm_base.h. */
#include "worker/vm_base.h"

#include <errno.h>
#include <fcntl.h>

#include "base/own.h"

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
                      .body = birth->spec->body,
                      .wire = -1};
}

void vm_base_fini(struct vm *vm)
{
    vm_process_fini(&vm->process);
    cl_closep(&vm->wire);
    template_unref(vm->template);
}

int vm_base_open_body(const struct vm *vm, int *ret_channel, int *ret_disk, struct cl_err *err)
{
    *ret_disk = -1;
    *ret_channel = fcntl(vm->body->channel_far, F_DUPFD_CLOEXEC, 3);
    if (*ret_channel < 0)
        return cl_fail(err, CL_E_SYS, errno, "the agent's channel");
    if (vm->body->disk < 0)
        return 0;
    *ret_disk = fcntl(vm->body->disk, F_DUPFD_CLOEXEC, 3);
    return *ret_disk < 0 ? cl_fail(err, CL_E_SYS, errno, "scratch disk") : 0;
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
