/* worker/vm_body.h - what of a VM outlives its monitor: the channel to the agent, the scratch disk.
 *
 * A VM that is put to rest leaves its body, and the monitor that goes on takes it up: bytes that
 * were on their way wait in the channel, as in any socket.
 *
 * Owns:    its fds.  Monitors get descriptors of their own.
 * Thread:  the worker loop.
 */
#ifndef CL_WORKER_VM_BODY_H
#define CL_WORKER_VM_BODY_H

#include "worker/template.h"
#include "worker/vm_driver.h"

struct vm_body {
    int channel;         /* owned: the near end, non-blocking */
    int channel_far;     /* owned: the monitor's end */
    int disk;            /* owned; -1 = none */
    uint64_t disk_bytes; /* its size */
};

/* Of a VM that is to be born of `t`; a boot's disk becomes the template's, too.  disk_dir: where
 * its disk is made. */
int vm_body_open(struct vm_body *body, struct template *t, enum vm_origin origin,
                 const char *disk_dir, struct cl_err *err) CL_MUST;
/* Of a copy of another VM: takes its disk, -1 = none. */
int vm_body_open_copy(struct vm_body *body, int disk, uint64_t disk_bytes,
                      struct cl_err *err) CL_MUST;
/* One that has nothing yet, or no more. */
#define VM_BODY_NONE ((struct vm_body){.channel = -1, .channel_far = -1, .disk = -1})
/* Opened, or VM_BODY_NONE; that is what it is then. */
void vm_body_close(struct vm_body *body);
/* Bytes of the host's disk that it takes now; UINT64_MAX when it has no disk to take more by. */
uint64_t vm_body_disk_taken(const struct vm_body *body);

#endif
