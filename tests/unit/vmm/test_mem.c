/* tests/unit/vmm/test_mem.c - the one door to guest memory: its edges, both regions, the copy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/own.h"
#include "tests/unit/vmm/pages.h"
#include "vmm/mem.h"

enum { RAM = 1 << 20 };

static int make_memfd(uint64_t bytes)
{
    int fd = memfd_create("unit", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    return fd;
}

static struct guest_mem make_ram(uint64_t bytes)
{
    struct guest_mem gm;
    CL_AUTO(cl_closep) int fd = make_memfd(bytes);
    assert_int_equal(gm_map(fd, bytes, false, &gm, NULL), 0);
    return gm;
}

static void test_ranges_at_the_edges(void **state)
{
    (void)state;
    static const struct {
        uint64_t at;
        size_t n;
        int want;
    } rows[] = {
        {0, RAM, 0},
        {RAM - 1, 1, 0},
        {RAM, 0, 0},
        {UINT64_MAX, 0, 0},
        {RAM, 1, -EFAULT},
        {RAM - 1, 2, -EFAULT},
        {0, RAM + 1, -EFAULT},
        {UINT64_MAX, 2, -EFAULT},
        {UINT64_MAX - RAM + 2, RAM, -EFAULT},
        {0, SIZE_MAX, -EFAULT},
        {0xd0000000, 4, -EFAULT},
        {GM_HIGH_START, 1, -EFAULT},
    };
    struct guest_mem gm = make_ram(RAM);
    static uint8_t bytes[RAM + 1];
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct gpa at = {rows[i].at};
        assert_int_equal(gm_read(&gm, at, bytes, rows[i].n), rows[i].want);
        assert_int_equal(gm_write(&gm, at, bytes, rows[i].n), rows[i].want);
    }
    gm_unmap(&gm);
}

static void test_the_second_region_starts_at_4_gib(void **state)
{
    (void)state;
    struct guest_mem gm = make_ram(GM_LOW_MAX + 4096);
    assert_int_equal(gm.high, 4096);
    uint32_t v = 7;
    assert_int_equal(gm_write(&gm, (struct gpa){GM_HIGH_START + 4092}, &v, 4), 0);
    assert_int_equal(gm_write(&gm, (struct gpa){GM_HIGH_START + 4093}, &v, 4), -EFAULT);
    assert_int_equal(gm_write(&gm, (struct gpa){GM_LOW_MAX - 2}, &v, 4), -EFAULT);
    assert_int_equal(gm_write(&gm, (struct gpa){GM_LOW_MAX}, &v, 1), -EFAULT);
    assert_int_equal(gm_write(&gm, (struct gpa){GM_HIGH_START - 1}, &v, 4), -EFAULT);
    assert_memory_equal(gm.base + GM_LOW_MAX + 4092, &v, 4);
    gm_unmap(&gm);
}

static void test_the_hole_may_be_elsewhere(void **state)
{
    (void)state;
    enum { HOLE = 2 << 20, END = 6 << 20, BEHIND = 8192 };
    struct guest_mem gm = make_ram(HOLE + BEHIND);
    const uint32_t v = 7;
    assert_int_equal(gm_end(&gm), HOLE + BEHIND);
    gm_set_hole(&gm, HOLE, END);
    assert_int_equal(gm.low, HOLE);
    assert_int_equal(gm.high, BEHIND);
    assert_int_equal(gm_end(&gm), END + BEHIND);
    assert_int_equal(gm_write(&gm, (struct gpa){END + BEHIND - 4}, &v, 4), 0);
    assert_memory_equal(gm.base + HOLE + BEHIND - 4, &v, 4);
    assert_int_equal(gm_write(&gm, (struct gpa){END + BEHIND - 3}, &v, 4), -EFAULT);
    assert_int_equal(gm_write(&gm, (struct gpa){HOLE - 2}, &v, 4), -EFAULT);
    assert_int_equal(gm_write(&gm, (struct gpa){END - 1}, &v, 1), -EFAULT);
    gm_set_hole(&gm, 2 * HOLE, END);
    assert_int_equal(gm.high, 0);
    assert_int_equal(gm_end(&gm), HOLE + BEHIND);
    gm_unmap(&gm);
}

static void test_bulk_data_and_indexes(void **state)
{
    (void)state;
    struct guest_mem gm = make_ram(RAM);
    struct iovec iov;
    uint16_t v = 0;
    assert_int_equal(gm_iov(&gm, (struct gpa){16}, 0, &iov), -EFAULT);
    assert_int_equal(gm_iov(&gm, (struct gpa){RAM - 16}, 17, &iov), -EFAULT);
    assert_int_equal(gm_iov(&gm, (struct gpa){RAM - 16}, 16, &iov), 0);
    assert_ptr_equal(iov.iov_base, gm.base + RAM - 16);
    assert_int_equal(gm_store16(&gm, (struct gpa){3}, 9), -EFAULT);
    assert_int_equal(gm_load16(&gm, (struct gpa){RAM}, &v), -EFAULT);
    assert_int_equal(gm_store16(&gm, (struct gpa){RAM - 2}, 0x1234), 0);
    assert_int_equal(gm_load16(&gm, (struct gpa){RAM - 2}, &v), 0);
    assert_int_equal(v, 0x1234);
    gm_unmap(&gm);
}

static void test_bits_are_added_to_a_word(void **state)
{
    struct guest_mem gm = make_ram(RAM);
    uint64_t word = 0x10;
    (void)state;
    assert_int_equal(gm_or64(&gm, (struct gpa){4}, 1), -EFAULT);
    assert_int_equal(gm_or64(&gm, (struct gpa){RAM}, 1), -EFAULT);
    assert_int_equal(gm_write(&gm, (struct gpa){RAM - 8}, &word, sizeof word), 0);
    assert_int_equal(gm_or64(&gm, (struct gpa){RAM - 8}, 0x11), 0);
    assert_int_equal(gm_read(&gm, (struct gpa){RAM - 8}, &word, sizeof word), 0);
    assert_int_equal(word, 0x11);
    gm_unmap(&gm);
}

static void test_a_clone_never_changes_a_sealed_template(void **state)
{
    (void)state;
    struct guest_mem clone, shared;
    CL_AUTO(cl_closep) int fd = make_memfd(RAM);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
    struct cl_err err = {0};
    assert_int_equal(gm_map(fd, RAM, false, &shared, &err), -1);
    assert_int_equal(err.code, CL_E_SYS);
    assert_int_equal(gm_map(fd, RAM, true, &clone, NULL), 0);
    assert_int_equal((uintptr_t)clone.base % (2 << 20), 0);
    uint8_t v = 9;
    assert_int_equal(gm_write(&clone, (struct gpa){5}, &v, 1), 0);
    assert_int_equal(pread(fd, &v, 1, 5), 1);
    assert_int_equal(v, 0);
    gm_unmap(&clone);
    gm_unmap(&clone);
}

static void test_sizes_that_are_refused(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 4095, 4097, 2 * RAM, GM_BYTES_MAX + 4096, UINT64_MAX};
    struct guest_mem gm;
    CL_AUTO(cl_closep) int fd = make_memfd(RAM);
    for (size_t i = 0; i < CL_COUNT(sizes); i++) {
        struct cl_err err = {0};
        assert_int_equal(gm_map(fd, sizes[i], true, &gm, &err), -1);
        assert_int_equal(err.code, CL_E_INVALID);
    }
    assert_int_equal(gm_map(-1, RAM, true, &gm, NULL), -1);
}

/* Of three and a half units the two whole ones go; in a clone the template's bytes stay away. */
static void check_forget(bool private_copy)
{
    enum { UNIT = 4096, START = UNIT / 2 };
    uint8_t byte = 9, mine = 7;
    struct guest_mem gm;
    struct iovec range;
    CL_AUTO(cl_closep) int fd = make_memfd(4 * UNIT);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(pwrite(fd, &byte, 1, i * UNIT / 2), 1);
    assert_int_equal(gm_map(fd, 4 * UNIT, private_copy, &gm, NULL), 0);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(gm_write(&gm, (struct gpa){i * UNIT / 2}, &mine, 1), 0);
    assert_int_equal(gm_iov(&gm, (struct gpa){START}, 3 * UNIT, &range), 0);
    assert_int_equal(gm_forget(&gm, range), 0);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(gm.base[i * UNIT / 2], i < 2 || i >= 6 ? 7 : private_copy ? 9 : 0);
    assert_int_equal(pread(fd, &byte, 1, UNIT), 1);
    assert_int_equal(byte, private_copy ? 9 : 0);
    range = (struct iovec){gm.base + 1, UNIT};
    assert_int_equal(gm_forget(&gm, range), 0);
    assert_int_equal(gm.base[0], 7);
    gm_unmap(&gm);
}

