/* vmm/shim/xen.h - what of Xen's interface to a PV guest is used here.
 *
 * Reference: Xen 4.17, public/xen.h, arch-x86/xen.h, arch-x86/xen-x86_64.h, vcpu.h, sched.h,
 * event_channel.h, memory.h, version.h, callback.h, features.h, io/console.h.  Little-endian.
 */
#ifndef CL_VMM_SHIM_XEN_H
#define CL_VMM_SHIM_XEN_H

#include <stddef.h>
#include <stdint.h>

enum xen_hypercall {
    XEN_SET_TRAP_TABLE = 0,
    XEN_MMU_UPDATE = 1,
    XEN_SET_GDT = 2,
    XEN_STACK_SWITCH = 3,
    XEN_FPU_TASKSWITCH = 5,
    XEN_SET_DEBUGREG = 8,
    XEN_GET_DEBUGREG = 9,
    XEN_UPDATE_DESCRIPTOR = 10,
    XEN_MEMORY_OP = 12,
    XEN_MULTICALL = 13,
    XEN_UPDATE_VA_MAPPING = 14,
    XEN_SET_TIMER = 15,
    XEN_VERSION_OP = 17,
    XEN_CONSOLE_IO = 18,
    XEN_VM_ASSIST = 21,
    XEN_VCPU_OP = 24,
    XEN_SET_SEGMENT_BASE = 25,
    XEN_MMUEXT_OP = 26,
    XEN_SCHED_OP = 29,
    XEN_CALLBACK_OP = 30,
    XEN_EVENT_CHANNEL_OP = 32,
    XEN_PHYSDEV_OP = 33,
    XEN_HYPERCALLS = 64,
};

/* Linux's numbers, which Xen uses. */
enum xen_error {
    XEN_EPERM = 1,
    XEN_ENOENT = 2,
    XEN_EEXIST = 17,
    XEN_EINVAL = 22,
    XEN_ENOSPC = 28,
    XEN_ENOSYS = 38,
};

enum { XEN_MAJOR = 4, XEN_MINOR = 17 };

enum xen_feature {
    XENFEAT_PAE_PGDIR_ABOVE_4GB = 4,
    XENFEAT_MMU_PT_UPDATE_PRESERVE_AD = 5,
    XENFEAT_GNTTAB_MAP_AVAIL_BITS = 7,
};

struct xen_time_info {
    uint32_t version, pad0;
    uint64_t tsc_timestamp, system_time;
    uint32_t mul;
    int8_t shift;
    uint8_t flags, pad1[2];
};
enum { XEN_TSC_STABLE = 1 };

struct xen_vcpu_info {
    uint8_t upcall_pending, upcall_mask, pad[6];
    uint64_t pending_sel;
    uint64_t cr2, pad2;
    struct xen_time_info time;
};
_Static_assert(sizeof(struct xen_vcpu_info) == 64, "Xen's ABI");

enum { XEN_LEGACY_VCPUS = 32, XEN_CHANNEL_WORDS = 64 };

struct xen_shared_info {
    struct xen_vcpu_info vcpu_info[XEN_LEGACY_VCPUS];
    uint64_t pending[XEN_CHANNEL_WORDS], mask[XEN_CHANNEL_WORDS];
    uint32_t wc_version, wc_sec, wc_nsec, wc_sec_hi;
    uint64_t arch[6];
};
_Static_assert(offsetof(struct xen_shared_info, pending) == 2048, "Xen's ABI");
_Static_assert(offsetof(struct xen_shared_info, wc_version) == 3072, "Xen's ABI");

/* Ends a table with an address of 0, but in the context below, where it is that of vector n. */
struct xen_trap {
    uint8_t vector, flags;
    uint16_t cs;
    uint32_t pad;
    uint64_t address;
};
enum { XEN_TRAP_MASKS_EVENTS = 4, XEN_VECTORS = 256 };

struct xen_registers {
    uint64_t r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi;
    uint64_t vector, rip, cs, flags, rsp, ss, es, ds, fs, gs;
};

/* What a vCPU begins with. */
struct xen_context {
    uint8_t fpu[512];
    uint64_t flags;
    struct xen_registers registers;
    struct xen_trap traps[XEN_VECTORS];
    uint64_t ldt, n_ldt, gdt[16], n_gdt, kernel_ss, kernel_sp;
    uint64_t cr[8], dr[8];
    uint64_t on_event, on_failsafe, on_syscall;
    uint64_t vm_assist, fs, kernel_gs, user_gs;
};
_Static_assert(offsetof(struct xen_context, registers) == 520, "Xen's ABI");
_Static_assert(offsetof(struct xen_context, traps) == 720, "Xen's ABI");
_Static_assert(sizeof(struct xen_context) == 5168, "Xen's ABI");

enum { XEN_CMDLINE_MAX = 1024, XEN_MOD_START_PFN = 1 << 3 };

struct xen_start_info {
    char magic[32];
    uint64_t nr_pages, shared_info;
    uint32_t flags, pad0;
    uint64_t store_frame;
    uint32_t store_port, pad1;
    uint64_t console_frame;
    uint32_t console_port, pad2;
    uint64_t pt_base, nr_pt_frames, p2m, mod_start, mod_bytes;
    char cmdline[XEN_CMDLINE_MAX];
    uint64_t first_p2m_frame, nr_p2m_frames;
};
_Static_assert(offsetof(struct xen_start_info, cmdline) == 128, "Xen's ABI");
_Static_assert(sizeof(struct xen_start_info) == 1168, "Xen's ABI");

/* Ports that a guest is born with. */
enum { XEN_PORT_STORE = 1, XEN_PORT_CONSOLE = 2, XEN_PORT_FIRST_FREE = 3 };

enum { XEN_CONSOLE_IN = 1024, XEN_CONSOLE_OUT = 2048 };
struct xen_console {
    uint8_t in[XEN_CONSOLE_IN], out[XEN_CONSOLE_OUT];
    uint32_t in_cons, in_prod, out_cons, out_prod;
};

#endif
