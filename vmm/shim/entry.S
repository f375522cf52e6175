/* vmm/shim/entry.S - where the processor enters the shim, and how it leaves it.
 *
 * All of the guest runs at CPL3, its kernel too.  Few gates lead to CPL0, where a KVM without
 * VMX/SVM interprets every instruction, so their code is as short as can be: interrupts (they come
 * while CPL0 waits, too), int3 and INT 4, by which the shim itself asks for what CPL3 may not do, and
 * page faults where CPL3 does not find out what CR2 has (fault.c).
 *
 * The stack is the interrupted kernel's after a hypercall, and one of layout.h's in a trap.  None
 * of the paths may be interrupted half-way by an event: on_irq sees that RIP is in here and comes
 * again later (vmm/shim/event.c).
 *
 * An isolated guest's user code runs in the user view (vmm/shim/layout.h), which has other gates: all
 * lead to CPL0, load the kernel's page tables, and go on here at CPL3 on the same stack.  SYSCALL
 * stays at CPL3 and leads to an int3 at the address of on_syscall; who jumps there is a system call
 * with registers of its own choice, no more.  The way back is an int3 of the shim's, too.
 *
 * Each vCPU has a copy of all this, linked for its slice, which begins at `here`.  Only find_... are
 * run by all of them, in the first vCPU's copy.
 */
#include "vmm/shim/layout.h"

    .section .head, "a"
    .quad 0x31766e7078636c63            /* SHIM_MAGIC; struct shim_head */
    .quad on_syscall
    .quad on_trap
    .quad fault_gate, on_fault
    .quad irq_gate, on_irq
    .quad break_gate, on_break
    .quad quick_gate, on_overflow
    .quad enter_hypercall, enter_iret
    .quad find_hypercall, find_iret
    .quad on_park
    .quad isolated_break_gate
    .quad user_traps, on_user_trap
    .quad user_fault_gate, on_user_fault
    .quad user_irq_gate, on_user_irq
    .quad user_break_gate, on_user_break

    .section .entry, "ax"
#define OF_STATE(field) state + STATE_##field(%rip)

/* An int3 that CPL0 answers.  It may be lost: KVM tells nobody of a #BP that is still to be delivered
 * (KVM_GET_VCPU_EVENTS leaves software exceptions out), so a snapshot made at that moment goes on
 * behind it.  Then it comes again.  Gates that answer by a return go past the jump. */
#define PAST_JUMP 2
.macro ASK what
ask_\what:
    int3
at_\what:
    jmp ask_\what
.endm

/* What is asked for most has a gate of its own, INT 4's, which looks at RAX and at nothing in memory, as
 * each access that KVM interprets is a walk of the page tables.  0 in RAX says that it was done; if
 * not, int3 asks. */
#define QUICK_FLUSH_PAGE 0x5a17c0de
#define QUICK_LOAD_ROOT (QUICK_FLUSH_PAGE - 1)
.macro ASK_QUICKLY number, what
    mov $\number, %eax
    int $4
    test %rax, %rax
    jz 1f
    ASK \what
1:
.endm

#define OF_DOORS(field) doors + DOORS_##field(%rip)

/* --- SYSCALL: a hypercall of the kernel, or user code's system call ---------------------------- */

on_syscall:
    cmpb $0, OF_STATE(USER)
    jne from_user
    cmp $HYPERCALL_IRET, %eax
    je iret_by_syscall
/* The kernel's stub has saved RCX and R11, which are where it goes on and its flags.  Clobbers the
 * registers of the arguments, as Xen may. */
hypercall_from:
    push %rcx
    push %r11
    push %r9
    mov %r10, %rcx
    mov %rax, %r9
    call hypercall
    pop %r9
    pop %r11
    pop %rcx
    mov OF_STATE(VCPU_INFO), %rdx
    cmpw $1, UPCALL_PENDING(%rdx)       /* pending, not masked */
    je event_after_hypercall
    jmp *%rcx

