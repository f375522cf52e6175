/* vmm/xenpv.c - see vmm/xenpv.h. */
#include "vmm/xenpv.h"

#include <inttypes.h>
#include <string.h>

#include "vmm/msr.h"
#include "vmm/shim/state.h"
#include "vmm/shim/xen.h"
#include "vmm/vcpu_state.h"
#include "vmm/xenpv_priv.h"

/* --- the first registers ------------------------------------------------------------------- */

enum {
    CR4_PAE = 1 << 5,
    CR4_OSFXSR = 1 << 9,
    CR4_OSXMMEXCPT = 1 << 10,
    CR4_FSGSBASE = 1 << 16,
    CR4_OSXSAVE = 1 << 18,
};
#define CR0_LONG UINT64_C(0x80050033)     /* PG AM WP NE ET MP PE */
#define EFER_LONG UINT64_C(0xd01)         /* NXE LMA LME SCE */
#define APIC_BASE_X2 UINT64_C(0xfee00c00) /* enabled, x2APIC */
#define APIC_BASE_FIRST UINT64_C(0x100)   /* processor */
#define STAR ((uint64_t)0x23 << 48 | (uint64_t)SHIM_CS0 << 32)
/* DF and TF, NT, with which IRETQ faults, and AC, with which the kernel would. */
#define SYSCALL_CLEARS UINT64_C(0x44500)

static struct kvm_segment segment(uint16_t selector, uint8_t type)
{
    bool is_code = type & 8;
    return (struct kvm_segment){.limit = UINT32_MAX,
                                .selector = selector,
                                .type = type,
                                .present = 1,
                                .dpl = 3,
                                .db = !is_code,
                                .s = 1,
                                .l = is_code,
                                .g = 1};
}

static int set_special(int vcpu_fd, const struct xenpv_entry *entry, struct cl_err *err)
{
    enum { CODE = 11, DATA = 3, BUSY_TSS = 11 };
    struct kvm_sregs s;
    if (KVM_CALL(vcpu_fd, KVM_GET_SREGS, &s, err) < 0)
        return -1;
    s.cr0 = CR0_LONG;
    s.cr3 = entry->root;
    s.cr4 = CR4_PAE | CR4_OSFXSR | CR4_OSXMMEXCPT | CR4_FSGSBASE | CR4_OSXSAVE;
    s.efer = EFER_LONG;
    s.apic_base = APIC_BASE_X2 | (entry->vcpu == 0 ? APIC_BASE_FIRST : 0);
    s.cs = segment(SHIM_CS3, CODE);
    s.ss = segment(SHIM_DS3, DATA);
    s.ds = s.es = s.fs = s.gs = segment(0, DATA);
    s.tr = (struct kvm_segment){.base = entry->slice + SHIM_TSS,
                                .limit = SHIM_TSS_LIMIT,
                                .selector = SHIM_TR,
                                .type = BUSY_TSS,
                                .present = 1};
    s.gdt = (struct kvm_dtable){.base = entry->slice + SHIM_GDT, .limit = SHIM_TR + 15};
    s.idt = (struct kvm_dtable){.base = entry->slice + SHIM_IDT, .limit = 0xfff};
    return KVM_CALL(vcpu_fd, KVM_SET_SREGS, &s, err);
}

/* The states that the kernel learns of from CPUID. */
static int set_xcr0(int vcpu_fd, const struct kvm_cpuid_table *cpuid, struct cl_err *err)
{
    struct kvm_xcrs xcrs = {.nr_xcrs = 1};
    xcrs.xcrs[0].value = 1; /* x87 is always there */
    for (uint32_t i = 0; i < cpuid->nent; i++) {
        const struct kvm_cpuid_entry2 *e = &cpuid->entries[i];
        if (e->function == 0xd && e->index == 0)
            xcrs.xcrs[0].value |= e->eax;
    }
    return KVM_CALL(vcpu_fd, KVM_SET_XCRS, &xcrs, err);
}

/* Switched on, its timer in TSC-deadline mode: Intel SDM 3A §10.5.4, §10.9. */
static int set_local_apic(int vcpu_fd, struct cl_err *err)
{
    enum { SPURIOUS = 0xf0, TIMER = 0x320, ON = 0x100, NO_VECTOR = 0xff, DEADLINE = 2 << 17 };
    struct kvm_lapic_state apic;
    if (KVM_CALL(vcpu_fd, KVM_GET_LAPIC, &apic, err) < 0)
        return -1;
    const uint32_t spurious = ON | NO_VECTOR, timer = DEADLINE | SHIM_IRQ_VECTOR;
    memcpy(apic.regs + SPURIOUS, &spurious, sizeof spurious);
    memcpy(apic.regs + TIMER, &timer, sizeof timer);
    return KVM_CALL(vcpu_fd, KVM_SET_LAPIC, &apic, err);
}

static int set_msrs(int vcpu_fd, const struct xenpv_entry *entry, struct cl_err *err)
{
    const struct msr_set msrs = {.nmsrs = 3,
                                 .entries = {{.index = 0xc0000081, .data = STAR},
                                             {.index = 0xc0000082, .data = entry->on_syscall},
                                             {.index = 0xc0000084, .data = SYSCALL_CLEARS}}};
    return msr_write(vcpu_fd, &msrs, err);
}

/* KVM lets all but the first wait for another's INIT. */
static int set_running(int vcpu_fd, struct cl_err *err)
{
    struct kvm_mp_state mp = {.mp_state = KVM_MP_STATE_RUNNABLE};
    return KVM_CALL(vcpu_fd, KVM_SET_MP_STATE, &mp, err);
}

