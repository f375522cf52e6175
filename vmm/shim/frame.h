/* vmm/shim/frame.h - the registers that a trap interrupted. */
#ifndef CL_VMM_SHIM_FRAME_H
#define CL_VMM_SHIM_FRAME_H

#include <stddef.h>
#include <stdint.h>

/* What a trap pushes, and entry.S after it. */
struct frame {
    uint64_t r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax;
    uint64_t vector, error;
    uint64_t rip, cs, flags, rsp, ss;
};

/* Which word of a frame a register is in, by its number in REX, ModR/M and SIB (Intel SDM 2A
 * §2.2.1). */
static inline unsigned frame_word(unsigned number)
{
#define WORD(name) offsetof(struct frame, name) / sizeof(uint64_t)
    static const uint8_t words[16] = {
        WORD(rax), WORD(rcx), WORD(rdx), WORD(rbx), WORD(rsp), WORD(rbp), WORD(rsi), WORD(rdi),
        WORD(r8),  WORD(r9),  WORD(r10), WORD(r11), WORD(r12), WORD(r13), WORD(r14), WORD(r15)};
#undef WORD
    return words[number];
}

#endif
