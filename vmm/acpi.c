/* vmm/acpi.c - see vmm/acpi.h.  § are those of ACPI 6.4. */
#include "vmm/acpi.h"

#include <stdbool.h>
#include <string.h>

#include "vmm/ioapic.h"
#include "vmm/ports.h"
#include "vmm/serial.h"

/* Bytes that grow; what does not fit is dropped and remembered. */
struct bytes {
    uint8_t *at;
    size_t n, cap;
    bool full;
};

static void put(struct bytes *b, const void *src, size_t n)
{
    if (n > b->cap - b->n) {
        b->full = true;
        return;
    }
    memcpy(b->at + b->n, src, n);
    b->n += n;
}

static void put_le(struct bytes *b, uint64_t value, unsigned width)
{
    uint8_t le[sizeof value];
    for (unsigned i = 0; i < width; i++)
        le[i] = (uint8_t)(value >> 8 * i);
    put(b, le, width);
}

static void put_u8(struct bytes *b, unsigned value)
{
    put_le(b, value, 1);
}

static void poke_le(struct bytes *b, size_t at, uint64_t value, unsigned width)
{
    for (unsigned i = 0; i < width && at + i < b->n; i++)
        b->at[at + i] = (uint8_t)(value >> 8 * i);
}

static uint8_t checksum(const uint8_t *bytes, size_t n)
{
    uint8_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum = (uint8_t)(sum + bytes[i]);
    return (uint8_t)-sum;
}

/* --- tables, §5.2 -------------------------------------------------------------------------- */

enum { HEAD_LENGTH_AT = 4, HEAD_CHECKSUM_AT = 9, TABLE_ALIGN = 16 };

/* The common head, §5.2.6; length and checksum come with table_end(). */
static size_t table_begin(struct bytes *b, const char *signature, unsigned revision)
{
    while (b->n % TABLE_ALIGN != 0 && !b->full)
        put_u8(b, 0);
    size_t start = b->n;
    put(b, signature, 4);
    put_le(b, 0, 4);
    put_u8(b, revision);
    put_u8(b, 0);
    put(b, "CLOCHE", 6);   /* OEM id */
    put(b, "MICROVM ", 8); /* OEM table id */
    put_le(b, 1, 4);
    put(b, "CLCH", 4); /* creator */
    put_le(b, 1, 4);
    return start;
}

static void table_end(struct bytes *b, size_t start)
{
    if (b->full)
        return;
    poke_le(b, start + HEAD_LENGTH_AT, b->n - start, 4);
    b->at[start + HEAD_CHECKSUM_AT] = checksum(b->at + start, b->n - start);
}

/* --- AML, §20.2 ---------------------------------------------------------------------------- */

enum {
    AML_ZERO = 0x00,
    AML_ONE = 0x01,
    AML_NAME = 0x08,
    AML_BYTE = 0x0a,
    AML_DWORD = 0x0c,
    AML_STRING = 0x0d,
    AML_SCOPE = 0x10,
    AML_BUFFER = 0x11,
    AML_PACKAGE = 0x12,
    AML_EXTENDED = 0x5b,
    AML_DEVICE = 0x82, /* after AML_EXTENDED */
    PKG_LENGTH_BYTES = 2,
    PKG_LENGTH_MAX = 0xfff, /* of two bytes, §20.2.4 */
};

/* A length of two bytes, filled in by pkg_end(). */
static size_t pkg_begin(struct bytes *b)
{
    size_t start = b->n;
    put_le(b, 0, PKG_LENGTH_BYTES);
    return start;
}

static void pkg_end(struct bytes *b, size_t start)
{
    size_t n = b->n - start;
    if (n > PKG_LENGTH_MAX)
        b->full = true;
    poke_le(b, start, 0x40 | (n & 0xf) | (n >> 4) << 8, PKG_LENGTH_BYTES);
}