static void test_whole_pages_go_back_to_the_host(void **state)
{
    (void)state;
    check_forget(false);
    check_forget(true);
}

static void expect_in_file(int fd, uint64_t at, uint8_t want)
{
    uint8_t got = 99;
    assert_int_equal(pread(fd, &got, 1, (off_t)at), 1);
    assert_int_equal(got, want);
}

static void test_memory_in_no_file_is_stored_without_its_zeros(void **state)
{
    (void)state;
    enum { UNIT = 4096, BYTES = 8 * UNIT };
    static const uint64_t at[] = {0, UNIT - 1, 3 * UNIT, 4 * UNIT + 5, BYTES - 1};
    struct guest_mem gm;
    struct iovec range;
    struct stat st;
    uint8_t byte = 9;
    CL_AUTO(cl_closep) int fd = make_memfd(BYTES);
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)6 * UNIT), 1); /* what was there before */
    assert_int_equal(gm_alloc(BYTES, &gm, NULL), 0);
    for (size_t i = 0; i < CL_COUNT(at); i++)
        assert_int_equal(gm_write(&gm, (struct gpa){at[i]}, &byte, 1), 0);
    assert_int_equal(gm_iov(&gm, (struct gpa){4 * UNIT}, UNIT, &range), 0);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(gm_store(&gm, fd, NULL), 0);
        for (size_t i = 0; i < CL_COUNT(at); i++)
            expect_in_file(fd, at[i], again && i == 3 ? 0 : 9);
        expect_in_file(fd, 6 * UNIT, 0);
        assert_int_equal(fstat(fd, &st), 0);
        assert_int_equal(st.st_size, BYTES);
        assert_int_equal(st.st_blocks * 512, (again ? 3 : 4) * UNIT);
        assert_int_equal(gm_forget(&gm, range), 0);
    }
    gm_unmap(&gm);
}

