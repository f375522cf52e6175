/* vmm/boot.h - a kernel and what it expects around it, put into guest memory.
 *
 *     0x00500  GDT                       0x09000  page tables (1 GiB, identity)
 *     0x06000  seed of its randomness    0x20000  command line
 *     0x07000  zero page                 0xe0000  ACPI tables
 *     0x08ff0  first stack               0xffff0  reset vector
 *
 *     from 1 MiB the kernel's segments; the initrd at the end of low RAM
 *
 * The kernel is copied, not mapped from its file: guest RAM is one memory file that becomes the
 * template, and a mapping over it would be missing there.
 *
 * Owns:    nothing.
 * Borrows: the fds, during the call.
 * Thread:  before the first vCPU runs.
 * Reference: Linux Documentation/x86/boot.rst (protocol 2.15, 64-bit), zero-page.rst.
 */
#ifndef CL_VMM_BOOT_H
#define CL_VMM_BOOT_H

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
    const char *cmdline;
    struct acpi_machine machine;
};

/* RAM must be zero.  *ret_entry: guest-physical address of the first instruction. */
int boot_load(const struct guest_mem *mem, const struct boot_input *input, uint64_t *ret_entry,
              struct cl_err *err) CL_MUST;
/* The first processor's registers: long mode with the tables above, RSI at the zero page. */
int boot_set_registers(int vcpu_fd, uint64_t entry, struct cl_err *err) CL_MUST;

#endif
