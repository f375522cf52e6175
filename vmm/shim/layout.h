/* vmm/shim/layout.h - where things are, for the monitor, the shim's C and its assembler alike.
 *
 * The last megabytes of a Xen-PV guest's RAM are not the guest kernel's: they are the shim's area.
 * The kernel leaves page-table slots 256 to 271 to its hypervisor; three of them are used.
 *
 *     slot 257  m2p, the machine's frame numbers to the guest's (they are the same); behind it the
 *               levels, a byte a frame: of which level of page tables it is, 0 = none
 *     slot 258  the first 2 MiB of the area: the shim, its data, descriptor tables and stacks
 *     slot 259  all RAM, the area too, and the device hole, in pages of 2 MiB
 *
 * Each vCPU has a slice of slot 258, with a shim of its own: code, state, descriptor tables,
 * stacks. Threads share page tables, so no address can mean something else on another vCPU; which
 * slice a vCPU is in is a matter of the registers that it begins with (LSTAR, GDTR, IDTR, TR).
 *
 * An isolated guest's user code has page tables of its own, the user view.  There slots 257 and 259
 * are empty, and of slot 258 a few pages of each slice are left, at the addresses that they have
 * for the kernel:
 *
 *     SHIM_CODE       other bytes, all int3: what SYSCALL leads to; the only page that is user's
 *     SHIM_GATES      the same page
 *     SHIM_GDT        the same page
 *     SHIM_IDT        another one, whose gates all lead to CPL0
 *     SHIM_TSS        another one, without ports
 *     the stacks      the last page of those of exceptions, page faults and interrupts
 *     SHIM_FRAMES     the same page
 */
#ifndef CL_VMM_SHIM_LAYOUT_H
#define CL_VMM_SHIM_LAYOUT_H

#ifdef __ASSEMBLER__
#define SHIM_U64(x) x
#else
#include <stdint.h>
#define SHIM_U64(x) UINT64_C(x)
#endif

#define SHIM_SLOT_FIRST 257
#define SHIM_SLOTS 3
#ifndef SHIM_VA /* a fuzz target has it where a process can */
#define SHIM_M2P_VA SHIM_U64(0xffff808000000000)
#define SHIM_VA SHIM_U64(0xffff810000000000)
#define SHIM_FRAMES_VA SHIM_U64(0xffff818000000000)
#endif

#define SHIM_CPUS_MAX 4
#define SHIM_SLICE 0x40000 /* from one vCPU's slice to the next; the first is at SHIM_VA */

/* Offsets in a slice. */
#define SHIM_CODE 0x0     /* starts with struct shim_head */
#define SHIM_GATES 0x1000 /* in it: a page of its own for the code that runs at CPL0 */
#define SHIM_CODE_BYTES 0x10000
#define SHIM_STATE 0x10000   /* struct shim_state */
#define SHIM_CPUID 0x14000   /* struct shim_cpuid */
#define SHIM_PRIVATE 0x19000 /* from here to SHIM_STACKS for CPL0 only */
#define SHIM_GDT 0x19000
#define SHIM_IDT 0x1a000
#define SHIM_TSS 0x1b000 /* with the bitmap of ports, all of which are open */
#define SHIM_STACKS 0x30000
#define SHIM_TRAP_STACK 0x32000  /* top of the stack of exceptions (IST 1) */
#define SHIM_FAULT_STACK 0x34000 /* of page faults (IST 2) */
#define SHIM_IRQ_STACK 0x36000   /* of interrupts (IST 3) */
#define SHIM_BREAK_STACK 0x38000 /* of int3 (RSP0) */
#define SHIM_FRAMES 0x38000      /* the frames by which CPL0 stubs return to CPL3, and the doors */
#define SHIM_FAULT_FRAME SHIM_FRAMES
#define SHIM_IRQ_FRAME (SHIM_FRAMES + 40)
#define SHIM_BREAK_FRAME (SHIM_FRAMES + 80)
#define SHIM_USER_FAULT_FRAME (SHIM_FRAMES + 120) /* out of the user view */
#define SHIM_USER_IRQ_FRAME (SHIM_FRAMES + 160)
#define SHIM_USER_BREAK_FRAME (SHIM_FRAMES + 200)
#define SHIM_USER_TRAP_FRAME (SHIM_FRAMES + 240)
#define SHIM_OVERFLOW_FRAME (SHIM_FRAMES + 280)
#define SHIM_DOORS (SHIM_FRAMES + 0x200) /* struct shim_doors */
/* What the user view has in the place of SHIM_CODE, SHIM_IDT and SHIM_TSS. */
#define SHIM_USER_CODE 0x39000
#define SHIM_USER_IDT 0x3a000
#define SHIM_USER_TSS 0x3b000
#define SHIM_PARK_STACK 0x3e000 /* of a vCPU that the kernel has not started */