event_after_hypercall:
    mov %rsp, %rdi
    and $~15, %rsp
    or $FLAG_IF, %r11
    pushq $XEN_DS
    push %rdi
    push %r11
    pushq $XEN_CS_KERNEL
    push %rcx
    push %r11
    push %rcx
    movb $1, UPCALL_MASK(%rdx)
    jmp *OF_STATE(ON_EVENT)

/* Of a stub that begins with ENDBR64, to which its call returns, then of one without. */
.macro STUB_ENTRY name
1:  addq $SHIM_ENDBR_BYTES, (%rsp)
\name:
    .if \name - 1b != SHIM_ENDBR_ENTRY
    .error "the monitor has counted otherwise"
    .endif
.endm

/* The kernel's own stub, made into a call: no SYSCALL instruction, which costs a transition. */
    STUB_ENTRY enter_hypercall
    pop %rcx
    add $SHIM_STUB_GOES_ON, %rcx
    mov $FLAG_IF, %r11d
    jmp hypercall_from

from_user:
    mov %rsp, OF_STATE(SP)
    mov %rax, OF_STATE(AX)
    mov OF_STATE(KERNEL_SP), %rsp
    movb $0, OF_STATE(USER)
    or $FLAG_IF, %r11
    pushq $XEN_DS
    pushq OF_STATE(SP)
    push %r11
    pushq $XEN_CS_USER
    push %rcx
    push %r11
    push %rcx
    rdgsbase %rax
    mov %rax, OF_STATE(USER_GS)
    mov OF_STATE(KERNEL_GS), %rax
    wrgsbase %rax
    mov OF_STATE(VCPU_INFO), %rax
    movb $1, UPCALL_MASK(%rax)
    mov OF_STATE(AX), %rax
    jmp *OF_STATE(ON_SYSCALL)

/* --- HYPERVISOR_iret --------------------------------------------------------------------------- */

/* Stack: RAX R11 RCX flags | RIP CS RFLAGS RSP SS */
iret_by_syscall:
    mov (%rsp), %rax
    mov 8(%rsp), %r11
    mov 16(%rsp), %rcx
    add $24, %rsp
    mov %rax, (%rsp)
/* Stack: RAX | RIP CS RFLAGS RSP SS.  IF in the frame stands for "events are not masked"; the
 * processor's own stays set, whatever the frame says. */
enter_iret:
    mov OF_STATE(VCPU_INFO), %rax
    testb $3, 16(%rsp)
    jnz iret_to_user
    testl $FLAG_IF, 24(%rsp)
    jz 1f
    movb $0, UPCALL_MASK(%rax)
    cmpb $0, UPCALL_PENDING(%rax)
    jne event_instead
    jmp 2f
1:  movb $1, UPCALL_MASK(%rax)
2:  movq $SHIM_CS3, 16(%rsp)
    movq $SHIM_DS3, 40(%rsp)
    orl $FLAG_IF, 24(%rsp)
    pop %rax
    iretq

iret_to_user:
    movb $0, UPCALL_MASK(%rax)
    cmpb $0, UPCALL_PENDING(%rax)
    jne event_instead
    mov OF_STATE(USER_GS), %rax
    wrgsbase %rax
    movb $1, OF_STATE(USER)
/* User code chooses what is in the frame, by sigreturn() or by registers at its SYSCALL.  Nothing of
 * it may make IRETQ fault. */
    mov 8(%rsp), %rax
    sar $47, %rax
    inc %rax
    cmp $1, %rax
    ja refuse_frame                     /* RIP is not canonical */
    movzbl 40(%rsp), %eax               /* Xen's selectors are the processor's, but for 0xe000 */
    mov %rax, 40(%rsp)
    cmp $SHIM_DS3, %eax
    jne refuse_frame
    movzbl 16(%rsp), %eax
    mov %rax, 16(%rsp)
    cmp $SHIM_CS3, %eax
    jne not_64_bit
frame_is_good:
    andq $FLAGS_USER, 24(%rsp)
    orl $FLAG_IF | 2, 24(%rsp)
    cmpb $0, OF_STATE(IS_ISOLATED)
    jne to_user_view
    pop %rax
    iretq

