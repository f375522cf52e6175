/* tests/unit/worker/test_snapshot_cache.c - worker/snapshot_cache.h: a snapshot comes back as it
 * was stored, for the template that it is of, or not at all. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/own.h"
#include "worker/sealed_file.h"
#include "worker/snapshot_cache.h"
#include "worker/vm_driver.h"

enum { MEMORY_MIB = 4, RUN = 9000, AT = 1 << 20, HOURS_2 = 7200 };

static struct bench {
    char home[64], dir[PATH_MAX], boot[PATH_MAX];
    struct cl_loop *loop;
    struct machine_host host;
    struct snapshot_cache *cache;
    int told, adopted;
    enum cl_code code, adopt_code;
} b;

static int adopt(struct template *t, struct cl_err *err)
{
    assert_true(t->ram_fd >= 0 && t->state_fd >= 0);
    b.adopted++;
    return b.adopt_code ? cl_fail(err, b.adopt_code, 0, "not this one") : 0;
}

static const struct vm_driver driver = {.name = "made-up", .adopt = adopt};

static void open_cache(const char *worker)
{
    struct cl_err err = {0};
    struct snapshot_cache_options options = {.host = &b.host, .dir = b.dir};
    (void)snprintf(options.recipe.worker, sizeof options.recipe.worker, "%s", worker);
    snapshot_cache_free(b.cache);
    b.cache = NULL;
    assert_int_equal(snapshot_cache_open(&options, &b.cache, &err), 0);
}

static int set_up(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct cl_buf id;
    b = (struct bench){.home = "/tmp/cloche-snapshots.XXXXXX"};
    assert_non_null(mkdtemp(b.home));
    cl_buf_init(&id, 64);
    assert_int_equal(cl_file_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", &id, &err), 0);
    (void)snprintf(b.dir, sizeof b.dir, "%s/cache", b.home);
    (void)snprintf(b.boot, sizeof b.boot, "%s/%.36s", b.dir, (char *)id.data);
    cl_buf_fini(&id);
    assert_int_equal(cl_loop_new(&b.loop, &err), 0);
    b.host.loop = b.loop;
    open_cache("worker");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    snapshot_cache_free(b.cache);
    cl_loop_free(b.loop);
    return cl_remove_tree(b.home, NULL);
}

/* --- templates ----------------------------------------------------------------------------------
 */

static int file_of(const char *text)
{
    char page[RUN];
    int fd = memfd_create("test", MFD_CLOEXEC);
    assert_true(fd >= 0);
    memset(page, text[0], sizeof page);
    memcpy(page, text, strlen(text));
    assert_int_equal(pwrite(fd, page, sizeof page, AT), sizeof page);
    assert_int_equal(ftruncate(fd, MEMORY_MIB << 20), 0);
    return fd;
}

/* Of this build of a template; a scratch disk belongs to it. */
static struct template *template_of(const char *image)
{
    struct template *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->refs = 2; /* never freed by others */
    t->memory_mib = MEMORY_MIB;
    t->vcpus = 1;
    t->tsc_khz = 2000000;
    t->driver = &driver;
    t->kernel_fd = t->initrd_fd = t->rootfs_fd = t->disk_fd = t->ram_fd = t->state_fd = -1;
    t->scratch_fd = file_of("empty");
    (void)snprintf(t->m.name, sizeof t->m.name, "base");
    (void)snprintf(t->m.image_key, sizeof t->m.image_key, "%s", image);
    template_compute_keys(
        t, &(struct template_maker){
               .driver = &driver, .vmm_build = "1", .cpu = "any", .tsc_khz = t->tsc_khz});
    return t;
}

static struct template *booted(const char *image)
{
    struct template *t = template_of(image);
    t->ram_fd = file_of("ram");
    t->state_fd = file_of("state");
    t->disk_fd = file_of("disk");
    t->sealed = t->dials = t->cell_env = true;
    return t;
}

static void let_go(struct template *t)
{
    assert_int_equal(t->refs, 2);
    int *const fds[] = {&t->ram_fd, &t->state_fd, &t->disk_fd, &t->scratch_fd};
    for (size_t i = 0; i < CL_COUNT(fds); i++)
        cl_closep(fds[i]);
    free(t);
}

