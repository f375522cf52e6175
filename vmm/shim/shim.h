/* vmm/shim/shim.h - the parts of the shim to each other.
 *
 * The shim is the hypervisor that a Xen-PV kernel sees, inside its own guest, at CPL3: what it does
 * costs no exit to the monitor, and what it gets wrong ends the guest, nothing else.  The kernel's
 * pointers are used as they are; a bad one faults in here, and that is the guest's end.
 *
 * Thread: the only vCPU, on the kernel's stack or one of layout.h's.  All data is struct
 * shim_state.
 */
#ifndef CL_VMM_SHIM_SHIM_H
#define CL_VMM_SHIM_SHIM_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/shim/hardware.h"
#include "vmm/shim/state.h"
#include "vmm/shim/xen.h"

/* What a trap pushes, and entry.S after it. */
struct frame {
    uint64_t r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax;
    uint64_t vector, error;
    uint64_t rip, cs, flags, rsp, ss;
};

static inline struct shim_state *shim(void)
{
    return (struct shim_state *)(SHIM_VA + SHIM_STATE);
}

static inline struct shim_doors *doors(void)
{
    return (struct shim_doors *)(SHIM_VA + SHIM_DOORS);
}

static inline struct xen_shared_info *shared_info(void)
{
    return (struct xen_shared_info *)(SHIM_VA + SHIM_SHARED_INFO);
}

static inline struct xen_vcpu_info *vcpu_info(void)
{
    return (struct xen_vcpu_info *)shim()->vcpu_info;
}

/* A frame of the guest's RAM. */
static inline void *frame_at(uint64_t frame)
{
    return (void *)(SHIM_FRAMES_VA + (frame << 12));
}

static inline bool is_frame(uint64_t frame)
{
    return frame < shim()->frames;
}

/* entry.S */
void load_root(uint64_t gpa);
void flush_page(uint64_t address);
void write_msr(uint32_t index, uint64_t value);
void wait_for_irq(void);
extern const uint8_t waited[] __attribute__((visibility("hidden")));
/* What entry.S calls. */
int64_t hypercall(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t number);
void trap(struct frame *f);
bool interrupt(struct frame *f); /* true when it ends in the user view */

/* What DR6 says when it says nothing, and the bit of a single step: Intel SDM 3B §17.2.3. */
#define DR6_NOTHING UINT64_C(0xffff0ff0)
#define DR6_STEP UINT64_C(0x4000)

/* trap.c: turn the frame into the kernel's entry at `handler`. */
void bounce(struct frame *f, uint64_t handler, bool has_error, bool masks);
_Noreturn void give_up(uint32_t trap, uint64_t ip, uint64_t address);

/* emulate.c: the instruction at RIP is one that the kernel may not execute; true when it was done.
 */
bool emulate_privileged(struct frame *f);
bool emulate_cpuid(struct frame *f);

/* mmu.c */
int64_t mmu_update(uint64_t requests, uint64_t n, uint64_t done);
int64_t mmu_update_va(uint64_t va, uint64_t entry, uint64_t flags);
int64_t mmu_extended(uint64_t ops, uint64_t n);
/* The tables that lead to va become ones that CPL3 may use; true when one was not. */
bool mmu_open_path(uint64_t va);
/* The guest-physical address of a linear one; 0 when no page of 4 KiB of RAM is there. */
uint64_t mmu_physical(uint64_t va);

/* event.c */
int64_t event_op(uint64_t op, uint64_t arg);
int64_t sched_op(uint64_t op, uint64_t arg);
void event_raise(uint32_t port);
/* Raise those of the devices that the monitor names. */
void event_devices(void);

/* timer.c */
uint64_t timer_now_ns(void);
void timer_set(uint64_t ns); /* 0 = never */
/* An interrupt has come; raise what is due. */
void timer_due(void);
/* Interrupt again, soon. */
void timer_remind(void);

/* console.c */
void console_drain(void);
int64_t console_io(uint64_t op, uint64_t n, uint64_t text);

/* info.c */
int64_t version_op(uint64_t op, uint64_t arg);
int64_t memory_op(uint64_t op, uint64_t arg);
int64_t vcpu_op(uint64_t op, uint64_t vcpu, uint64_t arg);

#endif
