/* vmm/shim/state.h - what the shim and the monitor share, all of it in the guest's RAM.
 *
 * The monitor fills it in before the first instruction.  While the guest runs it reads the mail, as
 * the word of an attacker, and nothing else; before a clone's first instruction it moves the times,
 * and forgets when the local APICs interrupt.
 */
#ifndef CL_VMM_SHIM_STATE_H
#define CL_VMM_SHIM_STATE_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/shim/layout.h"

/* At the start of the shim's code: where the processor enters it. */
struct shim_head {
    uint64_t magic;
    uint64_t on_syscall;           /* LSTAR */
    uint64_t on_trap;              /* of vector 0; 16 bytes each */
    uint64_t fault_gate, on_fault; /* CPL0, then CPL3 */
    uint64_t irq_gate, on_irq;
    uint64_t break_gate, on_break;
    uint64_t quick_gate, on_overflow; /* INT 4: CPL0, then CPL3 when it was not the shim's */
    uint64_t hypercall,
        iret; /* where the kernel may jump instead of its `syscall`: the only vCPU */
    uint64_t find_hypercall, find_iret; /* the first slice's: any vCPU */
    uint64_t on_park;                   /* where a vCPU waits until the kernel starts it */
    /* of an isolated guest: its kernel's int3; user code's entries, CPL0, then CPL3 */
    uint64_t isolated_break_gate;
    uint64_t user_traps; /* of vector 0; 16 bytes each */
    uint64_t on_user_trap;
    uint64_t user_fault_gate, on_user_fault;
    uint64_t user_irq_gate, on_user_irq;
    uint64_t user_break_gate, on_user_break;
};
#define SHIM_MAGIC UINT64_C(0x31766e7078636c63)

enum { SHIM_TRAPS = 32, SHIM_CHANNELS = 64, SHIM_VIRQS = 24, SHIM_MSRS_MAX = 24 };

struct shim_trap {
    uint64_t handler; /* 0 = none */
    uint64_t masks;   /* events are masked on the way to it */
};

struct shim_msr {
    uint32_t index, zero;
    uint64_t value; /* what it reads as; what is written to it is lost */
};

/* Where the kernel keeps a struct xen_time_info. */
enum shim_time { SHIM_TIME_VCPU, SHIM_TIME_VDSO, SHIM_TIMES };

enum shim_channel { CHANNEL_FREE = 0, CHANNEL_VIRQ, CHANNEL_IPI, CHANNEL_REMOTE };

/* Does a vCPU still use the translations that it has?  One that waits does not, before it has
 * looked whether they are stale. */
enum shim_use { USE_RUNS = 0, USE_WAITS, USE_WAITS_STALE };

/* Where a vCPU begins that the kernel starts (VCPUOP_initialise); the first one has begun. */
struct shim_start {
    uint64_t ip, sp, fs, root;
    uint64_t is_set;
};

/* Of one vCPU, in its slice.  Others write what it says. */
struct shim_state {
    /* of the assembler */
    uint64_t user;      /* 1 while the guest's user code runs */
    uint64_t kernel_sp; /* where it enters the kernel from user code */
    uint64_t kernel_gs, user_gs;
    uint64_t vcpu_info; /* Xen's struct vcpu_info; others raise events in it */
    uint64_t on_event, on_syscall;
    uint64_t cr2, idle_sp;
    uint64_t ax, ip, cs, flags, sp; /* of a return that becomes an event */
    uint64_t is_isolated;           /* user code runs in the user view; by the monitor */
    uint64_t woken;                 /* an interrupt came since this was 0 */

    /* by the monitor */
    uint32_t cpu, n_cpuid;
    uint64_t finds_faults; /* page faults come straight to CPL3, without CR2: see fault.c */

    /* of the C code */
    uint64_t cr4, dr6;
    uint64_t asked;             /* page faults whose address CPL0 had to tell */
    uint64_t released;          /* page tables that KVM was told are none any more */
    uint64_t opened;            /* page faults because CPL3 could not use a table of pages */
    uint64_t spared;            /* stores into page tables that would have changed nothing */
    uint64_t privileged;        /* instructions that CPL3 may not execute, done for the kernel */
    uint64_t timer_ns;          /* when the kernel wants its timer; 0 = never; others: 0 */
    uint64_t armed_ns;          /* when the local APIC interrupts; 0 = never, or who knows */
    uint64_t armed_at_ns;       /* when it was told so */
    uint32_t virqs[SHIM_VIRQS]; /* the port of each; 0 = none; others: any */
    struct shim_trap traps[SHIM_TRAPS];
    uint64_t times[SHIM_TIMES]; /* guest-physical, by enum shim_time; 0 = nowhere */
    struct shim_start start;    /* by the one that starts it */
    uint64_t is_up;             /* others: 1 */
    uint64_t polls;             /* it waits for ports, masked ones too */
    uint64_t use;               /* enum shim_use; others: USE_WAITS to USE_WAITS_STALE */
    uint64_t
        flush[SHIM_CPUS_MAX]; /* what vCPU n wants flushed and waits for: see mmu.c; 0 = nothing */
};
#define AT(field, offset) \
    _Static_assert(offsetof(struct shim_state, field) == (offset), "the assembler's")