static void check_file(int fd, const char *text)
{
    char page[RUN];
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_size, MEMORY_MIB << 20);
    assert_int_equal(pread(fd, page, sizeof page, AT), sizeof page);
    assert_memory_equal(page, text, strlen(text));
    assert_int_equal(page[RUN - 1], text[0]);
    assert_int_equal(pread(fd, page, 1, 0), 1);
    assert_int_equal(page[0], 0);
    assert_int_equal(pwrite(fd, "x", 1, 0), -1);
}

/* --- the folder ---------------------------------------------------------------------------------
 */

static size_t count(const char *dir, bool records)
{
    size_t n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.' && sealed_file_is_hex(e->d_name) == records;
    (void)closedir(d);
    return n;
}

static size_t records(void)
{
    return count(b.boot, true);
}

static size_t files(void)
{
    return count(b.boot, false);
}

static void stop_loop(void *arg)
{
    cl_loop_stop(arg);
}

static void turn_for(uint64_t ms)
{
    struct cl_timer end;
    struct cl_err err = {0};
    assert_int_equal(cl_timer_init(&end, b.loop, stop_loop, b.loop, &err), 0);
    cl_timer_start(&end, ms * CL_NS_PER_MS);
    cl_loop_run(b.loop);
    cl_timer_fini(&end);
}

static void store(struct template *t)
{
    snapshot_cache_store(b.cache, t);
    while (t->refs > 2)
        turn_for(1);
}

static void on_loaded(void *arg, const struct cl_err *err)
{
    assert_ptr_equal(arg, &b);
    b.told++;
    b.code = err ? err->code : CL_OK;
    cl_loop_stop(b.loop);
}

static enum cl_code load(struct template *t)
{
    struct cl_err err = {0};
    b.told = 0;
    if (snapshot_cache_load(b.cache, t, on_loaded, &b, &err) < 0)
        return err.code;
    assert_int_equal(b.told, 0); /* never inside the call */
    cl_loop_run(b.loop);
    assert_int_equal(b.told, 1);
    return b.code;
}

static enum cl_code load_of(const char *image)
{
    struct template *t = template_of(image);
    enum cl_code code = load(t);
    assert_int_equal(t->sealed, code == CL_OK);
    let_go(t);
    return code;
}

static void leave(const char *image)
{
    struct template *t = booted(image);
    store(t);
    let_go(t);
}

/* The first file of this kind, and what is done to it. */
static void spoil(const char *kind, void (*how)(const char *path))
{
    char path[PATH_MAX + 256] = "";
    DIR *d = opendir(b.boot);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL && !path[0];)
        if (kind ? strncmp(e->d_name, kind, strlen(kind)) == 0 : sealed_file_is_hex(e->d_name))
            (void)snprintf(path, sizeof path, "%s/%s", b.boot, e->d_name);
    (void)closedir(d);
    assert_true(path[0]);
    how(path);
}

static void flip(const char *path)
{
    char byte;
    struct stat st;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(pread(fd, &byte, 1, st.st_size / 2), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, st.st_size / 2), 1);
    (void)close(fd);
}

static void cut(const char *path)
{
    assert_int_equal(truncate(path, 20), 0);
}

static void delete (const char *path)
{
    assert_int_equal(unlink(path), 0);
}

/* --- tests --------------------------------------------------------------------------------------
 */

static void test_it_comes_back_as_it_was(void **state)
{
    (void)state;
    leave("one");
    assert_int_equal(records(), 1);
    assert_int_equal(files(), 2);
    struct template *t = template_of("one");
    t->holds = true;
    assert_int_equal(load(t), CL_OK);
    check_file(t->ram_fd, "ram");
    check_file(t->state_fd, "state");
    check_file(t->disk_fd, "disk");
    const int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    assert_int_equal(fcntl(t->ram_fd, F_GET_SEALS), seals);
    assert_int_equal(fcntl(t->state_fd, F_GET_SEALS), seals);
    assert_true(t->sealed && t->dials && t->cell_env && !t->holds);
    assert_int_equal(b.adopted, 1);
    let_go(t);
    assert_int_equal(load_of("one"), CL_OK); /* it stays */
}

