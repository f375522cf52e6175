/* A disk under a guest of fuzz bytes: the file never grows, and a read-only one never changes. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <sys/stat.h>

#include "tests/fuzz/vmm_guest.h"
#include "vmm/blk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { DISK = 8 * 1024 };

static struct fuzz_guest guest;
static struct blk blk;
static int file = -1;

static void make(void)
{
    CL_ASSERT(blk_init(&blk, file, blk.read_only, "fuzz", &guest.drv.mem, drv_irq(&guest.drv)) ==
              0);
}

static void snapshot(void)
{
    static uint8_t image[512];
    struct state_writer w;
    struct state_reader r;
    struct state_head head;
    size_t n = 0;
    drv_state_begin(&w, image, sizeof image);
    blk_save(&blk, &w);
    CL_ASSERT(state_finish(&w, &n, NULL) == 0);
    make();
    CL_ASSERT(state_reader_init(&r, image, n, &head, NULL) == 0 && blk_load(&blk, &r, NULL) == 0);
    virtio_kick(&blk.v);
}

FUZZ_UNSEEN static void check_file(void)
{
    static const uint8_t zeros[DISK];
    static uint8_t bytes[DISK];
    struct stat st;
    CL_ASSERT(fstat(file, &st) == 0 && st.st_size == DISK);
    CL_ASSERT(pread(file, bytes, DISK, 0) == DISK);
    CL_ASSERT(!blk.read_only || memcmp(bytes, zeros, DISK) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (file < 0) {
        drv_init_alone(&guest.drv);
        file = memfd_create("disk", MFD_CLOEXEC);
    }
    CL_ASSERT(ftruncate(file, 0) == 0 && ftruncate(file, DISK) == 0);
    guest.v = &blk.v;
    guest.snapshot = snapshot;
    blk.read_only = size > 0 && data[0] & 1;
    make();
    drv_start(&guest.drv, &blk.v, 16);
    fuzz_run(&guest, data + (size > 0), size - (size > 0));
    check_file();
    return 0;
}
