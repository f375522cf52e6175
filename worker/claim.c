/* worker/claim.c - see worker/claim.h. */
#include "worker/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/own.h"

static int lock_folder(const char *state_dir, int *ret_fd, struct cl_err *err)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/lock", state_dir);
    CL_AUTO(cl_closep) int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return cl_fail(err, CL_E_SYS, errno, "open '%s'", path);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return cl_fail(err, CL_E_EXISTS, 0, "another worker uses the state folder '%s'", state_dir);
    *ret_fd = cl_steal_fd(&fd);
    return 0;
}

/* Abstract: no file is left behind by a worker that was killed. */
static int bind_name(const char *instance, int *ret_fd, struct cl_err *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int n = snprintf(addr.sun_path + 1, sizeof addr.sun_path - 1, "cloche-worker-%u-%s",
                     (unsigned)geteuid(), instance);
    if (n < 0 || (size_t)n >= sizeof addr.sun_path - 1)
        return cl_fail(err, CL_E_INVALID, 0, "the instance name '%.40s' is too long", instance);
    CL_AUTO(cl_closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    int rc = fd < 0 ? -1 : bind(fd, (struct sockaddr *)&addr, len);
    if (rc < 0 && errno != EADDRINUSE)
        return cl_fail(err, CL_E_SYS, errno, "claim instance '%s'", instance);
    if (rc < 0)
        return cl_fail(err, CL_E_EXISTS, 0,
                       "another worker runs as instance '%s' on this host; give this one another "
                       "--instance",
                       instance);
    *ret_fd = cl_steal_fd(&fd);
    return 0;
}

int claim_take(const char *state_dir, const char *instance, struct claim *ret_claim,
               struct cl_err *err)
{
    *ret_claim = (struct claim){-1, -1};
    if (lock_folder(state_dir, &ret_claim->folder_fd, err) == 0 &&
        bind_name(instance, &ret_claim->name_fd, err) == 0)
        return 0;
    claim_drop(ret_claim);
    return -1;
}

void claim_drop(struct claim *claim)
{
    cl_closep(&claim->folder_fd);
    cl_closep(&claim->name_fd);
}
