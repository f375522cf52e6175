/* vmm/cpuid.c - see vmm/cpuid.h. */
#include "vmm/cpuid.h"

#include <cpuid.h>
#include <stdint.h>
#include <string.h>

#define BIT(n) (UINT32_C(1) << (n))
#define ALL UINT32_MAX
enum { ANY_INDEX = -1 };

/* x87, SSE, AVX and the three parts of AVX-512.  Not here: MPX (gone), PKRU, and AMX, whose 8 KiB
 * of registers need a size of XSAVE state that depends on the guest. */
#define XCR0_ALLOWED UINT32_C(0xe7)

/* CPUID.1:ECX.  Not here: MONITOR (a guest idles by HLT), VMX, DTES64, PDCM (no performance
 * counters), OSXSAVE (KVM shows it when CR4 does). */
#define FEATURES_1_ECX \
    (BIT(0) /* SSE3 */ | BIT(1) /* PCLMULQDQ */ | BIT(9) /* SSSE3 */ | BIT(12) /* FMA */ | \
     BIT(13) /* CMPXCHG16B */ | BIT(17) /* PCID */ | BIT(19) /* SSE4.1 */ | BIT(20) /* SSE4.2 */ | \
     BIT(21) /* x2APIC */ | BIT(22) /* MOVBE */ | BIT(23) /* POPCNT */ | \
     BIT(24) /* TSC deadline */ | BIT(25) /* AES */ | BIT(26) /* XSAVE */ | BIT(28) /* AVX */ | \
     BIT(29) /* F16C */ | BIT(30) /* RDRAND */ | BIT(31) /* hypervisor */)
/* CPUID.1:EDX.  Not here: serial number, DS, ACPI, TM, PBE (thermal and debug stores); HTT is set
 * by the shape. */
#define FEATURES_1_EDX UINT32_C(0x078bfbff)

/* CPUID.7.0:EBX.  Not here: SGX, TSX (HLE, RTM: deprecated, a side channel), MPX, RDT, PT. */
#define FEATURES_7_EBX \
    (BIT(0) /* FSGSBASE */ | BIT(1) /* TSC_ADJUST */ | BIT(3) /* BMI1 */ | BIT(5) /* AVX2 */ | \
     BIT(6) /* FDP_EXCPTN_ONLY */ | BIT(7) /* SMEP */ | BIT(8) /* BMI2 */ | BIT(9) /* ERMS */ | \
     BIT(10) /* INVPCID */ | BIT(13) /* no FPU CS/DS */ | BIT(16) /* AVX512F */ | \
     BIT(17) /* AVX512DQ */ | BIT(18) /* RDSEED */ | BIT(19) /* ADX */ | BIT(20) /* SMAP */ | \
     BIT(21) /* AVX512_IFMA */ | BIT(23) /* CLFLUSHOPT */ | BIT(24) /* CLWB */ | \
     BIT(28) /* AVX512CD */ | BIT(29) /* SHA */ | BIT(30) /* AVX512BW */ | BIT(31) /* AVX512VL */)
/* CPUID.7.0:ECX.  Not here: PKU (its state is not in XCR0_ALLOWED), WAITPKG, LA57 (a level of page
 * tables that no sandbox needs), ENQCMD, SGX_LC, shadow stacks (their MSRs are not saved). */
#define FEATURES_7_ECX \
    (BIT(1) /* AVX512_VBMI */ | BIT(2) /* UMIP */ | BIT(6) /* AVX512_VBMI2 */ | \
     BIT(8) /* GFNI */ | BIT(9) /* VAES */ | BIT(10) /* VPCLMULQDQ */ | \
     BIT(11) /* AVX512_VNNI */ | BIT(12) /* AVX512_BITALG */ | BIT(14) /* AVX512_VPOPCNTDQ */ | \
     BIT(22) /* RDPID */)
/* CPUID.7.0:EDX: string copies, and what the mitigations of speculation need. */
#define FEATURES_7_EDX \
    (BIT(4) /* FSRM */ | BIT(10) /* MD_CLEAR */ | BIT(26) /* SPEC_CTRL */ | BIT(27) /* STIBP */ | \
     BIT(28) /* L1D_FLUSH */ | BIT(29) /* ARCH_CAPABILITIES */ | BIT(31) /* SSBD */)
#define FEATURES_7_1_EAX (BIT(4) /* AVX-VNNI */ | BIT(5) /* AVX512_BF16 */)

