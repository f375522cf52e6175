/* bench/vmm_guest.h - what vmm_guest.S and who restores it agree on; for assembler too. */
#ifndef CL_BENCH_VMM_GUEST_H
#define CL_BENCH_VMM_GUEST_H

#define VMM_GUEST_RESTORED 0x1000800 /* physical, a byte: 0 = it waits to be saved */

#endif