static void test_what_changed_is_stored_again_and_told(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20, PAGE = 4096, GIVEN_BACK = 40, SAME = 41, DIRTY = 100 };
    static const uint32_t changed[] = {0, 17, GIVEN_BACK, DIRTY, 255};
    static const uint64_t clean[BYTES / PAGE / 64],
        dirty[BYTES / PAGE / 64] = {1, UINT64_C(1) << (DIRTY - 64), 0, UINT64_C(1) << 63};
    static uint8_t in_file[BYTES];
    static struct page_runs written;
    struct guest_mem gm;
    struct iovec range;
    CL_AUTO(cl_closep) int fd = make_memfd(BYTES);
    assert_int_equal(gm_alloc(BYTES, &gm, NULL), 0);
    memset(gm.base, 5, BYTES / 2);
    assert_int_equal(gm_store(&gm, fd, NULL), 0);
    for (size_t i = 0; i < CL_COUNT(changed); i++)
        gm.base[changed[i] * PAGE + PAGE - 1] = changed[i] == DIRTY ? 5 : 7;
    assert_int_equal(gm_iov(&gm, (struct gpa){GIVEN_BACK * PAGE}, PAGE, &range), 0);
    assert_int_equal(gm_forget(&gm, range), 0);
    gm.base[SAME * PAGE] = 5;
    assert_int_equal(gm_store_again(&gm, fd, dirty, &written, NULL), 0);
    assert_int_equal(written.n, CL_COUNT(changed));
    for (size_t i = 0; i < CL_COUNT(changed); i++) {
        assert_int_equal(written.runs[i].first, changed[i]);
        assert_int_equal(written.runs[i].pages, 1);
    }
    assert_int_equal(pread(fd, in_file, BYTES, 0), BYTES);
    assert_memory_equal(in_file, gm.base, BYTES);
    assert_int_equal(gm_store_again(&gm, fd, clean, &written, NULL), 0);
    assert_int_equal(written.n, 0);
    gm_unmap(&gm);
}

static void test_pages_are_copied_ahead(void **state)
{
    (void)state;
    static const struct page_runs written = {2, {{3, 2}, {9, 1}}}, none;
    struct guest_mem gm;
    CL_AUTO(cl_closep) int fd = make_memfd(RAM);
    if (!host_copies_ahead())
        skip();
    assert_int_equal(gm_map(fd, RAM, true, &gm, NULL), 0);
    gm_copy_ahead(&gm, &none);
    gm_copy_ahead(&gm, &written);
    for (uint64_t page = 1; page < 12; page++)
        assert_int_equal(is_copied((uintptr_t)gm.base + page * 4096),
                         page == 3 || page == 4 || page == 9);
    gm_unmap(&gm);
}

