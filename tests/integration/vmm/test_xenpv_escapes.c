/* tests/integration/vmm/test_xenpv_escapes.c - one forbidden act of a Xen-PV guest a row, natively.
 *
 * It must be refused with the stated errno, or be the guest's end for the stated reason, within
 * bounds of the host's memory and time.  What a row protects:
 *
 *   SEPARATION  user code of an isolated guest from the guest's kernel and from the shim
 *   ROBUSTNESS  the guest from a mistake of its own kernel, which reaches the shim by design; the
 *               boundary of the VM is the monitor and is not at stake
 *
 * A kernel's act is tried in both modes, user code's in the mode isolated, which alone claims to
 * stop it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>
#include <sys/resource.h>

#include "tests/integration/vmm/guest.h"

/* clang-format off */

/* --- pieces ---------------------------------------------------------------------------------- */

#define CALL(number) "mov $" #number ", %eax\n syscall\n"
#define TELL_ERRNO "neg %rax\n out %al, $0xf4\n 98: jmp 98b\n"
#define WITH_ERRNO(number) CALL(number) TELL_ERRNO
/* All of it fits 32 bits, extended by the sign. */
#define ARGS(a, b, c) "mov $" #a ", %rdi\n mov $" #b ", %rsi\n mov $" #c ", %rdx\n"
#define WIDE(value, to) "movabs $" #value ", %" #to "\n"
/* Words on the stack, the last one first in memory; then RDI or RSI is where. */
#define PUSH(value) "pushq $" #value "\n"
#define EXTENDED(command, frame, more) \
    PUSH(more) PUSH(frame) PUSH(command) "mov %rsp, %rdi\n mov $1, %esi\n xor %edx, %edx\n" CALL(26)
#define UPDATE(at, entry) \
    WIDE(entry, rax) "push %rax\n" WIDE(at, rax) \
    "push %rax\n mov %rsp, %rdi\n mov $1, %esi\n xor %edx, %edx\n" CALL(1)
#define EVENT_OP(op, first, second) \
    PUSH(0) WIDE((second << 32) + first, rax) "push %rax\n mov %rsp, %rsi\n" \
    "mov $" #op ", %edi\n" CALL(32)

/* Places: guests of 32 MiB have their area at 28 MiB; their kernel has the first 4 MiB mapped, of
 * which those from 2 MiB on are free and zero.
 *
 *     0x1c00              the area's first frame; 0x7fffffff is none
 *     0xffffffff80200000  free
 *     0xffff810000000000  the shim; 19, 1a, 1b and 1f thousand hex further on GDT, IDT, TSS, tables
 *     0xffff818000000000  all memory
 *     0x1234000           nothing
 */

/* --- page tables ----------------------------------------------------------------------------- */

GUEST(pins_the_shim_1, EXTENDED(0, 0x1c00, 0) TELL_ERRNO);
GUEST(pins_the_shim_4, EXTENDED(3, 0x1c00, 0) TELL_ERRNO);
GUEST(pins_the_end_of_memory, EXTENDED(3, 0x1fff, 0) TELL_ERRNO);
GUEST(pins_nothing, EXTENDED(3, 0x7fffffff, 0) TELL_ERRNO);
GUEST(unpins_the_shim, EXTENDED(4, 0x1c00, 0) TELL_ERRNO);
GUEST(takes_the_shim_for_its_root, EXTENDED(5, 0x1c00, 0) TELL_ERRNO);
GUEST(takes_nothing_for_its_root, EXTENDED(5, 0x7fffffff, 0) TELL_ERRNO);
GUEST(clears_the_shim, EXTENDED(16, 0x1c00, 0) TELL_ERRNO);
GUEST(copies_the_shim, EXTENDED(17, 0x300, 0x1c00) TELL_ERRNO);
GUEST(copies_over_the_idt, EXTENDED(17, 0x1c1a, 0x300) TELL_ERRNO);
GUEST(names_no_command, EXTENDED(14, 0x300, 0) TELL_ERRNO);
GUEST(sets_an_ldt, EXTENDED(13, 0, 8) TELL_ERRNO);
GUEST(list_of_commands_nowhere, ARGS(0x1234000, 1, 0) WITH_ERRNO(26));
GUEST(endless_list_of_commands, ARGS(0xffffffff80200000, -1, 0) WITH_ERRNO(26));
/* A top-level table of itself at all levels: 240 x 512 x 1,024 entries to look at, and an end. */
GUEST(pins_a_table_of_itself, "mov $0xffffffff80200000, %rdi\n mov $0x200067, %eax\n"
                              "mov $512, %ecx\n rep stosq\n" EXTENDED(3, 0x200, 0) TELL_ERRNO);
