/* A guest at the I/O ports: any sequence of accesses.  Two bytes a step: what and value. */
#include <stddef.h>
#include <stdint.h>

#include "vmm/ports.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct world {
    struct ports ports;
    struct serial serial;
    size_t printed, interrupts;
};

static void take(void *arg, const uint8_t *bytes, size_t n)
{
    struct world *w = arg;
    CL_ASSERT(n > 0 && n <= SERIAL_LINE_MAX && bytes[0] == bytes[0]);
    w->printed += n;
}

static void count(void *arg, unsigned gsi)
{
    CL_ASSERT(gsi == SERIAL_GSI);
    ((struct world *)arg)->interrupts++;
}

static const uint16_t ports[] = {0x3f8, 0x3f9, 0x3fa, 0x3fb, 0x3fc, 0x3fd, 0x3fe,
                                 0x3ff, 0x60,  0x64,  0x70,  0x71,  0x505, 0x600,
                                 0x601, 0x602, 0xf4,  0x80,  0xcf8, 0x2f8};

static void step(struct world *w, uint8_t what, uint8_t value)
{
    uint16_t port = ports[what % CL_COUNT(ports)];
    uint32_t width = 1U << (value % 3);
    if (what & 0x80)
        ports_write(&w->ports, port, 1, value);
    else
        CL_ASSERT(width == 4 || ports_read(&w->ports, port, width) >> 8 * width == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world w = {0};
    enum ports_end end = PORTS_RUNNING;
    struct irq_line irq = {.raise = count, .chip = &w, .gsi = SERIAL_GSI};
    serial_init(&w.serial, irq, take, &w);
    ports_init(&w.ports, &w.serial);
    for (size_t i = 0; i + 1 < size; i += 2) {
        step(&w, data[i], data[i + 1]);
        CL_ASSERT(w.serial.line_n < SERIAL_LINE_MAX);
        CL_ASSERT(end == PORTS_RUNNING || w.ports.end == end); /* the first word counts */
        end = w.ports.end;
    }
    CL_ASSERT(w.printed <= size / 2 && w.interrupts <= size / 2);
    return 0;
}