/* XSAVEOPT, XSAVEC, XGETBV(1).  Not here: XSAVES, whose supervisor states hang on IA32_XSS. */
#define FEATURES_D_1_EAX (BIT(0) | BIT(1) | BIT(2))

/* 8000_0001:ECX.  Not here: SVM, IBS, performance counters, MWAITX. */
#define FEATURES_8_1_ECX \
    (BIT(0) /* LAHF */ | BIT(1) /* CmpLegacy */ | BIT(4) /* CR8 */ | BIT(5) /* LZCNT */ | \
     BIT(6) /* SSE4A */ | BIT(7) /* misaligned SSE */ | BIT(8) /* PREFETCHW */ | \
     BIT(22) /* topology extensions */)
/* 8000_0001:EDX: AMD's copies of leaf 1, SYSCALL, NX, MMX+, FFXSR, 1 GiB pages, RDTSCP, LM. */
#define FEATURES_8_1_EDX UINT32_C(0x2fd3fbff)
/* 8000_0008:EBX: CLZERO, XSAVEERPTR, and the mitigations of speculation (IBPB … SSB_NO). */
#define FEATURES_8_8_EBX \
    (BIT(0) | BIT(2) | BIT(12) | BIT(14) | BIT(15) | BIT(16) | BIT(17) | BIT(24) | BIT(26))

/* KVM's own: its clock, no delay at ports, end of interrupt without an exit, "the clock is
 * stable".  Not here: the clock's first form, steal time and asynchronous page faults (pages that
 * the host writes), polling and yielding (for hosts that have more vCPUs than we give). */
#define FEATURES_KVM (BIT(1) | BIT(3) | BIT(6) | BIT(24))

/* Highest leaves that the rows below name. */
enum { TOP_BASIC = 0xd };
#define TOP_EXTENDED UINT32_C(0x80000021)

static const struct rule {
    uint32_t function;
    int index; /* ANY_INDEX, or of one sub-leaf */
    uint32_t eax, ebx, ecx, edx;
} rules[] = {
    {0x0, ANY_INDEX, ALL, ALL, ALL, ALL},                              /* vendor; EAX is capped */
    {0x1, ANY_INDEX, ALL, 0x0000ff00, FEATURES_1_ECX, FEATURES_1_EDX}, /* EBX: CLFLUSH size */
    {0x2, ANY_INDEX, ALL, ALL, ALL, ALL}, /* caches, Intel: name_caches() */
    {0x4, ANY_INDEX, 0x3ff, ALL, ALL, 7}, /* the same; sharing is set by the shape */
    {0x6, ANY_INDEX, BIT(2), 0, 0, 0},    /* ARAT: the local APIC's timer never stops */
    {0x7, 0, ALL, FEATURES_7_EBX, FEATURES_7_ECX, FEATURES_7_EDX},
    {0x7, 1, FEATURES_7_1_EAX, 0, 0, 0},
    {0xb, ANY_INDEX, 0, 0, 0, 0}, /* topology: set by the shape */
    {0xd, 0, XCR0_ALLOWED, ALL, ALL, 0},
    {0xd, 1, FEATURES_D_1_EAX, ALL, 0, 0},
    {0xd, 2, ALL, ALL, ALL, ALL}, /* places of the states in XCR0_ALLOWED */
    {0xd, 5, ALL, ALL, ALL, ALL},
    {0xd, 6, ALL, ALL, ALL, ALL},
    {0xd, 7, ALL, ALL, ALL, ALL},
    {0x40000000, ANY_INDEX, ALL, ALL, ALL, ALL}, /* "KVMKVMKVM" */
    {0x40000001, ANY_INDEX, FEATURES_KVM, 0, 0, 0},
    {0x80000000, ANY_INDEX, ALL, ALL, ALL, ALL}, /* vendor; EAX is capped */
    {0x80000001, ANY_INDEX, ALL, 0, FEATURES_8_1_ECX, FEATURES_8_1_EDX},
    {0x80000002, ANY_INDEX, ALL, ALL, ALL, ALL}, /* the processor's name */
    {0x80000003, ANY_INDEX, ALL, ALL, ALL, ALL},
    {0x80000004, ANY_INDEX, ALL, ALL, ALL, ALL},
    {0x80000005, ANY_INDEX, ALL, ALL, ALL, ALL}, /* caches, AMD */
    {0x80000006, ANY_INDEX, ALL, ALL, ALL, ALL},
    /* Power management, and with it "the TSC is invariant": without that bit Linux takes
     * kvm-clock, which is right after a restore, on this host and on another. */
    {0x80000007, ANY_INDEX, 0, 0, 0, 0},
    {0x80000008, ANY_INDEX, 0xffff, FEATURES_8_8_EBX, 0, 0}, /* address widths */
    {0x8000001d, ANY_INDEX, 0x3ff, ALL, ALL, 3},             /* caches, AMD; sharing by the shape */
    {0x8000001e, ANY_INDEX, 0, 0, 0, 0},                     /* topology: set by the shape */
    {0x80000021, ANY_INDEX, BIT(2) | BIT(6), 0, 0, 0},       /* LFENCE serialises, null selectors */
};

