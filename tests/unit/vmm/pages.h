/* tests/unit/vmm/pages.h - what the host has done to a page of a private mapping. */
#ifndef CL_TESTS_VMM_PAGES_H
#define CL_TESTS_VMM_PAGES_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "base/own.h"

/* Is it a copy, no longer the file's page?  (Linux, pagemap.rst: present, and not a file's) */
static inline bool is_copied(uint64_t address)
{
    uint64_t entry = 0;
    CL_AUTO(cl_closep) int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    CL_ASSERT(pread(fd, &entry, sizeof entry, (off_t)(address / 4096 * sizeof entry)) ==
              sizeof entry);
    return entry >> 63 && !(entry >> 61 & 1);
}

/* Linux before 5.14 cannot copy pages that nobody has touched; says so. */
static inline bool host_copies_ahead(void)
{
    static uint8_t page[4096] __attribute__((aligned(4096)));
    bool can = madvise(page, sizeof page, MADV_POPULATE_WRITE) == 0;
    if (!can)
        (void)printf("skipped: this kernel has no MADV_POPULATE_WRITE\n");
    return can;
}

#endif
