/* vmm/irq.h - a device's wire to the interrupt controller.
 *
 * Borrows: the chip, which must outlive every device that holds a line to it.
 * Thread:  whoever holds the device lock; raise() must not take it again.
 * Edge only: one raise is one interrupt, nothing is ever lowered.
 */
#ifndef CL_VMM_IRQ_H
#define CL_VMM_IRQ_H

#include <stdbool.h>

struct irq_line {
    void (*raise)(void *chip, unsigned gsi);
    void *chip; /* borrowed: the interrupt controller */
    unsigned gsi;
    unsigned config_gsi; /* for news of a device's configuration; may be the same one */
    bool is_lasting;     /* what was raised is in the guest's own state: a snapshot has it, too */
};

static inline void irq_raise(const struct irq_line *line)
{
    line->raise(line->chip, line->gsi);
}

static inline void irq_raise_config(const struct irq_line *line)
{
    line->raise(line->chip, line->config_gsi);
}

#endif
