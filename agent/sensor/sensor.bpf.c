// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* agent/sensor/sensor.bpf.c - what user code of this guest does, seen by the guest's own kernel.
 *
 * Programs on LSM hooks, and one on the function that the kernel calls for a system call which a
 * filter refused.  A call that is none of these costs nothing.  The hooks see what the kernel acts
 * on: resolved paths, its own copy of an address, the arguments that a new program starts with; not
 * user memory that another thread can change meanwhile.
 *
 * Owns:    two rings and the counters.  No policy: the host decides what it keeps.
 * Errors:  an event for which a ring has no room is counted, never waited for.
 * Offsets of kernel structures are found when it is loaded (BTF), so one build serves every kernel.
 */
#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "agent/ids.h"
#include "agent/sensor/event.h"

/* --- of the kernel's structures, the members that are used ------------------------------------ */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct super_block {
    unsigned int s_dev;
    unsigned long s_magic;
};
struct inode {
    unsigned short i_mode;
    struct super_block *i_sb;
    unsigned long i_ino;
    unsigned int i_generation;
};
struct qstr {
    const unsigned char *name;
    unsigned int len;
};
struct dentry {
    struct dentry *d_parent;
    struct qstr d_name;
    struct inode *d_inode;
};
struct vfsmount {
    struct dentry *mnt_root;
};
struct mount {
    struct mount *mnt_parent;
    struct dentry *mnt_mountpoint;
    struct vfsmount mnt;
};
struct path {
    struct vfsmount *mnt;
    struct dentry *dentry;
};
struct file {
    struct path f_path;
    struct inode *f_inode;
    unsigned int f_flags;
    unsigned int f_mode;
};
struct cred {
    struct {
        unsigned int val;
    } uid;
};
struct thread_info {
    unsigned int status;
};
struct task_struct {
    struct thread_info thread_info;
    int tgid;
    struct task_struct *real_parent;
    struct cred *real_cred; /* its own, whosever rights it borrows */
};
struct linux_binprm {
    unsigned long p; /* where argv[0] lies in the new program's stack */
    struct file *file;
    int argc;
    unsigned long exec; /* the end of argv's and envp's strings */
};
struct pt_regs {
    unsigned long di, si, dx;
};
#pragma clang attribute pop

enum {
    FILE_MODE_WRITE = 0x2,
    FILE_MODE_CREATED = 0x100000,
    FILE_FOR_EXEC = 0x20, /* of f_flags: the kernel opens a program */
    INODE_TYPE = 0170000,
    INODE_REGULAR = 0100000,
    MAGIC_EXT4 = 0xef53,
    MAGIC_TMPFS = 0x01021994,
    READS_MAX = 4096, /* that are remembered; of more, some are told again too early */
    TRACE_ATTACH = 0x2,
    STATUS_COMPAT = 0x2, /* of thread_info: the system call came by an entry for i386 */
    DEPTH_MAX = 64,      /* folders and mounts that a path is followed upwards */
    CALL_CLONE3 = 435,   /* refused with ENOSYS on purpose (tiers.def): every libc tries it first */
};

/* --- state ------------------------------------------------------------------------------------ */

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, SENSOR_FEW_BYTES);
} few SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, SENSOR_MANY_BYTES);
} many SEC(".maps");

/* When what an exec or a code context has opened for reading was told. */
struct read {
    __u64 cgroup, inode;
    __u32 device, generation; /* another file can get the same inode later */
    __u32 turn, zero;         /* a copy of this VM tells what it reads itself */
};
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, READS_MAX);
    __type(key, struct read);
    __type(value, __u64);
} reads SEC(".maps");

/* By cgroup.  Whoever makes his first call copies `none`, which nobody writes. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, SENSOR_COUNTED_MAX);
    __type(key, __u64);
    __type(value, struct sensor_calls);
} calls SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct sensor_calls);
} none SEC(".maps");

__u32 watching, turn;
__u64 helpers; /* the agent's, which do for the API what the audit log has from there: a cgroup */
__u64 seen, lost, uncounted;

