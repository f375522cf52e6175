/* tests/integration/vmm/guest.h - guests of a few instructions, for a machine on the host's KVM.
 *
 * A guest is assembler between two symbols, GUEST(name, "..."): 64-bit code that is loaded at
 * GUEST_AT in long mode, ring 0, with the first GiB mapped (vmm/boot.h).  Hosts whose KVM
 * interprets ring 0 run it as well, only slower, and without SSE and the like.
 */
#ifndef CL_TESTS_VMM_GUEST_H
#define CL_TESTS_VMM_GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/vm.h"

#define GUEST_AT 0x100000
#define GUEST_LINEAR UINT64_C(0xffffffff80000000)
#define GUEST_MEM (UINT64_C(32) << 20)
#define GUEST_MUCH_MEM \
    (UINT64_C(3584) << 20) /* so that some is behind a Xen-PV guest's devices \
                            */

#define GUEST(name, text) \
    extern const uint8_t guest_##name[], guest_##name##_end[]; \
    __asm__(".pushsection .rodata\n.code64\nguest_" #name ":\n" text "\nguest_" #name \
            "_end:\n.popsection\n")

/* The same in 32-bit code, for a guest that PVH enters in protected mode without paging. */
#define GUEST_32(name, text) \
    extern const uint8_t guest_##name[], guest_##name##_end[]; \
    __asm__(".pushsection .rodata\n.code32\nguest_" #name ":\n" text "\nguest_" #name \
            "_end:\n.code64\n.popsection\n")

/* Ends the guest with a status. */
#define GUEST_EXIT(status) "mov $" #status ", %al\n out %al, $0xf4\n 98: jmp 98b\n"
/* Maps 0xd0000000 (devices), 0xfec00000 (interrupt chip) and 0xfee00000 (local APIC). */
#define GUEST_MAP_DEVICES \
    "movq $0xd003, 0xa018\n" \
    "mov $0xd0000083, %eax\n mov %rax, 0xd000 + 128 * 8\n" \
    "mov $0xfec00083, %eax\n mov %rax, 0xd000 + 502 * 8\n" \
    "mov $0xfee00083, %eax\n mov %rax, 0xd000 + 503 * 8\n"

/* What a machine of one guest consists of; fds are owned. */
struct guest {
    struct vm *vm;
    int ram_fd, console_fd;
    int kvm_fd, kernel_fd;
};

/* 77, with a reason on stdout, where there is no usable /dev/kvm; else 0. */
int guest_skip(void);
/* The same for a guest that is entered by Xen PV, which some hosts cannot have. */
int guest_skip_xenpv(void);
/* What a machine of these files is made from, to be booted. */
struct vm_config guest_config(const struct guest *g, unsigned vcpus);
/* A machine with this code at its entry, not yet running.  Fails the test when it cannot be. */
void guest_open(struct guest *g, const uint8_t *code, const uint8_t *end, unsigned vcpus);
/* One of 32-bit code that is entered by PVH, forced or because the kernel has no other entry. */
void guest_open_pvh(struct guest *g, const uint8_t *code, const uint8_t *end, bool forced);
/* One that is entered by Xen PV, at CPL3 in 64-bit mode, at GUEST_LINEAR + GUEST_AT. */
void guest_open_xenpv(struct guest *g, const uint8_t *code, const uint8_t *end);
/* One of two vCPUs. */
void guest_open_xenpv_of_2(struct guest *g, const uint8_t *code, const uint8_t *end);
/* One of GUEST_MUCH_MEM. */
void guest_open_xenpv_large(struct guest *g, const uint8_t *code, const uint8_t *end);
/* The first in the mode isolated. */
void guest_open_isolated(struct guest *g, const uint8_t *code, const uint8_t *end);
/* One of a kernel's file. */
void guest_open_file(struct guest *g, const char *path);
/* One restored from the state in state_fd and the RAM in ram_fd (both borrowed). */
void guest_restore(struct guest *g, int ram_fd, int state_fd, unsigned vcpus);
void guest_close(struct guest *g);
/* Start it when it does not run, and wait at most 20 s for its end. */
void guest_await_end(struct guest *g, struct vm_report *ret_report);
/* A word of the RAM file, as a machine that was booted wrote it. */
uint64_t guest_peek(const struct guest *g, uint64_t at);
void guest_poke(const struct guest *g, uint64_t at, uint64_t value);
/* What it printed, as a string. */
void guest_printed(const struct guest *g, char *out, size_t size);

#endif
