/* tests/unit/worker/test_rest.c - worker/rest.h: what is stored comes back, or it is said that not.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/loop.h"
#include "worker/rest.h"

enum {
    MEMORY = 16 << 20,
    STATE = 9098,
    AT = 3 << 20,
    RUN = (2 << 20) + 12288,
    LAST = MEMORY - 4096
};

static struct bench {
    struct cl_loop *loop;
    struct rest *rest;
    int told;
    enum cl_code code;
    char text[CL_ERR_TEXT];
} b;

static void on_done(void *arg, const struct cl_err *err)
{
    assert_ptr_equal(arg, &b);
    b.told++;
    b.code = err ? err->code : CL_OK;
    (void)snprintf(b.text, sizeof b.text, "%s", err ? err->text : "");
    cl_loop_stop(b.loop);
}

static void await_done(enum cl_code want)
{
    b.told = 0;
    cl_loop_run(b.loop);
    assert_int_equal(b.told, 1);
    if (b.code != want)
        fail_msg("%s", b.text);
}

static void fill(uint8_t *bytes, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)((i * 2654435761U >> 13) + seed);
}

/* A page at 0, a long run, and the last page; the rest is holes. */
static void write_files(const struct vm_rest *files)
{
    uint8_t *run = malloc(RUN), page[4096] = "first", state[STATE];
    fill(run, RUN, 1);
    fill(state, STATE, 2);
    assert_int_equal(ftruncate(files->memory, MEMORY), 0);
    assert_int_equal(pwrite(files->memory, page, sizeof page, 0), sizeof page);
    assert_int_equal(pwrite(files->memory, run, RUN, AT), RUN);
    assert_int_equal(pwrite(files->memory, run, 4096, LAST), 4096);
    assert_int_equal(pwrite(files->state, state, STATE, 0), STATE);
    free(run);
}

static void check_memory(int memory)
{
    uint8_t *want = malloc(RUN), *got = malloc(RUN);
    struct stat st;
    fill(want, RUN, 1);
    assert_int_equal(fstat(memory, &st), 0);
    assert_int_equal(st.st_size, MEMORY);
    assert_int_equal(pread(memory, got, 4096, 0), 4096);
    assert_string_equal((char *)got, "first");
    assert_int_equal(pread(memory, got, RUN, AT), RUN);
    assert_memory_equal(got, want, RUN);
    assert_int_equal(pread(memory, got, 4096, LAST), 4096);
    assert_memory_equal(got, want, 4096);
    assert_int_equal(lseek(memory, 4096, SEEK_DATA), AT); /* holes are holes again */
    assert_int_equal(lseek(memory, AT, SEEK_HOLE), AT + RUN);
    assert_int_equal(pwrite(memory, "x", 1, 0), -1); /* sealed */
    assert_int_equal(errno, EPERM);
    free(want);
    free(got);
}

static void check_files(const struct vm_rest *files)
{
    uint8_t state[STATE], got_state[STATE];
    fill(state, STATE, 2);
    check_memory(files->memory);
    assert_int_equal(pread(files->state, got_state, STATE, 0), STATE);
    assert_memory_equal(got_state, state, STATE);
}

static void store(enum cl_code want)
{
    struct cl_err err = {0};
    write_files(rest_files(b.rest));
    assert_int_equal(rest_seal(b.rest, &err), 0);
    assert_int_equal(rest_store(b.rest, "/tmp", on_done, &b, &err), 0);
    await_done(want);
}

static int set_up(void **state)
{
    (void)state;
    b = (struct bench){0};
    return cl_loop_new(&b.loop, NULL) < 0 ? -1 : rest_new(b.loop, MEMORY, &b.rest, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    rest_free(b.rest);
    cl_loop_free(b.loop);
    return 0;
}

/* Which fd of ours is the file: the newest without a name in /tmp. */
static int find_file(void)
{
    for (int fd = 1023; fd > 2; fd--) {
        char link[64], path[256] = "";
        (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (readlink(link, path, sizeof path - 1) > 0 && strncmp(path, "/tmp/", 5) == 0)
            return fd;
    }
    return -1;
}

static void test_what_is_stored_comes_back_as_often_as_it_is_loaded(void **state)
{
    (void)state;
    struct cl_err err = {0};
    assert_int_equal(rest_bytes(b.rest), 0);
    store(CL_OK);
    assert_int_equal(rest_files(b.rest)->memory, -1);
    assert_int_equal(rest_files(b.rest)->state, -1);
    assert_true(rest_bytes(b.rest) > RUN + 8192 && rest_bytes(b.rest) < RUN + 65536);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rest_load(b.rest, on_done, &b, &err), 0);
        await_done(CL_OK);
        check_files(rest_files(b.rest));
        rest_drop(b.rest);
        assert_int_equal(rest_files(b.rest)->memory, -1);
    }
}

