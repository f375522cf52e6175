/* A guest at the interrupt chip: writes of its registers, and edges.  Every message that comes out
 * is one that a local APIC may get.  Six bytes a step: what, offset, value. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "vmm/ioapic.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(void *arg, uint32_t address, uint32_t data)
{
    (void)arg;
    CL_ASSERT((address & UINT32_C(0xfff00ffb)) == UINT32_C(0xfee00000));
    CL_ASSERT((data & ~UINT32_C(0x1ff)) == 0 && (data & 0xff) >= 16);
}

static void step(struct ioapic *chip, const uint8_t *bytes)
{
    uint32_t value;
    uint32_t width = 1U << (bytes[0] >> 6 & 1 ? 2 : bytes[0] & 3);
    memcpy(&value, bytes + 2, sizeof value);
    if (bytes[0] & 0x20)
        ioapic_raise(chip, bytes[1] % IOAPIC_PINS);
    else if (bytes[0] & 0x80)
        ioapic_write(chip, bytes[1], width, value);
    else
        CL_ASSERT(width == 4 || ioapic_read(chip, bytes[1], width) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ioapic chip;
    ioapic_init(&chip, check, NULL);
    for (size_t i = 0; i + 6 <= size; i += 6)
        step(&chip, data + i);
    for (unsigned pin = 0; pin < IOAPIC_PINS; pin++)
        CL_ASSERT((chip.redirect[pin] & UINT64_C(0x8000)) == 0); /* never level */
    return 0;
}
