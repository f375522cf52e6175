/* vmm/shim/hardware.h - what the shim does to its processor by itself, and how it reaches memory by
 * addresses that are not its own.  The rest is asked of CPL0 (shim.h, entry.S).
 *
 * A fuzz target that runs the shim's C on the host has another such header (tests/fuzz/shim).
 */
#ifndef CL_VMM_SHIM_HARDWARE_H
#define CL_VMM_SHIM_HARDWARE_H

#include <stdint.h>

/* This vCPU's slice. */
extern uint8_t here[] __attribute__((visibility("hidden")));

/* An address that the guest's kernel gave. */
static inline void *guest(uint64_t address)
{
    return (void *)address;
}

static inline void write_fs_base(uint64_t base)
{
    __asm__ volatile("wrfsbase %0" ::"r"(base));
}

static inline uint64_t read_fs_base(void)
{
    uint64_t base;
    __asm__ volatile("rdfsbase %0" : "=r"(base));
    return base;
}

static inline void write_gs_base(uint64_t base)
{
    __asm__ volatile("wrgsbase %0" ::"r"(base));
}

static inline uint64_t read_gs_base(void)
{
    uint64_t base;
    __asm__ volatile("rdgsbase %0" : "=r"(base));
    return base;
}

static inline uint64_t read_tsc(void)
{
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return low | (uint64_t)high << 32;
}

static inline void relax(void)
{
    __asm__ volatile("pause");
}

static inline void write_port(uint16_t port, uint8_t value)
{
    __asm__ volatile("outb %0, %1" ::"a"(value), "Nd"(port) : "memory");
}

#endif
