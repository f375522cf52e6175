/* trail/reader/seccomp.c - see trail/reader/seccomp.h.  No execve, no fork, no socket, no connect,
 * and nothing that changes a file: whoever takes this process over can read the log, as it may. */
#include "trail/reader/seccomp.h"

#include <seccomp.h>

static const struct cl_allow rows[] = {
    {SCMP_SYS(accept4), "schedulers connect"},
    {SCMP_SYS(getsockopt), "SO_PEERCRED of a scheduler"},
    {SCMP_SYS(setsockopt), "a connection"},
    {SCMP_SYS(getpeername), "address of a peer"},
    {SCMP_SYS(shutdown), "the end of a connection"},
    {SCMP_SYS(read), "configuration on SIGHUP, rules of findings, folders, the signal pipe"},
    {SCMP_SYS(pread64), "the log"},
    {SCMP_SYS(readv), "bytes of schedulers"},
    {SCMP_SYS(recvfrom), "the signal pipe"},
    {SCMP_SYS(recvmsg), "bytes of schedulers"},
    {SCMP_SYS(write), "messages on stderr"},
    {SCMP_SYS(writev), "bytes to schedulers"},
    {SCMP_SYS(sendto), "the signal pipe"},
    {SCMP_SYS(sendmsg), "bytes to schedulers"},
    {SCMP_SYS(sendfile), "libevent may choose it for a buffer"},
    {SCMP_SYS(openat), "the log; configuration on SIGHUP; rules of findings"},
    {SCMP_SYS(getdents64), "which streams and files there are"},
    {SCMP_SYS(access), "is the folder there"},
    {SCMP_SYS(faccessat), "is the folder there"},
    {SCMP_SYS(faccessat2), "is the folder there"},
    {SCMP_SYS(newfstatat), "sizes of files"},
    {SCMP_SYS(stat), "sizes of files"},
    {SCMP_SYS(fstat), "sizes of files"},
    {SCMP_SYS(lseek), "configuration on SIGHUP, rules of findings"},
    {SCMP_SYS(close), "files and connections"},
    {SCMP_SYS(unlink), "the socket, at the end"},
    {SCMP_SYS(getuid), "rules of the configuration on SIGHUP: its own uid may always connect"},
    {SCMP_SYS(epoll_wait), "the loop"},
    {SCMP_SYS(epoll_pwait), "the loop"},
    {SCMP_SYS(epoll_pwait2), "the loop"},
    {SCMP_SYS(epoll_ctl), "the loop"},
    {SCMP_SYS(timerfd_settime), "precise timers of the loop"},
    {SCMP_SYS(ioctl), "libevent asks how much can be read"},
    {SCMP_SYS(fcntl), "non-blocking sockets"},
    {SCMP_SYS(clock_gettime), "time, where the vDSO cannot"},
    {SCMP_SYS(gettimeofday), "time, where the vDSO cannot"},
    {SCMP_SYS(getrandom), "hash keys"},
    {SCMP_SYS(sysinfo), "sorting: how much memory there is"},
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

const struct cl_profile reader_profile = {"cloche-audit-reader", rows, CL_COUNT(rows)};

int reader_seccomp(struct cl_err *err)
{
    return cl_sandbox_apply(rows, CL_COUNT(rows), err);
}