not_64_bit:
    cmp $SHIM_CS3_32, %eax
    jne refuse_frame
    cmpl $0, 12(%rsp)                   /* RIP is in its segment */
    je frame_is_good
/* As if user code had made the #GP there. */
refuse_frame:
    mov %rsp, %rax
    movabs $here + SHIM_TRAP_STACK, %rsp
    .irp word, 40, 32, 24, 16, 8
    pushq \word(%rax)
    .endr
    pushq $0
    pushq $13
    mov (%rax), %rax
    jmp trapped

/* An interrupt on this way returns to it, so nobody else uses the doors meanwhile. */
to_user_view:
    .irp word, 0, 8, 16, 24, 32, 40
    popq \word + OF_DOORS(EXIT)
    .endr
    mov OF_DOORS(USER_ROOT), %rax
    ASK exit

/* The same frame, now as what the event interrupted.  It may lie where the new one will. */
event_instead:
    movb $1, UPCALL_MASK(%rax)
    popq OF_STATE(AX)
    popq OF_STATE(IP)
    popq OF_STATE(CS)
    popq OF_STATE(FLAGS)
    popq OF_STATE(SP)
    mov OF_STATE(SP), %rsp
    movzbl OF_STATE(CS), %eax
    test $3, %al
    jz 1f
    mov OF_STATE(KERNEL_SP), %rsp
1:  or $0xe000, %eax
    and $~15, %rsp
    pushq $XEN_DS
    pushq OF_STATE(SP)
    pushq OF_STATE(FLAGS)
    push %rax
    pushq OF_STATE(IP)
    push %r11
    push %rcx
    mov OF_STATE(AX), %rax
    jmp *OF_STATE(ON_EVENT)

/* --- the same, of any vCPU -------------------------------------------------------------------- */

/* Whose kernel this is says the base of GS, which the shim has set.  When it is nobody's, because the
 * kernel is about to load it, SYSCALL knows.  Only the register may be used. */
.macro TO_OWNER entry, register
    rdgsbase \register
    test \register, \register
    jz 1f
    .irp cpu, 0, 1, 2, 3
    cmp \register, \cpu * SHIM_SLICE + OF_STATE(KERNEL_GS)
    je \entry + \cpu * SHIM_SLICE
    .endr
    .if SHIM_CPUS_MAX != 4
    .error "a compare for each vCPU"
    .endif
1:
.endm

    STUB_ENTRY find_hypercall           /* Stack: where the kernel's stub begins */
    TO_OWNER enter_hypercall, %r11
    syscall
    addq $SHIM_STUB_GOES_ON, (%rsp)
    ret

find_iret:                              /* Stack: RAX | RIP CS RFLAGS RSP SS */
    TO_OWNER enter_iret, %rax
    mov (%rsp), %rax
    movq $0, (%rsp)
    push %rcx
    push %r11
    push %rax
    mov $HYPERCALL_IRET, %eax
    syscall

/* --- exceptions: gates that stay at CPL3 ------------------------------------------------------- */

.macro TRAP vector, has_error, to
    .balign 16
    .if \has_error == 0
    pushq $0
    .endif
    pushq $\vector
    jmp \to
.endm
.macro TRAPS to
    .irp vector, 0, 1, 2, 3, 4, 5, 6, 7
    TRAP \vector, 0, \to
    .endr
    TRAP 8, 1, \to
    TRAP 9, 0, \to
    .irp vector, 10, 11, 12, 13, 14
    TRAP \vector, 1, \to
    .endr
    .irp vector, 15, 16
    TRAP \vector, 0, \to
    .endr
    TRAP 17, 1, \to
    .irp vector, 18, 19, 20
    TRAP \vector, 0, \to
    .endr
    TRAP 21, 1, \to
.endm

    .balign 16
on_trap:
    TRAPS trapped

on_break:                               /* int3 that is not ours */
    pushq $0
    pushq $3
    jmp trapped

