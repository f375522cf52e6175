/* agent/verity.c - see agent/verity.h.  The ioctls of linux/dm-ioctl.h: create, load, resume. */
#include "agent/verity.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/dm-ioctl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/own.h"

enum { TABLE_MAX = 1024, SECTOR = 512 };

/* One DM_TABLE_LOAD argument; the other calls use its header only. */
struct dm_call {
    struct dm_ioctl head;
    struct dm_target_spec target;
    char table[TABLE_MAX];
};

static void call_init(struct dm_call *call, uint32_t flags)
{
    memset(call, 0, sizeof *call);
    call->head.version[0] = DM_VERSION_MAJOR;
    call->head.data_size = sizeof *call;
    call->head.data_start = offsetof(struct dm_call, target);
    call->head.flags = flags;
    memcpy(call->head.name, "root", sizeof "root");
}

static int load_table(int dm, const char *device, const struct verity_args *args,
                      struct cl_err *err)
{
    struct dm_call call;
    call_init(&call, DM_READONLY_FLAG);
    call.head.target_count = 1;
    call.target.length = args->data_blocks * (VERITY_BLOCK / SECTOR);
    call.target.next = sizeof call.target + sizeof call.table;
    memcpy(call.target.target_type, "verity", sizeof "verity");
    int n = snprintf(call.table, sizeof call.table,
                     "1 %s %s %d %d %" PRIu64 " %" PRIu64 " sha256 %s %s", device, device,
                     VERITY_BLOCK, VERITY_BLOCK, args->data_blocks, args->hash_start,
                     args->root_hash, args->salt[0] ? args->salt : "-");
    if (n < 0 || (size_t)n >= sizeof call.table)
        return cl_fail(err, CL_E_INVALID, 0, "verity table of %d bytes", n);
    if (ioctl(dm, DM_TABLE_LOAD, &call) < 0)
        return cl_fail(err, CL_E_SYS, errno, "load the verity table");
    return 0;
}

int verity_open(const char *device, const struct verity_args *args, struct cl_err *err)
{
    CL_AUTO(cl_closep) int dm = open("/dev/mapper/control", O_RDWR | O_CLOEXEC);
    if (dm < 0)
        return cl_fail(err, CL_E_SYS, errno, "open /dev/mapper/control");
    struct dm_call call;
    call_init(&call, 0);
    if (ioctl(dm, DM_DEV_CREATE, &call) < 0)
        return cl_fail(err, CL_E_SYS, errno, "create the verity device");
    if (load_table(dm, device, args, err) < 0)
        return -1;
    call_init(&call, DM_READONLY_FLAG); /* "suspend" without DM_SUSPEND_FLAG resumes */
    if (ioctl(dm, DM_DEV_SUSPEND, &call) < 0)
        return cl_fail(err, CL_E_SYS, errno, "start the verity device");
    return 0;
}
