/* What a guest sees of the processor: only what the list names, in the shape of the machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "vmm/cpuid.h"
#include "vmm/msr.h"

static const uint32_t leaves[][2] = {
    {0, 0},          {1, 0},          {2, 0},          {3, 0},          {4, 0},
    {4, 1},          {4, 2},          {4, 3},          {5, 0},          {6, 0},
    {7, 0},          {7, 1},          {7, 2},          {9, 0},          {0xa, 0},
    {0xb, 0},        {0xb, 1},        {0xb, 2},        {0xd, 0},        {0xd, 1},
    {0xd, 2},        {0xd, 3},        {0xd, 9},        {0xd, 17},       {0xd, 18},
    {0x12, 0},       {0x14, 0},       {0x1d, 0},       {0x1e, 0},       {0x1f, 0},
    {0x40000000, 0}, {0x40000001, 0}, {0x80000000, 0}, {0x80000001, 0}, {0x80000007, 0},
    {0x80000008, 0}, {0x8000000a, 0}, {0x8000001d, 0}, {0x8000001e, 0}, {0x8000001f, 0},
    {0x80000021, 0}, {0x80000022, 0},
};

/* A host that can do everything. */
static struct kvm_cpuid_table everything(void)
{
    struct kvm_cpuid_table t = {.nent = CL_COUNT(leaves)};
    for (size_t i = 0; i < CL_COUNT(leaves); i++)
        t.entries[i] = (struct kvm_cpuid_entry2){.function = leaves[i][0],
                                                 .index = leaves[i][1],
                                                 .eax = UINT32_MAX,
                                                 .ebx = UINT32_MAX,
                                                 .ecx = UINT32_MAX,
                                                 .edx = UINT32_MAX};
    t.entries[20].eax = 256; /* AVX's state, behind SSE's */
    t.entries[20].ebx = 576;
    return t;
}

static const struct kvm_cpuid_entry2 *find(const struct kvm_cpuid_table *t, uint32_t function,
                                           uint32_t index)
{
    for (uint32_t i = 0; i < t->nent; i++) {
        if (t->entries[i].function == function && t->entries[i].index == index)
            return &t->entries[i];
    }
    return NULL;
}

static struct kvm_cpuid_table guest_of(unsigned vcpu, unsigned vcpus)
{
    struct kvm_cpuid_table host = everything(), guest;
    struct cpuid_shape shape = {.vcpu = vcpu, .vcpus = vcpus, .tsc_deadline = true};
    assert_int_equal(cpuid_filter(&host, &shape, &guest, NULL), 0);
    return guest;
}

static void test_what_no_row_names_is_not_there(void **state)
{
    (void)state;
    struct kvm_cpuid_table guest = guest_of(0, 1);
    static const uint32_t absent[][2] = {
        {3, 0},    {5, 0},          {9, 0},          {0xa, 0},       {0xd, 9},  {0xd, 17},
        {0xd, 18}, {0x12, 0},       {0x14, 0},       {0x1d, 0},      {0x1e, 0}, {0x1f, 0},
        {7, 2},    {0x8000000a, 0}, {0x8000001f, 0}, {0x80000022, 0}};
    for (size_t i = 0; i < CL_COUNT(absent); i++)
        assert_null(find(&guest, absent[i][0], absent[i][1]));
    assert_int_equal(find(&guest, 0, 0)->eax, 0xd);
    assert_int_equal(find(&guest, 0x80000000, 0)->eax, 0x80000021);
}

