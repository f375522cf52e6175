/* tests/unit/worker/test_image_files.c - worker/image_files.h: what was read once is not read
 * again, and reading it leaves the loop to others. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/evp.h>

#include "base/id.h"
#include "worker/image_files.h"

enum { MIB = 1 << 20, LARGE = 64 * MIB };

struct file {
    char path[96], sha256[IMAGE_FILES_HEX];
    int fd;
};

static struct bench {
    struct cl_loop *loop;
    struct image_files *files;
    char dir[64];
    unsigned n_files, told;
    enum cl_code code;
    char text[CL_ERR_TEXT];
    struct cl_timer tick;
    unsigned ticks;
} b;

static void on_checked(void *arg, const struct cl_err *err)
{
    assert_ptr_equal(arg, &b);
    b.told++;
    b.code = err ? err->code : CL_OK;
    (void)snprintf(b.text, sizeof b.text, "%s", err ? err->text : "");
    cl_loop_stop(b.loop);
}

static void on_tick(void *arg)
{
    (void)arg;
    b.ticks++;
}

static int set_up(void **state)
{
    (void)state;
    b = (struct bench){0};
    (void)snprintf(b.dir, sizeof b.dir, "/tmp/cloche-test-files.XXXXXX");
    assert_non_null(mkdtemp(b.dir));
    assert_int_equal(cl_loop_new(&b.loop, NULL), 0);
    assert_int_equal(image_files_new(b.loop, &b.files, NULL), 0);
    assert_int_equal(cl_timer_init(&b.tick, b.loop, on_tick, NULL, NULL), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    image_files_free(b.files);
    cl_timer_fini(&b.tick);
    cl_loop_free(b.loop);
    for (unsigned i = 0; i < b.n_files; i++) {
        char path[96];
        (void)snprintf(path, sizeof path, "%s/%u", b.dir, i);
        (void)unlink(path);
    }
    return rmdir(b.dir);
}

/* n bytes of them; `seed` makes it another file. */
static struct file make_file(size_t n, uint8_t seed)
{
    struct file f;
    uint8_t *bytes = malloc(n), digest[32];
    assert_non_null(bytes);
    memset(bytes, seed, n);
    assert_int_equal(EVP_Digest(bytes, n, digest, NULL, EVP_sha256(), NULL), 1);
    cl_hex(digest, sizeof digest, f.sha256);
    (void)snprintf(f.path, sizeof f.path, "%s/%u", b.dir, b.n_files++);
    f.fd = open(f.path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(f.fd >= 0);
    assert_int_equal(write(f.fd, bytes, n), n);
    free(bytes);
    return f;
}

static struct image_file named(const struct file *f)
{
    return (struct image_file){"rootfs.img", f->sha256, f->fd};
}

static bool is_known(const struct file *f)
{
    int fd = image_files_find(b.files, f->sha256);
    if (fd >= 0)
        (void)close(fd);
    return fd >= 0;
}

static struct image_check *start(const struct file *f, size_t n)
{
    struct image_check *check;
    struct image_check_spec spec = {.n = n, .done = on_checked, .arg = &b};
    for (size_t i = 0; i < n; i++)
        spec.files[i] = named(&f[i]);
    assert_int_equal(image_check_start(b.files, &spec, &check, NULL), 0);
    assert_int_equal(b.told, 0); /* never inside a call */
    return check;
}

static bool is_same_file(int a, int c)
{
    struct stat one, other;
    assert_int_equal(fstat(a, &one), 0);
    assert_int_equal(fstat(c, &other), 0);
    return one.st_ino == other.st_ino && one.st_dev == other.st_dev;
}

static void what_was_checked_is_known(void **state)
{
    (void)state;
    struct file f = make_file(3 * MIB + 5, 'a');
    struct image_file file = named(&f);
    assert_false(is_known(&f));
    assert_int_equal(image_files_check(b.files, &file, NULL), 0);
    int fd = image_files_find(b.files, f.sha256);
    assert_true(fd >= 0 && fd != f.fd && is_same_file(fd, f.fd));
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    (void)close(fd);
    (void)close(f.fd);
    assert_true(is_known(&f));
}

static void another_digest_is_refused(void **state)
{
    (void)state;
    struct file f = make_file(MIB, 'a');
    struct image_file file = named(&f);
    struct cl_err err = {0};
    assert_int_equal(pwrite(f.fd, "b", 1, MIB - 1), 1);
    assert_int_equal(image_files_check(b.files, &file, &err), -1);
    assert_int_equal(err.code, CL_E_DATALOSS);
    assert_non_null(strstr(err.text, "'rootfs.img'"));
    assert_false(is_known(&f));
    (void)start(&f, 1);
    cl_loop_run(b.loop);
    assert_int_equal(b.told, 1);
    assert_int_equal(b.code, CL_E_DATALOSS);
    assert_non_null(strstr(b.text, "cloche template build"));
    assert_false(is_known(&f));
    (void)close(f.fd);
}

static void a_check_leaves_the_loop_to_others(void **state)
{
    (void)state;
    struct file f[3] = {make_file(LARGE, 'a'), make_file(0, 0), make_file(MIB, 'c')};
    cl_timer_every(&b.tick, 1);
    (void)start(f, 3);
    cl_loop_run(b.loop);
    cl_timer_stop(&b.tick);
    assert_int_equal(b.told, 1);
    assert_int_equal(b.code, CL_OK);
    assert_true(b.ticks > 5); /* of 64 MiB a turn reads no more than a few */
    for (int i = 0; i < 3; i++) {
        assert_true(is_known(&f[i]));
        (void)close(f[i].fd);
    }
}

/* The second has nothing to read, and has the file that was read. */
static void what_another_check_read_is_not_read_again(void **state)
{
    (void)state;
    struct file f = make_file(MIB, 'a'), copy = make_file(MIB, 'a');
    (void)start(&f, 1);
    cl_loop_run(b.loop);
    b.told = 0;
    assert_int_equal(pwrite(copy.fd, "b", 1, 0), 1); /* reading it would show that */
    (void)start(&copy, 1);
    cl_loop_run(b.loop);
    assert_int_equal(b.code, CL_OK);
    assert_true(is_same_file(copy.fd, f.fd));
    (void)close(f.fd);
    (void)close(copy.fd);
}

static void one_that_is_cancelled_says_nothing(void **state)
{
    (void)state;
    struct file f = make_file(LARGE, 'a'), next = make_file(MIB, 'b');
    struct image_check *check = start(&f, 1);
    cl_loop_turn(b.loop, 0);
    (void)start(&next, 1);
    image_check_cancel(check);
    image_check_cancel(NULL);
    cl_loop_run(b.loop);
    assert_int_equal(b.told, 1);
    assert_true(is_known(&next));
    assert_false(is_known(&f));
    (void)close(f.fd);
    (void)close(next.fd);
}

static void a_deleted_file_is_let_go(void **state)
{
    (void)state;
    struct file f = make_file(10, 'a'), next = make_file(10, 'b');
    struct image_file file = named(&f), other = named(&next);
    assert_int_equal(image_files_check(b.files, &file, NULL), 0);
    assert_int_equal(unlink(f.path), 0);
    assert_int_equal(image_files_check(b.files, &other, NULL), 0);
    assert_false(is_known(&f));
    assert_true(is_known(&next));
    (void)close(f.fd);
    (void)close(next.fd);
}

/* It is read again, then, and is not what it was. */
static void a_changed_file_is_not_known(void **state)
{
    (void)state;
    struct file f = make_file(MIB, 'a');
    struct image_file file = named(&f);
    struct timespec later = {.tv_nsec = 20 * 1000 * 1000}; /* the kernel's time has ticks */
    assert_int_equal(image_files_check(b.files, &file, NULL), 0);
    assert_int_equal(nanosleep(&later, NULL), 0);
    assert_true(is_known(&f));
    assert_int_equal(pwrite(f.fd, "b", 1, MIB / 2), 1);
    assert_false(is_known(&f));
    assert_int_equal(image_files_check(b.files, &file, NULL), -1);
    (void)close(f.fd);
}

/* What changes behind the reader's back is not taken for what was read. */
static void a_file_that_changes_meanwhile_is_not_known(void **state)
{
    (void)state;
    struct file f = make_file(LARGE, 'a');
    struct timespec later = {.tv_nsec = 20 * 1000 * 1000};
    (void)start(&f, 1);
    while (b.told == 0) {
        cl_loop_turn(b.loop, 0);
        if (b.ticks++ == 2) {
            assert_int_equal(nanosleep(&later, NULL), 0);
            assert_int_equal(pwrite(f.fd, "b", 1, 0), 1);
        }
    }
    assert_true(b.ticks > 2);
    assert_int_equal(b.code, CL_OK);
    assert_false(is_known(&f));
    (void)close(f.fd);
}

static void the_least_wanted_goes_first(void **state)
{
    (void)state;
    struct file f[IMAGE_FILES_MAX + 1];
    for (unsigned i = 0; i <= IMAGE_FILES_MAX; i++) {
        f[i] = make_file(i + 1, 'a');
        struct image_file file = named(&f[i]);
        assert_int_equal(image_files_check(b.files, &file, NULL), 0);
        assert_true(is_known(&f[0])); /* it is wanted */
        (void)close(f[i].fd);
    }
    for (unsigned i = 0; i <= IMAGE_FILES_MAX; i++)
        assert_int_equal(is_known(&f[i]), i != 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_checked_is_known, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_digest_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_check_leaves_the_loop_to_others, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_another_check_read_is_not_read_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(one_that_is_cancelled_says_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_deleted_file_is_let_go, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_changed_file_is_not_known, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_that_changes_meanwhile_is_not_known, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_least_wanted_goes_first, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