int xenpv_set_registers(int vcpu_fd, const struct xenpv_entry *entry,
                        const struct kvm_cpuid_table *cpuid, struct cl_err *err)
{
    struct kvm_regs r = {
        .rip = entry->rip, .rsp = entry->rsp, .rsi = entry->rsi, .rflags = FLAG_IF | 2};
    if (set_special(vcpu_fd, entry, err) < 0 || set_xcr0(vcpu_fd, cpuid, err) < 0 ||
        set_local_apic(vcpu_fd, err) < 0 || set_msrs(vcpu_fd, entry, err) < 0 ||
        vcpu_state_set_tsc_offset(vcpu_fd, 0, err) < 0 || set_running(vcpu_fd, err) < 0)
        return -1;
    return KVM_CALL(vcpu_fd, KVM_SET_REGS, &r, err);
}

/* --- a clone's time ------------------------------------------------------------------------ */

/* When the guest's time was 0, so many ticks later. */
static int move_birth(const struct guest_mem *mem, uint64_t area, uint64_t slept,
                      struct cl_err *err)
{
    struct gpa at = {area + SHIM_COMMON + offsetof(struct shim_common, tsc_start)};
    uint64_t tsc;
    if (gm_read(mem, at, &tsc, sizeof tsc) < 0)
        return cl_fail(err, CL_E_INVALID, 0, "no shim in this memory");
    tsc += slept;
    return gm_write(mem, at, &tsc, sizeof tsc) < 0 ? cl_fail(err, CL_E_INVALID, 0, "shim's time")
                                                   : 0;
}

/* Where the guest says that its kernel has a copy: its own memory, so its own trouble if it lies.
 * A reader that was interrupted sees another version and reads again. */
static void move_copy(const struct guest_mem *mem, uint64_t gpa, uint64_t slept)
{
    struct xen_time_info time;
    if (gpa == 0 || gm_read(mem, (struct gpa){gpa}, &time, sizeof time) < 0)
        return;
    time.version += 2;
    time.tsc_timestamp += slept;
    (void)!gm_write(mem, (struct gpa){gpa}, &time, sizeof time);
}

/* Of one vCPU.  Its local APIC interrupts at once, because that time of the TSC is over, but not
 * yet the guest's: the shim must not take it for an interrupt of another kind. */
static void wake_vcpu(const struct guest_mem *mem, uint64_t state, uint64_t slept)
{
    const uint64_t never = 0;
    uint64_t times[SHIM_TIMES];
    if (gm_read(mem, (struct gpa){state + offsetof(struct shim_state, times)}, times,
                sizeof times) < 0)
        return; /* the area has room for all slices */
    for (int i = 0; i < SHIM_TIMES; i++)
        move_copy(mem, times[i], slept);
    (void)!gm_write(mem, (struct gpa){state + offsetof(struct shim_state, armed_ns)}, &never,
                    sizeof never);
}

int xenpv_wake(const struct guest_mem *mem, unsigned vcpus, uint64_t slept, struct xenpv *ret_xenpv,
               struct cl_err *err)
{
    struct guest_mem ram;
    if (xenpv_divide(mem, &ram, err) < 0)
        return -1;
    uint64_t area = gm_end(&ram);
    if (move_birth(mem, area, slept, err) < 0)
        return -1;
    for (unsigned i = 0; i < vcpus; i++)
        wake_vcpu(mem, area + (uint64_t)i * SHIM_SLICE + SHIM_STATE, slept);
    *ret_xenpv = (struct xenpv){.on = true, .area = area};
    return 0;
}

/* --- while it runs ------------------------------------------------------------------------- */

static void print(const struct guest_mem *mem, uint64_t mail, struct serial *serial)
{
    uint32_t n;
    uint8_t text[SHIM_TEXT_MAX];
    if (gm_read(mem, (struct gpa){mail + offsetof(struct shim_mail, n)}, &n, sizeof n) < 0)
        return;
    n = CL_MIN(n, (uint32_t)SHIM_TEXT_MAX);
    if (gm_read(mem, (struct gpa){mail + offsetof(struct shim_mail, text)}, text, n) == 0)
        serial_print(serial, text, n);
}

static void give_up(struct xenpv *xenpv, const struct guest_mem *mem, uint64_t mail)
{
    struct { /* the start of struct shim_mail */
        uint32_t n, trap;
        uint64_t ip, address;
    } why = {0};
    (void)!gm_read(mem, (struct gpa){mail}, &why, sizeof why); /* zeros say it as well */
    xenpv->gave_up = true;
    xenpv->trap = why.trap % SHIM_TRAPS;
    xenpv->ip = why.ip;
    xenpv->address = why.address;
}

bool xenpv_on_mail(struct xenpv *xenpv, const struct guest_mem *mem, uint8_t word,
                   struct serial *serial)
{
    uint64_t mail = xenpv->area + SHIM_MAIL;
    if (word == SHIM_PRINT)
        print(mem, mail, serial);
    else if (word == SHIM_GIVE_UP && !xenpv->gave_up)
        give_up(xenpv, mem, mail);
    return !xenpv->gave_up;
}

void xenpv_note(const struct xenpv *xenpv, const struct guest_mem *mem, unsigned n)
{
    struct gpa at = {xenpv->area + SHIM_MAIL + offsetof(struct shim_mail, devices)};
    CL_ASSERT(n < SHIM_DEVICE_EVENTS);
    (void)!gm_or64(mem, at, UINT64_C(1) << n); /* the area is RAM */
}

int xenpv_explain(const struct xenpv *xenpv, struct cl_err *ret_err)
{
    return cl_fail(ret_err, CL_E_GUEST, 0,
                   "the guest's kernel broke its contract with Xen: trap %" PRIu32 " at 0x%" PRIx64
                   ", address 0x%" PRIx64,
                   xenpv->trap, xenpv->ip, xenpv->address);
}