static void test_without_a_disk(void **state)
{
    (void)state;
    struct template *t = booted("one");
    cl_closep(&t->disk_fd);
    cl_closep(&t->scratch_fd);
    store(t);
    assert_int_equal(files(), 1);
    let_go(t);
    t = template_of("one");
    cl_closep(&t->scratch_fd);
    assert_int_equal(load(t), CL_OK);
    assert_int_equal(t->disk_fd, -1);
    let_go(t);
    assert_int_equal(load_of("one"), CL_E_INVALID); /* one that has a disk would have none */
    assert_int_equal(records() + files(), 0);
}

static void test_of_what_it_depends_on(void **state)
{
    (void)state;
    leave("one");
    assert_int_equal(load_of("another"), CL_E_NOTFOUND);
    open_cache("another worker");
    assert_int_equal(load_of("one"), CL_E_NOTFOUND);
    open_cache("worker");
    struct template *t = template_of("one");
    (void)snprintf(t->monitor.sha256, sizeof t->monitor.sha256, "another");
    assert_int_equal(load(t), CL_E_NOTFOUND);
    let_go(t);
    t = template_of("one");
    (void)snprintf(t->m.sha256, sizeof t->m.sha256, "of other files");
    assert_int_equal(load(t), CL_E_NOTFOUND);
    let_go(t);
    assert_int_equal(load_of("one"), CL_OK);
}

/* Each worker measures it anew. */
static void test_about_the_same_frequency(void **state)
{
    (void)state;
    leave("one");
    struct template *t = template_of("one");
    char measured[TEMPLATE_HEX];
    t->tsc_khz += 10000;
    template_compute_keys(
        t, &(struct template_maker){
               .driver = &driver, .vmm_build = "1", .cpu = "any", .tsc_khz = t->tsc_khz});
    memcpy(measured, t->snapshot_key, sizeof measured);
    assert_int_equal(load(t), CL_OK);
    assert_int_equal(t->tsc_khz, 2000000);
    assert_string_not_equal(t->snapshot_key, measured); /* it is the one that was made then */
    let_go(t);
    t = template_of("one");
    t->tsc_khz *= 2;
    assert_int_equal(load(t), CL_E_INVALID);
    let_go(t);
    assert_int_equal(records() + files(), 0);
}

static void test_what_is_spoiled_is_gone(void **state)
{
    (void)state;
    void (*const ways[])(const char *) = {flip, cut, delete};
    static const char *const kinds[] = {"ram_", "disk_"};
    for (size_t i = 0; i < CL_COUNT(ways); i++) {
        for (size_t k = 0; k < CL_COUNT(kinds); k++) {
            leave("one");
            spoil(kinds[k], ways[i]);
            enum cl_code code = load_of("one");
            assert_true(code == CL_E_DATALOSS || code == CL_E_SYS);
            assert_int_equal(records() + files(), 0);
            assert_int_equal(load_of("one"), CL_E_NOTFOUND);
        }
    }
    leave("one");
    spoil(NULL, cut);
    assert_int_not_equal(load_of("one"), CL_OK);
    assert_int_equal(records(), 0);
    assert_int_equal(files(), 2); /* whose nobody knows; a sweep finds them later */
    leave("one");
    assert_int_equal(load_of("one"), CL_OK);
}

static void test_a_driver_may_refuse_it(void **state)
{
    (void)state;
    leave("one");
    b.adopt_code = CL_E_GUEST;
    assert_int_equal(load_of("one"), CL_E_GUEST);
    assert_int_equal(records() + files(), 0);
}

static void test_it_is_stored_once(void **state)
{
    (void)state;
    struct template *t = booted("one");
    snapshot_cache_store(b.cache, t);
    snapshot_cache_store(b.cache, t); /* as another worker would */
    turn_for(200);
    assert_int_equal(records(), 1);
    assert_int_equal(files(), 2);
    snapshot_cache_store(b.cache, t);
    let_go(t);
    assert_int_equal(load_of("one"), CL_OK);
}

