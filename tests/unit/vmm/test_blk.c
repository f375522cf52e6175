/* tests/unit/vmm/test_blk.c - requests in any pieces, and every request that must not reach the
 * file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <sys/stat.h>

#include "tests/unit/vmm/driver.h"
#include "vmm/blk.h"

enum {
    SIZE = 64,
    SECTORS = 64,
    HEADER = DRV_DATA,
    DATA = DRV_DATA + 0x1000,
    STATUS = DRV_DATA + 0x20000,
    NO_ANSWER = 0xee
};
enum { T_IN = 0, T_OUT = 1, T_FLUSH = 4, T_GET_ID = 8, T_DISCARD = 11 };
enum { OK = 0, IOERR = 1, UNSUPP = 2 };

static struct drv drv;
static struct blk blk, ro;
static int file;
static uint8_t text[4 * BLK_SECTOR];

static int set_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (uint8_t)(i * 7 + i / 256);
    drv_init(&drv);
    file = memfd_create("disk", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, SECTORS * BLK_SECTOR + 100) < 0)
        return -1;
    return blk_init(&blk, file, false, "scratch", &drv.mem, drv_irq(&drv)) |
           blk_init(&ro, file, true, "root", &drv.mem, drv_irq(&drv));
}

static int tear_down(void **state)
{
    (void)state;
    drv_fini(&drv);
    return close(file);
}

static void put_header(uint32_t type, uint64_t sector)
{
    struct {
        uint32_t type, reserved;
        uint64_t sector;
    } h = {type, 0, sector};
    uint8_t status = NO_ANSWER;
    drv_put(&drv, HEADER, &h, sizeof h);
    drv_put(&drv, STATUS, &status, 1);
}

/* One request of three pieces; the status, and the used length in *ret_len. */
static uint8_t request(struct blk *b, uint32_t type, uint64_t sector, uint32_t n, uint32_t *ret_len)
{
    uint16_t direction = type == T_OUT || type == T_DISCARD ? 0 : DRV_WRITE;
    struct drv_desc pieces[] = {
        {HEADER, 16, 0, 0}, {DATA, n, direction, 0}, {STATUS, 1, DRV_WRITE, 0}};
    uint8_t status;
    drv_start(&drv, &b->v, SIZE);
    put_header(type, sector);
    if (n == 0)
        pieces[1] = pieces[2];
    drv_chain(&drv, 0, SIZE, 0, pieces, n == 0 ? 2 : 3);
    drv_notify(&b->v, 0);
    drv_get(&drv, STATUS, &status, 1);
    if (ret_len)
        *ret_len = drv_used(&drv, 0, SIZE, 0).len;
    return status;
}

static void test_what_is_written_is_read(void **state)
{
    (void)state;
    uint8_t seen[sizeof text];
    uint32_t len;
    drv_put(&drv, DATA, text, sizeof text);
    assert_int_equal(request(&blk, T_OUT, SECTORS - 4, sizeof text, &len), 0);
    assert_int_equal(len, 1);
    assert_int_equal(pread(file, seen, sizeof seen, (SECTORS - 4) * BLK_SECTOR), sizeof seen);
    assert_memory_equal(seen, text, sizeof text);
    memset(seen, 0, sizeof seen);
    drv_put(&drv, DATA, seen, sizeof seen);
    assert_int_equal(request(&ro, T_IN, SECTORS - 4, sizeof text, &len), 0);
    assert_int_equal(len, sizeof text + 1);
    drv_get(&drv, DATA, seen, sizeof seen);
    assert_memory_equal(seen, text, sizeof text);
}