/* User code: all of it has ids of its own.  The agent's helpers have a user's, too, and a cgroup
 * that user code cannot join. */
static __always_inline int is_user_code(__u32 uid)
{
    return watching && uid >= AGENT_ID_BASE && bpf_get_current_cgroup_id() != helpers;
}

static __always_inline int is_watched(void)
{
    return is_user_code(bpf_get_current_uid_gid());
}

static __always_inline void fill(struct sensor_event *e, enum sensor_kind kind, __u64 number)
{
    struct task_struct *task = bpf_get_current_task_btf();
    e->number = number;
    e->at_ns = bpf_ktime_get_ns();
    e->cgroup = bpf_get_current_cgroup_id();
    e->kind = kind;
    e->pid = bpf_get_current_pid_tgid() >> 32;
    e->parent = task->real_parent->tgid;
    e->uid = task->real_cred->uid.val;
    bpf_get_current_comm(e->comm, sizeof e->comm);
}

/* A record of that type in that ring, with its head filled in; a macro, because the verifier wants
 * to see a constant size. */
#define BEGIN(ring, type, kind) \
    ({ \
        __u64 number = __sync_fetch_and_add(&seen, 1) + 1; \
        struct type *record = bpf_ringbuf_reserve(&ring, sizeof *record, 0); \
        if (record) \
            fill(&record->event, kind, number); \
        else \
            __sync_fetch_and_add(&lost, 1); \
        record; \
    })

/* True: it is only the end of the path.  The kernel builds a path from its end, and leaves in the
 * buffer what fits when not all does; without that a long path would be a way to hide. */
static __always_inline int take_path(struct path *path, char out[SENSOR_PATH_MAX])
{
    out[0] = '\0';
    return bpf_d_path(path, out, SENSOR_PATH_MAX) < 0;
}

/* Where something lies, from its own name upwards: the kernel gives out whole paths (bpf_d_path) in
 * few hooks only. */
static __always_inline void take_place(struct path *folder, struct dentry *entry,
                                       struct sensor_place *out)
{
    struct mount *mount = (void *)folder->mnt - bpf_core_field_offset(struct mount, mnt);
    struct dentry *at = entry;
    __u32 from = SENSOR_PATH_MAX - 1;
    out->is_cut = 1;
    for (int i = 0; i < DEPTH_MAX && from > 0; i++) {
        struct dentry *parent = BPF_CORE_READ(at, d_parent);
        if (at == BPF_CORE_READ(mount, mnt.mnt_root) || at == parent) {
            struct mount *above = BPF_CORE_READ(mount, mnt_parent);
            if (above == mount) {
                out->is_cut = 0;
                break;
            }
            at = BPF_CORE_READ(mount, mnt_mountpoint);
            mount = above;
            continue;
        }
        const unsigned char *name = BPF_CORE_READ(at, d_name.name);
        __u32 n = BPF_CORE_READ(at, d_name.len), some = n < from ? n : from;
        from = (from - some) & (SENSOR_PATH_MAX - 1); /* the masks are for the verifier */
        (void)bpf_probe_read_kernel(out->text + from, some & (SENSOR_PATH_MAX - 1),
                                    name + n - some);
        if (from == 0)
            break;
        from--;
        barrier_var(from); /* clang knows that it is small, the verifier does not */
        from &= SENSOR_PATH_MAX - 1;
        out->text[from] = '/';
        at = parent;
    }
    out->from = from;
}

/* --- programs --------------------------------------------------------------------------------- */

/* The new program's image and rights are in place, nothing of it has run. */
SEC("lsm/bprm_committed_creds")
int BPF_PROG(on_exec, struct linux_binprm *bprm)
{
    if (!is_watched())
        return 0;
    struct sensor_exec *e = BEGIN(few, sensor_exec, SENSOR_EXEC);
    if (!e)
        return 0;
    __u64 bytes = bprm->exec - bprm->p;
    if (bytes > SENSOR_ARGS_MAX)
        bytes = SENSOR_ARGS_MAX;
    e->n_args = bprm->argc;
    e->args_bytes = bpf_probe_read_user(e->args, bytes, (void *)bprm->p) == 0 ? bytes : 0;
    e->is_cut = take_path(&bprm->file->f_path, e->path);
    bpf_ringbuf_submit(e, 0);
    return 0;
}