static void test_dangerous_features_are_off(void **state)
{
    (void)state;
    struct kvm_cpuid_table guest = guest_of(0, 1);
    assert_int_equal(find(&guest, 1, 0)->ecx & (1U << 3 | 1U << 5), 0); /* MONITOR, VMX */
    assert_int_equal(find(&guest, 7, 0)->ebx & (1U << 2 | 1U << 4 | 1U << 11), 0); /* SGX, TSX */
    assert_int_equal(find(&guest, 7, 0)->edx & (7U << 22), 0);                     /* AMX */
    assert_int_equal(find(&guest, 0x80000001, 0)->ecx & 1U << 2, 0);               /* SVM */
    assert_int_equal(find(&guest, 0x80000007, 0)->edx, 0); /* invariant TSC */
    assert_int_equal(find(&guest, 0x40000001, 0)->eax & (1U << 4 | 1U << 5), 0);
    assert_int_equal(find(&guest, 0xd, 0)->eax, 0xe7);
}

static void test_the_xsave_area_is_as_large_as_its_states(void **state)
{
    (void)state;
    struct kvm_cpuid_table guest = guest_of(0, 1);
    assert_int_equal(find(&guest, 0xd, 0)->ecx, 832);
}

/* A Xeon of 2023, as it answers: 48 KiB of data, 32 of instructions, 2 MiB, 260 MiB. */
static const struct kvm_cpuid_entry2 xeon[] = {
    {.function = 2, .eax = 0x00feff01, .ebx = 0xf0},
    {.function = 4, .index = 0, .eax = 0x04000121, .ebx = 0x02c0003f, .ecx = 0x3f},
    {.function = 4, .index = 1, .eax = 0x04000122, .ebx = 0x01c0003f, .ecx = 0x3f},
    {.function = 4, .index = 2, .eax = 0x04000143, .ebx = 0x03c0003f, .ecx = 0x7ff},
    {.function = 4, .index = 3, .eax = 0x04004163, .ebx = 0x04c0003f, .ecx = 0x33fff},
};

static struct kvm_cpuid_entry2 leaf_2_of(const struct kvm_cpuid_table *host)
{
    struct kvm_cpuid_table guest;
    struct cpuid_shape shape = {.vcpus = 1};
    assert_int_equal(cpuid_filter(host, &shape, &guest, NULL), 0);
    return *find(&guest, 2, 0);
}

static void test_leaf_2_names_the_caches_that_leaf_4_has(void **state)
{
    (void)state;
    struct kvm_cpuid_table host = {.nent = CL_COUNT(xeon)};
    memcpy(host.entries, xeon, sizeof xeon);
    struct kvm_cpuid_entry2 e = leaf_2_of(&host);
    assert_int_equal(e.eax, 0x2c307d01); /* 32 and 32 KiB, 2 MiB */
    assert_int_equal(e.ebx, 0xec);       /* 24 MiB, the most that a byte can say */
    assert_int_equal(e.ecx | e.edx, 0);
    host.entries[3].ecx = 0x3ff; /* 1 MiB */
    host.entries[4].eax = 0;     /* and no more */
    e = leaf_2_of(&host);
    assert_int_equal(e.eax, 0x2c307c01);
    assert_int_equal(e.ebx, 0x40);
}

static void test_leaf_2_stays_where_it_names_them_or_no_byte_fits(void **state)
{
    (void)state;
    struct kvm_cpuid_table host = {.nent = CL_COUNT(xeon)};
    memcpy(host.entries, xeon, sizeof xeon);
    host.entries[1].ecx = 0; /* 768 bytes of data */
    assert_int_equal(leaf_2_of(&host).eax, 0x00feff01);
    host.entries[1].ecx = 0x3f;
    host.entries[0].eax = 0x7d302c01;
    host.entries[0].ebx = 0x800000ff; /* bit 31: nothing is in it */
    assert_int_equal(leaf_2_of(&host).eax, 0x7d302c01);
    assert_int_equal(leaf_2_of(&host).ebx, 0x800000ff);
}

