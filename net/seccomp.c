/* net/seccomp.c - see net/seccomp.h.  No execve, no fork, no listen, no accept, no file: whoever
 * takes this process over can send where its host can, and that is all. */
#include "net/seccomp.h"

#include <seccomp.h>

static const struct cl_allow rows[] = {
    {SCMP_SYS(poll), "the loop; waits for the worker to read what it is told"},
    {SCMP_SYS(restart_syscall), "a stopped and continued wait"},
    {SCMP_SYS(socket), "a flow of the guest; a question to a resolver"},
    {SCMP_SYS(connect), "a flow of TCP; a resolver"},
    {SCMP_SYS(getpeername), "did a flow of TCP connect"},
    {SCMP_SYS(getsockopt), "why a flow of TCP did not connect"},
    {SCMP_SYS(setsockopt), "options of a flow's socket"},
    {SCMP_SYS(shutdown), "the end of a direction of a flow"},
    {SCMP_SYS(close), "the end of a flow, of a question"},
    {SCMP_SYS(fcntl), "non-blocking sockets"},
    {SCMP_SYS(ioctl), "how much a flow has to read; non-blocking sockets"},
    {SCMP_SYS(recvfrom), "frames of the guest, the worker's end, flows, resolvers"},
    {SCMP_SYS(recvmsg), "flows"},
    {SCMP_SYS(sendto), "frames to the guest, events to the worker, flows, resolvers"},
    {SCMP_SYS(writev), "resolvers by TCP"},
    {SCMP_SYS(write), "the one message on stderr"},
    {SCMP_SYS(clock_gettime), "time, where the vDSO cannot"},
    {SCMP_SYS(gettimeofday), "time, where the vDSO cannot"},
    {SCMP_SYS(getrandom), "ids of questions, hash keys"},
    {SCMP_SYS(brk), "memory"},
    {SCMP_SYS(mmap), "memory"},
    {SCMP_SYS(mremap), "memory"},
    {SCMP_SYS(munmap), "memory"},
    {SCMP_SYS(mprotect), "memory"},
    {SCMP_SYS(madvise), "memory"},
    {SCMP_SYS(futex), "locks of the libraries"},
    {SCMP_SYS(rt_sigreturn), "signal handlers"},
    {SCMP_SYS(rt_sigprocmask), "abort"},
    {SCMP_SYS(getpid), "abort"},
    {SCMP_SYS(gettid), "abort"},
    {SCMP_SYS(tgkill), "abort"},
    {SCMP_SYS(exit_group), "the end"},
};

const struct cl_profile net_profile = {"cloche-net", rows, CL_COUNT(rows)};

int net_seccomp(struct cl_err *err)
{
    return cl_sandbox_apply(rows, CL_COUNT(rows), err);
}