/* Nothing of the kernel is in it. */
GUEST(takes_an_empty_root, EXTENDED(5, 0x200, 0) TELL_ERRNO);

GUEST(updates_the_shim, UPDATE(0x1c00000, 0x67) TELL_ERRNO);
GUEST(updates_the_shims_tables, UPDATE(0x1c1f000, 0x67) TELL_ERRNO);
GUEST(updates_nothing, UPDATE(0x7fffffff000, 0x67) TELL_ERRNO);
GUEST(updates_far_away, UPDATE(0xfffffffffffff000, 0x67) TELL_ERRNO);
/* Of guests with memory on both sides of their devices. */
GUEST(pins_a_device, EXTENDED(3, 0xd0000, 0) TELL_ERRNO);
GUEST(takes_a_device_for_its_root, EXTENDED(5, 0xd0001, 0) TELL_ERRNO);
GUEST(clears_a_device, EXTENDED(16, 0xd0002, 0) TELL_ERRNO);
GUEST(updates_a_device, UPDATE(0xd0000000, 0x67) TELL_ERRNO);
GUEST(updates_the_last_of_the_devices, UPDATE(0xd01ffff8, 0x67) TELL_ERRNO);
GUEST(updates_in_front_of_the_devices, UPDATE(0xcffffff8, 0x67) TELL_ERRNO);
GUEST(updates_behind_the_devices, UPDATE(0xd0200000, 0x67) TELL_ERRNO);
GUEST(updates_of_no_kind, UPDATE(0x200003, 0x67) TELL_ERRNO);
GUEST(list_of_updates_nowhere, ARGS(0x1234000, 1, 0) WITH_ERRNO(1));
/* Zeros are updates of frame 0. */
GUEST(endless_list_of_updates, ARGS(0xffffffff80200000, -1, 0) WITH_ERRNO(1));
GUEST(counts_updates_nowhere, ARGS(0xffffffff80200000, 1, 0x1234000) WITH_ERRNO(1));

GUEST(maps_over_the_idt, WIDE(0xffff81000001a000, rdi) "mov $0x67, %esi\n xor %edx, %edx\n"
                         WITH_ERRNO(14));
GUEST(maps_over_all_memory, WIDE(0xffff818000000000, rdi) "mov $0x67, %esi\n xor %edx, %edx\n"
                            WITH_ERRNO(14));
GUEST(maps_where_no_table_is, ARGS(0x1234000, 0x67, 0) WITH_ERRNO(14));

/* Pages that only CPL0 has: the shim does not open them, neither for the kernel nor by its own
 * stores to where the kernel says. */
GUEST(writes_the_idt, WIDE(0xffff81000001a000, rdi) "movb $0, (%rdi)\n" GUEST_EXIT(0));
GUEST(has_the_gdt_written, WIDE(0xffff810000019000, rsi) "mov $7, %edi\n" WITH_ERRNO(32));
GUEST(has_the_shims_tables_written, WIDE(0xffff81000001f000, rsi) "mov $1, %edi\n" WITH_ERRNO(17));

/* --- lists of calls -------------------------------------------------------------------------- */

/* A call: number, result, arguments.  What it gives is its own result. */
#define MULTICALL(number, first) \
    PUSH(0) PUSH(0) PUSH(0) PUSH(0) PUSH(0) PUSH(first) PUSH(0) PUSH(number) \
    "mov %rsp, %rdi\n mov $1, %esi\n" CALL(13) "mov 8(%rsp), %rax\n" TELL_ERRNO
GUEST(multicall_of_a_multicall, MULTICALL(13, 0));
GUEST(multicall_of_no_call, MULTICALL(20, 0));
GUEST(multicall_of_a_return, MULTICALL(23, 0));
GUEST(multicall_nowhere, ARGS(0x1234000, 1, 0) WITH_ERRNO(13));
/* Each is a trap table at address 0. */
GUEST(endless_multicall, ARGS(0xffffffff80200000, -1, 0) WITH_ERRNO(13));

/* --- entries of the kernel ------------------------------------------------------------------- */

#define TRAP_TABLE(vector, address) \
    PUSH(0) PUSH(0) WIDE(address, rax) "push %rax\n" PUSH(vector) "mov %rsp, %rdi\n" CALL(0)