static const struct rule *rule_of(const struct kvm_cpuid_entry2 *entry)
{
    for (size_t i = 0; i < CL_COUNT(rules); i++) {
        if (rules[i].function == entry->function &&
            (rules[i].index == ANY_INDEX || rules[i].index == (int)entry->index))
            return &rules[i];
    }
    return NULL;
}

static void mask(struct kvm_cpuid_entry2 *entry, const struct rule *rule)
{
    entry->eax &= rule->eax;
    entry->ebx &= rule->ebx;
    entry->ecx &= rule->ecx;
    entry->edx &= rule->edx;
}

/* Bits that number `vcpus` processors. */
static uint32_t id_bits(unsigned vcpus)
{
    uint32_t bits = 0;
    while ((1U << bits) < vcpus)
        bits++;
    return bits;
}

static void shape_features(struct kvm_cpuid_entry2 *e, const struct cpuid_shape *shape)
{
    e->ebx |= shape->vcpu << 24 | shape->vcpus << 16; /* APIC id, how many */
    e->ecx |= BIT(31);
    if (shape->tsc_deadline)
        e->ecx |= BIT(24);
    if (shape->vcpus > 1)
        e->edx |= BIT(28); /* HTT: the count above is valid */
}

/* Cache: its first two levels belong to a core, the rest to all. */
static void shape_cache(struct kvm_cpuid_entry2 *e, const struct cpuid_shape *shape, bool intel)
{
    unsigned level = (e->eax >> 5) & 7;
    if (e->eax == 0)
        return;
    if (level > 2)
        e->eax |= (shape->vcpus - 1) << 14;
    if (intel)
        e->eax |= (shape->vcpus - 1) << 26; /* cores of the package */
}

/* Leaf Bh: sub-leaf 0 is the thread (one), 1 the core, 2 the end. */
static void shape_topology(struct kvm_cpuid_entry2 *e, const struct cpuid_shape *shape)
{
    e->ecx = e->index;
    e->edx = shape->vcpu;
    if (e->index > 1)
        return;
    e->eax = e->index == 0 ? 0 : id_bits(shape->vcpus);
    e->ebx = e->index == 0 ? 1 : shape->vcpus;
    e->ecx |= (e->index + 1) << 8;
}

static void apply_shape(struct kvm_cpuid_entry2 *e, const struct cpuid_shape *shape)
{
    switch (e->function) {
    case 0x0:
        e->eax = CL_MIN(e->eax, (uint32_t)TOP_BASIC);
        break;
    case 0x1:
        shape_features(e, shape);
        break;
    case 0x4:
        shape_cache(e, shape, true);
        break;
    case 0xb:
        shape_topology(e, shape);
        break;
    case 0x80000000:
        e->eax = CL_MIN(e->eax, TOP_EXTENDED);
        break;
    case 0x80000008:
        e->ecx = id_bits(shape->vcpus) << 12 | (shape->vcpus - 1);
        break;
    case 0x8000001d:
        shape_cache(e, shape, false);
        break;
    case 0x8000001e:
        e->eax = shape->vcpu;
        e->ebx = shape->vcpu; /* core id, one thread each */
        break;
    default:
        break;
    }
}

enum { XSAVE_LEGACY_BYTES = 576 }; /* x87, SSE and the header: Intel SDM 1 §13.4 */

/* The size of the XSAVE area, CPUID.D.0:ECX, goes down with the states that we took away. */
static void resize_xsave(struct kvm_cpuid_table *table)
{
    uint32_t bytes = XSAVE_LEGACY_BYTES;
    struct kvm_cpuid_entry2 *whole = NULL;
    for (uint32_t i = 0; i < table->nent; i++) {
        struct kvm_cpuid_entry2 *e = &table->entries[i];
        if (e->function == 0xd && e->index == 0)
            whole = e;
        if (e->function == 0xd && e->index > 1)
            bytes = CL_MAX(bytes, e->eax + e->ebx);
    }
    if (whole)
        whole->ebx = whole->ecx = bytes;
}