static void aml_name(struct bytes *b, const char *name)
{
    put_u8(b, AML_NAME);
    put(b, name, 4);
}

static void aml_dword(struct bytes *b, uint32_t value)
{
    put_u8(b, AML_DWORD);
    put_le(b, value, 4);
}

static void aml_byte(struct bytes *b, unsigned value)
{
    put_u8(b, AML_BYTE);
    put_u8(b, value);
}

static size_t device_begin(struct bytes *b, const char *name)
{
    put_u8(b, AML_EXTENDED);
    put_u8(b, AML_DEVICE);
    size_t start = pkg_begin(b);
    put(b, name, 4);
    return start;
}

/* Name(_CRS, ResourceTemplate() { the n bytes }), §19.6.114. */
static void aml_resources(struct bytes *b, const uint8_t *resources, size_t n)
{
    aml_name(b, "_CRS");
    put_u8(b, AML_BUFFER);
    size_t start = pkg_begin(b);
    aml_byte(b, (unsigned)n);
    put(b, resources, n);
    pkg_end(b, start);
}

enum { /* §6.4 */
       MEMORY_32_FIXED = 0x86,
       EXTENDED_INTERRUPT = 0x89,
       IO_PORTS = 0x47,
       IRQ_FLAGS = 0x23,
       END_TAG = 0x79,
       READ_WRITE = 1,
       CONSUMER_EDGE_HIGH_EXCLUSIVE = 0x03,
       IRQ_EDGE_HIGH_EXCLUSIVE = 0x01,
};

/* Memory32Fixed and Interrupt, §6.4.3.4 and §6.4.3.6. */
static void device_resources(struct bytes *b, const struct acpi_device *device)
{
    uint8_t raw[32];
    struct bytes r = {.at = raw, .cap = sizeof raw};
    put_u8(&r, MEMORY_32_FIXED);
    put_le(&r, 9, 2);
    put_u8(&r, READ_WRITE);
    put_le(&r, device->base, 4);
    put_le(&r, device->bytes, 4);
    put_u8(&r, EXTENDED_INTERRUPT);
    put_le(&r, 6, 2);
    put_u8(&r, CONSUMER_EDGE_HIGH_EXCLUSIVE);
    put_u8(&r, 1);
    put_le(&r, device->gsi, 4);
    put_le(&r, END_TAG, 2);
    aml_resources(b, r.at, r.n);
}

/* Device(V0x) { _HID "LNRO0005"; _UID x; _CCA 1; _CRS }: Linux, virtio_mmio.c's ACPI id. */
static void virtio_device(struct bytes *b, unsigned index, const struct acpi_device *device)
{
    char name[4] = {'V', '0', '0', "0123456789ABCDEF"[index % ACPI_DEVICES_MAX]};
    size_t start = device_begin(b, name);
    aml_name(b, "_HID");
    put_u8(b, AML_STRING);
    put(b, "LNRO0005", sizeof "LNRO0005");
    aml_name(b, "_UID");
    aml_byte(b, index);
    aml_name(b, "_CCA");
    put_u8(b, AML_ONE);
    device_resources(b, device);
    pkg_end(b, start);
}

#define EISA_PNP0501 UINT32_C(0x0105d041) /* 16550A-compatible COM port, §19.3.4 */

static void serial_device(struct bytes *b)
{
    uint8_t raw[16];
    struct bytes r = {.at = raw, .cap = sizeof raw};
    put_u8(&r, IO_PORTS); /* §6.4.2.5 */
    put_u8(&r, 1);        /* 16 address lines */
    put_le(&r, SERIAL_PORT, 2);
    put_le(&r, SERIAL_PORT, 2);
    put_u8(&r, 1);
    put_u8(&r, SERIAL_PORTS);
    put_u8(&r, IRQ_FLAGS); /* §6.4.2.1 */
    put_le(&r, 1U << SERIAL_GSI, 2);
    put_u8(&r, IRQ_EDGE_HIGH_EXCLUSIVE);
    put_le(&r, END_TAG, 2);
    size_t start = device_begin(b, "COM1");
    aml_name(b, "_HID");
    aml_dword(b, EISA_PNP0501);
    aml_name(b, "_UID");
    put_u8(b, AML_ZERO);
    aml_resources(b, r.at, r.n);
    pkg_end(b, start);
}

