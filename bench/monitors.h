/* bench/monitors.h - cloche-vmm and QEMU's microvm, each started bare: no worker, guardian or jail.
 *
 * Both get a machine of one vCPU that is as alike as they can make it.  QEMU goes its fastest way:
 * a snapshot's RAM stays in its file (x-ignore-shared), commands are sent before it starts. What
 * goes wrong ends the program: it is a benchmark.
 */
#ifndef CL_BENCH_MONITORS_H
#define CL_BENCH_MONITORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "vmm/control.h"

/* What a machine is made from.  Every fd is borrowed and not below MONITOR_FD_MIN; -1 = none. */
struct monitor_spec {
    const char *program;
    const char *cmdline;
    unsigned mem_mib;
    bool restores;      /* from ram and state, else it boots */
    bool agent;         /* QEMU: with a channel for the agent; cloche-vmm has it always */
    bool emulates;      /* QEMU only: without KVM */
    uint8_t entry;      /* cloche-vmm only: how it enters the kernel, those of enum control_boot */
    int kvm;            /* cloche-vmm only: /dev/kvm */
    int kernel, initrd; /* of a boot */
    int root, scratch;  /* disks */
    int ram;            /* QEMU: -1 = memory of its own, which cannot be saved */
    int state;          /* written by save, read by a restore */
};

enum { MONITOR_FD_MIN = 10 };

/* A monitor that runs, and our ends of its sockets. */
struct monitor {
    pid_t pid;
    int talk;    /* control socket, or QMP */
    int console; /* what the guest says on its serial port */
    int channel; /* the agent's; -1 = none */
};

_Noreturn void monitor_die(const char *what);
/* The same for a reason of our own; monitors that run are ended with us. */
_Noreturn void monitor_give_up(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* To be called first: makes us the leader of the process group that monitor_give_up() ends. */
void monitor_group(void);

/* A sealable memory file of this size, and a file opened for reading: fds as monitor_spec wants
 * them; the caller's. */
int monitor_memory(const char *name, uint64_t bytes);
int monitor_open(const char *path, int flags);
/* Between runs, so that one's end is not the next one's start. */
void monitor_rest(void);
/* Wait for n bytes on `fd`, one of r's sockets; who has to wait too long ends the program. */
void monitor_read(const struct monitor *r, int fd, void *ret_bytes, size_t n);
/* Kill it and wait until it is gone. */
void monitor_end(struct monitor *r);

/* A process that has been told what to be; CONTROL_START is the next word. */
struct monitor vmm_start(const struct monitor_spec *spec);
void vmm_tell(const struct monitor *r, enum control_type type);
void vmm_await(const struct monitor *r, enum control_type type);
/* Pause, save into the spec's state, end it. */
void vmm_save(struct monitor *r, const struct monitor_spec *spec);

/* A boot runs at once; a restore as soon as it is there. */
struct monitor qemu_start(const struct monitor_spec *spec);
/* Until its monitor said this word. */
void qemu_await(const struct monitor *r, const char *word);
/* Save while it runs, and end it: a machine that was saved running runs when it is restored. */
void qemu_save(struct monitor *r, const struct monitor_spec *spec);
/* Of what was saved: nobody writes it any more.  cloche-vmm restores from nothing else. */
void monitor_seal(int ram);

#endif
