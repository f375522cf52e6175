/* vmm/control.h - what the worker and a monitor say to each other, and in which order.
 *
 *     NEW ──BOOT────► BOOTING ──CMDLINE──► BOOTED ───┐
 *      └────RESTORE──────────────────────► RESTORED ─┴─START─► RUNNING ⇄ PAUSED ──SAVE──► SAVED
 *     STOP leads from every phase to ENDED; SAVED knows nothing else.  RECORD leads nowhere: in a
 *     RUNNING machine that booted the rehearsal of a clone's first acts begins (vmm/page_runs.h).
 *     SAVE_CLONE leads nowhere either: a PAUSED machine that was restored may go on afterwards.
 *
 * One message is one datagram of a SOCK_SEQPACKET socket, always sizeof(struct control_message).
 * Fds come with BOOT, RESTORE and SAVE_CLONE by SCM_RIGHTS, in the order of enum control_fd.
 * The monitor checks the worker's words for form, because a mistake must not become a hole; the
 * worker takes the monitor's for those of the guest (control_parse_event).
 *
 * Pure: no I/O, no clock, no memory of its own.
 */
#ifndef CL_VMM_CONTROL_H
#define CL_VMM_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"
#include "vmm/counts.h"

enum {
    /* Of all that is said here, and of what fds hold beside a state that the same monitor wrote.  A
     * worker speaks to monitors of other releases, for what rested under them
     * (worker/monitor_build.h): another version ends all of that, so let the next one be worth it.
     */
    CONTROL_VERSION = 7,
    CONTROL_CMDLINE_MAX = 2043, /* bytes; Debian's kernel takes 2047 */
    CONTROL_TEXT_MAX = 239,
    CONTROL_VCPUS_MAX = 8,
    CONTROL_MEM_MIN_MIB = 32,
    CONTROL_MEM_MAX_MIB = 65536, /* without it a mistake of the worker maps any address space */
    CONTROL_MEM_STEP_MIB = 1,
    CONTROL_DISK_MAX_MIB = 8192, /* JAIL_FSIZE: no write behind it could succeed */
    CONTROL_SECTOR = 512,
};

/* Of each figure in the statistics: sums of them do not overflow, and JSON's numbers hold them.  At
 * one a nanosecond it is reached after 104 days. */
#define CONTROL_STAT_MAX (UINT64_C(1) << 53)

enum control_type {
    CONTROL_NONE = 0,
    /* worker -> monitor */
    CONTROL_BOOT = 1,   /* setup, fds */
    CONTROL_RESTORE,    /* setup, fds: RAM and state hold a snapshot */
    CONTROL_CMDLINE,    /* the kernel's command line: nothing more is needed to load it */
    CONTROL_START,      /* first guest instruction; answered by UP */
    CONTROL_PAUSE,      /* answered by PAUSED: none runs; OWN_RAM: once all wait, or 0.1 s later */
    CONTROL_RESUME,     /* answered by UP */
    CONTROL_RECORD,     /* SAVE will tell which pages were written from here on */
    CONTROL_SAVE,       /* state into its file; answered by SAVED */
    CONTROL_GROW,       /* the scratch disk's file was enlarged; before the guest hears of it */
    CONTROL_BALLOON,    /* ask the guest for memory, or give it back */
    CONTROL_STATS,      /* answered by STATS_ARE */
    CONTROL_STOP,       /* answered by ENDED */
    CONTROL_SAVE_CLONE, /* STATE and DELTA into the files that come along; answered by SAVED, or by
                           NOT_SAVED, and then the machine is as it was */
    CONTROL_COMMANDS_NR,
    /* monitor -> worker */
    CONTROL_UP = 32,
    CONTROL_PAUSED,
    CONTROL_SAVED,
    CONTROL_STATS_ARE,
    CONTROL_ENDED,     /* the last one; the process ends */
    CONTROL_NOT_SAVED, /* why is in `ended` */
    CONTROL_EVENTS_END,
};

enum control_fd {
    CONTROL_FD_KVM = 0, /* /dev/kvm */
    CONTROL_FD_RAM,     /* memory file, mem_bytes long; sealed for a RESTORE */
    CONTROL_FD_STATE,   /* device state: written by SAVE, read by RESTORE; with SAVE_CLONE: one to
                           write */
    CONTROL_FD_ROOT,    /* first disk, read-only */
    CONTROL_FD_CHANNEL, /* stream socket: the host's side of the agent's vsock port */
    CONTROL_FD_SCRATCH, /* second disk; may be missing */
    CONTROL_FD_CONSOLE, /* serial output; may be missing */
    CONTROL_FD_KERNEL,  /* vmlinux (BOOT only) */
    CONTROL_FD_INITRD,  /* BOOT only */
    CONTROL_FD_NET,     /* SOCK_SEQPACKET: a frame a message (vmm/net.h); may be missing: no network
                           card */
    CONTROL_FD_DELTA,   /* the pages that are other than in RAM (vmm/delta.h): read by RESTORE,
                           where   it may be missing; with SAVE_CLONE: one to write */
    CONTROL_FDS,
};