AT(user, STATE_USER);
AT(kernel_sp, STATE_KERNEL_SP);
AT(kernel_gs, STATE_KERNEL_GS);
AT(user_gs, STATE_USER_GS);
AT(vcpu_info, STATE_VCPU_INFO);
AT(on_event, STATE_ON_EVENT);
AT(on_syscall, STATE_ON_SYSCALL);
AT(cr2, STATE_CR2);
AT(idle_sp, STATE_IDLE_SP);
AT(ax, STATE_AX);
AT(ip, STATE_IP);
AT(cs, STATE_CS);
AT(flags, STATE_FLAGS);
AT(sp, STATE_SP);
AT(is_isolated, STATE_IS_ISOLATED);
AT(woken, STATE_WOKEN);
#undef AT
_Static_assert(sizeof(struct shim_state) <= SHIM_CPUID - SHIM_STATE, "it has its pages");
_Static_assert(SHIM_CPUS_MAX *SHIM_SLICE <= SHIM_TABLES, "slices, then what is common");

/* Of all vCPUs. */
struct shim_common {
    /* by the monitor */
    uint64_t n_cpus;
    uint64_t frames;                                    /* of RAM, without the area, but for */
    uint64_t hole, hole_frames;                         /* so many from that one on: devices */
    uint64_t levels;                                    /* linear: where the frames' levels are */
    uint64_t slots[SHIM_SLOTS], user_slots[SHIM_SLOTS]; /* of a top-level table */
    uint64_t console_frame;
    uint64_t image;     /* linear: where the kernel has guest-physical 0 */
    uint64_t tsc_start; /* when the guest's time was 0 */
    uint64_t ns_scale;  /* ns a tick of the TSC, 2^-32 */
    uint64_t tsc_scale; /* the other way round */
    uint32_t n_msrs, zero;
    struct shim_msr msrs[SHIM_MSRS_MAX];

    /* of the C code */
    uint64_t n_large;   /* pages of 2 MiB that the kernel's image has */
    uint64_t mail_lock; /* 1 = taken: of the mail's text, and of the console's ring */
    struct shim_channel_of {
        uint8_t kind; /* enum shim_channel */
        uint8_t cpu;  /* whose events it raises */
    } channels[SHIM_CHANNELS];
};
_Static_assert(sizeof(struct shim_common) <= SHIM_MAIL - SHIM_COMMON, "it has its pages");

/* Between the views, mapped in both. */
struct shim_doors {
    uint64_t
        kernel_root; /* of the page tables, in which all runs but an isolated guest's user code */
    uint64_t user_root; /* that code's; 0 = the kernel's process has none */
    uint64_t exit[6];   /* on the way to it: RAX, RIP, CS, RFLAGS, RSP, SS */
};
_Static_assert(offsetof(struct shim_doors, kernel_root) == DOORS_KERNEL_ROOT, "the assembler's");
_Static_assert(offsetof(struct shim_doors, user_root) == DOORS_USER_ROOT, "the assembler's");
_Static_assert(offsetof(struct shim_doors, exit) == DOORS_EXIT, "the assembler's");

/* What the guest may know of its processor: the leaves of vmm/cpuid.h for its kernel. */
struct shim_cpuid {
    uint32_t function, index;
    uint32_t any_index; /* 1 = the index does not matter */
    uint32_t eax, ebx, ecx, edx;
};
enum { SHIM_CPUID_MAX = (SHIM_PRIVATE - SHIM_CPUID) / sizeof(struct shim_cpuid) };

/* To the monitor: what the byte that is written to SHIM_PORT says. */
enum shim_word {
    SHIM_PRINT = 1, /* text[0, n) to the console */
    SHIM_GIVE_UP,   /* the guest broke the contract: `trap` at `ip`, `address` */
};
enum { SHIM_TEXT_MAX = 2048 };

struct shim_mail {
    uint32_t n;
    uint32_t trap;
    uint64_t ip, address;
    uint64_t devices; /* of the monitor to the shim: bit n = SHIM_DEVICE_PORT + n has news */
    uint8_t text[SHIM_TEXT_MAX];
};
_Static_assert(SHIM_DEVICE_EVENTS == 2 * SHIM_DEVICES &&
                   SHIM_DEVICE_PORT + SHIM_DEVICE_EVENTS <= SHIM_CHANNELS,
               "two channels for each device");
_Static_assert(sizeof(struct shim_mail) <= SHIM_SHARED_INFO - SHIM_MAIL, "it has its pages");

#endif
