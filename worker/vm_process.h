/* worker/vm_process.h - the process of one VM, behind its guardian: started with exactly the fds
 * that it is given, watched, killed, and told how it ended.  What every driver needs alike.
 *
 * Owns:    the guardian, its socket, the process's stderr.
 * Borrows: the loop and `arg`; a driver embeds the struct in its VM.
 * Thread:  the worker loop.  on_end is the last event and always comes after a spawn.
 */
#ifndef CL_WORKER_VM_PROCESS_H
#define CL_WORKER_VM_PROCESS_H

#include "base/loop.h"
#include "worker/guard.h"
#include "worker/template.h"
#include "worker/vm_driver.h"

enum {
    VM_FD_CONTROL = 3, /* the guardian's own; the VM never sees it */
    VM_FDS = 16,       /* most that a VM's process can be given */
    VM_ARGS_MAX = 80,
    VM_TAIL = 2048, /* last bytes of stderr (and of the console while booting) */
};

/* Of this host, for every VM. */
struct vm_host {
    const char *guard; /* borrowed: path of cloche-guard */
    bool namespaces;   /* the host allows them */
    bool is_root;
    gid_t gid; /* of VMs, when is_root */
};

/* The ends that the process gets, each under its index. */
struct vm_fds {
    int at[VM_FDS]; /* owned; -1 = none */
};

struct vm_process_events {
    void (*on_started)(void *arg); /* the process is there: pid is set */
    void (*on_end)(void *arg, const struct cl_err *why);
};

struct vm_process {
    struct cl_loop *loop; /* borrowed */
    const char *what;     /* borrowed: "QEMU", for texts */
    struct vm_process_events events;
    void *arg;
    pid_t pid, guard_pid;
    int control, errs; /* owned */
    struct cl_fd_watch control_watch, errs_watch;
    struct cl_child guard;
    char tail[VM_TAIL]; /* ring of the newest stderr bytes */
    size_t tail_len;
    struct guard_message ended; /* what the guardian said last */
    struct cl_err why;          /* why we ended it ourselves */
    bool has_ended;
};

struct vm_command {
    const struct vm_host *host;
    const struct vm_spec *spec;
    const char *jail;  /* more letters for the guardian (guard_main.c): "k", "b" */
    char *const *argv; /* NULL-terminated, at most VM_ARGS_MAX */
};

void vm_fds_init(struct vm_fds *fds);
void vm_fds_close(struct vm_fds *fds);
/* A pair of connected sockets; the near end is non-blocking. */
int vm_pair(int type, int *ret_near, int *ret_far, struct cl_err *err) CL_MUST;
/* Send it whole, with at most VM_FDS fds (SCM_RIGHTS), without waiting; false, and errno, when it
 * could not be. */
bool vm_send(int to, const void *bytes, size_t n, const int *fds, size_t n_fds) CL_MUST;
/* A description of its own, so that no two VMs share a file offset. */
int vm_reopen(int fd, int flags, int *ret_fd, struct cl_err *err) CL_MUST;

/* Caller's storage; loop, what, events and arg are taken over.  Opens the far ends of the
 * guardian's socket and of stderr, so that a driver can share them. */
int vm_process_open(struct vm_process *p, struct vm_fds *fds, struct cl_err *err) CL_MUST;
/* Start its guardian, and with the first deadline the process.  The fds are moved about, never
 * closed: that is the caller's. */
int vm_process_spawn(struct vm_process *p, const struct vm_command *command, struct vm_fds *fds,
                     struct cl_err *err) CL_MUST;
/* Kill; the first reason that was given is the one that on_end tells. */
void vm_process_kill(struct vm_process *p, enum cl_code code, const char *why);
void vm_process_set_deadline(struct vm_process *p, uint64_t deadline_ns);
/* Of all its threads; 0 = it has gone. */
uint64_t vm_process_cpu_ns(pid_t pid);
int vm_process_stats(const struct vm_process *p, struct vm_stats *ret_stats,
                     struct cl_err *err) CL_MUST;
/* After vm_process_open(), whether that went well or not; a guardian that runs is told to end. */
void vm_process_fini(struct vm_process *p);

#endif