GUEST(trap_table_nowhere, ARGS(0x1234000, 0, 0) WITH_ERRNO(0));
GUEST(trap_that_does_not_exist, TRAP_TABLE(255, 0x1234000) TELL_ERRNO);
GUEST(trap_to_nowhere, TRAP_TABLE(6, 0x8000000000000000) "ud2\n");
/* Its own handler faults, each time with a new frame, until there is no more stack. */
GUEST(trap_that_traps, TRAP_TABLE(14, 0x1234000) "mov $0xffffffff80001000, %rsp\n"
                       "mov 0x1234, %eax\n");
GUEST(trap_without_a_stack, TRAP_TABLE(6, 0xffffffff80100000) "mov $0x1234000, %esp\n ud2\n");

/* Port and timer, then the event. */
#define EVENT_COMES \
    EVENT_OP(1, 0, 0) "mov $1, %edi\n" CALL(15) "mov $1, %edi\n" CALL(29) GUEST_EXIT(1)
#define CALLBACK(type, address) \
    WIDE(address, rax) "push %rax\n" PUSH(type) "mov %rsp, %rsi\n xor %edi, %edi\n" CALL(30)
GUEST(callback_to_nowhere, CALLBACK(0, 0x8000000000000000) EVENT_COMES);
GUEST(callback_of_no_kind, CALLBACK(7, 0x1234000) TELL_ERRNO);
GUEST(callback_nowhere, ARGS(0, 0x1234000, 0) WITH_ERRNO(30));
GUEST(callback_of_no_operation, ARGS(9, 0xffffffff80200000, 0) WITH_ERRNO(30));

/* Frames of HYPERVISOR_iret: SS RSP RFLAGS CS RIP, below them four words. */
#define IRET(ss, rsp, flags, cs, rip) \
    PUSH(ss) PUSH(rsp) PUSH(flags) PUSH(cs) WIDE(rip, rax) "push %rax\n" \
    PUSH(0) PUSH(0) PUSH(0) PUSH(0) CALL(23)
GUEST(return_without_a_stack, "mov $0x1234000, %esp\n" CALL(23));
GUEST(return_to_nowhere, IRET(0xe02b, 0, 0x202, 0xe030, 0x8000000000000000));

/* --- small ones ------------------------------------------------------------------------------ */

/* Of CPL0: a data segment, and a gate to code of CPL0. */
GUEST(descriptor_of_cpl0, WIDE(0x00cf93000000ffff, rsi) "mov $0x1c19050, %edi\n" CALL(10)
                          "test %rax, %rax\n jnz 99f\n mov $0x50, %eax\n mov %eax, %ds\n"
                          "99:\n" GUEST_EXIT(1));
GUEST(table_of_descriptors, "movabs $0x00cf93000000ffff, %rax\n mov %rax, 0xffffffff80200050\n"
                            PUSH(0x200) "mov %rsp, %rdi\n mov $512, %esi\n" CALL(2)
                            "mov $0x50, %eax\n mov %eax, %ds\n" GUEST_EXIT(1));
/* A breakpoint on the next instruction: there is none, and nothing is told of one. */
GUEST(breakpoint, "lea 1f(%rip), %rsi\n xor %edi, %edi\n" CALL(8) "mov $7, %edi\n mov $0x2, %esi\n"
      CALL(8) "1: nop\n mov $7, %edi\n" WITH_ERRNO(9));
GUEST(fpu_taken_away, "mov $1, %edi\n" CALL(5) "fninit\n" GUEST_EXIT(0));
GUEST(assist_of_no_kind, ARGS(-1, -1, 0) WITH_ERRNO(21));
GUEST(physical_device, ARGS(25, 0xffffffff80200000, 0) WITH_ERRNO(33));
GUEST(grants, ARGS(0, 0xffffffff80200000, 1) WITH_ERRNO(20));
GUEST(no_such_hypercall, ARGS(-1, -1, -1) "mov $-1, %rax\n syscall\n" TELL_ERRNO);
GUEST(segment_base_nowhere, WIDE(0x8000000000000000, rsi) "mov $2, %edi\n" WITH_ERRNO(25));
GUEST(segment_base_of_none, ARGS(9, 0, 0) WITH_ERRNO(25));

GUEST(map_of_no_entries, ARGS(9, 0xffffffff80200000, 0) WITH_ERRNO(12));
GUEST(map_nowhere, "movl $1, 0xffffffff80200000\n movq $0x1234000, 0xffffffff80200008\n"
      ARGS(9, 0xffffffff80200000, 0) WITH_ERRNO(12));
