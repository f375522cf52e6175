/* tests/unit/vmm/pages.h - what the host has done to a page of a private mapping. */
#ifndef CL_TESTS_VMM_PAGES_H
#define CL_TESTS_VMM_PAGES_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "base/own.h"

#ifndef MADV_COLLAPSE /* Linux 6.1 */
#define MADV_COLLAPSE 25
#endif

/* Is it a copy, no longer the file's page?  (Linux, pagemap.rst: present, and not a file's) */
static inline bool is_copied(uint64_t address)
{
    uint64_t entry = 0;
    CL_AUTO(cl_closep) int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    CL_ASSERT(pread(fd, &entry, sizeof entry, (off_t)(address / 4096 * sizeof entry)) ==
              sizeof entry);
    return entry >> 63 && !(entry >> 61 & 1);
}

/* Of the mapping that begins there, how much is mapped by huge pages of its file. */
static inline uint64_t bytes_by_huge_pages(const void *base)
{
    char line[256], start[32];
    unsigned long kib = 0;
    bool is_it = false;
    CL_AUTO(cl_fclosep) FILE *f = fopen("/proc/self/smaps", "re");
    CL_ASSERT(f);
    (void)snprintf(start, sizeof start, "%lx-", (unsigned long)(uintptr_t)base);
    while (fgets(line, sizeof line, f)) {
        if (strchr(line, '-') && !strchr(line, ':'))
            is_it = false;
        if (strncmp(line, start, strlen(start)) == 0)
            is_it = true;
        if (is_it && sscanf(line, "ShmemPmdMapped: %lu", &kib) == 1)
            break;
    }
    return (uint64_t)kib << 10;
}

/* Linux before 6.1 makes none of a file when it is asked; says so. */
static inline bool host_makes_huge_pages(void)
{
    enum { HUGE = 2 << 20 };
    uint8_t *at = mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CL_ASSERT(at != MAP_FAILED);
    uint8_t *piece = at + -(uintptr_t)at % HUGE;
    memset(piece, 1, HUGE);
    bool can = madvise(piece, HUGE, MADV_COLLAPSE) == 0 || errno == EAGAIN; /* it would later */
    if (!can)
        (void)printf("skipped: this kernel makes no huge pages of memory files when asked\n");
    (void)munmap(at, 2 * HUGE);
    return can;
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