static void test_each_processor_knows_its_place(void **state)
{
    (void)state;
    for (unsigned vcpus = 1; vcpus <= 8; vcpus++) {
        for (unsigned i = 0; i < vcpus; i++) {
            struct kvm_cpuid_table guest = guest_of(i, vcpus);
            assert_int_equal(find(&guest, 1, 0)->ebx >> 24, i);
            assert_int_equal(find(&guest, 1, 0)->ebx >> 16 & 0xff, vcpus);
            assert_int_equal(find(&guest, 1, 0)->edx >> 28 & 1, vcpus > 1);
            assert_int_equal(find(&guest, 0xb, 0)->ebx, 1);
            assert_int_equal(find(&guest, 0xb, 1)->ebx, vcpus);
            assert_int_equal(find(&guest, 0xb, 1)->edx, i);
            assert_true(1U << find(&guest, 0xb, 1)->eax >= vcpus);
            assert_int_equal(find(&guest, 0xb, 1)->ecx, 0x201);
            assert_int_equal(find(&guest, 0x80000008, 0)->ecx & 0xff, vcpus - 1);
            assert_int_equal(find(&guest, 0x8000001e, 0)->eax, i);
        }
    }
}

static void test_the_same_host_gives_the_same_table(void **state)
{
    (void)state;
    struct kvm_cpuid_table a = guest_of(1, 2), b = guest_of(1, 2), again;
    struct cpuid_shape shape = {.vcpu = 1, .vcpus = 2, .tsc_deadline = true};
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(cpuid_filter(&a, &shape, &again, NULL), 0);
    assert_memory_equal(again.entries, a.entries, sizeof a.entries); /* nothing is left to take */
}

static void test_a_table_beyond_its_room_is_refused(void **state)
{
    (void)state;
    static struct kvm_cpuid_table host, guest;
    struct cpuid_shape shape = {.vcpus = 1};
    host.nent = KVM_CPUID_MAX + 1;
    assert_int_equal(cpuid_filter(&host, &shape, &guest, NULL), -1);
}

/* Save it, cut the state to n bytes (0 = not at all), load it. */
static int save_and_load(const struct kvm_cpuid_table *table, size_t n,
                         struct kvm_cpuid_table *ret_table)
{
    static uint8_t bytes[STATE_HEAD_BYTES + 8 + (KVM_CPUID_MAX + 1) * 28];
    const struct state_head none = {.vcpus = 1};
    struct state_head head;
    struct state_writer out;
    struct state_reader in;
    size_t whole = 0;
    state_writer_init(&out, bytes, sizeof bytes, &none);
    cpuid_save(table, &out);
    assert_int_equal(state_finish(&out, &whole, NULL), 0);
    assert_int_equal(state_reader_init(&in, bytes, n ? n : whole, &head, NULL), 0);
    if (cpuid_load(ret_table, &in, NULL) < 0)
        return -1;
    return state_reader_finish(&in, NULL);
}

static void test_a_table_comes_out_of_a_state_as_it_went_in(void **state)
{
    (void)state;
    static struct kvm_cpuid_table table, loaded;
    table = everything();
    assert_int_equal(save_and_load(&table, 0, &loaded), 0);
    assert_memory_equal(&loaded, &table, sizeof table);
    table.nent = KVM_CPUID_MAX;
    assert_int_equal(save_and_load(&table, 0, &loaded), 0);
    assert_memory_equal(&loaded, &table, sizeof table);
}

static void test_a_table_of_a_bad_state_is_refused(void **state)
{
    (void)state;
    static struct {
        struct kvm_cpuid_table table;
        struct kvm_cpuid_entry2 one_more;
    } t;
    static struct kvm_cpuid_table loaded;
    t.table = everything();
    for (size_t n = STATE_HEAD_BYTES; n < STATE_HEAD_BYTES + 8 + t.table.nent * 28; n += 3)
        assert_int_equal(save_and_load(&t.table, n, &loaded), -1);
    t.table.nent = KVM_CPUID_MAX + 1;
    assert_int_equal(save_and_load(&t.table, 0, &loaded), -1);
}

