/* vmm/acpi.h - the tables by which a guest finds its processors, interrupts and devices.
 *
 * Hardware-reduced ACPI: no PIC, PIT, CMOS clock or keyboard controller, and nothing to enable.
 * Debian's kernel knows no other way to virtio-mmio devices (LNRO0005), nor, without MP tables, to
 * its other processors.
 *
 * Pure: builds bytes, reads nothing.  Reference: ACPI 6.4, §5.2 (tables), §6.4 (resources), §20
 * (AML).
 */
#ifndef CL_VMM_ACPI_H
#define CL_VMM_ACPI_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

enum {
    ACPI_DEVICES_MAX = 16, /* names are one hex digit */
    ACPI_VCPUS_MAX = 64,
    ACPI_BYTES_MAX = 8192, /* more than the largest configuration takes */
};
/* The RSDP, and right behind it the rest; in the reserved area below 1 MiB. */
#define ACPI_BASE UINT64_C(0xe0000)

/* A virtio-mmio device. */
struct acpi_device {
    uint32_t base, bytes;
    uint32_t gsi;
};

struct acpi_machine {
    unsigned vcpus; /* 1 to ACPI_VCPUS_MAX; APIC id = index */
    unsigned n_devices;
    struct acpi_device devices[ACPI_DEVICES_MAX]; /* in this order; it fixes the guest's names */
};

/* All tables as they stand from ACPI_BASE on.  INVALID: too many processors or devices; TOOBIG:
 * cap is too small (ACPI_BYTES_MAX never is). */
int acpi_build(const struct acpi_machine *machine, uint8_t *out, size_t cap, size_t *ret_n,
               struct cl_err *err) CL_MUST;

#endif
