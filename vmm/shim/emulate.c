/* vmm/shim/emulate.c - instructions that a kernel may execute and CPL3 may not.
 *
 * Linux asks by hypercall for nearly all of them; what is left is rare, or of its first steps.  It
 * reads CPUID with a prefix that traps (public/arch-x86/xen.h, XEN_EMULATE_PREFIX).
 */
#include "vmm/shim/shim.h"

/* One instruction, taken apart as far as these need it. */
struct instruction {
    const uint8_t *at; /* behind prefixes and 0x0f */
    bool two_bytes;    /* there was a 0x0f */
    uint8_t rex, opcode, modrm;
    unsigned length; /* up to and with the opcode */
};

enum { PREFIXES_MAX = 8, REX_B = 1, NOP = 0x90 };

static bool is_prefix(uint8_t byte)
{
    return byte == 0x66 || byte == 0xf2 || byte == 0xf3 || byte == 0x2e || byte == 0x3e;
}

static struct instruction decode(uint64_t rip)
{
    const uint8_t *code = guest(rip);
    struct instruction in = {0};
    unsigned n = 0;
    while (n < PREFIXES_MAX && is_prefix(code[n]))
        n++;
    if ((code[n] & 0xf0) == 0x40)
        in.rex = code[n++];
    in.two_bytes = code[n] == 0x0f;
    n += in.two_bytes;
    in.opcode = code[n++];
    in.at = code + n;
    in.length = n;
    return in;
}

static bool done(struct frame *f, unsigned length)
{
    f->rip += length;
    return true;
}

/* The register that ModR/M's last bits name. */
static uint64_t *register_of(struct frame *f, const struct instruction *in)
{
    return (uint64_t *)f + frame_word((in->at[0] & 7U) | (in->rex & REX_B ? 8 : 0));
}

static unsigned control_register_of(const struct instruction *in)
{
    return in->at[0] >> 3 & 7;
}

static bool read_control(struct frame *f, const struct instruction *in)
{
    static const uint64_t cr0 = UINT64_C(0x80050033); /* PG AM WP NE ET MP PE */
    unsigned which = control_register_of(in);
    *register_of(f, in) = which == 0   ? cr0
                          : which == 4 ? shim()->cr4
                          : which == 3 ? doors()->kernel_root
                                       : 0;
    return done(f, in->length + 1);
}

/* What a kernel sets in CR4 it gets told again, no more; the rest has hypercalls. */
static bool write_control(struct frame *f, const struct instruction *in)
{
    if (control_register_of(in) == 4)
        shim()->cr4 = *register_of(f, in);
    return done(f, in->length + 1);
}

/* --- model-specific registers -------------------------------------------------------------- */

enum { MSR_FS_BASE = 0xc0000100, MSR_GS_BASE = 0xc0000101, MSR_KERNEL_GS_BASE = 0xc0000102 };

static bool find_msr(uint32_t index, uint64_t *ret_value)
{
    const struct shim_common *c = common();
    for (unsigned i = 0; i < c->n_msrs && i < SHIM_MSRS_MAX; i++) {
        if (c->msrs[i].index == index) {
            *ret_value = c->msrs[i].value;
            return true;
        }
    }
    return false;
}

static bool read_msr(uint32_t index, uint64_t *ret_value)
{
    switch (index) {
    case MSR_FS_BASE:
        *ret_value = read_fs_base();
        return true;
    case MSR_GS_BASE:
        *ret_value = shim()->kernel_gs;
        return true;
    case MSR_KERNEL_GS_BASE:
        *ret_value = shim()->user_gs;
        return true;
    default:
        return find_msr(index, ret_value);
    }
}

/* A register that is not in the list is not there: the kernel gets its #GP, and knows what to do.
 */
static bool rdmsr(struct frame *f, const struct instruction *in)
{
    uint64_t value;
    if (!read_msr((uint32_t)f->rcx, &value))
        return false;
    f->rax = (uint32_t)value;
    f->rdx = value >> 32;
    return done(f, in->length);
}

