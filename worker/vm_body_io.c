/* worker/vm_body_io.c - see worker/vm_body.h. */
#include "worker/vm_body.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "base/own.h"
#include "worker/disk.h"
#include "worker/vm_process.h"

/* A clone's disk holds what the booted VM's held when its snapshot was made: the guest's RAM knows
 * that file system. */
static int make_disk(struct vm_body *body, struct template *t, bool boot, const char *dir,
                     struct cl_err *err)
{
    if (disk_make(dir, boot ? t->scratch_fd : t->disk_fd, body->disk_bytes, &body->disk, err) < 0)
        return -1;
    if (boot) {
        cl_closep(&t->disk_fd);
        t->disk_fd = fcntl(body->disk, F_DUPFD_CLOEXEC, 3);
    }
    return t->disk_fd < 0 ? cl_fail(err, CL_E_SYS, errno, "scratch disk") : 0;
}

int vm_body_open(struct vm_body *body, struct template *t, enum vm_origin origin,
                 const char *disk_dir, struct cl_err *err)
{
    *body = VM_BODY_NONE;
    body->disk_bytes = DISK_DEFAULT_MIB * CL_MIB;
    if (vm_pair(SOCK_STREAM, &body->channel, &body->channel_far, err) < 0 ||
        (t->scratch_fd >= 0 && make_disk(body, t, origin == VM_BOOT, disk_dir, err) < 0)) {
        vm_body_close(body);
        return -1;
    }
    return 0;
}

int vm_body_open_copy(struct vm_body *body, int disk, uint64_t disk_bytes, struct cl_err *err)
{
    *body = VM_BODY_NONE;
    body->disk = disk;
    body->disk_bytes = disk_bytes;
    if (vm_pair(SOCK_STREAM, &body->channel, &body->channel_far, err) < 0) {
        vm_body_close(body);
        return -1;
    }
    return 0;
}

void vm_body_close(struct vm_body *body)
{
    cl_closep(&body->channel);
    cl_closep(&body->channel_far);
    cl_closep(&body->disk);
}

uint64_t vm_body_disk_taken(const struct vm_body *body)
{
    return body->disk < 0 ? UINT64_MAX : disk_taken(body->disk);
}
