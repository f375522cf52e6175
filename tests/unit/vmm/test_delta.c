/* tests/unit/vmm/test_delta.c - vmm/delta.h. */
#include "vmm/delta.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/own.h"

enum { PAGE = 4096 };

static const struct page_runs none;

static int make_memfd(uint64_t bytes)
{
    int fd = memfd_create("unit", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    return fd;
}

/* delta_store() beside a view of the file. */
static int store(const struct guest_mem *gm, int fd, const struct page_runs *holes, int delta,
                 struct cl_err *err)
{
    size_t n = gm->low + gm->high;
    void *before = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_true(before != MAP_FAILED);
    int rc = delta_store(gm, before, holes, delta, err);
    (void)munmap(before, n);
    return rc;
}

static int64_t size_of(int fd)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    return st.st_size;
}

/* Of the block at `at`: its runs are these. */
static void expect_block(int fd, uint64_t at, const struct page_run *runs, uint32_t n)
{
    static struct delta_block block;
    assert_int_equal(pread(fd, &block, sizeof block, (off_t)at), sizeof block);
    assert_int_equal(block.n, n);
    assert_memory_equal(block.runs, runs, n * sizeof *runs);
}

/* Restored over the file, the delta gives what gm has. */
static void expect_same(const struct guest_mem *gm, int fd, const struct page_runs *holes,
                        int delta)
{
    struct guest_mem again;
    struct cl_err err = {0};
    uint64_t bytes = gm->low + gm->high;
    assert_int_equal(gm_map(fd, bytes, true, &again, NULL), 0);
    assert_int_equal(gm_fill_holes(&again, holes, NULL), 0);
    if (delta_load(&again, delta, &err) < 0)
        fail_msg("%s", err.text);
    assert_memory_equal(again.base, gm->base, bytes);
    gm_unmap(&again);
}

/* A page that is zero now where the file has something, too, and none that is as it was. */
static void test_a_clone_is_stored_as_what_it_changed(void **state)
{
    (void)state;
    enum { BYTES = 40 * PAGE, ZEROED = 3, SAME = 5, FIRST = 15, RUN = 3, LAST = 39 };
    static const struct page_run want[] = {{ZEROED, 1}, {FIRST, RUN}, {LAST, 1}};
    struct guest_mem gm;
    struct cl_err err = {0};
    CL_AUTO(cl_closep) int fd = make_memfd(BYTES), delta = make_memfd(100);
    for (uint64_t page = 0; page < 20; page++)
        assert_int_equal(pwrite(fd, "x", 1, (off_t)page * PAGE), 1);
    assert_int_equal(gm_map(fd, BYTES, true, &gm, NULL), 0);
    assert_int_equal(store(&gm, fd, &none, delta, &err), 0);
    assert_int_equal(size_of(delta), 0); /* nothing yet */
    expect_same(&gm, fd, &none, delta);
    gm.base[ZEROED * PAGE] = 0;
    gm.base[SAME * PAGE] = 'x';
    memset(gm.base + FIRST * PAGE, 7, RUN * PAGE);
    gm.base[LAST * PAGE + PAGE - 1] = 9;
    assert_int_equal(store(&gm, fd, &none, delta, &err), 0);
    assert_int_equal(size_of(delta), sizeof(struct delta_block) + 5 * PAGE);
    expect_block(delta, 0, want, CL_COUNT(want));
    expect_same(&gm, fd, &none, delta);
    gm_unmap(&gm);
}

static void test_memory_of_its_own_is_stored_where_it_was_used(void **state)
{
    (void)state;
    enum {
        BYTES = 8 << 20,
        HOLE = 256,
        PAGES = 1024,
        USED = 700,
        ZEROED = 900,
        AFTER = HOLE + PAGES
    };
    static const struct page_runs holes = {2, {{HOLE, PAGES}, {AFTER + 8, 16}}};
    static const struct page_run want[] = {
        {USED, 1}, {AFTER - 1, 2}, {AFTER + 8, 1}, {BYTES / PAGE - 1, 1}};
    struct guest_mem gm;
    struct cl_err err = {0};
    CL_AUTO(cl_closep) int fd = make_memfd(BYTES), delta = make_memfd(0);
    assert_int_equal(gm_map(fd, BYTES, true, &gm, NULL), 0);
    assert_int_equal(gm_fill_holes(&gm, &holes, &err), 0);
    gm.base[USED * PAGE] = 1;
    gm.base[ZEROED * PAGE] = 1;
    gm.base[ZEROED * PAGE] = 0;
    gm.base[(AFTER - 1) * PAGE] = 2; /* over the edge of a hole */
    gm.base[AFTER * PAGE] = 2;
    gm.base[(AFTER + 8) * PAGE] = 3;
    gm.base[BYTES - 1] = 4;
    assert_int_equal(store(&gm, fd, &holes, delta, &err), 0);
    expect_block(delta, 0, want, CL_COUNT(want));
    expect_same(&gm, fd, &holes, delta);
    gm_unmap(&gm);
}

static void test_many_runs_are_many_blocks(void **state)
{
    (void)state;
    enum { RUNS = 2 * DELTA_RUNS + 100, BYTES = 2 * RUNS * PAGE };
    static struct page_run second[DELTA_RUNS];
    struct guest_mem gm;
    struct cl_err err = {0};
    CL_AUTO(cl_closep) int fd = make_memfd(BYTES), delta = make_memfd(0);
    assert_int_equal(gm_map(fd, BYTES, true, &gm, NULL), 0);
    for (uint32_t i = 0; i < RUNS; i++)
        gm.base[(uint64_t)2 * i * PAGE + i % PAGE] = 1;
    for (uint32_t i = 0; i < DELTA_RUNS; i++)
        second[i] = (struct page_run){2 * (DELTA_RUNS + i), 1};
    assert_int_equal(store(&gm, fd, &none, delta, &err), 0);
    assert_int_equal(size_of(delta), 3 * sizeof(struct delta_block) + (uint64_t)RUNS * PAGE);
    expect_block(delta, sizeof(struct delta_block) + DELTA_RUNS * PAGE, second, DELTA_RUNS);
    expect_same(&gm, fd, &none, delta);
    gm_unmap(&gm);
}

