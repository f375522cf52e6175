/* bench/vmm_guest.S - a guest that says one line end on COM1, and another, and another: enough to see when
 * its first instruction ran, and that it goes on after a restore.
 *
 * Built twice: as an ELF64 that is entered in long mode (cloche-vmm), and, with ENTERED_BY_PVH, as an ELF32 with a
 * note that says where it wants to be entered in 32-bit mode (QEMU's -kernel).  Only instructions that
 * both modes have: hosts whose KVM interprets ring 0 run them too.
 */
#ifdef ENTERED_BY_PVH
        .section .note.PVH, "a", @note
        .long   4, 4, 18                /* XEN_ELFNOTE_PHYS32_ENTRY */
        .asciz  "Xen"
        .long   _start
        .code32
#else
        .code64
#endif
        .text
        .globl  _start
_start: mov     $0x3f8, %dx
1:      mov     $'\n', %al
        outb    %al, %dx
        mov     $200, %ecx
2:      dec     %ecx
        jnz     2b
        jmp     1b
        .section .note.GNU-stack, "", @progbits