/* --- leaf 2, Intel ---------------------------------------------------------------------------- */

/* Kinds of caches as leaf 4 numbers them: EAX bits 0 to 4 (1 data, 2 instructions, 3 both), and the
 * level in bits 5 to 7. */
enum { DATA_1 = 1 << 5 | 1, CODE_1 = 1 << 5 | 2, BOTH_2 = 2 << 5 | 3, BOTH_3 = 3 << 5 | 3 };
enum { SEE_LEAF_4 = 0xff, NO_LEVEL_3 = 0x40 };

/* Some of leaf 2's bytes: SDM 2A, CPUID, "Encoding of CPUID Leaf 2 Descriptors"; lines of 64 bytes.
 */
static const struct descriptor {
    uint8_t byte, kind;
    uint32_t kib;
} descriptors[] = {
    {0x60, DATA_1, 16},    {0x0e, DATA_1, 24},    {0x2c, DATA_1, 32},   {0x30, CODE_1, 32},
    {0x21, BOTH_2, 256},   {0x80, BOTH_2, 512},   {0x7c, BOTH_2, 1024}, {0x7d, BOTH_2, 2048},
    {0xd2, BOTH_3, 2048},  {0xe3, BOTH_3, 4096},  {0xe4, BOTH_3, 8192}, {0xea, BOTH_3, 12288},
    {0xeb, BOTH_3, 18432}, {0xec, BOTH_3, 24576},
};

/* Of the cache of a kind, by leaf 4; 0 if there is none. */
static uint64_t kib_of(const struct kvm_cpuid_table *table, uint8_t kind)
{
    for (uint32_t i = 0; i < table->nent; i++) {
        const struct kvm_cpuid_entry2 *e = &table->entries[i];
        if (e->function == 4 && (e->eax & 0xff) == kind) {
            uint64_t ways = (e->ebx >> 22) + 1, parts = (e->ebx >> 12 & 0x3ff) + 1;
            return ways * parts * ((e->ebx & 0xfff) + 1) * ((uint64_t)e->ecx + 1) / 1024;
        }
    }
    return 0;
}

/* The largest one that is not larger than the cache; 0 if all are. */
static uint8_t descriptor_of(uint8_t kind, uint64_t kib)
{
    uint8_t byte = 0;
    for (size_t i = 0; i < CL_COUNT(descriptors); i++) {
        if (descriptors[i].kind == kind && descriptors[i].kib <= kib)
            byte = descriptors[i].byte;
    }
    return byte;
}

/* Intel's processors of today say "see leaf 4" in leaf 2, and glibc does, from its first sub-leaf
 * on for each of twelve figures: some fifty CPUIDs more at the start of each program, each of
 * which leaves the guest.  Leaf 2 names the caches instead, as well as it can. */
static void name_caches(struct kvm_cpuid_entry2 *e, const struct kvm_cpuid_table *table)
{
    uint64_t level_3 = kib_of(table, BOTH_3);
    uint8_t data = descriptor_of(DATA_1, kib_of(table, DATA_1));
    uint8_t code = descriptor_of(CODE_1, kib_of(table, CODE_1));
    uint8_t both = descriptor_of(BOTH_2, kib_of(table, BOTH_2));
    uint8_t last = level_3 > 0 ? descriptor_of(BOTH_3, level_3) : NO_LEVEL_3;
    if (!data || !code || !both || !last)
        return;
    e->eax = (uint32_t)data << 24 | (uint32_t)code << 16 | (uint32_t)both << 8 | 1;
    e->ebx = last;
    e->ecx = e->edx = 0;
}

static bool sees_leaf_4(const struct kvm_cpuid_entry2 *e)
{
    const uint32_t words[] = {e->eax & ~UINT32_C(0xff), e->ebx, e->ecx, e->edx};
    for (unsigned i = 0; i < CL_COUNT(words) * 4; i++) {
        uint32_t word = words[i / 4];
        if (!(word & BIT(31)) && (word >> i % 4 * 8 & 0xff) == SEE_LEAF_4)
            return true;
    }
    return false;
}

