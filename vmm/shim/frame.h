/* vmm/shim/frame.h - the registers that a trap interrupted. */
#ifndef CL_VMM_SHIM_FRAME_H
#define CL_VMM_SHIM_FRAME_H

#include <stdint.h>

/* What a trap pushes, and entry.S after it. */
struct frame {
    uint64_t r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax;
    uint64_t vector, error;
    uint64_t rip, cs, flags, rsp, ss;
};

#endif
