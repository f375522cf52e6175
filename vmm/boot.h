/* vmm/boot.h - a kernel and what it expects around it, put into guest memory.
 *
 *     0x00500  GDT                       0x09000  page tables (1 GiB, identity)
 *     0x06000  seed of its randomness    0x20000  command line
 *     0x07000  zero page                 0xe0000  ACPI tables
 *     0x08ff0  first stack               0xffff0  reset vector
 *
 *     from 1 MiB the kernel's segments; the initrd at the end of low RAM
 *
 * A kernel that is entered by PVH finds hvm_start_info at 0x7000, and neither seed, stack nor page
 * tables: that protocol has none.
 *
 * Owns:    nothing.
 * Borrows: the fds, during the call.
 * Thread:  before the first vCPU runs.
 * Reference: Linux Documentation/x86/boot.rst (protocol 2.15, 64-bit), zero-page.rst; Xen
 * public/arch-x86/hvm/start_info.h, docs/misc/pvh.
 */
#ifndef CL_VMM_BOOT_H
#define CL_VMM_BOOT_H

#include <stdbool.h>
#include <stdint.h>
#include <linux/kvm.h>

#include "base/err.h"
#include "base/util.h"
#include "vmm/acpi.h"
#include "vmm/mem.h"

enum { BOOT_CMDLINE_MAX = 2047 }; /* bytes; x86's COMMAND_LINE_SIZE less the NUL */

struct boot_input {
    int kernel_fd; /* vmlinux */
    int initrd_fd; /* -1 = none */
    bool pvh;      /* by PVH even where the kernel has a 64-bit entry */
    const char *cmdline;
    struct acpi_machine machine;
};

enum boot_protocol {
    BOOT_LONG_MODE = 0, /* with the tables above, RSI at the zero page */
    BOOT_PVH,           /* 32 bits, no paging, EBX at hvm_start_info */
};

struct boot_entry {
    enum boot_protocol protocol;
    uint64_t at; /* guest-physical address of the first instruction */
};

/* RAM must be zero.  Long mode, unless the kernel has no 64-bit entry or the input says PVH. */
int boot_load(const struct guest_mem *mem, const struct boot_input *input,
              struct boot_entry *ret_entry, struct cl_err *err) CL_MUST;
/* The first processor's registers. */
int boot_set_registers(int vcpu_fd, const struct boot_entry *entry, struct cl_err *err) CL_MUST;

#endif