on_overflow:                            /* nor is INT 4 */
    pushq $0
    pushq $4
    jmp trapped

on_fault:                               /* RAX is CR2, its own value is on the stack */
    mov %rax, OF_STATE(CR2)
    pop %rax
    pushq $14

/* struct frame of shim.h, from its end.  RAX, RCX and RDX come first: the end of an interrupt needs
 * them at a known place. */
.macro SAVE
    .irp reg, rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11, rbx, rbp, r12, r13, r14, r15
    push %\reg
    .endr
.endm
.macro RESTORE
    .irp reg, r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rdi, rsi
    pop %\reg
    .endr
.endm

trapped:
    SAVE
    cld
    mov %rsp, %rdi
    call trap
    RESTORE
    pop %rdx
    pop %rcx
    pop %rax
    add $16, %rsp
    iretq

/* --- out of the user view, in the kernel's ----------------------------------------------------- */

on_user_break:                          /* Stack: RAX | RIP CS RFLAGS RSP SS */
    lea on_syscall + 1(%rip), %rax
    cmp %rax, 8(%rsp)
    mov (%rsp), %rax
    jne 1f
    mov 32(%rsp), %rsp
    and $FLAGS_USER | FLAG_IF | 2, %r11 /* who jumped there has not got its flags from SYSCALL */
    jmp from_user
1:  add $8, %rsp
    pushq $0
    pushq $3
    jmp trapped

on_user_trap:                           /* Stack: RAX | vector | error | frame */
    pop %rax
    jmp trapped

on_user_fault:                          /* Stack: CR2 | RAX | error | frame */
    popq OF_STATE(CR2)
    pop %rax
    pushq $14
    jmp trapped

/* --- interrupts -------------------------------------------------------------------------------- */

/* Ends at CPL0: after the end of interrupt the next one may come, when this stack is free again. */
on_user_irq:                            /* Stack: RAX | frame */
    pop %rax
    pushq $1                            /* in place of an error: it was the user view */
    jmp 1f
on_irq:
    pushq $0
1:  pushq $SHIM_IRQ_VECTOR
    SAVE
    cld
    mov %rsp, %rdi
    call interrupt
    test %al, %al                       /* what follows leaves this flag alone */
    RESTORE
    mov $0x80b, %ecx                    /* x2APIC: end of interrupt */
    mov $0, %eax
    mov $0, %edx
    jnz ask_user_irq_end
    ASK irq_end
    ASK user_irq_end

/* --- what CPL0 does for the shim --------------------------------------------------------------- */

    .globl load_root, flush_page, read_cr2, write_msr, wait_for_irq, may_wait, waited, start_kernel
load_root:
    ASK_QUICKLY QUICK_LOAD_ROOT, load_root
    ret
flush_page:
    ASK_QUICKLY QUICK_FLUSH_PAGE, flush_page
    ret
read_cr2:
    ASK read_cr2
    ret
write_msr:                              /* (index, value) */
    mov %edi, %ecx
    mov %rsi, %rax
    mov %rsi, %rdx
    shr $32, %rdx
    ASK write_msr
    ret
/* An interrupt from may_wait on leads to waited, not back: one that comes just before HLT is seen. */
wait_for_irq:
    mov %rsp, OF_STATE(IDLE_SP)
may_wait:
    cmpb $0, OF_STATE(WOKEN)
    jne waited
    ASK wait
waited:
    ret

/* A vCPU's first instructions, on the stack of its own that the monitor gave it. */
on_park:
    call park
start_kernel:                           /* (rip, rsp) */
    mov %rsi, %rsp
    jmp *%rdi

/* --- CPL0 -------------------------------------------------------------------------------------- */

    .section .gates, "ax"
/* To the stack of exceptions, because this one is gone with the next thing that the shim asks for,
 * which an interrupt may bring. */
.macro NOT_OURS frame
    push %rax
    push %rbx
    movabs $here + SHIM_TRAP_STACK - 40, %rax
    .irp word, 0, 8, 16, 24, 32
    mov 16 + \word(%rsp), %rbx
    mov %rbx, \word(%rax)
    .endr
    pop %rbx
    pop %rax
    movabs $here + \frame, %rsp
    iretq
