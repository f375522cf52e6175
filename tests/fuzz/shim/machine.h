/* tests/fuzz/shim/machine.h - the shim's C (vmm/shim) in a process, on memory where it expects its
 * area and the guest's RAM, and on a processor that checks what it is asked.
 *
 * What the shim may not touch is not mapped: a store there is the process's end, for the fuzzer to
 * see.  A fault at an address of the guest's kernel is the guest's end, as entry.S would have it.
 *
 * Owns:    all memory and the processor's registers, once a process.
 * Thread:  the fuzzer's; takes SIGSEGV over.
 */
#ifndef CL_TESTS_FUZZ_SHIM_MACHINE_H
#define CL_TESTS_FUZZ_SHIM_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/shim/shim.h"

enum { MACHINE_PAGE = 4096, MACHINE_FRAMES = 16, MACHINE_RAM = MACHINE_FRAMES * MACHINE_PAGE };
/* In the area: the frames' levels, where no page of the shim's is. */
#define MACHINE_LEVELS (SHIM_SHARED_INFO + MACHINE_PAGE)
#define MACHINE_LINEAR UINT64_C(0xffffffff80000000) /* where the kernel has its RAM */

/* Frames that mean something after machine_start(); the others are zero. */
enum machine_frame {
    FRAME_ROOT = 1, /* then the tables of MACHINE_LINEAR, one a level */
    FRAME_TABLE = 4,
    FRAME_CONSOLE,
    FRAME_USER_ROOT,
    FRAME_LISTS, /* two: for arguments of hypercalls */
    FRAME_STACK = 10,
    FRAME_CODE = 12,
};

enum machine_end { MACHINE_RUNS, MACHINE_GAVE_UP, MACHINE_OFF };

/* A guest before its first hypercall. */
void machine_start(bool is_isolated);
/* The shim's piece of work; where it ends the guest it does not return to its caller. */
enum machine_end machine_do(void (*work)(void *arg), void *arg);
/* Time goes on.  The local APIC's timer is early, by a sixteenth: KVM counts with the host's clock,
 * which NTP makes run faster than the TSC. */
void machine_pass(uint64_t ticks);
/* An interrupt is taken: the timer's too, if it has come. */
void machine_take_interrupt(void);
/* An interrupt of the timer is to come, or was not taken yet. */
bool machine_awaits_timer(void);

uint8_t *machine_ram(void);
/* As it was when the machine was started: the first bytes of the area. */
const uint8_t *machine_area(void);
/* Guest-physical; UINT64_MAX when it is not RAM. */
uint64_t machine_gpa(uint64_t linear);

#endif
