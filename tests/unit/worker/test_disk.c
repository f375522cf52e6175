/* tests/unit/worker/test_disk.c - worker/disk.h: a copy of a scratch disk is that disk, holes and
 * all. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"
#include "worker/disk.h"

enum { MIB = 1 << 20, SIZE = 64 * MIB };

static struct bench {
    struct cl_loop *loop;
    char dir[64];
    int source, got;
    int told;
    enum cl_code code;
    struct cl_timer tick;
    unsigned ticks;
} b;

static void on_copied(void *arg, int fd, const struct cl_err *err)
{
    assert_ptr_equal(arg, &b);
    b.told++;
    b.got = fd;
    b.code = err ? err->code : CL_OK;
    cl_loop_stop(b.loop);
}

static int set_up(void **state)
{
    (void)state;
    b = (struct bench){.got = -1};
    (void)snprintf(b.dir, sizeof b.dir, "/tmp/cloche-test-disk.XXXXXX");
    assert_non_null(mkdtemp(b.dir));
    assert_int_equal(cl_loop_new(&b.loop, NULL), 0);
    assert_int_equal(cl_file_unnamed(b.dir, &b.source, NULL), 0);
    assert_int_equal(ftruncate(b.source, SIZE), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)close(b.source);
    if (b.got >= 0)
        (void)close(b.got);
    cl_loop_free(b.loop);
    return rmdir(b.dir);
}

static void put(off_t at, size_t n, unsigned seed)
{
    uint8_t *bytes = malloc(n);
    assert_non_null(bytes);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(seed = seed * 1103515245 + 12345);
    assert_int_equal(pwrite(b.source, bytes, n, at), (ssize_t)n);
    free(bytes);
}

static void assert_same(int one, int two)
{
    static uint8_t a[MIB], c[MIB];
    struct stat st;
    assert_int_equal(fstat(two, &st), 0);
    assert_int_equal(st.st_size, SIZE);
    for (off_t at = 0; at < SIZE; at += MIB) {
        assert_int_equal(pread(one, a, MIB, at), MIB);
        assert_int_equal(pread(two, c, MIB, at), MIB);
        assert_memory_equal(a, c, MIB);
    }
}

static struct disk_copy *start(void)
{
    struct disk_copy *copy;
    const struct disk_copy_spec spec = {b.dir, b.source, on_copied, &b};
    assert_int_equal(disk_copy_start(b.loop, &spec, &copy, NULL), 0);
    assert_int_equal(b.told, 0);
    return copy;
}

static void test_a_copy_is_the_disk(void **state)
{
    (void)state;
    put(0, 4096, 1);
    put(3 * MIB + 512, 5 * MIB + 7, 2);
    put(40 * MIB, 4096, 3);
    put(SIZE - 4096, 4096, 4);
    struct disk_copy *copy = start();
    cl_loop_run(b.loop);
    disk_copy_free(copy);
    assert_int_equal(b.told, 1);
    assert_int_equal(b.code, CL_OK);
    assert_same(b.source, b.got);
    assert_true(disk_taken(b.got) <= disk_taken(b.source) + MIB);
    put(MIB, 4096, 5); /* what one writes the other does not see */
    uint8_t bytes[4096], zeros[4096] = {0};
    assert_int_equal(pread(b.got, bytes, sizeof bytes, MIB), sizeof bytes);
    assert_memory_equal(bytes, zeros, sizeof zeros);
}

static void test_an_empty_disk_is_copied(void **state)
{
    (void)state;
    struct disk_copy *copy = start();
    cl_loop_run(b.loop);
    disk_copy_free(copy);
    assert_int_equal(b.code, CL_OK);
    assert_same(b.source, b.got);
}

static void on_tick(void *arg)
{
    (void)arg;
    b.ticks++;
    cl_timer_start(&b.tick, 0);
}

static bool blocks_can_be_shared(void)
{
    int fd;
    assert_int_equal(cl_file_unnamed(b.dir, &fd, NULL), 0);
    bool can = ioctl(fd, FICLONE, b.source) == 0;
    (void)close(fd);
    return can;
}

static void test_the_loop_gets_its_turn(void **state)
{
    (void)state;
    put(0, 32 * MIB, 6);
    assert_int_equal(cl_timer_init(&b.tick, b.loop, on_tick, NULL, NULL), 0);
    cl_timer_start(&b.tick, 0);
    struct disk_copy *copy = start();
    cl_loop_run(b.loop);
    disk_copy_free(copy);
    cl_timer_fini(&b.tick);
    assert_same(b.source, b.got);
    assert_true(b.ticks >= 8 || blocks_can_be_shared());
}

static void test_a_copy_can_be_stopped(void **state)
{
    (void)state;
    put(0, 8 * MIB, 7);
    struct disk_copy *copy = start();
    disk_copy_free(copy);
    assert_int_equal(b.told, 0);
}

static void test_no_folder_is_an_error(void **state)
{
    (void)state;
    struct disk_copy *copy;
    struct cl_err err = {0};
    const struct disk_copy_spec spec = {"/nonexistent", b.source, on_copied, &b};
    assert_int_equal(disk_copy_start(b.loop, &spec, &copy, &err), -1);
    assert_int_equal(err.code, CL_E_SYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_copy_is_the_disk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_empty_disk_is_copied, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_loop_gets_its_turn, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_copy_can_be_stopped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_folder_is_an_error, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