static void test_memory_is_stored_or_the_reason_given(void **state)
{
    (void)state;
    struct guest_mem gm;
    struct cl_err err = {0};
    CL_AUTO(cl_closep) int fd = make_memfd(RAM);
    assert_int_equal(gm_alloc(0, &gm, &err), -1);
    assert_int_equal(gm_alloc(GM_BYTES_MAX + 4096, &gm, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
    assert_int_equal(gm_alloc(RAM, &gm, NULL), 0);
    assert_int_equal(gm_store(&gm, -1, &err), -1);
    assert_int_equal(err.code, CL_E_SYS);
    assert_int_equal(gm_write(&gm, (struct gpa){1}, "x", 1), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    assert_int_equal(gm_store(&gm, fd, &err), -1);
    static struct page_runs written;
    static const uint64_t clean[RAM / 4096 / 64];
    err = (struct cl_err){0};
    assert_int_equal(gm_store_again(&gm, fd, clean, &written, &err), -1); /* nobody may write */
    assert_int_equal(err.code, CL_E_SYS);
    CL_AUTO(cl_closep) int half = make_memfd(RAM / 2);
    assert_int_equal(gm_store_again(&gm, half, clean, &written, &err), -1);
    gm_unmap(&gm);
}

/* The file has the first and the last page of each piece, and nothing of the third. */
static void make_holes(int fd, unsigned pieces, unsigned bytes)
{
    for (unsigned i = 0; i < pieces; i++) {
        if (i == 2)
            continue;
        assert_int_equal(pwrite(fd, "x", 1, (off_t)i * bytes), 1);
        assert_int_equal(pwrite(fd, "x", 1, (off_t)(i + 1) * bytes - 1), 1);
    }
}

static int64_t blocks_of(int fd)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    return st.st_blocks;
}

static void test_a_clone_takes_nothing_of_the_file_where_it_has_holes(void **state)
{
    (void)state;
    enum { PIECE = 2 << 20, PIECES = 5, BYTES = PIECES * PIECE, PAGES = 512, AT = 3 * PIECE };
    static struct page_runs holes;
    static const struct page_run want[PIECES] = {{1, PAGES - 2},
                                                 {PAGES + 1, PAGES - 2},
                                                 {2 * PAGES, PAGES},
                                                 {3 * PAGES + 1, PAGES - 2},
                                                 {4 * PAGES + 1, PAGES - 2}};
    struct guest_mem gm;
    struct cl_err err = {0};
    uint8_t byte = 0;
    CL_AUTO(cl_closep) int fd = make_memfd(BYTES);
    make_holes(fd, PIECES, PIECE);
    assert_int_equal(gm_map(fd, BYTES, true, &gm, NULL), 0);
    assert_int_equal(gm_find_holes(&gm, fd, &holes, &err), 0);
    assert_int_equal(holes.n, PIECES);
    assert_memory_equal(holes.runs, want, sizeof want);
    int64_t before = blocks_of(fd);
    assert_int_equal(gm_fill_holes(&gm, &holes, &err), 0);
    assert_int_equal(gm_read(&gm, (struct gpa){AT + 8192}, &byte, 1), 0);
    assert_int_equal(byte, 0);
    byte = 9;
    assert_int_equal(gm_write(&gm, (struct gpa){AT + 8192}, &byte, 1), 0);
    assert_int_equal(gm_write(&gm, (struct gpa){2 * PIECE + 77}, &byte, 1), 0);
    assert_int_equal(blocks_of(fd), before);
    assert_int_equal(gm_read(&gm, (struct gpa){AT}, &byte, 1), 0);
    assert_int_equal(byte, 'x');
    gm_unmap(&gm);
}

/* As a clone has it that touches it once. */
static bool has_huge_page(int fd, uint64_t bytes, uint64_t at)
{
    struct guest_mem gm;
    uint8_t byte;
    assert_int_equal(gm_map(fd, bytes, true, &gm, NULL), 0);
    assert_int_equal(gm_read(&gm, (struct gpa){at + 4096}, &byte, 1), 0);
    bool is_huge = bytes_by_huge_pages(gm.base) == 2 << 20;
    gm_unmap(&gm);
    return is_huge;
}

/* Are both whole pieces of a view huge pages, and nothing else? */
static bool whole_pieces_become_huge(void)
{
    enum { PIECE = 2 << 20, BYTES = 4 * PIECE, FROM = PIECE / 2, TO = BYTES - 4096 };
    static uint8_t page[4096], got[4096];
    struct guest_mem gm;
    struct iovec view, none;
    CL_AUTO(cl_closep) int fd = make_memfd(BYTES);
    assert_int_equal(gm_alloc(BYTES, &gm, NULL), 0);
    memset(gm.base, 'x', BYTES);
    assert_int_equal(gm_view(&gm, fd, FROM, PIECE, &none, NULL), 0);
    assert_int_equal(none.iov_len, 0);
    gm_make_huge(none);
    assert_int_equal(gm_view(&gm, fd, FROM, TO - FROM, &view, NULL), 0);
    assert_int_equal(view.iov_len, 2 * PIECE);
    assert_int_equal(gm_store(&gm, fd, NULL), 0);
    gm_make_huge(view);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK), 0);
    memset(page, 'x', sizeof page);
    for (uint64_t at = 0; at < BYTES; at += sizeof page) {
        assert_int_equal(pread(fd, got, sizeof got, (off_t)at), sizeof got);
        assert_memory_equal(got, page, sizeof page);
    }
    assert_false(has_huge_page(fd, BYTES, 0));
    assert_false(has_huge_page(fd, BYTES, 3 * PIECE));
    bool both = has_huge_page(fd, BYTES, PIECE) && has_huge_page(fd, BYTES, 2 * PIECE);
    assert_int_equal(munmap(view.iov_base, view.iov_len), 0);
    gm_unmap(&gm);
    return both;
}

