/* vmm/serial.c - see vmm/serial.h.  § are those of National's PC16550D data sheet. */
#include "vmm/serial.h"

#include <stdbool.h>

enum { /* registers, table II */
       REG_DATA = 0,
       REG_IER = 1,
       REG_IIR = 2, /* read */
       REG_FCR = 2, /* write */
       REG_LCR = 3,
       REG_MCR = 4,
       REG_LSR = 5,
       REG_MSR = 6,
       REG_SCRATCH = 7,
};

enum {
    IER_BITS = 0x0f, /* §8.5; the rest reads as 0, by which drivers tell chips apart */
    IER_TRANSMITTER = 0x02,
    IIR_NONE = 0x01, /* §8.6 */
    IIR_TRANSMITTER = 0x02,
    IIR_FIFO = 0xc0,
    FCR_ON = 0x01,
    LCR_DIVISOR = 0x80,  /* DLAB, §8.1 */
    MCR_BITS = 0x1f,     /* §8.7 */
    MCR_LOOP = 0x10,     /* the modem's lines show our own */
    LSR_EMPTY = 0x60,    /* THRE and TEMT: what is written is gone at once */
    MSR_CONNECTED = 0xb0 /* CTS, DSR, DCD */
};

void serial_init(struct serial *com, struct irq_line irq, serial_write_fn *write, void *arg)
{
    *com = (struct serial){.irq = irq, .write = write, .arg = arg};
}

static bool wants_divisor(const struct serial *com, unsigned reg)
{
    return reg <= REG_IER && (com->lcr & LCR_DIVISOR) != 0;
}

/* The transmitter is empty (again): an interrupt, when somebody wants it. */
static void transmitter_empty(struct serial *com)
{
    com->pending = (com->ier & IER_TRANSMITTER) != 0;
    if (com->pending)
        irq_raise(&com->irq);
}

/* Reading the cause of an interrupt takes it back (§8.6, table V). */
static uint8_t take_cause(struct serial *com)
{
    uint8_t cause = com->pending ? IIR_TRANSMITTER : IIR_NONE;
    com->pending = 0;
    return (uint8_t)(cause | (com->fifo ? IIR_FIFO : 0));
}

/* In loop mode RTS, DTR, OUT1 and OUT2 come back as CTS, DSR, RI and DCD (§8.7). */
static uint8_t modem_status(const struct serial *com)
{
    if (!(com->mcr & MCR_LOOP))
        return MSR_CONNECTED;
    return (uint8_t)((com->mcr & 0x0c) << 4 | (com->mcr & 0x02) << 3 | (com->mcr & 0x01) << 5);
}

uint8_t serial_read(struct serial *com, unsigned reg)
{
    if (wants_divisor(com, reg))
        return com->divisor[reg];
    switch (reg) {
    case REG_IER:
        return com->ier;
    case REG_IIR:
        return take_cause(com);
    case REG_LCR:
        return com->lcr;
    case REG_MCR:
        return com->mcr;
    case REG_LSR:
        return LSR_EMPTY;
    case REG_MSR:
        return modem_status(com);
    case REG_SCRATCH:
        return com->scratch;
    default:
        return 0; /* nothing is ever received */
    }
}

void serial_flush(struct serial *com)
{
    if (com->line_n > 0)
        com->write(com->arg, com->line, com->line_n);
    com->line_n = 0;
}

static void add(struct serial *com, uint8_t byte)
{
    com->line[com->line_n++] = byte;
    if (byte == '\n' || com->line_n == SERIAL_LINE_MAX)
        serial_flush(com);
}

void serial_print(struct serial *com, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add(com, bytes[i]);
}

static void transmit(struct serial *com, uint8_t byte)
{
    if (!(com->mcr & MCR_LOOP))
        add(com, byte);
    transmitter_empty(com);
}

static void set_interrupts(struct serial *com, uint8_t value)
{
    com->ier = value & IER_BITS;
    transmitter_empty(com);
}

void serial_write(struct serial *com, unsigned reg, uint8_t value)
{
    if (wants_divisor(com, reg)) {
        com->divisor[reg] = value;
        return;
    }
    switch (reg) {
    case REG_DATA:
        transmit(com, value);
        break;
    case REG_IER:
        set_interrupts(com, value);
        break;
    case REG_FCR:
        com->fifo = value & FCR_ON;
        break;
    case REG_LCR:
        com->lcr = value;
        break;
    case REG_MCR:
        com->mcr = value & MCR_BITS;
        break;
    case REG_SCRATCH:
        com->scratch = value;
        break;
    default: /* line and modem status are read only */
        break;
    }
}

/* The line that was begun belongs to the machine that wrote it, not to its clones. */
void serial_save(const struct serial *com, struct state_writer *out)
{
    state_begin(out, STATE_SERIAL);
    state_put_u8(out, com->ier);
    state_put_u8(out, com->lcr);
    state_put_u8(out, com->mcr);
    state_put_u8(out, com->scratch);
    state_put_bytes(out, com->divisor, sizeof com->divisor);
    state_put_u8(out, com->fifo);
    state_put_u8(out, com->pending);
    state_end(out);
}

int serial_load(struct serial *com, struct state_reader *in, struct cl_err *err)
{
    struct serial was = {.irq = com->irq, .write = com->write, .arg = com->arg};
    if (state_enter(in, STATE_SERIAL, err) < 0)
        return -1;
    was.ier = state_get_u8(in) & IER_BITS;
    was.lcr = state_get_u8(in);
    was.mcr = state_get_u8(in) & MCR_BITS;
    was.scratch = state_get_u8(in);
    state_get_bytes(in, was.divisor, sizeof was.divisor);
    was.fifo = state_get_u8(in) & FCR_ON;
    was.pending = state_get_u8(in) & 1;
    if (state_leave(in, err) < 0)
        return cl_wrap(err, "serial port");
    *com = was;
    return 0;
}