static void test_registers_are_those_of_host_and_list(void **state)
{
    (void)state;
    static const uint32_t host[] = {0x6e0, 0x10, 0x174, 0xc0000080, 0xdeadbeef};
    struct msr_set set;
    msr_choose(host, CL_COUNT(host), &set);
    assert_int_equal(set.nmsrs, 3); /* and the type of MTRRs, that no KVM lists */
    assert_int_equal(set.entries[0].index, 0x174);
    assert_int_equal(set.entries[1].index, 0x2ff);
    assert_int_equal(set.entries[2].index, MSR_TSC_DEADLINE); /* last */
}

/* --- Xen PV ---------------------------------------------------------------------------------- */

static void test_a_xen_kernel_sees_no_ring_0(void **state)
{
    (void)state;
    struct kvm_cpuid_table of_kvm = guest_of(0, 1), table;
    cpuid_xenpv(&of_kvm, &table);
    const struct kvm_cpuid_entry2 *e = find(&table, 1, 0);
    assert_int_equal(e->edx & (1 << 3 | 1 << 9 | 1 << 11 | 1 << 13), 0); /* PSE APIC SEP PGE */
    assert_int_equal(e->ecx & (1 << 17 | 1 << 21 | 1 << 24), 0); /* PCID x2APIC TSC deadline */
    assert_int_equal(e->ecx & (1 << 26 | 1 << 27), 1 << 26 | 1 << 27); /* XSAVE, OSXSAVE */
    e = find(&table, 7, 0);
    assert_int_equal(e->ebx & (1 << 0 | 1 << 7 | 1 << 20), 0); /* FSGSBASE SMEP SMAP */
    assert_int_equal(e->edx, 1 << 4);                          /* FSRM */
    assert_int_equal(find(&table, 0xd, 1)->eax, 1);            /* XSAVEOPT */
    assert_int_equal(find(&table, 0xd, 1)->ebx, 0);
    assert_int_equal(find(&table, 0x40000000, 0)->ebx, 0x566e6558); /* "XenV" */
    assert_int_equal(table.nent, of_kvm.nent);
}

static void test_a_xen_kernel_reads_fast_strings(void **state)
{
    (void)state;
    struct msr_set set;
    uint64_t misc_enable = 0;
    msr_xenpv(&set);
    for (uint32_t i = 0; i < set.nmsrs; i++)
        misc_enable |= set.entries[i].index == 0x1a0 ? set.entries[i].data : 0;
    assert_int_equal(misc_enable, 1);
}

static void test_the_host_fits_the_list(void **state)
{
    (void)state;
    struct kvm_cpuid_table host, guest;
    struct cpuid_shape shape = {.vcpus = 1};
    cpuid_host(&host);
    assert_true(host.nent > 0 && host.nent <= KVM_CPUID_MAX);
    assert_null(find(&host, 0x40000000, 0));
    assert_int_equal(cpuid_filter(&host, &shape, &guest, NULL), 0);
    assert_int_equal(guest.nent == host.nent, find(&host, 0xd, 3) == NULL);
    assert_true(cpuid_has_xsave(&guest) == cpuid_has_xsave(&host));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_xen_kernel_sees_no_ring_0),
        cmocka_unit_test(test_a_xen_kernel_reads_fast_strings),
        cmocka_unit_test(test_the_host_fits_the_list),
        cmocka_unit_test(test_what_no_row_names_is_not_there),
        cmocka_unit_test(test_dangerous_features_are_off),
        cmocka_unit_test(test_the_xsave_area_is_as_large_as_its_states),
        cmocka_unit_test(test_leaf_2_names_the_caches_that_leaf_4_has),
        cmocka_unit_test(test_leaf_2_stays_where_it_names_them_or_no_byte_fits),
        cmocka_unit_test(test_each_processor_knows_its_place),
        cmocka_unit_test(test_the_same_host_gives_the_same_table),
        cmocka_unit_test(test_a_table_beyond_its_room_is_refused),
        cmocka_unit_test(test_a_table_comes_out_of_a_state_as_it_went_in),
        cmocka_unit_test(test_a_table_of_a_bad_state_is_refused),
        cmocka_unit_test(test_registers_are_those_of_host_and_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