static void test_nothing_of_it_can_be_read_on_the_disk(void **state)
{
    (void)state;
    store(CL_OK);
    int fd = find_file();
    assert_true(fd >= 0);
    uint8_t *all = malloc(rest_bytes(b.rest)), *run = malloc(RUN);
    fill(run, RUN, 1);
    assert_int_equal(pread(fd, all, rest_bytes(b.rest), 0), rest_bytes(b.rest));
    assert_null(memmem(all, rest_bytes(b.rest), "first", 5));
    for (size_t at = 0; at < RUN; at += 64 * 1024)
        assert_null(memmem(all, rest_bytes(b.rest), run + at, 16));
    free(all);
    free(run);
}

/* Any byte of it: a head, what is sealed, a tag. */
static void test_what_was_changed_on_the_disk_is_refused(void **state)
{
    (void)state;
    struct cl_err err = {0};
    store(CL_OK);
    int fd = find_file();
    const uint64_t size = rest_bytes(b.rest);
    for (uint64_t at = 0; at < size; at += at < 80 ? 1 : 1 + size / 61) {
        uint8_t byte, wrong;
        assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
        wrong = byte ^ 0x40;
        assert_int_equal(pwrite(fd, &wrong, 1, (off_t)at), 1);
        assert_int_equal(rest_load(b.rest, on_done, &b, &err), 0);
        await_done(CL_E_DATALOSS);
        assert_int_equal(rest_files(b.rest)->memory, -1);
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    }
    assert_int_equal(ftruncate(fd, (off_t)size - 1), 0);
    assert_int_equal(rest_load(b.rest, on_done, &b, &err), 0);
    await_done(CL_E_DATALOSS);
}

/* Two pieces of one length, one in the place of the other. */
static void test_pieces_keep_their_places(void **state)
{
    (void)state;
    enum { PIECE = 24 + REST_PIECE + 16, SECOND = 24 + 4096 + 16 };
    struct cl_err err = {0};
    static uint8_t one[PIECE], two[PIECE];
    store(CL_OK);
    int fd = find_file();
    assert_int_equal(pread(fd, one, PIECE, SECOND), PIECE);
    assert_int_equal(pread(fd, two, PIECE, SECOND + PIECE), PIECE);
    assert_int_equal(pwrite(fd, two, PIECE, SECOND), PIECE);
    assert_int_equal(pwrite(fd, one, PIECE, SECOND + PIECE), PIECE);
    assert_int_equal(rest_load(b.rest, on_done, &b, &err), 0);
    await_done(CL_E_DATALOSS);
}

static void test_a_disk_that_is_full_takes_nothing_away(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct rlimit before, least = {1 << 20, RLIM_INFINITY};
    write_files(rest_files(b.rest));
    assert_int_equal(rest_seal(b.rest, &err), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    least.rlim_max = before.rlim_max;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &least), 0);
    assert_int_equal(rest_store(b.rest, "/tmp", on_done, &b, &err), 0);
    await_done(CL_E_SYS);
    assert_non_null(strstr(b.text, "write a VM to the disk"));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(rest_bytes(b.rest), 0);
    check_files(rest_files(b.rest));
    assert_int_equal(find_file(), -1);
    assert_int_equal(rest_store(b.rest, "/nonexistent", on_done, &b, &err), -1);
    assert_int_equal(rest_store(b.rest, "/tmp", on_done, &b, &err), 0);
    await_done(CL_OK);
    assert_int_equal(rest_load(b.rest, on_done, &b, &err), 0);
    await_done(CL_OK);
    check_files(rest_files(b.rest));
}