/* Name(_S5, Package() { type, 0, 0, 0 }): how to switch off, §7.4.2. */
static void soft_off(struct bytes *b)
{
    aml_name(b, "_S5_");
    put_u8(b, AML_PACKAGE);
    size_t start = pkg_begin(b);
    put_u8(b, 4);
    aml_byte(b, PORT_SLEEP_S5);
    for (int i = 0; i < 3; i++)
        put_u8(b, AML_ZERO);
    pkg_end(b, start);
}

static size_t put_dsdt(struct bytes *b, const struct acpi_machine *machine)
{
    size_t table = table_begin(b, "DSDT", 2);
    put_u8(b, AML_SCOPE);
    size_t scope = pkg_begin(b);
    put(b, "\\_SB_", 5);
    serial_device(b);
    for (unsigned i = 0; i < machine->n_devices; i++)
        virtio_device(b, i, &machine->devices[i]);
    pkg_end(b, scope);
    soft_off(b);
    table_end(b, table);
    return table;
}

/* --- FADT, §5.2.9 -------------------------------------------------------------------------- */

enum {
    FADT_BYTES = 276,
    FADT_BOOT_ARCH_AT = 109,
    FADT_FLAGS_AT = 112,
    FADT_RESET_REG_AT = 116,
    FADT_RESET_VALUE_AT = 128,
    FADT_MINOR_AT = 131,
    FADT_X_DSDT_AT = 140,
    FADT_SLEEP_CONTROL_AT = 244,
    FADT_SLEEP_STATUS_AT = 256,
    FADT_HYPERVISOR_AT = 268,
    BOOT_NO_VGA = 1 << 2,
    BOOT_NO_CMOS_CLOCK = 1 << 5,
    FLAG_WBINVD = 1 << 0,
    FLAG_POWER_BUTTON = 1 << 4, /* "none here" for both buttons */
    FLAG_SLEEP_BUTTON = 1 << 5,
    FLAG_RESET_REG = 1 << 10,
    FLAG_HW_REDUCED = 1 << 20,
};

/* Generic address, §5.2.3.2: an 8-bit port. */
static void poke_port(struct bytes *b, size_t at, uint16_t port)
{
    poke_le(b, at, 1, 1);     /* system I/O */
    poke_le(b, at + 1, 8, 1); /* bits */
    poke_le(b, at + 3, 1, 1); /* byte access */
    poke_le(b, at + 4, port, 8);
}

static size_t put_fadt(struct bytes *b, uint64_t dsdt)
{
    size_t t = table_begin(b, "FACP", 6);
    while (b->n - t < FADT_BYTES && !b->full)
        put_u8(b, 0);
    poke_le(b, t + FADT_BOOT_ARCH_AT, BOOT_NO_VGA | BOOT_NO_CMOS_CLOCK, 2);
    poke_le(b, t + FADT_FLAGS_AT,
            FLAG_WBINVD | FLAG_POWER_BUTTON | FLAG_SLEEP_BUTTON | FLAG_RESET_REG | FLAG_HW_REDUCED,
            4);
    poke_port(b, t + FADT_RESET_REG_AT, PORT_RESET);
    poke_le(b, t + FADT_RESET_VALUE_AT, PORT_RESET_VALUE, 1);
    poke_le(b, t + FADT_MINOR_AT, 4, 1);
    poke_le(b, t + FADT_X_DSDT_AT, dsdt, 8);
    poke_port(b, t + FADT_SLEEP_CONTROL_AT, PORT_SLEEP_CONTROL);
    poke_port(b, t + FADT_SLEEP_STATUS_AT, PORT_SLEEP_STATUS);
    poke_le(b, t + FADT_HYPERVISOR_AT, UINT64_C(0x4548434f4c43), 8); /* "CLOCHE" */
    table_end(b, t);
    return t;
}

