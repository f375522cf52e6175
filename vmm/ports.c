/* vmm/ports.c - see vmm/ports.h. */
#include "vmm/ports.h"

#include <stdbool.h>

enum {
    PORT_TIMER = 0x40,
    TIMER_PORTS = 4,
    PORT_KEYBOARD = 0x64,
    KEYBOARD_RESET = 0xfe, /* pulse the processor's reset line */
    PORT_CMOS_INDEX = 0x70,
    PORT_CMOS_DATA = 0x71,
    SLEEP_TYPE_SHIFT = 2, /* SLP_TYPx: ACPI 6.4 §4.8.3.7 */
    SLEEP_ENABLE = 0x20,
    PANIC_EVENT = 0x01,
    FLOATING = 0xff, /* a port that nobody answers */
};

void ports_init(struct ports *ports, struct serial *serial)
{
    *ports = (struct ports){.serial = serial};
}

static bool is_serial(uint16_t port)
{
    return port >= SERIAL_PORT && port < SERIAL_PORT + SERIAL_PORTS;
}

/* The first word counts: what other processors still do until all have stopped is not it. */
static void end(struct ports *ports, enum ports_end how)
{
    if (ports->end == PORTS_RUNNING)
        ports->end = how;
}

/* Registers of the MC146818A, p. 12-16.  A guest that believes in a clock nevertheless must not
 * wait for it: with all ones Debian's kernel polls "update in progress" for 3.4 s. */
static uint8_t cmos_read(uint8_t index)
{
    switch (index) {
    case 0x07: /* day */
    case 0x08: /* month */
        return 0x01;
    case 0x09: /* year */
        return 0x26;
    case 0x0a: /* time base runs, no update in progress */
        return 0x26;
    case 0x0b: /* 24 hours, BCD */
        return 0x02;
    case 0x0d: /* RAM and time are valid */
        return 0x80;
    default:
        return 0;
    }
}

static uint8_t read_byte(struct ports *ports, uint16_t port)
{
    if (is_serial(port))
        return serial_read(ports->serial, (unsigned)port - SERIAL_PORT);
    if (port >= PORT_TIMER && port < PORT_TIMER + TIMER_PORTS)
        return 0; /* with ones a kernel that calibrates its TSC waits for the high byte to change */
    switch (port) {
    case PORT_CMOS_DATA:
        return cmos_read(ports->cmos_index);
    case PORT_SLEEP_STATUS:
        return 0;
    case PORT_PANIC:
        return PANIC_EVENT; /* the events that we take */
    default:
        return FLOATING;
    }
}

static void sleep_control(struct ports *ports, uint8_t value)
{
    if (value == (PORT_SLEEP_S5 << SLEEP_TYPE_SHIFT | SLEEP_ENABLE))
        end(ports, PORTS_OFF);
}

static void finish(struct ports *ports, uint8_t status)
{
    if (ports->end == PORTS_RUNNING)
        ports->exit_status = status;
    end(ports, PORTS_EXIT);
}

static void write_byte(struct ports *ports, uint16_t port, uint8_t value)
{
    if (is_serial(port))
        serial_write(ports->serial, (unsigned)port - SERIAL_PORT, value);
    else if (port == PORT_CMOS_INDEX)
        ports->cmos_index = value & 0x7f; /* bit 7 is the NMI's mask */
    else if (port == PORT_SLEEP_CONTROL)
        sleep_control(ports, value);
    else if (port == PORT_EXIT)
        finish(ports, value);
    else if ((port == PORT_KEYBOARD && value == KEYBOARD_RESET) ||
             (port == PORT_RESET && value == PORT_RESET_VALUE))
        end(ports, PORTS_RESET);
    else if (port == PORT_PANIC && (value & PANIC_EVENT))
        end(ports, PORTS_PANIC);
}

void ports_break(struct ports *ports)
{
    end(ports, PORTS_BROKEN);
}

uint32_t ports_read(struct ports *ports, uint16_t port, uint32_t width)
{
    uint32_t ones = width < 4 ? UINT32_MAX << 8 * width : 0;
    return (~ones & (UINT32_MAX << 8)) | read_byte(ports, port);
}

void ports_write(struct ports *ports, uint16_t port, CL_UNUSED uint32_t width, uint32_t value)
{
    write_byte(ports, port, (uint8_t)value);
}

void ports_save(const struct ports *ports, struct state_writer *out)
{
    state_begin(out, STATE_PORTS);
    state_put_u8(out, ports->cmos_index);
    state_end(out);
}

int ports_load(struct ports *ports, struct state_reader *in, struct cl_err *err)
{
    if (state_enter(in, STATE_PORTS, err) < 0)
        return -1;
    uint8_t index = state_get_u8(in) & 0x7f;
    if (state_leave(in, err) < 0)
        return cl_wrap(err, "I/O ports");
    ports->cmos_index = index;
    return 0;
}