static bool wrmsr(struct frame *f, const struct instruction *in)
{
    uint64_t value = f->rdx << 32 | (uint32_t)f->rax, ignored;
    switch ((uint32_t)f->rcx) {
    case MSR_FS_BASE:
        write_fs_base(value);
        break;
    case MSR_GS_BASE:
        shim()->kernel_gs = value;
        write_gs_base(value);
        break;
    case MSR_KERNEL_GS_BASE:
        shim()->user_gs = value;
        break;
    default:
        if (!find_msr((uint32_t)f->rcx, &ignored))
            return false;
        break;
    }
    return done(f, in->length);
}

/* --- which ----------------------------------------------------------------------------------- */

static bool emulate_two_bytes(struct frame *f, const struct instruction *in)
{
    switch (in->opcode) {
    case 0x01: /* XSETBV: its value is the one that CPUID allows */
        return in->at[0] == 0xd1 && done(f, in->length + 1);
    case 0x06: /* CLTS */
    case 0x08: /* INVD */
    case 0x09: /* WBINVD */
        return done(f, in->length);
    case 0x20:
        return read_control(f, in);
    case 0x21: /* from a debug register */
        *register_of(f, in) = 0;
        return done(f, in->length + 1);
    case 0x22:
        return write_control(f, in);
    case 0x23:
        return done(f, in->length + 1);
    case 0x30:
        return wrmsr(f, in);
    case 0x32:
        return rdmsr(f, in);
    default:
        return false;
    }
}

/* CLI and STI do nothing, as under Xen: the POPF that often ends what a CLI began would not trap,
 * and events stay masked.  The kernel masks them by a byte of its own.  So they are made into NOPs
 * where they are met; a boot meets the same CLI, of this_cpu_cmpxchg16b_emu(), 5,600 times. */
static bool forget(struct frame *f, const struct instruction *in)
{
    const uint64_t gpa = mmu_physical(f->rip + in->length - 1);
    uint8_t *at = (uint8_t *)(SHIM_FRAMES_VA + gpa), seen = in->opcode;
    if (gpa != 0) /* another vCPU may have other code there by now */
        (void)__atomic_compare_exchange_n(at, &seen, NOP, false, __ATOMIC_SEQ_CST,
                                          __ATOMIC_SEQ_CST);
    return done(f, in->length);
}

bool emulate_privileged(struct frame *f)
{
    struct instruction in = decode(f->rip);
    shim()->privileged++;
    if (in.two_bytes)
        return emulate_two_bytes(f, &in);
    switch (in.opcode) {
    case 0xfa: /* CLI */
    case 0xfb: /* STI */
        return forget(f, &in);
    default:
        return false;
    }
}

/* --- CPUID ----------------------------------------------------------------------------------- */

static const struct shim_cpuid *find_leaf(uint32_t function, uint32_t index)
{
    const struct shim_cpuid *leaves = (const struct shim_cpuid *)(here + SHIM_CPUID);
    for (unsigned i = 0; i < shim()->n_cpuid && i < SHIM_CPUID_MAX; i++) {
        const struct shim_cpuid *leaf = &leaves[i];
        if (leaf->function == function && (leaf->any_index || leaf->index == index))
            return leaf;
    }
    return NULL;
}

bool emulate_cpuid(struct frame *f)
{
    static const uint8_t code[] = {0x0f, 0x0b, 'x', 'e', 'n', 0x0f, 0xa2};
    static const struct shim_cpuid nothing;
    if (__builtin_memcmp(guest(f->rip), code, sizeof code) != 0)
        return false;
    const struct shim_cpuid *leaf = find_leaf((uint32_t)f->rax, (uint32_t)f->rcx);
    if (!leaf)
        leaf = &nothing;
    f->rax = leaf->eax;
    f->rbx = leaf->ebx;
    f->rcx = leaf->ecx;
    f->rdx = leaf->edx;
    return done(f, sizeof code);
}