static __always_inline void note_file(enum sensor_kind kind, struct path *path, int is_new,
                                      __u64 size)
{
    struct sensor_file *e = BEGIN(many, sensor_file, kind);
    if (!e)
        return;
    e->is_new = is_new;
    e->size = size;
    e->is_cut = take_path(path, e->path);
    bpf_ringbuf_submit(e, 0);
}

/* What came with the template is read in masses, and everybody knows it: it lies in an erofs.  What
 * was put into the guest or made in it lies in an ext4 or a tmpfs, mostly below an overlay, which
 * opens its files with its own rights. */
static __always_inline int is_read_of_data(struct file *file)
{
    struct task_struct *task = bpf_get_current_task_btf();
    __u64 magic = file->f_inode->i_sb->s_magic;
    return (magic == MAGIC_EXT4 || magic == MAGIC_TMPFS) && !(file->f_flags & FILE_FOR_EXEC) &&
           is_user_code(task->real_cred->uid.val);
}

/* Who reads a file again and again is told once in a while. */
static __always_inline int was_told(struct inode *inode)
{
    struct read key = {.cgroup = bpf_get_current_cgroup_id(),
                       .inode = inode->i_ino,
                       .device = inode->i_sb->s_dev,
                       .generation = inode->i_generation,
                       .turn = turn};
    __u64 now = bpf_ktime_get_ns(), *told = bpf_map_lookup_elem(&reads, &key);
    if (told && now - *told < SENSOR_AGAIN_NS)
        return 1;
    (void)bpf_map_update_elem(&reads, &key, &now, BPF_ANY);
    return 0;
}

SEC("lsm/file_open")
int BPF_PROG(on_open, struct file *file, int result)
{
    if ((file->f_inode->i_mode & INODE_TYPE) != INODE_REGULAR)
        return result;
    if (file->f_mode & FILE_MODE_WRITE) {
        if (is_watched())
            note_file(SENSOR_WRITE, &file->f_path, (file->f_mode & FILE_MODE_CREATED) != 0, 0);
    } else if (is_read_of_data(file) && !was_told(file->f_inode)) {
        note_file(SENSOR_READ, &file->f_path, 0, 0);
    }
    return result;
}

/* By its name: who cuts a file that he has open has opened it for writing. */
SEC("fentry/vfs_truncate")
int BPF_PROG(on_truncate, struct path *path, long long size)
{
    if (is_watched() && (path->dentry->d_inode->i_mode & INODE_TYPE) == INODE_REGULAR)
        note_file(SENSOR_TRUNCATE, path, 0, size);
    return 0;
}

static __always_inline void note_removal(struct path *folder, struct dentry *entry, int is_folder)
{
    struct sensor_remove *e = BEGIN(many, sensor_remove, SENSOR_REMOVE);
    if (!e)
        return;
    e->is_folder = is_folder;
    take_place(folder, entry, &e->place);
    bpf_ringbuf_submit(e, 0);
}

SEC("lsm/path_unlink")
int BPF_PROG(on_unlink, struct path *folder, struct dentry *entry, int result)
{
    if (is_watched())
        note_removal(folder, entry, 0);
    return result;
}

SEC("lsm/path_rmdir")
int BPF_PROG(on_rmdir, struct path *folder, struct dentry *entry, int result)
{
    if (is_watched())
        note_removal(folder, entry, 1);
    return result;
}