/* §2.7.4.1: the pieces are the driver's choice, byte by byte if it likes. */
static void test_a_request_may_be_cut_anywhere(void **state)
{
    (void)state;
    struct drv_desc pieces[] = {{HEADER, 1, 0, 0},
                                {HEADER + 1, 14, 0, 0},
                                {HEADER + 15, 1, 0, 0},
                                {DATA, 511, DRV_WRITE, 0},
                                {DATA + 511, 1, DRV_WRITE, 0},
                                {DATA + 512, 511, DRV_WRITE, 0},
                                {DATA + 1023, 2, DRV_WRITE, 0}};
    uint8_t seen[1025];
    assert_int_equal(pwrite(file, text, 1024, 512), 1024);
    drv_start(&drv, &blk.v, SIZE);
    put_header(T_IN, 1);
    drv_chain(&drv, 0, SIZE, 0, pieces, CL_COUNT(pieces));
    drv_notify(&blk.v, 0);
    drv_get(&drv, DATA, seen, sizeof seen);
    assert_memory_equal(seen, text, 1024);
    assert_int_equal(seen[1024], 0);
    assert_int_equal(drv_used(&drv, 0, SIZE, 0).len, 1025);
}

static void test_requests_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        bool read_only;
        uint32_t type;
        uint64_t sector;
        uint32_t n;
        uint8_t want;
    } rows[] = {
        {"write to a read-only disk", true, T_OUT, 0, 512, 1},
        {"one past the end", false, T_IN, SECTORS, 512, 1},
        {"half past the end", false, T_OUT, SECTORS - 1, 1024, 1},
        {"a wrap in bytes", false, T_OUT, UINT64_MAX / 512 + 1, 512, 1},
        {"a wrap in sectors", false, T_IN, UINT64_MAX, 1024, 1},
        {"half a sector", false, T_IN, 0, 256, 1},
        {"a short buffer for the id", false, T_GET_ID, 0, 19, 1},
        {"discard without a segment", false, T_DISCARD, 0, 0, 1},
        {"discard of half a segment", false, T_DISCARD, 0, 8, 1},
        {"discard of two segments", false, T_DISCARD, 0, 32, 1},
        {"a type of nobody", false, 0xffffffff, 0, 512, 2},
        {"flush, which is not offered", false, T_FLUSH, 0, 0, 2},
        {"nothing, at the end", false, T_IN, SECTORS, 0, 0},
    };
    uint8_t before[SECTORS * BLK_SECTOR], after[sizeof before];
    assert_int_equal(pread(file, before, sizeof before, 0), sizeof before);
    drv_put(&drv, DATA, text, sizeof text);
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct blk *b = rows[i].read_only ? &ro : &blk;
        uint8_t got = request(b, rows[i].type, rows[i].sector, rows[i].n, NULL);
        if (got != rows[i].want)
            fail_msg("%s: status %u", rows[i].what, got);
    }
    assert_int_equal(pread(file, after, sizeof after, 0), sizeof after);
    assert_memory_equal(before, after, sizeof before);
}

static uint8_t discard(struct blk *b, uint64_t sector, uint32_t sectors, uint32_t flags)
{
    const struct {
        uint64_t sector;
        uint32_t sectors, flags;
    } segment = {sector, sectors, flags};
    drv_put(&drv, DATA, &segment, sizeof segment);
    return request(b, T_DISCARD, 0, sizeof segment, NULL);
}

static uint64_t blocks_of(int fd)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    return (uint64_t)st.st_blocks;
}

static void test_what_is_discarded_is_the_hosts_again(void **state)
{
    (void)state;
    static uint8_t full[SECTORS * BLK_SECTOR], seen[sizeof full];
    enum { FROM = 16, N = 32 }; /* pages of 4 KiB */
    memset(full, 0x5a, sizeof full);
    assert_int_equal(pwrite(file, full, sizeof full, 0), sizeof full);
    uint64_t before = blocks_of(file);
    assert_int_equal(discard(&blk, FROM, N, 0), OK);
    assert_int_equal(blocks_of(file), before - N);
    memset(full + FROM * BLK_SECTOR, 0, N * BLK_SECTOR);
    assert_int_equal(pread(file, seen, sizeof seen, 0), sizeof seen);
    assert_memory_equal(seen, full, sizeof full);
}