static void test_the_least_recently_used_goes(void **state)
{
    (void)state;
    char image[8];
    for (int i = 0; i < SNAPSHOT_CACHE_MAX; i++) {
        (void)snprintf(image, sizeof image, "%d", i);
        leave(image);
    }
    assert_int_equal(load_of("0"), CL_OK);
    leave("one more");
    assert_int_equal(records(), SNAPSHOT_CACHE_MAX);
    assert_int_equal(files(), 2 * SNAPSHOT_CACHE_MAX);
    assert_int_equal(load_of("0"), CL_OK);
    assert_int_equal(load_of("1"), CL_E_NOTFOUND);
}

static void test_what_is_dropped_leaves_nothing(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct template *t = booted("one");
    snapshot_cache_store(b.cache, t);
    open_cache("worker");
    let_go(t);
    turn_for(50);
    assert_int_equal(records() + files(), 0);
    leave("one");
    t = template_of("one");
    assert_int_equal(snapshot_cache_load(b.cache, t, on_loaded, &b, &err), 0);
    snapshot_cache_cancel(b.cache, t);
    let_go(t);
    turn_for(50);
    assert_int_equal(b.told, 0);
    assert_int_equal(load_of("one"), CL_OK);
}

static void test_no_room(void **state)
{
    (void)state;
    b.host.disk_reserve = UINT64_MAX / 2;
    struct template *t = booted("one");
    snapshot_cache_store(b.cache, t);
    let_go(t);
    turn_for(50);
    assert_int_equal(records() + files(), 0);
}

static void age(const char *path)
{
    struct timespec old[2] = {{.tv_sec = time(NULL) - HOURS_2}, {.tv_sec = time(NULL) - HOURS_2}};
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
}

static void test_files_without_a_record(void **state)
{
    (void)state;
    leave("one");
    leave("two");
    spoil("ram_", age);
    spoil(NULL, delete); /* of one of them */
    open_cache("worker");
    size_t left = files();
    assert_true(left == 3 || left == 4); /* what is new may be on its way to a record */
    spoil("ram_", age);
    spoil("disk_", age);
    open_cache("worker");
    assert_int_equal(records(), 1);
    assert_true(load_of("one") == CL_OK || load_of("two") == CL_OK);
}

static void test_other_starts_of_the_host(void **state)
{
    (void)state;
    struct cl_err err = {0};
    char other[PATH_MAX + 64], mine[PATH_MAX + 64];
    (void)snprintf(other, sizeof other, "%s/01234567-89ab-cdef-0123-456789abcdef", b.dir);
    (void)snprintf(mine, sizeof mine, "%s/somebody-elses", b.dir);
    assert_int_equal(cl_mkdir_p(other, 0700, &err), 0);
    assert_int_equal(cl_mkdir_p(mine, 0700, &err), 0);
    open_cache("worker");
    assert_int_equal(access(other, F_OK), -1);
    assert_int_equal(access(mine, F_OK), 0);
}

static void test_a_folder_that_others_can_write(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct snapshot_cache *other;
    const struct snapshot_cache_options options = {.host = &b.host, .dir = b.dir};
    static const mode_t modes[] = {0770, 0707};
    for (size_t i = 0; i < CL_COUNT(modes); i++) {
        assert_int_equal(chmod(b.dir, modes[i]), 0);
        assert_int_equal(snapshot_cache_open(&options, &other, &err), -1);
        assert_int_equal(err.code, CL_E_DENIED);
    }
    assert_int_equal(chmod(b.dir, 0755), 0);
    assert_int_equal(snapshot_cache_open(&options, &other, &err), 0);
    snapshot_cache_free(other);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_it_comes_back_as_it_was),
        TEST(test_without_a_disk),
        TEST(test_of_what_it_depends_on),
        TEST(test_about_the_same_frequency),
        TEST(test_what_is_spoiled_is_gone),
        TEST(test_a_driver_may_refuse_it),
        TEST(test_it_is_stored_once),
        TEST(test_the_least_recently_used_goes),
        TEST(test_what_is_dropped_leaves_nothing),
        TEST(test_no_room),
        TEST(test_files_without_a_record),
        TEST(test_other_starts_of_the_host),
        TEST(test_a_folder_that_others_can_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
