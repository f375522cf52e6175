/* vmm/shim/operand.h - where an instruction's operand is in memory. */
#ifndef CL_VMM_SHIM_OPERAND_H
#define CL_VMM_SHIM_OPERAND_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/shim/frame.h"

struct operand {
    uint64_t at;
    unsigned bytes; /* at most so many from there on: 1 to 64 */
};

/* Of the instruction in code[0, room), which begins at f->rip and has faulted, by the registers of
 * f. False when it has none, several, is longer than `room`, or is not among those that are known:
 * then *ret means nothing. Pure: reads `code` and f, keeps nothing.  Of strings and of the stack it
 * takes f->error's word whether it was a write.
 */
bool operand_of(const struct frame *f, const uint8_t *code, unsigned room, struct operand *ret);

#endif
