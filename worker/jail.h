/* worker/jail.h - the room that a VM's process is locked into, built in the child between clone
 * and exec.
 *
 * What it gets: namespaces of its own (user where we are not root, mount, pid, net, ipc, uts), a
 * root of read-only /usr and a fresh /proc (or one with nothing in it), no network, rlimits, its
 * cgroup, its own uid, no capabilities, no_new_privs.  See PRIVSEP.md.
 * Thread: the freshly cloned child only.
 */
#ifndef CL_WORKER_JAIL_H
#define CL_WORKER_JAIL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/util.h"

enum { JAIL_CGROUPS_MAX = 8 };
/* No file that a VM's process writes may grow beyond this: the largest scratch disk.  Guest memory
 * is a file too, of a size that is never changed. */
#define JAIL_FSIZE (8 * CL_GIB)

struct jail {
    uid_t uid; /* of the VM */
    gid_t gid;
    bool change_uid;        /* we are root: become uid and gid */
    bool namespaces;        /* off only where the host forbids them */
    bool in_user_namespace; /* we are not root: the namespaces need one of ours */
    bool kvm;               /* /dev/kvm is wanted */
    bool bare;              /* the program needs no file: an empty root, without /proc and /dev */
    const char *cgroups[JAIL_CGROUPS_MAX]; /* borrowed: folders whose cgroup.procs we join */
    int n_cgroups;
    uint64_t nofile;
};

/* What lets another uid than root open the device node `st` (pure): 0 when everybody may, 1 when
 * its group may (*ret_group), -1 when neither.  The group of root is never given to a VM: a node
 * that belongs to it counts as closed. */
int jail_kvm_groups(const struct stat *st, gid_t *ret_group);

/* clone(2) flags for this jail. */
int jail_clone_flags(const struct jail *jail);
/* Run in the child; on success nothing but exec is left to do. */
int jail_enter(const struct jail *jail, struct cl_err *err) CL_MUST;

#endif