/* --- MADT, §5.2.12 ------------------------------------------------------------------------- */

static void put_local_apic(struct bytes *b, unsigned id) /* §5.2.12.2 */
{
    put_u8(b, 0);
    put_u8(b, 8);
    put_u8(b, id); /* processor's UID */
    put_u8(b, id); /* APIC id */
    put_le(b, 1, 4);
}

static void put_io_apic(struct bytes *b) /* §5.2.12.3 */
{
    put_u8(b, 1);
    put_u8(b, 12);
    put_u8(b, 0);
    put_u8(b, 0);
    put_le(b, IOAPIC_BASE, 4);
    put_le(b, 0, 4); /* its first GSI */
}

#define LOCAL_APIC_BASE UINT32_C(0xfee00000)

static size_t put_madt(struct bytes *b, unsigned vcpus)
{
    size_t t = table_begin(b, "APIC", 5);
    put_le(b, LOCAL_APIC_BASE, 4);
    put_le(b, 0, 4); /* no PC-AT 8259s */
    put_io_apic(b);
    for (unsigned i = 0; i < vcpus; i++)
        put_local_apic(b, i);
    table_end(b, t);
    return t;
}

/* --- roots --------------------------------------------------------------------------------- */

enum { RSDP_BYTES = 36, RSDP_V1_BYTES = 20, RSDP_XSDT_AT = 24 };

static void put_rsdp(struct bytes *b) /* §5.2.5.3; its checksums come last */
{
    put(b, "RSD PTR ", 8);
    put_u8(b, 0);
    put(b, "CLOCHE", 6);
    put_u8(b, 2);
    put_le(b, 0, 4);
    put_le(b, RSDP_BYTES, 4);
    put_le(b, 0, 8); /* the XSDT */
    put_le(b, 0, 4); /* extended checksum, reserved */
}

static void finish_rsdp(struct bytes *b, uint64_t xsdt)
{
    if (b->full)
        return;
    poke_le(b, RSDP_XSDT_AT, xsdt, 8);
    b->at[8] = checksum(b->at, RSDP_V1_BYTES);
    b->at[32] = checksum(b->at, RSDP_BYTES);
}

static size_t put_xsdt(struct bytes *b, uint64_t fadt, uint64_t madt) /* §5.2.8 */
{
    size_t t = table_begin(b, "XSDT", 1);
    put_le(b, fadt, 8);
    put_le(b, madt, 8);
    table_end(b, t);
    return t;
}

int acpi_build(const struct acpi_machine *machine, uint8_t *out, size_t cap, size_t *ret_n,
               struct cl_err *err)
{
    struct bytes b = {.at = out, .cap = cap};
    if (machine->vcpus == 0 || machine->vcpus > ACPI_VCPUS_MAX ||
        machine->n_devices > ACPI_DEVICES_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "%u processors (1-%d), %u devices (0-%d)",
                       machine->vcpus, ACPI_VCPUS_MAX, machine->n_devices, ACPI_DEVICES_MAX);
    put_rsdp(&b);
    size_t dsdt = put_dsdt(&b, machine);
    size_t fadt = put_fadt(&b, ACPI_BASE + dsdt);
    size_t madt = put_madt(&b, machine->vcpus);
    finish_rsdp(&b, ACPI_BASE + put_xsdt(&b, ACPI_BASE + fadt, ACPI_BASE + madt));
    if (b.full)
        return cl_fail(err, CL_E_TOOBIG, 0, "ACPI tables take more than %zu bytes", cap);
    *ret_n = b.n;
    return 0;
}
