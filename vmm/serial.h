/* vmm/serial.h - the guest's console: a 16550A that only transmits.
 *
 * Bytes gather into lines and go to `write` a line at a time; how much of that reaches a file is
 * the console's affair (vmm/console.h).  Nothing is ever received: a sandbox is spoken to through
 * its agent.
 *
 * Owns:    its registers and the line that it gathers.
 * Borrows: arg of `write` and the interrupt line's chip, for its whole life.
 * Thread:  under the device lock.
 * Pure: no I/O of its own.  Reference: National PC16550D (1995), §8.
 */
#ifndef CL_VMM_SERIAL_H
#define CL_VMM_SERIAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"
#include "vmm/irq.h"
#include "vmm/state.h"

enum {
    SERIAL_PORT = 0x3f8, /* COM1 */
    SERIAL_PORTS = 8,
    SERIAL_GSI = 4,
    SERIAL_LINE_MAX = 256, /* without it a line that never ends would be held for ever */
};

typedef void serial_write_fn(void *arg, const uint8_t *bytes, size_t n);

struct serial {
    uint8_t ier, lcr, mcr, scratch, divisor[2];
    uint8_t fifo;    /* FCR bit 0: FIFOs are on, what makes it a 16550A */
    uint8_t pending; /* the transmitter became empty and nobody has looked since */
    uint8_t line[SERIAL_LINE_MAX];
    size_t line_n;
    struct irq_line irq; /* chip borrowed */
    serial_write_fn *write;
    void *arg; /* borrowed */
};

void serial_init(struct serial *com, struct irq_line irq, serial_write_fn *write, void *arg);
/* reg is 0-7. */
uint8_t serial_read(struct serial *com, unsigned reg);
void serial_write(struct serial *com, unsigned reg, uint8_t value);
/* Hand over a line that has not ended yet. */
void serial_flush(struct serial *com);

/* The same line, of a guest that has another way to print. */
void serial_print(struct serial *com, const uint8_t *bytes, size_t n);

void serial_save(const struct serial *com, struct state_writer *out);
int serial_load(struct serial *com, struct state_reader *in, struct cl_err *err) CL_MUST;

#endif
