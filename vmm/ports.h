/* vmm/ports.h - the I/O ports of the machine.
 *
 *     0x60, 0x64       keyboard controller: absent, but 0xfe to 0x64 resets
 *     0x70, 0x71       CMOS clock: absent, but never "busy"
 *     0x40-0x43        interval timer: absent, and never counting
 *     0x3f8-0x3ff      serial port
 *     0x505            panic (QEMU's pvpanic, docs/specs/pvpanic)
 *     0x508            mail of a Xen-PV guest's shim (vmm/xenpv.h), in such a machine
 *     0x600-0x602      ACPI sleep control, sleep status, reset (vmm/acpi.h says so to the guest)
 *     0xf4             end with a status (as QEMU's isa-debug-exit; our test guests)
 *     all others       read as ones, writes go nowhere
 *
 * Owns:    the CMOS index, and how the machine ended.
 * Borrows: the serial port.
 * Thread:  under the device lock.
 * Pure: no I/O of its own.
 */
#ifndef CL_VMM_PORTS_H
#define CL_VMM_PORTS_H

#include <stdint.h>

#include "base/err.h"
#include "base/util.h"
#include "vmm/serial.h"
#include "vmm/state.h"

enum {
    PORT_SLEEP_CONTROL = 0x600,
    PORT_SLEEP_STATUS = 0x601,
    PORT_RESET = 0x602,
    PORT_RESET_VALUE = 1,
    PORT_SLEEP_S5 = 5, /* SLP_TYP of "soft off" */
    PORT_PANIC = 0x505,
    PORT_EXIT = 0xf4,
};

/* How a machine ended by its own will; PORTS_BROKEN: ports_break(). */
enum ports_end { PORTS_RUNNING = 0, PORTS_OFF, PORTS_RESET, PORTS_EXIT, PORTS_PANIC, PORTS_BROKEN };

struct ports {
    uint8_t cmos_index;
    uint8_t exit_status; /* of PORTS_EXIT */
    enum ports_end end;
    struct serial *serial; /* borrowed */
};

void ports_init(struct ports *ports, struct serial *serial);
/* One access of 1, 2 or 4 bytes.  Devices here are 8 bits wide; what a wider access touches beside
 * them reads as ones. */
uint32_t ports_read(struct ports *ports, uint16_t port, uint32_t width);
void ports_write(struct ports *ports, uint16_t port, uint32_t width, uint32_t value);

/* Behind another port it came to its end. */
void ports_break(struct ports *ports);

void ports_save(const struct ports *ports, struct state_writer *out);
int ports_load(struct ports *ports, struct state_reader *in, struct cl_err *err) CL_MUST;

#endif
