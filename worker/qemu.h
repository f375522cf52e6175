/* worker/qemu.h - the driver `qemu`: QEMU's microvm machine, TCG or KVM.
 *
 * Clones are restored from the template's sealed RAM (MAP_PRIVATE) and device state; nothing is
 * booted per job.  QEMU does not call TCG a security boundary, so its jail is the real one
 * (worker/jail.h) on top of QEMU's own seccomp sandbox.
 */
#ifndef CL_WORKER_QEMU_H
#define CL_WORKER_QEMU_H

#include "base/list.h"
#include "worker/template.h"
#include "worker/vm_driver.h"
#include "worker/vm_process.h"

struct qemu_settings {
    const char *binary; /* borrowed: "/usr/bin/qemu-system-x86_64" */
    struct vm_host host;
    bool kvm; /* accelerator */
    uint64_t tsc_khz;
};

/* Fixed fds of QEMU, after VM_FD_CONTROL. */
enum qemu_fd {
    QEMU_FD_CHANNEL = 4,
    QEMU_FD_QMP = 5,
    QEMU_FD_RAM = 6,
    QEMU_FD_STATE = 7,
    QEMU_FD_ROOTFS = 8,
    QEMU_FD_KERNEL = 9,
    QEMU_FD_INITRD = 10,
    QEMU_FD_CONSOLE = 11, /* boots only: the same socket as stderr */
    QEMU_FD_DISK = 12,
    QEMU_FD_WIRE = 13,
};

enum { QEMU_ARGS_MAX = VM_ARGS_MAX, QEMU_ARG_LEN = 1536 };

struct qemu_args {
    char *argv[QEMU_ARGS_MAX + 1]; /* owned strings, NULL-terminated */
    int n;
};

/* QEMU's command line for a spec (pure). */
int qemu_args_build(const struct qemu_settings *settings, const struct vm_spec *spec,
                    struct qemu_args *ret_args, struct cl_err *err) CL_MUST;
void qemu_args_fini(struct qemu_args *args);

/* The settings must outlive every VM.  Call once, before the driver's first start. */
const struct vm_driver *qemu_driver(const struct qemu_settings *settings);

#endif