/* Offsets in the area, and so from SHIM_VA: what all vCPUs have in common. */
#define SHIM_TABLES 0x100000      /* page tables, to SHIM_COMMON for CPL0 only */
#define SHIM_TABLES_MAX 96        /* all of 64 GiB takes 66 of them */
#define SHIM_COMMON 0x1c0000      /* struct shim_common */
#define SHIM_MAIL 0x1c2000        /* struct shim_mail */
#define SHIM_SHARED_INFO 0x1c4000 /* Xen's struct shared_info */
#define SHIM_M2P 0x200000         /* and levels */

#define SHIM_TSS_LIMIT 0x2067
#define SHIM_IOMAP 0x68

/* The descriptor table's; those of CPL3 are what Linux has, because it pushes and compares them. */
#define SHIM_CS0 0x10
#define SHIM_DS0 0x18
#define SHIM_CS3_32 0x23
#define SHIM_DS3 0x2b
#define SHIM_CS3 0x33
#define SHIM_TR 0x40

#define SHIM_IRQ_VECTOR 0x40
/* Event channels of the devices: one each for buffers that were used, then one each for a changed
 * configuration.  images/module/cloche_xenpv.c knows them, too. */
#define SHIM_DEVICE_PORT 48
#define SHIM_DEVICES 8
#define SHIM_DEVICE_EVENTS 16
#define SHIM_PORT 0x508 /* writing a byte to it: the monitor reads the mail */

/* Offsets in struct shim_state that the assembler uses; state.h checks them. */
#define STATE_USER 0
#define STATE_KERNEL_SP 8
#define STATE_KERNEL_GS 16
#define STATE_USER_GS 24
#define STATE_VCPU_INFO 32
#define STATE_ON_EVENT 40
#define STATE_ON_SYSCALL 48
#define STATE_CR2 56
#define STATE_IDLE_SP 64
#define STATE_AX 72
#define STATE_IP 80
#define STATE_CS 88
#define STATE_FLAGS 96
#define STATE_SP 104
#define STATE_IS_ISOLATED 112
#define STATE_WOKEN 120

/* In struct shim_doors. */
#define DOORS_KERNEL_ROOT 0
#define DOORS_USER_ROOT 8
#define DOORS_EXIT 16

/* In Xen's struct vcpu_info. */
#define UPCALL_PENDING 0
#define UPCALL_MASK 1

/* Xen's selectors, as it pushes them (public/arch-x86/xen-x86_64.h); RPL 0 tells Linux that it was
 * itself. */
#define XEN_DS 0xe02b
#define XEN_CS_USER 0xe033
#define XEN_CS_KERNEL 0xe030

#define HYPERCALL_IRET 23

/* Of the kernel's stub of hypercalls (vmm/xenpv_patch.c): from its PUSH to behind its SYSCALL; the
 * ENDBR64 that may be in front; and from the shim's entry for those that have one to the other. */
#define SHIM_STUB_GOES_ON 5
#define SHIM_ENDBR_BYTES 4
#define SHIM_ENDBR_ENTRY 5

#define FLAG_IF 0x200
/* What user code may have: CF PF AF ZF SF TF DF OF RF AC ID.  Above all no IOPL. */
#define FLAGS_USER 0x250dd5

#endif
