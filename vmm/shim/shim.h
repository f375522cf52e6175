/* vmm/shim/shim.h - the parts of the shim to each other.
 *
 * The shim is the hypervisor that a Xen-PV kernel sees, inside its own guest, at CPL3: what it does
 * costs no exit to the monitor, and what it gets wrong ends the guest, nothing else.  The kernel's
 * pointers are used as they are; a bad one faults in here, and that is the guest's end.
 *
 * Thread: any vCPU, each in its own copy of this code, on the kernel's stack or one of layout.h's.
 * What is shim()'s and doors()' is this vCPU's, but for the fields that others write; what is
 * common is written with atomics, or under a lock.  The processor's IF is clear in interrupt(), and
 * set elsewhere; neither it nor a trap, which it may interrupt, takes a lock or waits for another
 * vCPU.
 */
#ifndef CL_VMM_SHIM_SHIM_H
#define CL_VMM_SHIM_SHIM_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/shim/frame.h"
#include "vmm/shim/hardware.h"
#include "vmm/shim/state.h"
#include "vmm/shim/xen.h"

/* This vCPU's. */
static inline struct shim_state *shim(void)
{
    return (struct shim_state *)(here + SHIM_STATE);
}

/* Another's. */
static inline struct shim_state *shim_of(uint64_t cpu)
{
    return (struct shim_state *)(SHIM_VA + cpu * SHIM_SLICE + SHIM_STATE);
}

static inline struct shim_doors *doors(void)
{
    return (struct shim_doors *)(here + SHIM_DOORS);
}

static inline struct shim_common *common(void)
{
    return (struct shim_common *)(SHIM_VA + SHIM_COMMON);
}

static inline struct shim_mail *mail(void)
{
    return (struct shim_mail *)(SHIM_VA + SHIM_MAIL);
}

static inline struct xen_shared_info *shared_info(void)
{
    return (struct xen_shared_info *)(SHIM_VA + SHIM_SHARED_INFO);
}

static inline struct xen_vcpu_info *vcpu_info(void)
{
    return (struct xen_vcpu_info *)shim()->vcpu_info;
}

static inline bool is_cpu(uint64_t cpu)
{
    return cpu < common()->n_cpus;
}

/* A frame of the guest's RAM. */
static inline void *frame_at(uint64_t frame)
{
    return (void *)(SHIM_FRAMES_VA + (frame << 12));
}

static inline bool is_frame(uint64_t frame)
{
    const struct shim_common *c = common();
    return frame < c->frames && frame - c->hole >= c->hole_frames; /* below the hole it wraps */
}

/* entry.S */
void load_root(uint64_t gpa);
void flush_page(uint64_t address);
uint64_t read_cr2(void);
void write_msr(uint32_t index, uint64_t value);
void wait_for_irq(void);
extern const uint8_t may_wait[] __attribute__((visibility("hidden")));
extern const uint8_t waited[] __attribute__((visibility("hidden")));
_Noreturn void start_kernel(uint64_t ip, uint64_t sp);
/* What entry.S calls. */
int64_t hypercall(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t number);
void trap(struct frame *f);
bool interrupt(struct frame *f); /* true when it ends in the user view */
_Noreturn void park(void);

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
int mmu_new_root(uint64_t frame);
/* The tables that lead to va become ones that CPL3 may use; true when one was not. */
bool mmu_open_path(uint64_t va);
/* The guest-physical address of a linear one; 0 when no RAM is there. */
uint64_t mmu_physical(uint64_t va);
/* Does the last entry on the way to va let CPL3 use it so? */
bool mmu_allows(uint64_t va, bool writes);

/* fault.c: what CR2 has, after a page fault that came straight to CPL3. */
uint64_t fault_address(const struct frame *f);

/* cpu.c */
void cpu_kick(uint64_t cpu); /* interrupt another one */
/* Until an interrupt has come since cpu_look(). */
void cpu_look(void);
void cpu_wait(void);
/* The vCPUs of this set forget translations: all, or (address | FLUSH_PAGE) those of one page. They
 * have when this is back. */
enum { FLUSH_ALL = 1, FLUSH_PAGE = 2 };
void cpu_flush(uint64_t cpus, uint64_t what);
/* In interrupt(): do what others want flushed. */
void cpu_settle(void);
int64_t vcpu_op(uint64_t op, uint64_t vcpu, uint64_t arg);

/* event.c */
int64_t event_op(uint64_t op, uint64_t arg);
int64_t sched_op(uint64_t op, uint64_t arg);
void event_raise(uint32_t port);
void event_raise_virq(uint32_t virq); /* this vCPU's */
/* Raise those of the devices that the monitor names. */
void event_devices(void);

/* timer.c */
uint64_t timer_now_ns(void);
void timer_set(uint64_t ns); /* 0 = never */
/* An interrupt has come; raise what is due. */
void timer_due(void);
void timer_wake(uint64_t ns); /* an interrupt then, or earlier */
/* Interrupt again, soon. */
void timer_remind(void);

/* console.c */
void console_drain(void);
int64_t console_io(uint64_t op, uint64_t n, uint64_t text);

/* info.c */
int64_t version_op(uint64_t op, uint64_t arg);
int64_t memory_op(uint64_t op, uint64_t arg);
int64_t set_vcpu_info(struct shim_state *s, uint64_t arg);
int64_t set_time_copy(struct shim_state *s, uint64_t arg);

/* hypercall.c */
void set_trap(struct shim_state *s, uint64_t vector, const struct xen_trap *trap);

#endif