GUEST(memory_of_no_operation, ARGS(99, 0, 0) WITH_ERRNO(12));
GUEST(version_nowhere, ARGS(1, 0x1234000, 0) WITH_ERRNO(17));

GUEST(console_without_end, ARGS(0, -1, 0xffffffff803ff000) WITH_ERRNO(18));
GUEST(console_of_no_operation, ARGS(2, 1, 0xffffffff80200000) WITH_ERRNO(18));
/* Its ring says that 2^32 - 1 bytes are in it; start_info is at RSI, the ring's frame at 72. */
GUEST(console_ring_of_lies, "mov 72(%rsi), %rbx\n shl $12, %rbx\n"
      "mov $0xffffffff80000000, %rax\n add %rax, %rbx\n"
      "movl $5, 0xc08(%rbx)\n movl $4, 0xc0c(%rbx)\n" EVENT_OP(4, 2, 0) TELL_ERRNO);

#define REGISTER_INFO(frame, offset) \
    PUSH(offset) PUSH(frame) "mov %rsp, %rdx\n mov $10, %edi\n xor %esi, %esi\n" WITH_ERRNO(24)
GUEST(vcpu_info_at_an_odd_place, REGISTER_INFO(0x200, 1));
GUEST(vcpu_info_over_the_end, REGISTER_INFO(0x200, 4040));
GUEST(vcpu_info_far_behind, REGISTER_INFO(0x200, 0x7ffffff8));
GUEST(vcpu_info_in_the_shim, REGISTER_INFO(0x1c10, 0));
GUEST(vcpu_info_nowhere, ARGS(10, 0, 0x1234000) WITH_ERRNO(24));
GUEST(another_vcpu, ARGS(3, 1, 0) WITH_ERRNO(24));
#define REGISTER_TIME(at) \
    WIDE(at, rax) "push %rax\n mov %rsp, %rdx\n mov $13, %edi\n xor %esi, %esi\n" WITH_ERRNO(24)
GUEST(time_into_the_shim, REGISTER_TIME(0xffff810000010000));
GUEST(time_into_all_memory, REGISTER_TIME(0xffff818000000000));
GUEST(time_nowhere, REGISTER_TIME(0x1234000));

/* --- events ---------------------------------------------------------------------------------- */

GUEST(virq_past_the_last, EVENT_OP(1, 24, 0) TELL_ERRNO);
GUEST(virq_far_past_the_last, EVENT_OP(1, 0x7fffffff, 0) TELL_ERRNO);
GUEST(virq_of_another_vcpu, EVENT_OP(1, 0, 7) TELL_ERRNO);
GUEST(ipi_of_another_vcpu, EVENT_OP(7, 7, 0) TELL_ERRNO);
GUEST(closes_no_port, EVENT_OP(3, 0x7fffffff, 0) TELL_ERRNO);
GUEST(sends_to_no_port, EVENT_OP(4, 64, 0) TELL_ERRNO);
GUEST(unmasks_no_port, EVENT_OP(9, 64, 0) TELL_ERRNO);
GUEST(fifo_of_events, EVENT_OP(11, 0, 0) TELL_ERRNO);
GUEST(events_nowhere, ARGS(4, 0x1234000, 0) WITH_ERRNO(32));
GUEST(takes_all_ports, "99:\n" EVENT_OP(6, 0, 0) "test %rax, %rax\n jz 99b\n" TELL_ERRNO);

GUEST(timer_at_the_end_of_time,
      "lea 1f(%rip), %rax\n push %rax\n" PUSH(0) "mov %rsp, %rsi\n xor %edi, %edi\n" CALL(30)
      "mov $-1, %rdi\n" CALL(15) WIDE(0x7fffffffffffffff, rdi) CALL(15)
      EVENT_COMES "1:\n" GUEST_EXIT(0));
GUEST(end_nowhere, ARGS(2, 0x1234000, 0) WITH_ERRNO(29));
GUEST(schedules_nothing, ARGS(99, 0, 0) WITH_ERRNO(29));

/* --- user code of an isolated guest ---------------------------------------------------------- */

/* Its root at 2 MiB, tables, a page of code at 4 MiB of its addresses and one of stack; the
 * kernel's entries for #UD, #GP and #PF, which tell by the status which it was, if user code made
 * it. */
