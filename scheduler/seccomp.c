/* scheduler/seccomp.c - see scheduler/seccomp.h.  No execve, no fork, no bind, no ptrace: whoever
 * takes this process over has its sockets and its state folder, nothing else of the host. */
#include "scheduler/seccomp.h"

#include <seccomp.h>

static const struct cl_allow rows[] = {
    {SCMP_SYS(listen), "on the addresses that were bound at the start, once it leads"},
    {SCMP_SYS(accept4), "clients and workers connect"},
    {SCMP_SYS(socket), "reconnect to Redis and the audit writer; fetch the issuer's keys"},
    {SCMP_SYS(connect), "reconnect to Redis and the audit writer; fetch the issuer's keys"},
    {SCMP_SYS(shutdown), "end a TLS connection"},
    {SCMP_SYS(getsockopt), "SO_PEERCRED of a peer, SO_ERROR of a connect"},
    {SCMP_SYS(setsockopt), "TCP_NODELAY of a connection"},
    {SCMP_SYS(getpeername), "address of a peer for the log"},
    {SCMP_SYS(getsockname), "address of a listener"},
    {SCMP_SYS(read), "TLS, the signal pipe"},
    {SCMP_SYS(readv), "bytes of peers"},
    {SCMP_SYS(recvfrom), "the signal pipe, TLS"},
    {SCMP_SYS(recvmsg), "bytes of peers"},
    {SCMP_SYS(write), "the log, TLS"},
    {SCMP_SYS(writev), "bytes to peers"},
    {SCMP_SYS(sendto), "the signal pipe, TLS"},
    {SCMP_SYS(sendmsg), "bytes to peers"},
    {SCMP_SYS(sendfile), "libevent may choose it for a buffer"},
    {SCMP_SYS(openat),
     "the first key's file; password file at a reconnect; the issuer's keys; own facts in /proc, "
     "and whether the leader is there"},
    {SCMP_SYS(getdents64), "how many fds are open, for the metrics"},
    {SCMP_SYS(newfstatat), "is the first key's file there"},
    {SCMP_SYS(access), "is the first key's file there"},
    {SCMP_SYS(faccessat), "is the first key's file there"},
    {SCMP_SYS(faccessat2), "is the first key's file there"},
    {SCMP_SYS(fstat), "files"},
    {SCMP_SYS(lseek), "files"},
    {SCMP_SYS(fchmod), "mode of the first key's file"},
    {SCMP_SYS(fsync), "the first key's file"},
    {SCMP_SYS(rename), "the first key's file, written atomically"},
    {SCMP_SYS(unlink), "a failed temporary file; sockets at the end"},
    {SCMP_SYS(close), "connections and files"},
    {SCMP_SYS(uname), "name of the host beside its audit head"},
    {SCMP_SYS(epoll_wait), "the loop"},
    {SCMP_SYS(epoll_pwait), "the loop"},
    {SCMP_SYS(epoll_pwait2), "the loop"},
    {SCMP_SYS(epoll_ctl), "the loop"},
    {SCMP_SYS(timerfd_settime), "precise timers of the loop"},
    {SCMP_SYS(ioctl), "libevent asks how much can be read"},
    {SCMP_SYS(fcntl), "non-blocking sockets"},
    {SCMP_SYS(clock_gettime), "time, where the vDSO cannot"},
    {SCMP_SYS(gettimeofday), "time, where the vDSO cannot"},
    {SCMP_SYS(getrandom), "ids, keys, hash keys, TLS"},
    {SCMP_SYS(brk), "memory"},
    {SCMP_SYS(mmap), "memory"},
    {SCMP_SYS(mremap), "memory"},
    {SCMP_SYS(munmap), "memory"},
    {SCMP_SYS(mprotect), "memory"},
    {SCMP_SYS(madvise), "memory"},
    {SCMP_SYS(futex), "locks of the crypto library"},
    {SCMP_SYS(getpid), "the crypto library watches for forks; temporary names"},
    {SCMP_SYS(geteuid), "may this uid be a worker"},
    {SCMP_SYS(rt_sigreturn), "signal handlers"},
    {SCMP_SYS(rt_sigprocmask), "signal handlers, abort"},
    {SCMP_SYS(rt_sigaction), "signal handlers at the end"},
    {SCMP_SYS(gettid), "abort"},
    {SCMP_SYS(tgkill), "abort"},
    {SCMP_SYS(exit_group), "the end"},
};

const struct cl_profile sched_profile = {"cloche-scheduler", rows, CL_COUNT(rows)};

int sched_seccomp(struct cl_err *err)
{
    return cl_sandbox_apply(rows, CL_COUNT(rows), err);
}