static void test_it_may_go_at_any_moment(void **state)
{
    (void)state;
    struct cl_err err = {0};
    write_files(rest_files(b.rest));
    assert_int_equal(rest_store(b.rest, "/tmp", on_done, &b, &err), 0);
    rest_free(b.rest);
    assert_int_equal(find_file(), -1);
    b.told = 0;
    assert_int_equal(rest_new(b.loop, RUN, &b.rest, &err), 0);
    store(CL_E_GUEST); /* more than it may */
    assert_non_null(strstr(b.text, "left more than"));
    rest_free(b.rest);
    assert_int_equal(rest_new(b.loop, MEMORY, &b.rest, &err), 0);
    store(CL_OK);
    assert_int_equal(b.told, 1); /* of this one */
    assert_int_equal(rest_load(b.rest, on_done, &b, &err), 0);
}

/* --- for another process ---------------------------------------------------------------------- */

static const char *path_of(void)
{
    static char path[64];
    (void)snprintf(path, sizeof path, "/tmp/cl-rest-%d", (int)getpid());
    return path;
}

/* What another process needs of the stored one, whose own object is gone. */
static void leave(struct rest_ticket *ret_ticket)
{
    struct cl_err err = {0};
    store(CL_OK);
    assert_int_equal(rest_name(b.rest, path_of(), &err), 0);
    rest_get_ticket(b.rest, ret_ticket);
    rest_leave(b.rest);
    rest_free(b.rest);
    b.rest = NULL;
    assert_int_equal(access(path_of(), F_OK), 0);
}

/* Load it; it stays. */
static void load_left(const struct rest_ticket *ticket, enum cl_code want)
{
    struct cl_err err = {0};
    assert_int_equal(rest_open(b.loop, path_of(), ticket, MEMORY, &b.rest, &err), 0);
    rest_leave(b.rest);
    assert_int_equal(rest_load(b.rest, on_done, &b, &err), 0);
    await_done(want);
    if (want == CL_OK)
        check_files(rest_files(b.rest));
    else
        assert_int_equal(rest_files(b.rest)->memory, -1);
    rest_free(b.rest);
    b.rest = NULL;
}

static int forget_left(void **state)
{
    (void)unlink(path_of());
    return tear_down(state);
}

static void test_what_was_left_comes_back_in_another_process(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct rest_ticket ticket, again;
    struct stat st;
    assert_false(rest_has_name(b.rest));
    leave(&ticket);
    assert_int_equal(stat(path_of(), &st), 0);
    assert_int_equal(st.st_size, ticket.bytes);
    assert_int_equal(st.st_mode, S_IFREG | 0600);
    assert_int_equal(ticket.memory_bytes, MEMORY);
    assert_int_equal(ticket.state_bytes, STATE);
    for (int i = 0; i < 2; i++)
        load_left(&ticket, CL_OK);
    assert_int_equal(rest_open(b.loop, path_of(), &ticket, MEMORY, &b.rest, &err), 0);
    assert_true(rest_has_name(b.rest));
    assert_int_equal(rest_bytes(b.rest), ticket.bytes);
    rest_get_ticket(b.rest, &again);
    assert_memory_equal(&again, &ticket, sizeof ticket);
    rest_free(b.rest); /* it was not left this time */
    b.rest = NULL;
    assert_int_equal(access(path_of(), F_OK), -1);
}