static void test_discards_that_are_refused(void **state)
{
    (void)state;
    static uint8_t full[SECTORS * BLK_SECTOR];
    memset(full, 0x5a, sizeof full);
    assert_int_equal(pwrite(file, full, sizeof full, 0), sizeof full);
    uint64_t before = blocks_of(file);
    assert_int_equal(discard(&ro, 0, 8, 0), IOERR);
    assert_int_equal(discard(&blk, SECTORS, 8, 0), IOERR);
    assert_int_equal(discard(&blk, SECTORS - 7, 8, 0), IOERR);
    assert_int_equal(discard(&blk, UINT64_MAX, 8, 0), IOERR);
    assert_int_equal(discard(&blk, 0, UINT32_MAX, 0), IOERR);
    assert_int_equal(discard(&blk, 0, 8, 1), UNSUPP);
    assert_int_equal(discard(&blk, SECTORS, 0, 0), OK);
    assert_int_equal(blocks_of(file), before);
    struct blk big;
    int fd = memfd_create("big", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 1 << 30), 0);
    assert_int_equal(blk_init(&big, fd, false, "big", &drv.mem, drv_irq(&drv)), 0);
    assert_int_equal(discard(&big, 0, BLK_DISCARD_MAX, 0), OK);
    assert_int_equal(discard(&big, 0, BLK_DISCARD_MAX + 1, 0), IOERR);
    assert_int_equal(close(fd), 0);
}

static void test_more_than_a_request_may_have(void **state)
{
    (void)state;
    struct blk big;
    int fd = memfd_create("big", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 1 << 30), 0);
    assert_int_equal(blk_init(&big, fd, false, "big", &drv.mem, drv_irq(&drv)), 0);
    struct drv_desc pieces[12] = {{HEADER, 16, 0, 0}};
    for (size_t i = 1; i < 11; i++)
        pieces[i] = (struct drv_desc){0x80000, 0x80000, DRV_WRITE, 0};
    pieces[11] = (struct drv_desc){STATUS, 1, DRV_WRITE, 0};
    drv_start(&drv, &big.v, SIZE);
    put_header(T_IN, 0);
    drv_chain(&drv, 0, SIZE, 0, pieces, 12); /* 5 MiB */
    drv_notify(&big.v, 0);
    uint8_t status;
    drv_get(&drv, STATUS, &status, 1);
    assert_int_equal(status, 1);
    assert_int_equal(close(fd), 0);
}

static void test_requests_without_an_end_break_the_device(void **state)
{
    (void)state;
    static const struct drv_desc no_status[] = {{HEADER, 16, 0, 0}};
    static const struct drv_desc short_header[] = {{HEADER, 15, 0, 0}, {STATUS, 1, DRV_WRITE, 0}};
    static const struct drv_desc no_header[] = {{STATUS, 1, DRV_WRITE, 0}};
    static const struct {
        const struct drv_desc *pieces;
        uint16_t n;
    } rows[] = {{no_status, 1}, {short_header, 2}, {no_header, 1}};
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        drv_start(&drv, &blk.v, SIZE);
        put_header(T_IN, 0);
        drv_chain(&drv, 0, SIZE, 0, rows[i].pieces, rows[i].n);
        drv_notify(&blk.v, 0);
        assert_int_equal(blk.v.fault, VIRTQ_FAULT_SHAPE);
        assert_int_equal(drv_used_idx(&drv, 0), 0);
    }
}

static void test_id_and_config(void **state)
{
    (void)state;
    char id[21] = "";
    assert_int_equal(request(&ro, T_GET_ID, 0, 20, NULL), 0);
    drv_get(&drv, DATA, id, 20);
    assert_string_equal(id, "root");
    assert_int_equal(virtio_read(&ro.v, 0x100, 4), SECTORS);
    assert_int_equal(virtio_read(&ro.v, 0x104, 4), 0);
    assert_int_equal(virtio_read(&ro.v, 0x10c, 4), 254);
    assert_int_equal(virtio_read(&ro.v, 0x110, 4), 0);
    assert_int_equal(virtio_read(&blk.v, 0x124, 4), BLK_DISCARD_MAX);
    assert_int_equal(virtio_read(&blk.v, 0x128, 4), 1);
    assert_int_equal(virtio_read(&blk.v, 0x12c, 4), 8);
    drv_w(&ro.v, 0x14, 0);
    assert_int_equal(drv_r(&ro.v, 0x10) & (1 << 5), 1 << 5);
}