#define ENTRY(label, vector) "lea " #label "f(%rip), %rax\n push %rax\n pushq $" #vector "\n"
#define USER_TABLES \
    "mov %rsi, %r15\n" \
    "movq $0x201067, 0xffffffff80200000\n movq $0x202067, 0xffffffff80201000\n" \
    "movq $0x203067, 0xffffffff80202010\n movq $0x204067, 0xffffffff80203000\n" \
    "movq $0x205067, 0xffffffff80203008\n lea 5f(%rip), %rsi\n" \
    "mov $0xffffffff80204000, %rdi\n mov $(6f - 5f), %ecx\n rep movsb\n" \
    PUSH(0) PUSH(0) ENTRY(1, 6) ENTRY(2, 13) ENTRY(3, 14) "mov %rsp, %rdi\n" CALL(0) \
    "lea -256(%rsp), %rsi\n" CALL(3)
#define OF_USER(status) "testb $3, 32(%rsp)\n jz 4f\n" GUEST_EXIT(status)
#define USER_CODE(code) \
    "1: testb $3, 24(%rsp)\n jz 4f\n" GUEST_EXIT(6) "2:" OF_USER(13) "3:" OF_USER(14) \
    "4:" GUEST_EXIT(99) "5:" code "ud2\n 6:\n"
#define ENTER_USER IRET(0xe02b, 0x401ff8, 0x202, 0xe033, 0x400000)
#define USER_GUEST(prepare, code) \
    USER_TABLES prepare EXTENDED(15, 0x200, 0) ENTER_USER USER_CODE(code)
#define READ(at) WIDE(at, rbx) "mov (%rbx), %al\n"

GUEST(user_code, USER_GUEST("", ""));
GUEST(user_reads_the_state, USER_GUEST("", READ(0xffff810000010000)));
GUEST(user_reads_the_gates, USER_GUEST("", READ(0xffff810000001000)));
GUEST(user_reads_the_doors, USER_GUEST("", READ(0xffff810000038200)));
GUEST(user_reads_all_memory, USER_GUEST("", READ(0xffff818000100000)));
GUEST(user_reads_the_kernel, USER_GUEST("", READ(0xffffffff80100000)));
GUEST(user_writes_a_port, USER_GUEST("", "out %al, $0xf4\n"));
/* The kernel has left its own three slots in the user's root. */
GUEST(user_root_with_the_kernels_slots,
      USER_GUEST("mov 88(%r15), %rax\n mov 0x808(%rax), %rcx\n mov %rcx, 0xffffffff80200808\n"
                 "mov 0x810(%rax), %rcx\n mov %rcx, 0xffffffff80200810\n"
                 "mov 0x818(%rax), %rcx\n mov %rcx, 0xffffffff80200818\n",
                 READ(0xffff818000100000)));
/* Both views by one table: what one needs, the other must not have.  RSI is start_info; the root of
 * a guest of this size is frame 0x112. */
#define ROOT_FRAME "mov 88(%rsi), %rax\n shr $12, %rax\n and $0x7ffff, %eax\n"
#define EXTENDED_RAX(command) \
    PUSH(0) "push %rax\n" PUSH(command) "mov %rsp, %rdi\n mov $1, %esi\n xor %edx, %edx\n" CALL(26)
GUEST(user_root_is_the_kernels, ROOT_FRAME EXTENDED_RAX(15) TELL_ERRNO);
GUEST(kernels_root_is_the_users, EXTENDED(15, 0x200, 0) EXTENDED(5, 0x200, 0) TELL_ERRNO);
GUEST(user_root_in_the_shim, EXTENDED(15, 0x1c00, 0) TELL_ERRNO);
GUEST(user_root_is_nothing, EXTENDED(15, 0x7fffffff, 0) TELL_ERRNO);

/* HYPERVISOR_iret to user code, with a frame that user code may have chosen. */
#define USER_FRAME(ss, rsp, flags, cs, rip) \
    USER_TABLES EXTENDED(15, 0x200, 0) IRET(ss, rsp, flags, cs, rip) \
    USER_CODE("out %al, $0xf4\n")