enum { CONTROL_MAC_BYTES = 6 };
enum control_boot {
    CONTROL_BOOT_BY_PVH = 1U << 0,   /* even where the kernel has a 64-bit entry */
    CONTROL_BOOT_OWN_RAM = 1U << 1,  /* in memory of its own, which SAVE writes to CONTROL_FD_RAM */
    CONTROL_BOOT_BY_XENPV = 1U << 2, /* by Xen PV: up to 4 vCPUs; not with CONTROL_BOOT_BY_PVH */
    CONTROL_BOOT_ISOLATED = 1U << 3, /* with CONTROL_BOOT_BY_XENPV only: the mode (vmm/xenpv.h) */
    CONTROL_RESTORE_HERE = 1U << 4,  /* RESTORE only: the state was saved on this host since it
                                        started, so the host is not asked again what it can do */
};

struct control_setup {
    uint32_t version; /* CONTROL_VERSION */
    uint32_t vcpus;
    uint64_t mem_bytes;
    uint32_t fds;                   /* bit N = enum control_fd N comes along */
    uint8_t mac[CONTROL_MAC_BYTES]; /* of the network card: unicast; zeros without one */
    uint8_t
        flags; /* enum control_boot; of a RESTORE: those of Xen PV, as at the boot, and its own */
    uint8_t zero[5];
};

struct control_cmdline {
    uint32_t bytes; /* without the NUL */
    char text[CONTROL_CMDLINE_MAX + 1];
};

struct control_grow {
    uint64_t disk_bytes;
};

struct control_balloon {
    uint64_t bytes; /* that the guest shall do without; it gives them as it can */
};

enum control_end {
    CONTROL_END_STOPPED = 1, /* STOP, or the worker is gone */
    CONTROL_END_GUEST,       /* it switched itself off, or broke the contract */
    CONTROL_END_FAILED,      /* the monitor could not go on */
};

struct control_ended {
    uint32_t cause; /* enum control_end */
    char text[CONTROL_TEXT_MAX + 1];
};

struct control_stats {
    uint64_t cpu_ns;     /* of the monitor's process, guest and all */
    uint64_t peak_bytes; /* most resident memory so far */
    uint64_t free_bytes; /* given back: pages that the guest reported free, and of the balloon */
    struct vm_counts counts;
};

struct control_message {
    uint32_t type; /* enum control_type */
    uint32_t zero;
    union {
        struct control_setup setup;
        struct control_cmdline cmdline;
        struct control_grow grow;
        struct control_balloon balloon;
        struct control_ended ended;
        struct control_stats stats;
    };
};
_Static_assert(sizeof(struct control_setup) == 32, "fixed on the wire");
_Static_assert(sizeof(struct control_cmdline) == 2048, "fixed on the wire");
_Static_assert(sizeof(struct control_ended) == 244, "fixed on the wire");
_Static_assert(sizeof(struct control_stats) == 544, "fixed on the wire");
_Static_assert(sizeof(struct control_message) == 2056, "fixed on the wire");

enum control_phase {
    CONTROL_PHASE_NONE = 0,
    CONTROL_NEW,
    CONTROL_BOOTING, /* waits for the command line */
    CONTROL_BOOTED,
    CONTROL_RESTORED,
    CONTROL_RUNNING,
    CONTROL_IS_PAUSED,
    CONTROL_IS_SAVED,
    CONTROL_HAS_ENDED,
    CONTROL_PHASES_NR,
};

/* Which fds come with a command: bit N = enum control_fd N. */
uint32_t control_fds(const struct control_message *m);
/* A command of n bytes that came with n_fds fds.  PEER names what is wrong with it. */
int control_parse(const void *bytes, size_t n, unsigned n_fds, struct control_message *ret_message,
                  struct cl_err *err) CL_MUST;
/* The same for an event; hostile.  Texts come out printable and with a NUL, statistics below
 * CONTROL_STAT_MAX, and what is not counted as 0. */
int control_parse_event(const void *bytes, size_t n, struct control_message *ret_message,
                        struct cl_err *err) CL_MUST;
/* Where `type` leads from `*phase`; STATE, and *phase as it was, when it leads nowhere. */
int control_step(enum control_phase *phase, enum control_type type, struct cl_err *err) CL_MUST;
/* Never NULL. */
const char *control_phase_name(enum control_phase phase);
const char *control_type_name(enum control_type type);

#endif
