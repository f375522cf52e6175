/* audit/writer/seccomp.c - see audit/writer/seccomp.h.  No execve, no socket, no connect: whoever
 * takes this process over can reach its own folder and its own clients, nothing else. */
#include "audit/writer/seccomp.h"

#include <seccomp.h>

#include "base/sandbox.h"

static const struct cl_allow rows[] = {
    {SCMP_SYS(accept4), "producers and readers of /metrics connect"},
    {SCMP_SYS(getsockopt), "SO_PEERCRED of a producer, SO_ERROR"},
    {SCMP_SYS(setsockopt), "a connection of /metrics"},
    {SCMP_SYS(shutdown), "the end of a connection of /metrics"},
    {SCMP_SYS(getdents64), "how many fds are open, for the metrics"},
    {SCMP_SYS(read), "configuration on SIGHUP, the signal pipe"},
    {SCMP_SYS(readv), "frames of producers, requests of /metrics"},
    {SCMP_SYS(recvfrom), "the signal pipe"},
    {SCMP_SYS(write), "records, messages on stderr"},
    {SCMP_SYS(writev), "acks, answers of /metrics"},
    {SCMP_SYS(sendto), "the signal pipe"},
    {SCMP_SYS(openat), "stream files; configuration on SIGHUP; own facts in /proc"},
    {SCMP_SYS(newfstatat), "size of files"},
    {SCMP_SYS(fstat), "size of files"},
    {SCMP_SYS(getuid), "rules of the configuration on SIGHUP: its own uid is always a producer"},
    {SCMP_SYS(lseek), "configuration on SIGHUP"},
    {SCMP_SYS(close), "files and producers"},
    {SCMP_SYS(mkdir), "a new tenant's folder"},
    {SCMP_SYS(mkdirat), "a new tenant's folder"},
    {SCMP_SYS(ftruncate), "no half line stays after a failed write"},
    {SCMP_SYS(fdatasync), "checkpoints"},
    {SCMP_SYS(fsync), "checkpoints"},
    {SCMP_SYS(statfs), "the disk reserve"},
    {SCMP_SYS(fstatfs), "the disk reserve"},
    {SCMP_SYS(unlink), "the socket, at the end"},
    {SCMP_SYS(epoll_wait), "the loop"},
    {SCMP_SYS(epoll_pwait), "the loop"},
    {SCMP_SYS(epoll_pwait2), "the loop"},
    {SCMP_SYS(epoll_ctl), "the loop"},
    {SCMP_SYS(timerfd_settime), "precise timers of the loop"},
    {SCMP_SYS(ioctl), "libevent asks how much can be read"},
    {SCMP_SYS(fcntl), "non-blocking sockets"},
    {SCMP_SYS(clock_gettime), "time, where the vDSO cannot"},
    {SCMP_SYS(gettimeofday), "time, where the vDSO cannot"},
    {SCMP_SYS(getrandom), "hash keys, jitter"},
    {SCMP_SYS(brk), "memory"},
    {SCMP_SYS(mmap), "memory"},
    {SCMP_SYS(mremap), "memory"},
    {SCMP_SYS(munmap), "memory"},
    {SCMP_SYS(mprotect), "memory"},
    {SCMP_SYS(madvise), "memory"},
    {SCMP_SYS(futex), "locks of the crypto library"},
    {SCMP_SYS(getpid), "the crypto library watches for forks"},
    {SCMP_SYS(rt_sigreturn), "signal handlers"},
    {SCMP_SYS(rt_sigprocmask), "signal handlers, abort"},
    {SCMP_SYS(rt_sigaction), "signal handlers at the end"},
    {SCMP_SYS(gettid), "abort"},
    {SCMP_SYS(tgkill), "abort"},
    {SCMP_SYS(exit_group), "the end"},
};

const struct cl_profile writer_profile = {"cloche-audit", rows, CL_COUNT(rows)};

int writer_seccomp(struct cl_err *err)
{
    return cl_sandbox_apply(rows, CL_COUNT(rows), err);
}