/* A host that compacts its memory may hold a page of it, for long: other pages, then. */
static void test_whole_pieces_of_a_view_become_huge_pages(void **state)
{
    (void)state;
    bool are_huge = false;
    for (int i = 0; i < 20 && !are_huge; i++)
        are_huge = whole_pieces_become_huge();
    bool can = host_makes_huge_pages();
    assert_int_equal(are_huge, can);
    if (!can)
        skip();
}

static void test_a_view_has_its_reasons(void **state)
{
    (void)state;
    enum { BYTES = 4 << 20 };
    struct guest_mem gm;
    struct iovec view;
    struct cl_err err = {0};
    assert_int_equal(gm_alloc(BYTES, &gm, NULL), 0);
    assert_int_equal(gm_view(&gm, -1, 0, BYTES, &view, &err), -1);
    assert_int_equal(err.code, CL_E_SYS);
    assert_int_equal(view.iov_len, 0);
    gm_unmap(&gm);
}

static void test_small_holes_stay_the_files(void **state)
{
    (void)state;
    enum { STEP = 512 << 10, BYTES = 8 * STEP };
    static struct page_runs holes;
    struct guest_mem gm;
    CL_AUTO(cl_closep) int fd = make_memfd(BYTES);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(pwrite(fd, "x", 1, (off_t)i * STEP), 1);
    assert_int_equal(gm_map(fd, BYTES, true, &gm, NULL), 0);
    assert_int_equal(gm_find_holes(&gm, fd, &holes, NULL), 0);
    assert_int_equal(holes.n, 0);
    assert_int_equal(gm_find_holes(&gm, -1, &holes, NULL), -1);
    gm_unmap(&gm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges_at_the_edges),
        cmocka_unit_test(test_the_second_region_starts_at_4_gib),
        cmocka_unit_test(test_the_hole_may_be_elsewhere),
        cmocka_unit_test(test_bulk_data_and_indexes),
        cmocka_unit_test(test_bits_are_added_to_a_word),
        cmocka_unit_test(test_a_clone_never_changes_a_sealed_template),
        cmocka_unit_test(test_sizes_that_are_refused),
        cmocka_unit_test(test_whole_pages_go_back_to_the_host),
        cmocka_unit_test(test_memory_in_no_file_is_stored_without_its_zeros),
        cmocka_unit_test(test_what_changed_is_stored_again_and_told),
        cmocka_unit_test(test_pages_are_copied_ahead),
        cmocka_unit_test(test_a_clone_takes_nothing_of_the_file_where_it_has_holes),
        cmocka_unit_test(test_small_holes_stay_the_files),
        cmocka_unit_test(test_whole_pieces_of_a_view_become_huge_pages),
        cmocka_unit_test(test_a_view_has_its_reasons),
        cmocka_unit_test(test_memory_is_stored_or_the_reason_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
