/* gateway/seccomp.c - see gateway/seccomp.h.  No execve, no fork, no bind, no file that can be
 * written: whoever takes this process over has its connections, and the credentials of those who
 * call meanwhile. */
#include "gateway/seccomp.h"

#include <seccomp.h>

static const struct cl_allow rows[] = {
    {SCMP_SYS(accept4), "clients and readers of /metrics connect"},
    {SCMP_SYS(socket), "reconnect to the scheduler"},
    {SCMP_SYS(connect), "reconnect to the scheduler"},
    {SCMP_SYS(shutdown), "end a TLS or HTTP/2 connection"},
    {SCMP_SYS(getsockopt), "SO_ERROR of a connect"},
    {SCMP_SYS(setsockopt), "TCP_NODELAY of a connection"},
    {SCMP_SYS(getpeername), "address of a peer"},
    {SCMP_SYS(getsockname), "address of a listener"},
    {SCMP_SYS(read), "configuration on SIGHUP, TLS, the signal pipe"},
    {SCMP_SYS(readv), "bytes of peers"},
    {SCMP_SYS(recvfrom), "the signal pipe, TLS"},
    {SCMP_SYS(recvmsg), "bytes of peers"},
    {SCMP_SYS(write), "the log, TLS"},
    {SCMP_SYS(writev), "bytes to peers"},
    {SCMP_SYS(sendto), "the signal pipe, TLS"},
    {SCMP_SYS(sendmsg), "bytes to peers"},
    {SCMP_SYS(sendfile), "libevent may choose it for a buffer"},
    {SCMP_SYS(openat), "configuration and certificates on SIGHUP; own facts in /proc"},
    {SCMP_SYS(getdents64), "how many fds are open, for the metrics"},
    {SCMP_SYS(newfstatat), "files"},
    {SCMP_SYS(fstat), "files"},
    {SCMP_SYS(lseek), "configuration on SIGHUP"},
    {SCMP_SYS(close), "connections and files"},
    {SCMP_SYS(epoll_wait), "the loop"},
    {SCMP_SYS(epoll_pwait), "the loop"},
    {SCMP_SYS(epoll_pwait2), "the loop"},
    {SCMP_SYS(epoll_ctl), "the loop"},
    {SCMP_SYS(timerfd_settime), "precise timers of the loop"},
    {SCMP_SYS(ioctl), "libevent asks how much can be read"},
    {SCMP_SYS(fcntl), "non-blocking sockets"},
    {SCMP_SYS(clock_gettime), "time, where the vDSO cannot"},
    {SCMP_SYS(gettimeofday), "time, where the vDSO cannot"},
    {SCMP_SYS(getrandom), "session ids, hash keys, TLS"},
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

const struct cl_profile gateway_profile = {"cloche-gateway", rows, CL_COUNT(rows)};

int gateway_seccomp(struct cl_err *err)
{
    return cl_sandbox_apply(rows, CL_COUNT(rows), err);
}
