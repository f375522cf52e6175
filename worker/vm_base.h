/* worker/vm_base.h - what a VM is, whichever monitor runs it: the first member of a driver's own
 * struct, and the verbs of struct vm_driver that need no monitor.
 *
 * Owns:    the process, the wire, a reference to the template.
 * Borrows: the body, the events' arg.
 * Thread:  the worker loop.
 */
#ifndef CL_WORKER_VM_BASE_H
#define CL_WORKER_VM_BASE_H

#include "worker/vm_body.h"
#include "worker/vm_process.h"

struct vm {
    struct vm_process process;
    struct template *template; /* owned reference */
    struct vm_events events;
    void *arg;
    enum vm_origin origin;
    struct vm_body *body; /* borrowed */
    int wire; /* owned: the near end of the network card's wire; -1 = no card, or given away */
    vm_done_fn *saved; /* NULL unless a snapshot or a save is under way */
    void *saved_arg;
    struct cl_grave grave;
};

struct vm_birth {
    struct cl_loop *loop;
    const struct vm_spec *spec; /* borrowed during the call, but for its template */
    const struct vm_events *events;
    void *arg;
    const char *what; /* static: "QEMU", for texts */
    struct vm_process_events process_events;
};

void vm_base_init(struct vm *vm, const struct vm_birth *birth);
void vm_base_fini(struct vm *vm);
/* Descriptors of the body for the monitor: of the channel's far end, and of the scratch disk (-1 =
 * none). */
int vm_base_open_body(const struct vm *vm, int *ret_channel, int *ret_disk,
                      struct cl_err *err) CL_MUST;
/* Make the wire of the network card, of a template that has one; *ret_fd is the monitor's end, else
 * -1.  A frame is a message of a socket of this type. */
int vm_base_open_wire(struct vm *vm, int type, int *ret_fd, struct cl_err *err) CL_MUST;
void vm_base_await_save(struct vm *vm, vm_done_fn *done, void *arg);
/* Answer who waits for a snapshot, if somebody does. */
void vm_base_finish_save(struct vm *vm, const struct cl_err *err);
/* The process is gone: the last event; `destroy` gets the vm after this turn of the loop. */
void vm_base_end(struct vm *vm, const struct cl_err *why, void (*destroy)(void *vm));

/* Verbs of struct vm_driver. */
int vm_base_take_wire(struct vm *vm);
void vm_base_set_deadline(struct vm *vm, uint64_t deadline_ns);
void vm_base_stop(struct vm *vm);
int vm_base_stats(const struct vm *vm, struct vm_stats *ret_stats, struct cl_err *err) CL_MUST;
pid_t vm_base_pid(const struct vm *vm);
pid_t vm_base_guard_pid(const struct vm *vm);
#define VM_BASE_VERBS \
    .take_wire = vm_base_take_wire, .set_deadline = vm_base_set_deadline, .stop = vm_base_stop, \
    .stats = vm_base_stats, .pid = vm_base_pid, .guard_pid = vm_base_guard_pid

#endif