SEC("lsm/path_rename")
int BPF_PROG(on_rename, struct path *from, struct dentry *entry, struct path *to,
             struct dentry *new_entry, unsigned int flags, int result)
{
    if (!is_watched())
        return result;
    struct sensor_rename *e = BEGIN(many, sensor_rename, SENSOR_RENAME);
    if (!e)
        return result;
    take_place(from, entry, &e->place);
    take_place(to, new_entry, &e->to);
    bpf_ringbuf_submit(e, 0);
    return result;
}

static __always_inline void note_address(enum sensor_kind kind, void *address, int n)
{
    struct sensor_address *e = BEGIN(few, sensor_address, kind);
    if (!e)
        return;
    __u32 bytes = n;
    if (bytes > SENSOR_ADDRESS_MAX)
        bytes = SENSOR_ADDRESS_MAX;
    e->bytes = bpf_probe_read_kernel(e->address, bytes, address) == 0 ? bytes : 0;
    bpf_ringbuf_submit(e, 0);
}

SEC("lsm/socket_connect")
int BPF_PROG(on_connect, void *socket, void *address, int n, int result)
{
    if (is_watched())
        note_address(SENSOR_CONNECT, address, n);
    return result;
}

SEC("lsm/socket_bind")
int BPF_PROG(on_bind, void *socket, void *address, int n, int result)
{
    if (is_watched())
        note_address(SENSOR_BIND, address, n);
    return result;
}

/* Called for a system call that a filter with SECCOMP_FILTER_FLAG_LOG refuses. */
SEC("fentry/audit_seccomp")
int BPF_PROG(on_denied, unsigned long call)
{
    struct task_struct *task = bpf_get_current_task_btf();
    __u32 is_i386 = (task->thread_info.status & STATUS_COMPAT) != 0;
    if ((call == CALL_CLONE3 && !is_i386) || !is_watched())
        return 0;
    struct sensor_call *e = BEGIN(few, sensor_call, SENSOR_DENIED);
    if (!e)
        return 0;
    struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
    e->is_i386 = is_i386;
    e->number = call;
    e->args[0] = regs->di;
    e->args[1] = regs->si;
    e->args[2] = regs->dx;
    bpf_ringbuf_submit(e, 0);
    return 0;
}

/* ptrace, process_vm_writev, /proc/PID/mem; a look into /proc is none. */
SEC("lsm/ptrace_access_check")
int BPF_PROG(on_trace, struct task_struct *target, unsigned int mode, int result)
{
    if (!(mode & TRACE_ATTACH) || !is_watched())
        return result;
    struct sensor_trace *e = BEGIN(few, sensor_trace, SENSOR_TRACE);
    if (!e)
        return result;
    e->target = target->tgid;
    bpf_ringbuf_submit(e, 0);
    return result;
}

/* --- every system call: attached only where they are counted ---------------------------------- */

static __always_inline struct sensor_calls *calls_of(__u64 cgroup)
{
    struct sensor_calls *found = bpf_map_lookup_elem(&calls, &cgroup);
    if (found)
        return found;
    __u32 only = 0;
    struct sensor_calls *zeros = bpf_map_lookup_elem(&none, &only);
    if (zeros) /* another thread may be as far: then its entry is found */
        (void)bpf_map_update_elem(&calls, &cgroup, zeros, BPF_NOEXIST);
    return bpf_map_lookup_elem(&calls, &cgroup);
}

/* Behind the filter, before the call: one that a filter refuses does not get here, exit() does. */
SEC("tp_btf/sys_enter")
int BPF_PROG(on_call, struct pt_regs *regs, long call)
{
    if (!is_watched())
        return 0;
    struct sensor_calls *made = calls_of(bpf_get_current_cgroup_id());
    if (!made) {
        __sync_fetch_and_add(&uncounted, 1);
        return 0;
    }
    __u64 at =
        bpf_get_current_task_btf()->thread_info.status & STATUS_COMPAT ? SENSOR_CALLS_OTHER : call;
    if (at > SENSOR_CALLS_OTHER)
        at = SENSOR_CALLS_OTHER;
    __sync_fetch_and_add(&made->times[at], 1);
    return 0;
}

char terms[] SEC("license") = "Dual BSD/GPL";
