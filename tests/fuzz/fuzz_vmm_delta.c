/* A delta of a clone's memory, as a monitor that was taken over could have left it.  Input: a byte
 * for how much of the file is cut off, then 8 bytes a run. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vmm/delta.h"

enum { PAGE = 4096, PAGES = 32 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put_block(int fd, const struct delta_block *block, off_t *at)
{
    CL_ASSERT(pwrite(fd, block, sizeof *block, *at) == (ssize_t)sizeof *block);
    *at += (off_t)sizeof *block;
    for (uint32_t i = 0; i < CL_MIN(block->n, (uint32_t)DELTA_RUNS); i++)
        *at += (off_t)CL_MIN(block->runs[i].pages, (uint32_t)PAGES) * PAGE;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct guest_mem gm;
    static struct delta_block block;
    static int fd = -1;
    if (size < 1)
        return 0;
    if (fd < 0) {
        CL_ASSERT(gm_alloc(PAGES * PAGE, &gm, NULL) == 0);
        fd = memfd_create("delta", MFD_CLOEXEC);
        CL_ASSERT(fd >= 0);
    }
    off_t at = 0;
    CL_ASSERT(ftruncate(fd, 0) == 0);
    for (size_t i = 1, n = 0; i + 8 <= size; i += 8) {
        memcpy(&block.runs[n], data + i, 8);
        n++;
        if (n < DELTA_RUNS && i + 16 <= size && (data[i] & 0xc0) != 0xc0)
            continue; /* such a byte ends a block */
        block.n = (uint32_t)n;
        put_block(fd, &block, &at);
        memset(&block, 0, sizeof block);
        n = 0;
    }
    CL_ASSERT(ftruncate(fd, at > data[0] ? at - data[0] : 0) == 0);
    struct cl_err err = {0};
    int rc = delta_load(&gm, fd, &err);
    CL_ASSERT((rc == 0) == (err.code == CL_OK));
    uint32_t next = 0;
    CL_ASSERT(rc < 0 || at == 0 || pread(fd, &block, sizeof block, 0) < (ssize_t)sizeof block ||
              delta_check(&block, 0, PAGES, &next, NULL) == 0);
    memset(&block, 0, sizeof block);
    return 0;
}