static void test_memory_above_the_hole_of_devices_is_stored_too(void **state)
{
    (void)state;
    enum { BYTES = 16 << 20, LOW = 4 << 20 };
    static const struct page_run want[] = {{LOW / PAGE - 1, 2}, {BYTES / PAGE - 1, 1}};
    struct guest_mem gm;
    struct cl_err err = {0};
    CL_AUTO(cl_closep) int fd = make_memfd(BYTES), delta = make_memfd(0);
    assert_int_equal(gm_map(fd, BYTES, true, &gm, NULL), 0);
    gm_set_hole(&gm, LOW, 32 << 20);
    assert_int_equal(gm_write(&gm, (struct gpa){LOW - 1}, "a", 1), 0);
    assert_int_equal(gm_write(&gm, (struct gpa){32 << 20}, "b", 1), 0);
    assert_int_equal(gm_write(&gm, (struct gpa){gm_end(&gm) - 1}, "c", 1), 0);
    assert_int_equal(store(&gm, fd, &none, delta, &err), 0);
    expect_block(delta, 0, want, CL_COUNT(want));
    expect_same(&gm, fd, &none, delta);
    gm_unmap(&gm);
}

static void test_what_is_no_block_is_refused(void **state)
{
    (void)state;
    enum { FIRST = 10, END = 100 };
    static const struct {
        struct delta_block block;
        bool good;
    } cases[] = {
        {{.n = 1, .runs = {{FIRST, 1}}}, true},
        {{.n = 1, .runs = {{FIRST, END - FIRST}}}, true},
        {{.n = 2, .runs = {{20, 10}, {30, 1}}}, true},
        {{.n = 0}, false},
        {{.n = DELTA_RUNS + 1, .runs = {{20, 1}}}, false},
        {{.n = UINT32_MAX, .runs = {{20, 1}}}, false},
        {{.n = 1, .zero = 1, .runs = {{20, 1}}}, false},
        {{.n = 1, .runs = {{FIRST - 1, 1}}}, false},
        {{.n = 1, .runs = {{20, 0}}}, false},
        {{.n = 1, .runs = {{END, 1}}}, false},
        {{.n = 1, .runs = {{FIRST, END - FIRST + 1}}}, false},
        {{.n = 1, .runs = {{99, UINT32_MAX}}}, false},
        {{.n = 1, .runs = {{UINT32_MAX, 1}}}, false},
        {{.n = 2, .runs = {{20, 10}, {29, 1}}}, false},
        {{.n = 2, .runs = {{20, 10}, {12, 1}}}, false},
        {{.n = 2, .runs = {{20, 10}}}, false},
    };
    for (size_t i = 0; i < CL_COUNT(cases); i++) {
        struct cl_err err = {0};
        uint32_t next = 0;
        int rc = delta_check(&cases[i].block, FIRST, END, &next, &err);
        if (rc != (cases[i].good ? 0 : -1))
            fail_msg("case %zu: %d %s", i, rc, err.text);
        assert_int_equal(err.code, rc < 0 ? CL_E_INVALID : CL_OK);
        if (rc == 0) {
            struct page_run last = cases[i].block.runs[cases[i].block.n - 1];
            assert_int_equal(next, last.first + last.pages);
        }
    }
}

/* Cut at any place, or longer than it says. */
static void test_a_file_that_is_no_delta_is_refused(void **state)
{
    (void)state;
    enum { BYTES = 64 * PAGE };
    struct guest_mem gm;
    struct cl_err err = {0};
    CL_AUTO(cl_closep) int fd = make_memfd(BYTES), delta = make_memfd(0);
    assert_int_equal(gm_map(fd, BYTES, true, &gm, NULL), 0);
    gm.base[0] = 1;
    gm.base[BYTES - 1] = 1;
    assert_int_equal(store(&gm, fd, &none, delta, &err), 0);
    int64_t size = size_of(delta);
    assert_int_equal(ftruncate(delta, size + 1), 0);
    assert_int_equal(delta_load(&gm, delta, &err), -1);
    for (int64_t cut = size - 1; cut > 0; cut -= 1000) {
        assert_int_equal(ftruncate(delta, cut), 0);
        assert_int_equal(delta_load(&gm, delta, &err), -1);
        assert_int_equal(err.code, CL_E_INVALID);
    }
    assert_int_equal(fcntl(delta, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_equal(ftruncate(delta, 1 << 20), 0);
    assert_int_equal(store(&gm, fd, &none, delta, &err), -1);
    assert_int_equal(err.code, CL_E_SYS);
    assert_int_equal(delta_load(&gm, -1, &err), -1);
    gm_unmap(&gm);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_clone_is_stored_as_what_it_changed),
        cmocka_unit_test(test_memory_of_its_own_is_stored_where_it_was_used),
        cmocka_unit_test(test_many_runs_are_many_blocks),
        cmocka_unit_test(test_memory_above_the_hole_of_devices_is_stored_too),
        cmocka_unit_test(test_what_is_no_block_is_refused),
        cmocka_unit_test(test_a_file_that_is_no_delta_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
