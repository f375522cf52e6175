/* The builder of ACPI tables with any machine and any room: never past the room, and what it says
 * is ready adds up. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "vmm/acpi.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t sum(const uint8_t *at, size_t n)
{
    uint8_t total = 0;
    for (size_t i = 0; i < n; i++)
        total = (uint8_t)(total + at[i]);
    return total;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct acpi_machine machine = {0};
    uint16_t cap = 0;
    uint8_t out[ACPI_BYTES_MAX];
    size_t n = 0;
    struct cl_err err = {0};
    if (size < sizeof cap)
        return 0;
    memcpy(&cap, data, sizeof cap);
    memcpy(&machine, data + sizeof cap, CL_MIN(size - sizeof cap, sizeof machine));
    size_t room = CL_MIN((size_t)cap, sizeof out);
    memset(out, 0xee, sizeof out);
    int rc = acpi_build(&machine, out, room, &n, &err);
    CL_ASSERT((rc == 0) == (err.code == CL_OK));
    for (size_t i = room; i < sizeof out; i++)
        CL_ASSERT(out[i] == 0xee);
    if (rc == 0)
        CL_ASSERT(n <= room && sum(out, 20) == 0 && sum(out, 36) == 0);
    return 0;
}
