/* worker/seccomp.c - see worker/seccomp.h. */
#include "worker/seccomp.h"

#include <seccomp.h>

static const struct cl_allow refused[] = {
    {SCMP_SYS(bpf), "loads code into the kernel"},
    {SCMP_SYS(perf_event_open), "large attack surface, reads other processes"},
    {SCMP_SYS(userfaultfd), "widens kernel race windows"},
    {SCMP_SYS(io_uring_setup), "large attack surface"},
    {SCMP_SYS(io_uring_enter), "large attack surface"},
    {SCMP_SYS(io_uring_register), "large attack surface"},
    {SCMP_SYS(init_module), "loads code into the kernel"},
    {SCMP_SYS(finit_module), "loads code into the kernel"},
    {SCMP_SYS(delete_module), "changes the kernel"},
    {SCMP_SYS(kexec_load), "replaces the kernel"},
    {SCMP_SYS(kexec_file_load), "replaces the kernel"},
    {SCMP_SYS(reboot), "ends the host"},
    {SCMP_SYS(swapon), "changes the host's memory"},
    {SCMP_SYS(swapoff), "changes the host's memory"},
    {SCMP_SYS(acct), "changes the host's accounting"},
    {SCMP_SYS(quotactl), "changes the host's quotas"},
    {SCMP_SYS(settimeofday), "changes the host's clock"},
    {SCMP_SYS(clock_settime), "changes the host's clock"},
    {SCMP_SYS(clock_adjtime), "changes the host's clock"},
    {SCMP_SYS(adjtimex), "changes the host's clock"},
    {SCMP_SYS(sethostname), "changes the host's name"},
    {SCMP_SYS(setdomainname), "changes the host's name"},
    {SCMP_SYS(ioperm), "reaches hardware ports"},
    {SCMP_SYS(iopl), "reaches hardware ports"},
    {SCMP_SYS(add_key), "the kernel's keyrings are not ours"},
    {SCMP_SYS(request_key), "the kernel's keyrings are not ours"},
    {SCMP_SYS(keyctl), "the kernel's keyrings are not ours"},
    {SCMP_SYS(open_by_handle_at), "opens files past every folder"},
    {SCMP_SYS(name_to_handle_at), "its other half"},
    {SCMP_SYS(fanotify_init), "watches the whole file system"},
    {SCMP_SYS(lookup_dcookie), "profiling of the kernel"},
    {SCMP_SYS(syslog), "reads the kernel's log"},
    {SCMP_SYS(vhangup), "ends terminals"},
    {SCMP_SYS(personality), "turns address randomization off"},
    {SCMP_SYS(process_vm_writev), "writes other processes"},
    {SCMP_SYS(mount_setattr), "mounts are made once, by mount(2)"},
    {SCMP_SYS(move_pages), "moves other processes' memory"},
    {SCMP_SYS(migrate_pages), "moves other processes' memory"},
};

const struct cl_profile worker_refused = {"cloche-worker", refused, CL_COUNT(refused)};

int worker_seccomp(struct cl_err *err)
{
    return cl_sandbox_refuse(refused, CL_COUNT(refused), err);
}
