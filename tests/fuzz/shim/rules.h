/* tests/fuzz/shim/rules.h - what the shim may change, and what its state must be at any time. */
#ifndef CL_TESTS_FUZZ_SHIM_RULES_H
#define CL_TESTS_FUZZ_SHIM_RULES_H

#include <stdint.h>

#include "vmm/shim/shim.h"

/* What is about to be done, for rules_before(): a hypercall's number, or one of these. */
enum { RULES_TRAP = XEN_HYPERCALLS - 1, RULES_INTERRUPT = XEN_HYPERCALLS - 2 };

/* Remember all memory, and work out from the arguments what may change. */
void rules_before_hypercall(uint64_t number, const uint64_t a[static 3]);
/* A trap or an interrupt; f is the frame that goes in. */
void rules_before_frame(unsigned what, const struct frame *f);
/* Ends the process when something else did, or a state is there that cannot be. */
void rules_after(void);

#endif