.endm

    .balign 16
isolated_break_gate:
    cmpl $lower_exit, (%rsp)
    je 1f
    cmpl $lower_user_irq_end, (%rsp)
    je 2f
break_gate:
    cmpl $lower_write_msr, (%rsp)
    je 3f
    cmpl $lower_irq_end, (%rsp)
    je 4f
    cmpl $lower_wait, (%rsp)
    je 5f
    cmpl $lower_read_cr2, (%rsp)
    je 6f
    cmpl $lower_load_root, (%rsp)
    je 7f
    cmpl $lower_flush_page, (%rsp)
    je 8f
    NOT_OURS SHIM_BREAK_FRAME
1:  mov %rax, %cr3
    movabs $here + SHIM_DOORS + DOORS_EXIT, %rsp
    pop %rax
    iretq
2:  wrmsr
    movabs here + SHIM_DOORS + DOORS_USER_ROOT, %rax
    mov %rax, %cr3
    jmp leave_irq
3:  wrmsr
    addq $PAST_JUMP, (%rsp)
    iretq
4:  wrmsr
leave_irq:
    movabs $here + SHIM_IRQ_STACK - 80, %rsp
    pop %rdx
    pop %rcx
    pop %rax
    add $16, %rsp
    iretq
5:  sti
    hlt
    jmp 5b
6:  mov %cr2, %rax
    addq $PAST_JUMP, (%rsp)
    iretq
7:  mov %rdi, %cr3
    addq $PAST_JUMP, (%rsp)
    iretq
8:  invlpg (%rdi)
    addq $PAST_JUMP, (%rsp)
    iretq

    .balign 16
quick_gate:
    sub $QUICK_FLUSH_PAGE, %rax
    jne 1f
    invlpg (%rdi)
    iretq
1:  inc %rax
    jne 2f
    mov %rdi, %cr3
    iretq
2:  add $QUICK_LOAD_ROOT, %rax
    NOT_OURS SHIM_OVERFLOW_FRAME

    .balign 16
fault_gate:
    push %rax
    mov %cr2, %rax
    movabs $here + SHIM_FAULT_FRAME, %rsp
    iretq

    .balign 16
irq_gate:
    movabs $here + SHIM_IRQ_FRAME, %rsp
    iretq

/* --- CPL0, out of the user view ------------------------------------------------------------------ */

/* Nothing of user code's is read before CR3 is the kernel's, and no exception comes in here: the
 * pages are there, the stacks are the TSS's, interrupt gates clear TF, NT and IF.  A #DB that is held
 * up by a move to SS and comes behind int3 or SYSCALL (CVE-2018-8897) needs a breakpoint: the
 * debug registers are never set (XEN_SET_DEBUGREG), and a single step is not held up but lost. */

/* RAX is on the stack already. */
.macro TO_KERNEL_VIEW frame
    movabs here + SHIM_DOORS + DOORS_KERNEL_ROOT, %rax
    mov %rax, %cr3
    movabs $here + \frame, %rsp
    iretq
.endm

    .balign 16
user_break_gate:
    push %rax
    TO_KERNEL_VIEW SHIM_USER_BREAK_FRAME

    .balign 16
user_fault_gate:
    push %rax
    mov %cr2, %rax
    push %rax
    TO_KERNEL_VIEW SHIM_USER_FAULT_FRAME

    .balign 16
user_irq_gate:
    push %rax
    TO_KERNEL_VIEW SHIM_USER_IRQ_FRAME

user_trapped:
    push %rax
    TO_KERNEL_VIEW SHIM_USER_TRAP_FRAME

    .balign 16
user_traps:
    TRAPS user_trapped

    .globl at_load_root, at_flush_page, at_read_cr2, at_write_msr, at_wait, at_irq_end
    .globl at_exit, at_user_irq_end
    .section .note.GNU-stack, "", @progbits
