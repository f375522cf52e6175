/* ACPI tables: checksums, lengths and pointers agree; the devices are in the namespace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "vmm/acpi.h"

static const struct acpi_machine largest = {
    .vcpus = ACPI_VCPUS_MAX,
    .n_devices = ACPI_DEVICES_MAX,
    .devices = {{0xd0000000, 0x1000, 5}, {0xd0001000, 0x1000, 6}, {0xd0002000, 0x1000, 7}},
};

static uint64_t le(const uint8_t *at, unsigned width)
{
    uint64_t value = 0;
    memcpy(&value, at, width);
    return value;
}

static uint8_t sum(const uint8_t *at, size_t n)
{
    uint8_t total = 0;
    for (size_t i = 0; i < n; i++)
        total = (uint8_t)(total + at[i]);
    return total;
}

/* The table at a guest-physical address; checks its head. */
static const uint8_t *table(const uint8_t *tables, size_t n, uint64_t gpa, const char *signature)
{
    assert_true(gpa >= ACPI_BASE && gpa - ACPI_BASE + 36 <= n);
    const uint8_t *t = tables + (gpa - ACPI_BASE);
    assert_memory_equal(t, signature, 4);
    assert_true(le(t + 4, 4) <= n - (gpa - ACPI_BASE));
    assert_int_equal(sum(t, le(t + 4, 4)), 0);
    return t;
}

static void test_each_table_leads_to_the_next(void **state)
{
    (void)state;
    uint8_t out[ACPI_BYTES_MAX];
    size_t n;
    assert_int_equal(acpi_build(&largest, out, sizeof out, &n, NULL), 0);
    assert_memory_equal(out, "RSD PTR ", 8);
    assert_int_equal(sum(out, 20), 0);
    assert_int_equal(sum(out, 36), 0);
    const uint8_t *xsdt = table(out, n, le(out + 24, 8), "XSDT");
    assert_int_equal(le(xsdt + 4, 4), 36 + 2 * 8);
    const uint8_t *fadt = table(out, n, le(xsdt + 36, 8), "FACP");
    assert_int_equal(le(fadt + 4, 4), 276);
    assert_true(le(fadt + 112, 4) & 1 << 20); /* hardware-reduced */
    (void)table(out, n, le(fadt + 140, 8), "DSDT");
    const uint8_t *madt = table(out, n, le(xsdt + 44, 8), "APIC");
    assert_int_equal(le(madt + 4, 4), 44 + 12 + 8 * ACPI_VCPUS_MAX);
    assert_int_equal(le(madt + 44 + 4, 4), 0xfec00000);
    assert_int_equal(madt[44 + 12 + 8 * 3 + 3], 3); /* APIC id of the fourth */
}

/* Each device of the DSDT carries its address and interrupt. */
static void test_devices_stand_in_order(void **state)
{
    (void)state;
    uint8_t out[ACPI_BYTES_MAX];
    size_t n;
    assert_int_equal(acpi_build(&largest, out, sizeof out, &n, NULL), 0);
    const uint8_t *at = out;
    for (unsigned i = 0; i < 3; i++) {
        char name[5] = {'V', '0', '0', (char)('0' + i), '\0'};
        at = memmem(at, (size_t)(out + n - at), name, 4);
        assert_non_null(at);
        static const uint8_t memory[] = {0x86, 0x09, 0x00, 0x01},
                             irq[] = {0x89, 0x06, 0x00, 0x03, 1};
        const uint8_t *m = memmem(at, (size_t)(out + n - at), memory, sizeof memory);
        assert_non_null(m);
        assert_int_equal(le(m + 4, 4), largest.devices[i].base);
        assert_int_equal(le(m + 8, 4), 0x1000);
        assert_memory_equal(m + 12, irq, sizeof irq);
        assert_int_equal(le(m + 17, 4), largest.devices[i].gsi);
    }
}

static void test_what_does_not_fit_is_refused(void **state)
{
    (void)state;
    uint8_t out[ACPI_BYTES_MAX];
    size_t n, all;
    struct cl_err err = {0};
    assert_int_equal(acpi_build(&largest, out, sizeof out, &all, NULL), 0);
    for (size_t cap = 0; cap < all; cap++) {
        assert_int_equal(acpi_build(&largest, out, cap, &n, &err), -1);
        assert_int_equal(err.code, CL_E_TOOBIG);
    }
    assert_int_equal(acpi_build(&largest, out, all, &n, NULL), 0);
    struct acpi_machine bad = largest;
    bad.vcpus = 0;
    assert_int_equal(acpi_build(&bad, out, sizeof out, &n, NULL), -1);
    bad.vcpus = ACPI_VCPUS_MAX + 1;
    assert_int_equal(acpi_build(&bad, out, sizeof out, &n, NULL), -1);
    bad = largest;
    bad.n_devices = ACPI_DEVICES_MAX + 1;
    assert_int_equal(acpi_build(&bad, out, sizeof out, &n, NULL), -1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_table_leads_to_the_next),
        cmocka_unit_test(test_devices_stand_in_order),
        cmocka_unit_test(test_what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