GUEST(user_cs_of_cpl0, USER_FRAME(0xe02b, 0x401ff8, 0x202, 0x13, 0x400000));
GUEST(user_cs_of_the_tss, USER_FRAME(0xe02b, 0x401ff8, 0x202, 0x43, 0x400000));
GUEST(user_ss_of_cpl0, USER_FRAME(0x1b, 0x401ff8, 0x202, 0xe033, 0x400000));
GUEST(user_rip_in_the_shim, USER_FRAME(0xe02b, 0x401ff8, 0x202, 0xe033, 0xffff810000001000));
GUEST(user_rip_in_the_kernel, USER_FRAME(0xe02b, 0x401ff8, 0x202, 0xe033, 0xffffffff80100000));
GUEST(user_rip_nowhere, USER_FRAME(0xe02b, 0x401ff8, 0x202, 0xe033, 0x8000000000000000));
GUEST(user_flags_with_ports, USER_FRAME(0xe02b, 0x401ff8, 0x7ffff6ff, 0xe033, 0x400000));

/* A system call where the kernel has no stack. */
GUEST(kernel_stack_nowhere, USER_TABLES "mov $0x1234000, %esi\n" CALL(3) EXTENDED(15, 0x200, 0)
                            ENTER_USER USER_CODE("syscall\n"));

/* clang-format on */

/* --- what comes of them ---------------------------------------------------------------------- */

enum what { ROBUSTNESS, DEVICES, SEPARATION };
enum { EXIT_UD = 6, EXIT_GP = 13, EXIT_PF = 14 };
enum { ENOENT_ = 2, EINVAL_ = 22, ENOSPC_ = 28, ENOSYS_ = 38 };