static void test_a_file_that_shrinks_gives_errors(void **state)
{
    (void)state;
    assert_int_equal(ftruncate(file, 512), 0);
    assert_int_equal(request(&blk, T_IN, 0, 512, NULL), 0);
    assert_int_equal(request(&blk, T_IN, 0, 1024, NULL), 1);
    assert_int_equal(request(&blk, T_IN, 9, 512, NULL), 1);
}

static void test_files_that_are_no_disk(void **state)
{
    (void)state;
    struct blk b;
    assert_int_equal(blk_init(&b, -1, false, "none", &drv.mem, drv_irq(&drv)), -EBADF);
    assert_int_equal(ftruncate(file, 511), 0);
    assert_int_equal(blk_init(&b, file, false, "tiny", &drv.mem, drv_irq(&drv)), -EINVAL);
}

static void test_a_disk_grows_while_it_runs(void **state)
{
    (void)state;
    drv_start(&drv, &blk.v, SIZE);
    uint32_t generation = drv_r(&blk.v, 0xfc);
    assert_int_equal(ftruncate(file, 2 * SECTORS * BLK_SECTOR), 0);
    assert_int_equal(virtio_read(&blk.v, 0x100, 4), SECTORS);
    assert_int_equal(blk_grow(&blk), 0);
    assert_int_equal(virtio_read(&blk.v, 0x100, 4), 2 * SECTORS);
    assert_int_not_equal(drv_r(&blk.v, 0xfc), generation);
    assert_int_equal(drv_r(&blk.v, 0x60), 2);
    assert_int_equal(drv.irqs, 1);
    assert_int_equal(request(&blk, T_OUT, 2 * SECTORS - 1, 512, NULL), 0);
    assert_int_equal(ftruncate(file, SECTORS * BLK_SECTOR), 0);
    assert_int_equal(blk_grow(&blk), -EINVAL);
    assert_int_equal(virtio_read(&blk.v, 0x100, 4), 2 * SECTORS);
    blk.fd = -1;
    assert_int_equal(blk_grow(&blk), -EBADF);
}

static int load_into(struct blk *b, const struct blk *from)
{
    struct state_writer w;
    struct state_reader r;
    struct state_head head;
    uint8_t data[512];
    size_t n = 0;
    drv_state_begin(&w, data, sizeof data);
    blk_save(from, &w);
    assert_int_equal(state_finish(&w, &n, NULL), 0);
    assert_int_equal(state_reader_init(&r, data, n, &head, NULL), 0);
    return blk_load(b, &r, NULL);
}

static void test_a_saved_disk_keeps_its_size_and_mode(void **state)
{
    (void)state;
    static struct blk back;
    drv_start(&drv, &blk.v, SIZE);
    assert_int_equal(load_into(&ro, &blk), -1);
    assert_int_equal(ftruncate(file, 2 * SECTORS * BLK_SECTOR), 0);
    assert_int_equal(blk_init(&back, file, false, "scratch", &drv.mem, drv_irq(&drv)), 0);
    assert_int_equal(load_into(&back, &blk), 0);
    assert_int_equal(drv_r(&back.v, 0x70), 0xf);
    assert_int_equal(virtio_read(&back.v, 0x100, 4), SECTORS);
    assert_int_equal(blk_grow(&back), 0);
    assert_int_equal(virtio_read(&back.v, 0x100, 4), 2 * SECTORS);
    assert_int_equal(ftruncate(file, (SECTORS - 1) * BLK_SECTOR), 0);
    assert_int_equal(blk_init(&back, file, false, "scratch", &drv.mem, drv_irq(&drv)), 0);
    assert_int_equal(load_into(&back, &blk), -1);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_what_is_written_is_read),
        T(test_a_request_may_be_cut_anywhere),
        T(test_requests_that_are_refused),
        T(test_what_is_discarded_is_the_hosts_again),
        T(test_discards_that_are_refused),
        T(test_more_than_a_request_may_have),
        T(test_requests_without_an_end_break_the_device),
        T(test_id_and_config),
        T(test_a_file_that_shrinks_gives_errors),
        T(test_files_that_are_no_disk),
        T(test_a_disk_grows_while_it_runs),
        T(test_a_saved_disk_keeps_its_size_and_mode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