int cpuid_filter(const struct kvm_cpuid_table *supported, const struct cpuid_shape *shape,
                 struct kvm_cpuid_table *ret_table, struct cl_err *err)
{
    uint32_t n = 0;
    if (supported->nent > KVM_CPUID_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "a CPUID table of %u entries", supported->nent);
    memset(ret_table, 0, sizeof *ret_table);
    for (uint32_t i = 0; i < supported->nent; i++) {
        const struct rule *rule = rule_of(&supported->entries[i]);
        if (!rule)
            continue;
        ret_table->entries[n] = supported->entries[i];
        mask(&ret_table->entries[n], rule);
        apply_shape(&ret_table->entries[n], shape);
        n++;
    }
    ret_table->nent = n;
    resize_xsave(ret_table);
    for (uint32_t i = 0; i < n; i++) {
        if (ret_table->entries[i].function == 2 && sees_leaf_4(&ret_table->entries[i]))
            name_caches(&ret_table->entries[i], ret_table);
    }
    return 0;
}

/* --- in a state ------------------------------------------------------------------------------ */

void cpuid_save(const struct kvm_cpuid_table *table, struct state_writer *out)
{
    state_begin(out, STATE_PROCESSOR);
    for (uint32_t i = 0; i < table->nent; i++) {
        const struct kvm_cpuid_entry2 *e = &table->entries[i];
        state_put_u32(out, e->function);
        state_put_u32(out, e->index);
        state_put_u32(out, e->flags);
        state_put_u32(out, e->eax);
        state_put_u32(out, e->ebx);
        state_put_u32(out, e->ecx);
        state_put_u32(out, e->edx);
    }
    state_end(out);
}

int cpuid_load(struct kvm_cpuid_table *ret_table, struct state_reader *in, struct cl_err *err)
{
    memset(ret_table, 0, sizeof *ret_table);
    if (state_enter(in, STATE_PROCESSOR, err) < 0)
        return -1;
    while (state_left(in) > 0 && !in->bad && ret_table->nent < KVM_CPUID_MAX) {
        struct kvm_cpuid_entry2 *e = &ret_table->entries[ret_table->nent++];
        e->function = state_get_u32(in);
        e->index = state_get_u32(in);
        e->flags = state_get_u32(in);
        e->eax = state_get_u32(in);
        e->ebx = state_get_u32(in);
        e->ecx = state_get_u32(in);
        e->edx = state_get_u32(in);
    }
    return state_leave(in, err);
}

/* --- the host's own -------------------------------------------------------------------------- */

static bool has_indexes(uint32_t function)
{
    return function == 0x4 || function == 0x7 || function == 0xb || function == 0xd ||
           function == 0x8000001d;
}

static bool is_hypervisor_leaf(uint32_t function)
{
    return function >> 8 == 0x400000;
}

static void add_leaf(struct kvm_cpuid_table *table, uint32_t function, uint32_t index)
{
    struct kvm_cpuid_entry2 *e = &table->entries[table->nent++];
    *e = (struct kvm_cpuid_entry2){.function = function, .index = index};
    e->flags = has_indexes(function) ? KVM_CPUID_FLAG_SIGNIFCANT_INDEX : 0;
    __cpuid_count(function, index, e->eax, e->ebx, e->ecx, e->edx);
    if (function == 1)
        e->ecx |= BIT(21); /* x2APIC: the local APIC is KVM's, whatever the host's is */
}

/* Above the highest leaf of its kind Intel's processors repeat another one. */
static bool exists(uint32_t function)
{
    uint32_t top, b, c, d;
    __cpuid(function & BIT(31), top, b, c, d);
    return function <= top;
}

void cpuid_host(struct kvm_cpuid_table *ret_table)
{
    enum { INDEXES = 8 }; /* of caches, topology and states below XCR0_ALLOWED's end */
    memset(ret_table, 0, sizeof *ret_table);
    for (size_t i = 0; i < CL_COUNT(rules); i++) {
        uint32_t function = rules[i].function;
        bool again = i > 0 && rules[i - 1].function == function;
        if (again || is_hypervisor_leaf(function) || !exists(function))
            continue;
        uint32_t n = has_indexes(function) ? INDEXES : 1;
        for (uint32_t index = 0; index < n; index++)
            add_leaf(ret_table, function, index);
    }
}

bool cpuid_has_xsave(const struct kvm_cpuid_table *table)
{
    for (uint32_t i = 0; i < table->nent; i++) {
        if (table->entries[i].function == 1)
            return table->entries[i].ecx & BIT(26);
    }
    return false;
}

/* --- Xen PV ---------------------------------------------------------------------------------- */