static const struct escape {
    const char *name;
    const uint8_t *code, *end;
    const char *stops; /* why, or NULL: it is refused */
    unsigned status;   /* the errno, or what the kernel saw its user code do */
    enum what what;
} escapes[] = {
#define REFUSED(name, errno_) \
    { \
#name, guest_##name, guest_##name##_end, NULL, errno_, ROBUSTNESS \
    }
#define STOPPED(name, why) \
    { \
#name, guest_##name, guest_##name##_end, why, 0, ROBUSTNESS \
    }
#define OF_MUCH_MEMORY(name, errno_) \
    { \
#name, guest_##name, guest_##name##_end, NULL, errno_, DEVICES \
    }
#define USERS(name, status) \
    { \
#name, guest_##name, guest_##name##_end, NULL, status, SEPARATION \
    }
#define IN_SHIM "at 0xffff81000000"
    REFUSED(pins_the_shim_1, EINVAL_),
    REFUSED(pins_the_shim_4, EINVAL_),
    REFUSED(pins_the_end_of_memory, EINVAL_),
    REFUSED(pins_nothing, EINVAL_),
    REFUSED(unpins_the_shim, EINVAL_),
    REFUSED(takes_the_shim_for_its_root, EINVAL_),
    REFUSED(takes_nothing_for_its_root, EINVAL_),
    REFUSED(clears_the_shim, EINVAL_),
    REFUSED(copies_the_shim, EINVAL_),
    REFUSED(copies_over_the_idt, EINVAL_),
    REFUSED(names_no_command, ENOSYS_),
    REFUSED(sets_an_ldt, ENOSYS_),
    STOPPED(list_of_commands_nowhere, "address 0x1234000"),
    STOPPED(endless_list_of_commands, "address 0xffffffff80400000"),
    REFUSED(pins_a_table_of_itself, 0),
    STOPPED(takes_an_empty_root, "trap 14 " IN_SHIM),
    REFUSED(updates_the_shim, EINVAL_),
    REFUSED(updates_the_shims_tables, EINVAL_),
    REFUSED(updates_nothing, EINVAL_),
    REFUSED(updates_far_away, EINVAL_),
    OF_MUCH_MEMORY(pins_a_device, EINVAL_),
    OF_MUCH_MEMORY(takes_a_device_for_its_root, EINVAL_),
    OF_MUCH_MEMORY(clears_a_device, EINVAL_),
    OF_MUCH_MEMORY(updates_a_device, EINVAL_),
    OF_MUCH_MEMORY(updates_the_last_of_the_devices, EINVAL_),
    OF_MUCH_MEMORY(updates_in_front_of_the_devices, 0),
    OF_MUCH_MEMORY(updates_behind_the_devices, 0),
    REFUSED(updates_of_no_kind, EINVAL_),
    STOPPED(list_of_updates_nowhere, "address 0x1234000"),
    STOPPED(endless_list_of_updates, "address 0xffffffff80400000"),
    STOPPED(counts_updates_nowhere, "address 0x1234000"),
    REFUSED(maps_over_the_idt, EINVAL_),
    REFUSED(maps_over_all_memory, EINVAL_),
    REFUSED(maps_where_no_table_is, EINVAL_),
    STOPPED(writes_the_idt, "address 0xffff81000001a000"),
    STOPPED(has_the_gdt_written, "address 0xffff810000019000"),
    STOPPED(has_the_shims_tables_written, "address 0xffff81000001f000"),
    REFUSED(multicall_of_a_multicall, EINVAL_),
    REFUSED(multicall_of_no_call, ENOSYS_),
    REFUSED(multicall_of_a_return, ENOSYS_),
    STOPPED(multicall_nowhere, "address 0x1234000"),
    STOPPED(endless_multicall, "address 0x8"),
    STOPPED(trap_table_nowhere, "address 0x1234008"),
    REFUSED(trap_that_does_not_exist, 0),
    STOPPED(trap_to_nowhere, "trap 13 " IN_SHIM),
    STOPPED(trap_that_traps, "trap 14"),
    STOPPED(trap_without_a_stack, "trap 14 " IN_SHIM),
    STOPPED(callback_to_nowhere, "trap 13 " IN_SHIM),
    REFUSED(callback_of_no_kind, ENOSYS_),
    STOPPED(callback_nowhere, "address 0x1234000"),
    REFUSED(callback_of_no_operation, ENOSYS_),
    STOPPED(return_without_a_stack, "trap 14 " IN_SHIM),
    STOPPED(return_to_nowhere, "trap 13 " IN_SHIM),
    STOPPED(descriptor_of_cpl0, "trap 13 at 0xffffffff801000"),
    STOPPED(table_of_descriptors, "trap 13 at 0xffffffff801000"),
    REFUSED(breakpoint, 0),
    REFUSED(fpu_taken_away, 0),
    REFUSED(assist_of_no_kind, 0),
    REFUSED(physical_device, ENOSYS_),
    REFUSED(grants, ENOSYS_),
    REFUSED(no_such_hypercall, ENOSYS_),
    STOPPED(segment_base_nowhere, "trap 13 " IN_SHIM),
    REFUSED(segment_base_of_none, EINVAL_),
    REFUSED(map_of_no_entries, EINVAL_),
    STOPPED(map_nowhere, "address 0x1234000"),
    REFUSED(memory_of_no_operation, ENOSYS_),
    STOPPED(version_nowhere, "address 0x1234000"),
    STOPPED(console_without_end, "address 0xffffffff80400000"),
    REFUSED(console_of_no_operation, ENOSYS_),
    REFUSED(console_ring_of_lies, 0),
    REFUSED(vcpu_info_at_an_odd_place, EINVAL_),
    REFUSED(vcpu_info_over_the_end, EINVAL_),
    REFUSED(vcpu_info_far_behind, EINVAL_),
    REFUSED(vcpu_info_in_the_shim, EINVAL_),
    STOPPED(vcpu_info_nowhere, "address 0x1234"),
    REFUSED(another_vcpu, ENOENT_),
    REFUSED(time_into_the_shim, EINVAL_),
    REFUSED(time_into_all_memory, EINVAL_),
    REFUSED(time_nowhere, EINVAL_),
    REFUSED(virq_past_the_last, EINVAL_),
    REFUSED(virq_far_past_the_last, EINVAL_),
    REFUSED(virq_of_another_vcpu, ENOENT_),
    REFUSED(ipi_of_another_vcpu, ENOENT_),
    REFUSED(closes_no_port, EINVAL_),
    REFUSED(sends_to_no_port, EINVAL_),
    REFUSED(unmasks_no_port, EINVAL_),
    REFUSED(fifo_of_events, ENOSYS_),
    STOPPED(events_nowhere, "address 0x1234000"),
    REFUSED(takes_all_ports, ENOSPC_),
    REFUSED(timer_at_the_end_of_time, 0),
    STOPPED(end_nowhere, "address 0x1234000"),
    REFUSED(schedules_nothing, ENOSYS_),
    USERS(user_code, EXIT_UD),
    USERS(user_reads_the_state, EXIT_PF),
    USERS(user_reads_the_gates, EXIT_PF),
    USERS(user_reads_the_doors, EXIT_PF),
    USERS(user_reads_all_memory, EXIT_PF),
    USERS(user_reads_the_kernel, EXIT_PF),
    USERS(user_writes_a_port, EXIT_GP),
    USERS(user_root_with_the_kernels_slots, EXIT_PF),
    USERS(user_root_is_the_kernels, EINVAL_),
    USERS(kernels_root_is_the_users, EINVAL_),
    USERS(user_root_in_the_shim, EINVAL_),
    USERS(user_root_is_nothing, EINVAL_),
    USERS(user_cs_of_cpl0, EXIT_GP),
    USERS(user_cs_of_the_tss, EXIT_GP),
    USERS(user_ss_of_cpl0, EXIT_GP),
    USERS(user_rip_in_the_shim, EXIT_PF),
    USERS(user_rip_in_the_kernel, EXIT_PF),
    USERS(user_rip_nowhere, EXIT_GP),
    USERS(user_flags_with_ports, EXIT_GP),
    {"kernel_stack_nowhere", guest_kernel_stack_nowhere, guest_kernel_stack_nowhere_end,
     "trap 14 " IN_SHIM, 0, SEPARATION},
};