static void test_a_name_that_is_not_left_goes(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct stat st;
    int other = open(path_of(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(other >= 0);
    store(CL_OK);
    assert_int_equal(rest_name(b.rest, "/nonexistent/name", &err), -1);
    assert_false(rest_has_name(b.rest));
    assert_int_equal(rest_name(b.rest, path_of(), &err), 0); /* in the place of the other */
    assert_true(rest_has_name(b.rest));
    assert_int_equal(stat(path_of(), &st), 0);
    assert_int_equal(st.st_size, rest_bytes(b.rest));
    assert_int_equal(rest_load(b.rest, on_done, &b, &err), 0);
    await_done(CL_OK);
    check_files(rest_files(b.rest));
    rest_free(b.rest);
    b.rest = NULL;
    assert_int_equal(access(path_of(), F_OK), -1);
    assert_int_equal(close(other), 0);
}

static void test_without_its_key_it_is_nothing(void **state)
{
    (void)state;
    struct rest_ticket ticket;
    leave(&ticket);
    for (int i = 0; i < REST_KEY; i++) {
        ticket.key[i] ^= 1;
        load_left(&ticket, CL_E_DATALOSS);
        ticket.key[i] ^= 1;
    }
    load_left(&ticket, CL_OK);
}

static void test_what_was_changed_meanwhile_is_refused(void **state)
{
    (void)state;
    struct rest_ticket ticket;
    leave(&ticket);
    int fd = open(path_of(), O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    for (uint64_t at = 0; at < ticket.bytes; at += 1 + ticket.bytes / 17) {
        uint8_t byte, wrong;
        assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
        wrong = byte ^ 0x40;
        assert_int_equal(pwrite(fd, &wrong, 1, (off_t)at), 1);
        load_left(&ticket, CL_E_DATALOSS);
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    }
    load_left(&ticket, CL_OK);
    assert_int_equal(ftruncate(fd, (off_t)ticket.bytes - 1), 0);
    load_left(&ticket, CL_E_DATALOSS);
    assert_int_equal(close(fd), 0);
}

static void test_a_ticket_that_asks_for_more_than_is_there(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct rest_ticket ticket, wrong;
    leave(&ticket);
    static const uint64_t pieces[] = {1, UINT32_MAX, UINT64_MAX / 2};
    for (size_t i = 0; i < CL_COUNT(pieces); i++) {
        wrong = ticket;
        wrong.pieces += pieces[i];
        load_left(&wrong, CL_E_DATALOSS);
    }
    wrong = ticket;
    wrong.memory_bytes = UINT64_MAX; /* of no file */
    assert_int_equal(rest_open(b.loop, path_of(), &wrong, UINT64_MAX, &b.rest, &err), 0);
    rest_leave(b.rest);
    assert_int_equal(rest_load(b.rest, on_done, &b, &err), -1);
    assert_int_equal(err.code, CL_E_SYS);
    assert_int_equal(rest_files(b.rest)->memory, -1);
}

static void test_a_ticket_that_asks_for_less_than_is_there(void **state)
{
    (void)state;
    struct rest_ticket ticket, wrong;
    leave(&ticket);
    uint64_t *const fields[] = {&wrong.pieces, &wrong.bytes, &wrong.memory_bytes,
                                &wrong.state_bytes};
    for (size_t i = 0; i < CL_COUNT(fields); i++) {
        wrong = ticket;
        *fields[i] -= 1;
        load_left(&wrong, CL_E_DATALOSS);
    }
    wrong.pieces = 0;
    load_left(&wrong, CL_E_DATALOSS);
}

static void test_a_ticket_over_its_limit_is_refused(void **state)
{
    (void)state;
    struct rest_ticket ticket, wrong;
    leave(&ticket);
    uint64_t *const fields[] = {&wrong.bytes, &wrong.memory_bytes, &wrong.state_bytes};
    for (size_t i = 0; i < CL_COUNT(fields); i++) {
        struct cl_err err = {0};
        wrong = ticket;
        *fields[i] = MEMORY + 1;
        assert_int_equal(rest_open(b.loop, path_of(), &wrong, MEMORY, &b.rest, &err), -1);
        assert_int_equal(err.code, CL_E_TOOBIG);
        assert_null(b.rest);
        assert_int_equal(access(path_of(), F_OK), 0); /* it is not taken */
    }
    load_left(&ticket, CL_OK);
}

static void test_a_file_that_is_not_there_is_named(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct rest_ticket ticket;
    leave(&ticket);
    assert_int_equal(unlink(path_of()), 0);
    assert_int_equal(rest_open(b.loop, path_of(), &ticket, MEMORY, &b.rest, &err), -1);
    assert_int_equal(err.code, CL_E_SYS);
    assert_non_null(strstr(err.text, path_of()));
    assert_null(b.rest);
}

/* The RAM of a snapshot, which others have mapped. */
static void test_a_memfd_of_others_stays_as_it_is(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct vm_rest all = *rest_files(b.rest);
    struct stat st;
    write_files(&all);
    int memory = fcntl(all.memory, F_DUPFD_CLOEXEC, 3);
    assert_true(memory >= 0);
    assert_int_equal(rest_seal(b.rest, &err), 0);
    int seals = fcntl(memory, F_GET_SEALS);
    rest_free(b.rest);
    assert_int_equal(rest_new_of(b.loop, &(struct vm_rest){memory, -1}, MEMORY, &b.rest, &err), 0);
    assert_int_equal(rest_store(b.rest, "/tmp", on_done, &b, &err), 0);
    await_done(CL_OK);
    assert_int_equal(fcntl(memory, F_GET_SEALS), seals);
    assert_int_equal(rest_load(b.rest, on_done, &b, &err), 0);
    await_done(CL_OK);
    assert_int_equal(fstat(rest_files(b.rest)->state, &st), 0);
    assert_int_equal(st.st_size, 0);
    int fds[] = {memory, rest_files(b.rest)->memory};
    for (size_t i = 0; i < CL_COUNT(fds); i++)
        check_memory(fds[i]);
    rest_free(b.rest);
    b.rest = NULL;
    check_memory(memory);
    assert_int_equal(close(memory), 0);
    assert_int_equal(rest_new_of(b.loop, &(struct vm_rest){memory, -1}, MEMORY, &b.rest, &err), -1);
    assert_int_equal(err.sys, EBADF);
}

static void test_a_copy_is_stored_and_the_first_stays(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct rest *copy = NULL;
    struct rest_ticket one, other;
    struct vm_rest all = *rest_files(b.rest);
    write_files(&all);
    assert_int_equal(rest_seal(b.rest, &err), 0);
    off_t at = lseek(all.memory, 0, SEEK_CUR);
    assert_int_equal(rest_copy(b.rest, b.loop, &copy, &err), 0);
    assert_int_equal(rest_store(copy, "/tmp", on_done, &b, &err), 0);
    await_done(CL_OK);
    assert_int_equal(lseek(all.memory, 0, SEEK_CUR), at); /* who reads the first goes on there */
    assert_int_equal(rest_files(copy)->memory, -1);
    check_memory(all.memory);
    assert_int_equal(rest_store(b.rest, "/tmp", on_done, &b, &err), 0);
    await_done(CL_OK);
    rest_get_ticket(b.rest, &one);
    rest_get_ticket(copy, &other);
    assert_memory_not_equal(one.key, other.key, sizeof one.key);
    assert_int_equal(one.memory_bytes, other.memory_bytes);
    rest_free(b.rest);
    b.rest = copy;
    assert_int_equal(rest_load(b.rest, on_done, &b, &err), 0);
    await_done(CL_OK);
    check_memory(rest_files(b.rest)->memory);
}

int main(void)
{
#define LEFT(name) cmocka_unit_test_setup_teardown(name, set_up, forget_left)
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    static const struct CMUnitTest tests[] = {
        TEST(test_what_is_stored_comes_back_as_often_as_it_is_loaded),
        TEST(test_nothing_of_it_can_be_read_on_the_disk),
        TEST(test_what_was_changed_on_the_disk_is_refused),
        TEST(test_pieces_keep_their_places),
        TEST(test_a_disk_that_is_full_takes_nothing_away),
        TEST(test_it_may_go_at_any_moment),
        TEST(test_a_copy_is_stored_and_the_first_stays),
        LEFT(test_what_was_left_comes_back_in_another_process),
        LEFT(test_a_name_that_is_not_left_goes),
        LEFT(test_without_its_key_it_is_nothing),
        LEFT(test_what_was_changed_meanwhile_is_refused),
        LEFT(test_a_ticket_that_asks_for_more_than_is_there),
        LEFT(test_a_ticket_that_asks_for_less_than_is_there),
        LEFT(test_a_ticket_over_its_limit_is_refused),
        LEFT(test_a_file_that_is_not_there_is_named),
        TEST(test_a_memfd_of_others_stays_as_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