/* CPUID.1:ECX.  Needs ring 0: PCID, x2APIC, TSC deadline. */
#define XENPV_1_ECX_GONE (BIT(17) | BIT(21) | BIT(24))
/* The kernel could not set CR4 to show it. */
#define XENPV_1_ECX_OSXSAVE BIT(27)
/* CPUID.1:EDX and AMD's copy.  PSE, MCE, APIC, MTRR, PGE, MCA, PAT, PSE36: Xen gives a guest pages
 * of 4 KiB and no such registers. */
#define XENPV_EDX_GONE (BIT(3) | BIT(7) | BIT(9) | BIT(12) | BIT(13) | BIT(14) | BIT(16) | BIT(17))
/* CPUID.1:EDX: SYSENTER, which leads to where no gate is. */
#define XENPV_1_EDX_GONE (XENPV_EDX_GONE | BIT(11))
/* CPUID.7:EBX: FSGSBASE (each switch of threads would read a register of ring 0), TSC_ADJUST, SMEP,
 * INVPCID, SMAP. */
#define XENPV_7_EBX_GONE (BIT(0) | BIT(1) | BIT(7) | BIT(10) | BIT(20))
/* CPUID.7:ECX: UMIP; RDPID, which would tell of the host's processor. */
#define XENPV_7_ECX_GONE (BIT(2) | BIT(22))
/* CPUID.7:EDX: all but FSRM: registers that mitigate speculation are the host's. */
#define XENPV_7_EDX_KEPT BIT(4)
/* Of leaf Dh: the standard format, XSAVEOPT. */
#define XENPV_D_1_EAX_KEPT BIT(0)
/* 8000_0001:EDX: besides, pages of 1 GiB. */
#define XENPV_8_1_EDX_GONE (XENPV_EDX_GONE | BIT(26))
/* 8000_0008:EBX: XSAVEERPTR and CLZERO stay. */
#define XENPV_8_8_EBX_KEPT (BIT(0) | BIT(2))

static void mask_xenpv_features(struct kvm_cpuid_entry2 *e)
{
    switch (e->function) {
    case 0x1:
        e->ecx = (e->ecx & ~XENPV_1_ECX_GONE) | XENPV_1_ECX_OSXSAVE;
        e->edx &= ~XENPV_1_EDX_GONE;
        break;
    case 0x7:
        e->ebx &= ~XENPV_7_EBX_GONE;
        e->ecx &= ~XENPV_7_ECX_GONE;
        e->edx &= XENPV_7_EDX_KEPT;
        break;
    case 0xd:
        if (e->index == 1)
            *e = (struct kvm_cpuid_entry2){
                .function = 0xd, .index = 1, .flags = e->flags, .eax = e->eax & XENPV_D_1_EAX_KEPT};
        break;
    case 0x80000001:
        e->edx &= ~XENPV_8_1_EDX_GONE;
        break;
    case 0x80000008:
        e->ebx &= XENPV_8_8_EBX_KEPT;
        break;
    default:
        break;
    }
}

/* Xen, public/arch-x86/cpuid.h: the signature and the highest leaf, the version. */
static const struct kvm_cpuid_entry2 xen_leaves[] = {
    {.function = 0x40000000,
     .eax = 0x40000002,
     .ebx = 0x566e6558,
     .ecx = 0x65584d4d,
     .edx = 0x4d4d566e},
    {.function = 0x40000001, .eax = 4 << 16 | 17},
};

void cpuid_xenpv(const struct kvm_cpuid_table *of_kvm, struct kvm_cpuid_table *ret_table)
{
    uint32_t n = 0;
    memset(ret_table, 0, sizeof *ret_table);
    for (uint32_t i = 0; i < of_kvm->nent; i++) {
        if (is_hypervisor_leaf(of_kvm->entries[i].function))
            continue;
        ret_table->entries[n] = of_kvm->entries[i];
        mask_xenpv_features(&ret_table->entries[n++]);
    }
    for (size_t i = 0; i < CL_COUNT(xen_leaves) && n < KVM_CPUID_MAX; i++)
        ret_table->entries[n++] = xen_leaves[i];
    ret_table->nent = n;
}

bool cpuid_host_virtualizes(void)
{
    uint32_t a, b, c = 0, d;
    if (__get_cpuid(1, &a, &b, &c, &d) && c & BIT(5)) /* VMX */
        return true;
    return __get_cpuid(BIT(31) | 1, &a, &b, &c, &d) && c & BIT(2); /* SVM */
}