/* --- bounds ---------------------------------------------------------------------------------- */

/* One guest, and what ASan keeps of a mapping; a second of CPU, the guest's included, at the pace
 * of a slow host. */
enum { RSS_MAX_KIB = 96 << 10, CPU_MAX_S = 10, PRINTED_MAX = 8192 };

struct cost {
    long rss_kib;
    long cpu_s;
};

static struct cost cost_now(void)
{
    struct rusage u;
    assert_int_equal(getrusage(RUSAGE_SELF, &u), 0);
    return (struct cost){u.ru_maxrss, u.ru_utime.tv_sec + u.ru_stime.tv_sec};
}

static struct cost before_all;

static bool is_cheap(const struct cost *before)
{
    struct cost now = cost_now();
    return now.rss_kib - before_all.rss_kib <= RSS_MAX_KIB &&
           now.cpu_s - before->cpu_s <= CPU_MAX_S;
}

static bool ends_as_it_should(const struct escape *e, const struct vm_report *r)
{
    if (!e->stops)
        return r->end == VM_EXIT && r->status == e->status;
    return r->end == VM_FAILED && strstr(r->err.text, "broke its contract") &&
           strstr(r->err.text, e->stops);
}

static void open_for(struct guest *g, const struct escape *e, bool is_isolated)
{
    if (e->what == DEVICES)
        guest_open_xenpv_large(g, e->code, e->end);
    else
        (is_isolated ? guest_open_isolated : guest_open_xenpv)(g, e->code, e->end);
}

static bool is_stopped(const struct escape *e, bool is_isolated)
{
    struct guest g;
    struct vm_report report;
    struct cl_err err = {0};
    char text[PRINTED_MAX + 1];
    struct cost before = cost_now();
    open_for(&g, e, is_isolated);
    if (vm_run(g.vm, &err) < 0)
        fail_msg("%s: %s", e->name, err.text);
    guest_await_end(&g, &report);
    guest_printed(&g, text, sizeof text);
    guest_close(&g);
    bool good = ends_as_it_should(e, &report) && strlen(text) < PRINTED_MAX && is_cheap(&before);
    if (!good)
        print_error("%s, %s: end %d, status %u, '%s'; want status %u or '%s'\n", e->name,
                    is_isolated ? "isolated" : "shared", (int)report.end, report.status,
                    report.end == VM_FAILED ? report.err.text : "", e->status,
                    e->stops ? e->stops : "");
    return good;
}

static void all_are_stopped(enum what what, bool is_isolated)
{
    unsigned got_away = 0;
    for (size_t i = 0; i < CL_COUNT(escapes); i++) {
        if (escapes[i].what == what)
            got_away += !is_stopped(&escapes[i], is_isolated);
    }
    assert_int_equal(got_away, 0);
}

static void test_a_kernels_mistakes_end_with_it(void **state)
{
    (void)state;
    all_are_stopped(ROBUSTNESS, false);
}

static void test_so_they_do_in_an_isolated_guest(void **state)
{
    (void)state;
    all_are_stopped(ROBUSTNESS, true);
}

static void test_devices_are_no_memory(void **state)
{
    (void)state;
    all_are_stopped(DEVICES, false);
}

static void test_user_code_of_an_isolated_guest_is_stopped(void **state)
{
    (void)state;
    all_are_stopped(SEPARATION, true);
}

static int set_up(void **state)
{
    (void)state;
    before_all = cost_now();
    return 0;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_kernels_mistakes_end_with_it),
        cmocka_unit_test(test_so_they_do_in_an_isolated_guest),
        cmocka_unit_test(test_devices_are_no_memory),
        cmocka_unit_test(test_user_code_of_an_isolated_guest_is_stopped),
    };
    int skip = guest_skip_xenpv();
    return skip ? skip : cmocka_run_group_tests(tests, set_up, NULL);
}
