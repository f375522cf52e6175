/* bench/vmm_guest.S - a guest that says a line end on COM1 and waits until a byte of its memory is not zero:
 * who has its snapshot sets that, so a restored one says the next line end by its first instructions, and
 * sleeps: it takes no time from whom it is measured with.
 *
 * Built twice: as an ELF64 that is entered in long mode (cloche-vmm), and, with ENTERED_BY_PVH, as an ELF32 with a
 * note that says where it wants to be entered in 32-bit mode (QEMU's -kernel).  Only instructions that
 * both modes have: hosts whose KVM interprets ring 0 run them too.
 */
#include "bench/vmm_guest.h"
#ifdef ENTERED_BY_PVH
        .section .note.PVH, "a", @note
        .long   4, 4, 18                /* XEN_ELFNOTE_PHYS32_ENTRY */
        .asciz  "Xen"
        .long   _start
        .code32
#define BX      %ebx
#else
        .code64
#define BX      %rbx
#endif
        .text
        .globl  _start
_start: mov     $0x3f8, %dx
        mov     $'\n', %al
        outb    %al, %dx
        mov     $VMM_GUEST_RESTORED, %ebx
1:      cmpb    $0, (BX)
        je      1b
        outb    %al, %dx
2:      hlt
        jmp     2b
        .section .note.GNU-stack, "", @progbits
