/* vmm/ioapic.h - the interrupt chip between our devices and the local APICs.
 *
 * An 82093AA of 24 pins, edge-triggered only: each edge on a pin that is not masked becomes one
 * message of the pin's redirection entry, handed to `send`.  Level triggering would need the end of
 * interrupt back from the local APIC (KVM_EXIT_IOAPIC_EOI); none of our devices asks for it, and
 * the trigger bit reads as edge whatever is written.
 *
 * Owns:    its registers.
 * Borrows: arg of `send`, for its whole life.
 * Thread:  under the device lock.
 * Pure: no I/O of its own.  Reference: Intel 82093AA I/O APIC, May 1996 (290566-001), §3.
 */
#ifndef CL_VMM_IOAPIC_H
#define CL_VMM_IOAPIC_H

#include <stdint.h>

#include "base/err.h"
#include "base/util.h"
#include "vmm/state.h"

enum { IOAPIC_PINS = 24, IOAPIC_BYTES = 0x1000 };
#define IOAPIC_BASE UINT64_C(0xfec00000)

/* One message-signalled interrupt: address and data as Intel SDM 3A §11.11 lays them out. */
typedef void ioapic_send_fn(void *arg, uint32_t address, uint32_t data);

struct ioapic {
    uint32_t id;     /* IOAPICID, bits 27:24; nothing here depends on it */
    uint32_t select; /* IOREGSEL */
    uint64_t redirect[IOAPIC_PINS];
    uint64_t refused; /* edges whose entry asks for what we do not do */
    ioapic_send_fn *send;
    void *arg; /* borrowed */
};

/* Every pin masked, as after reset (§3.2.4). */
void ioapic_init(struct ioapic *chip, ioapic_send_fn *send, void *arg);
/* Offset in the page of IOAPIC_BASE.  Only aligned 32-bit accesses mean something (§3.1); other
 * reads give 0, other writes nothing. */
uint32_t ioapic_read(const struct ioapic *chip, uint32_t offset, uint32_t width);
void ioapic_write(struct ioapic *chip, uint32_t offset, uint32_t width, uint32_t value);
/* The raise function of struct irq_line (chip: a struct ioapic). */
void ioapic_raise(void *chip, unsigned pin);

void ioapic_save(const struct ioapic *chip, struct state_writer *out);
int ioapic_load(struct ioapic *chip, struct state_reader *in, struct cl_err *err) CL_MUST;

#endif
