/* tests/fuzz/shim/vmm/shim/hardware.h - the shim's C in a process: what its processor does is done,
 * and checked, by tests/fuzz/fuzz_vmm_shim.c. */
#ifndef CL_VMM_SHIM_HARDWARE_H
#define CL_VMM_SHIM_HARDWARE_H

#include <stdint.h>

/* The only vCPU's. */
#define here ((uint8_t *)SHIM_VA)

static inline void relax(void)
{
}

/* Where the guest's kernel has it; somewhere that faults when nothing is there. */
void *guest(uint64_t address);
void write_fs_base(uint64_t base);
uint64_t read_fs_base(void);
void write_gs_base(uint64_t base);
uint64_t read_gs_base(void);
uint64_t read_tsc(void);
void write_port(uint16_t port, uint8_t value);

#endif
