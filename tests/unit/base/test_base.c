/* base/: errors, memory, buffers, maps, ids, UTF-8, files, configuration. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/conf.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"

static void test_an_error_carries_code_text_and_errno(void **state)
{
    (void)state;
    struct cl_err err = {0};
    assert_int_equal(cl_fail(&err, CL_E_NOTFOUND, 2, "open '%s'", "x"), -1);
    assert_int_equal(err.code, CL_E_NOTFOUND);
    assert_string_equal(err.text, "open 'x': No such file or directory");
    assert_int_equal(cl_wrap(&err, "start"), -1);
    assert_string_equal(err.text, "start: open 'x': No such file or directory");
    assert_int_equal(cl_fail(NULL, CL_E_SYS, 0, "nobody listens"), -1);
}

static void test_every_error_row_has_cause_and_remedy(void **state)
{
    (void)state;
    for (int i = CL_OK + 1; i < CL_E_NR; i++) {
        const struct cl_err_info *info = cl_err_info((enum cl_code)i);
        assert_true(info->cause[0] && info->remedy[0]);
        assert_in_range(info->grpc, 1, 16);
        assert_in_range(info->http, 400, 599);
    }
    assert_true(CL_E_NR - 1 < 20);
    assert_string_equal(cl_err_info((enum cl_code)999)->name, "SYS");
}

static void test_grpc_and_errno_map_to_codes(void **state)
{
    (void)state;
    assert_int_equal(cl_code_from_grpc(5), CL_E_NOTFOUND);
    assert_int_equal(cl_code_from_grpc(14), CL_E_UNAVAILABLE);
    assert_int_equal(cl_code_from_grpc(99), CL_E_PEER);
    assert_int_equal(cl_code_from_grpc(-1), CL_E_PEER);
    assert_int_equal(cl_code_from_errno(2), CL_E_NOTFOUND);
    assert_int_equal(cl_code_from_errno(13), CL_E_DENIED);
    assert_int_equal(cl_code_from_errno(9999), CL_E_SYS);
}

static void test_a_buffer_grows_to_its_limit_and_no_further(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct cl_buf b;
    cl_buf_init(&b, 1000);
    for (int i = 0; i < 100; i++)
        assert_int_equal(cl_buf_append(&b, "0123456789", 10, &err), 0);
    assert_int_equal(cl_buf_append(&b, "x", 1, &err), -1);
    assert_int_equal(err.code, CL_E_TOOBIG);
    assert_int_equal(b.len, 1000);
    cl_buf_consume(&b, 995);
    assert_memory_equal(b.data, "56789", 5);
    assert_int_equal(cl_buf_printf(&b, &err, "%d-%s", 7, "x"), 0);
    assert_memory_equal(b.data, "567897-x", 8);
    cl_buf_fini(&b);
}

static void test_a_buffer_survives_each_failed_allocation(void **state)
{
    (void)state;
    for (long nth = 0;; nth++) {
        struct cl_err err = {0};
        struct cl_buf b;
        cl_buf_init(&b, 10000);
        cl_test_fail_alloc(nth);
        int rc = 0;
        for (int i = 0; i < 1000 && rc == 0; i++)
            rc = cl_buf_append(&b, "0123456789", 10, &err);
        bool failed = cl_test_alloc_failed();
        cl_test_fail_alloc(-1);
        cl_buf_fini(&b);
        if (!failed) {
            assert_int_equal(rc, 0);
            break;
        }
        assert_int_equal(rc, -1);
        assert_int_equal(err.code, CL_E_NOMEM);
    }
}

static void test_a_map_agrees_with_a_plain_table_over_random_operations(void **state)
{
    (void)state;
    enum { KEYS = 300, STEPS = 20000 };
    struct cl_err err = {0};
    struct cl_map *map;
    static int values[KEYS];
    bool there[KEYS] = {0};
    size_t count = 0;
    assert_int_equal(cl_map_new(KEYS, &map, &err), 0);
    srand(7);
    for (int step = 0; step < STEPS; step++) {
        int k = rand() % KEYS;
        char key[16];
        (void)snprintf(key, sizeof key, "key-%d", k);
        if (rand() % 2) {
            assert_int_equal(cl_map_put(map, key, &values[k], &err), 0);
            count += !there[k];
            there[k] = true;
        } else {
            assert_ptr_equal(cl_map_del(map, key), there[k] ? &values[k] : NULL);
            count -= there[k];
            there[k] = false;
        }
        assert_int_equal(cl_map_count(map), count);
        int probe = rand() % KEYS;
        (void)snprintf(key, sizeof key, "key-%d", probe);
        assert_ptr_equal(cl_map_get(map, key), there[probe] ? &values[probe] : NULL);
    }
    size_t at = 0, seen = 0;
    while (cl_map_next(map, &at, NULL))
        seen++;
    assert_int_equal(seen, count);
    cl_map_free(map);
}

static void test_a_map_refuses_more_than_its_limit(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct cl_map *map;
    int value;
    assert_int_equal(cl_map_new(2, &map, &err), 0);
    assert_int_equal(cl_map_put(map, "a", &value, &err), 0);
    assert_int_equal(cl_map_put(map, "b", &value, &err), 0);
    assert_int_equal(cl_map_put(map, "c", &value, &err), -1);
    assert_int_equal(err.code, CL_E_TOOBIG);
    assert_int_equal(cl_map_put(map, "b", &value, &err), 0);
    cl_map_free(map);
}

static void test_ids_are_well_formed_sorted_and_unlike(void **state)
{
    (void)state;
    char a[CL_ID_MAX], b[CL_ID_MAX];
    cl_test_set_clock(UINT64_C(1700000000000) * 1000000);
    cl_id_new("job", a);
    assert_int_equal(cl_id_time_ms(a), UINT64_C(1700000000000));
    cl_test_set_clock(UINT64_C(1700000000001) * 1000000);
    cl_id_new("job", b);
    cl_test_set_clock(0);
    assert_true(cl_id_is(a, "job") && cl_id_is(b, "job"));
    assert_true(strcmp(a, b) < 0);
    assert_false(cl_id_is(a, "sbx"));
    assert_false(cl_id_is("job_", "job"));
    assert_false(cl_id_is("job_01234567890123456789abcdeu", "job"));
}

/* List shows the newest first by them, and two jobs may come in one millisecond. */
static void test_ids_of_one_moment_sort_as_they_were_made(void **state)
{
    enum { ROUNDS = 10000 };
    (void)state;
    char before[CL_ID_MAX] = "", id[CL_ID_MAX];
    for (int clock_stands = 0; clock_stands < 2; clock_stands++) {
        cl_test_set_clock(clock_stands ? UINT64_C(1700000000002999999) : 0);
        before[0] = '\0';
        for (int i = 0; i < ROUNDS; i++, memcpy(before, id, sizeof before)) {
            cl_id_new("job", id);
            assert_true(cl_id_is(id, "job") && strcmp(before, id) < 0);
        }
    }
    cl_test_set_clock(0);
}

static void test_names_follow_their_rule(void **state)
{
    (void)state;
    assert_true(cl_name_is_valid("a") && cl_name_is_valid("acme-2"));
    static const char *const bad[] = {"", "2a", "-a", "A", "a_b", "a.b", "a b", "ä"};
    for (size_t i = 0; i < CL_COUNT(bad); i++)
        assert_false(cl_name_is_valid(bad[i]));
    char longest[65] = {0};
    memset(longest, 'a', 63);
    assert_true(cl_name_is_valid(longest));
    longest[63] = 'a';
    assert_false(cl_name_is_valid(longest));
}

static void test_utf8_is_strict(void **state)
{
    (void)state;
    static const char *const good[] = {
        "", "abc", "\xc3\xa4", "\xe2\x98\xba", "\xf0\x9f\x98\x88", "\xed\x9f\xbf"};
    static const char *const bad[] = {"\x80",
                                      "\xc0\x80",
                                      "\xc3",
                                      "\xe0\x80\x80",
                                      "\xed\xa0\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xe2\x98",
                                      "a\xff"};
    for (size_t i = 0; i < CL_COUNT(good); i++)
        assert_true(cl_utf8_is_valid(good[i], strlen(good[i])));
    for (size_t i = 0; i < CL_COUNT(bad); i++)
        assert_false(cl_utf8_is_valid(bad[i], strlen(bad[i])));
    assert_int_equal(cl_utf8_clip("a\xe2\x98\xba", 4, 3), 1);
}

static void test_hex_round_trips_and_refuses_others(void **state)
{
    (void)state;
    uint8_t bytes[4];
    char text[9];
    assert_true(cl_unhex("00fF10a9", 8, bytes, 4));
    cl_hex(bytes, 4, text);
    assert_string_equal(text, "00ff10a9");
    assert_false(cl_unhex("00ff10a", 7, bytes, 4));
    assert_false(cl_unhex("00ff10ag", 8, bytes, 4));
}

static void test_a_file_is_written_whole_or_not_at_all(void **state)
{
    (void)state;
    char dir[] = "/tmp/cl-base-XXXXXX", path[64];
    struct cl_err err = {0};
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/a/b", dir);
    assert_int_equal(cl_mkdir_p(path, 0700, &err), 0);
    (void)snprintf(path, sizeof path, "%s/a/f", dir);
    assert_int_equal(cl_file_write(path, "hello", 5, 0600, &err), 0);
    struct cl_buf b;
    cl_buf_init(&b, 3);
    assert_int_equal(cl_file_read(AT_FDCWD, path, &b, &err), -1);
    assert_int_equal(err.code, CL_E_TOOBIG);
    cl_buf_fini(&b);
    cl_buf_init(&b, 100);
    assert_int_equal(cl_file_read(AT_FDCWD, path, &b, &err), 0);
    assert_memory_equal(b.data, "hello", 5);
    cl_buf_fini(&b);
    assert_int_equal(cl_remove_tree(dir, &err), 0);
    assert_int_equal(access(dir, F_OK), -1);
    assert_int_equal(cl_remove_tree(dir, &err), 0);
}

static void test_a_folder_is_for_many_or_for_one(void **state)
{
    (void)state;
    char dir[] = "/tmp/cl-base-XXXXXX";
    struct cl_err err = {0};
    int first, second, alone;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(cl_lock_folder(dir, false, &first, &err), 0);
    assert_int_equal(cl_lock_folder(dir, false, &second, &err), 0);
    assert_int_equal(close(first), 0);
    assert_int_equal(cl_lock_folder(dir, true, &alone, &err), -1);
    assert_int_equal(err.code, CL_E_UNAVAILABLE);
    assert_non_null(strstr(err.text, dir));
    assert_int_equal(close(second), 0);
    assert_int_equal(cl_lock_folder(dir, true, &alone, &err), 0);
    assert_int_equal(cl_lock_folder(dir, false, &first, &err), -1);
    assert_int_equal(err.code, CL_E_UNAVAILABLE);
    assert_int_equal(close(alone), 0);
    assert_int_equal(cl_remove_tree(dir, &err), 0);
    assert_int_equal(cl_lock_folder(dir, false, &first, &err), -1);
    assert_int_equal(err.code, CL_E_NOTFOUND);
}

static void test_a_file_without_a_name_gets_one_once(void **state)
{
    (void)state;
    char dir[] = "/tmp/cl-base-XXXXXX", path[64], got[5];
    struct cl_err err = {0};
    struct stat st;
    int fd, file;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/f", dir);
    assert_int_equal(cl_file_nameable(dir, &fd, &err), 0);
    assert_int_equal(cl_write_all(fd, "hello", 5, &err), 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_nlink, 0);
    assert_int_equal(st.st_mode, S_IFREG | 0600);
    assert_int_equal(cl_file_name(fd, path, &err), 0);
    file = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(cl_read_all(file, got, sizeof got, &err), 0);
    assert_memory_equal(got, "hello", 5);
    assert_int_equal(close(file), 0);
    assert_int_equal(cl_file_name(fd, path, &err), -1); /* it is taken */
    assert_int_equal(err.code, CL_E_SYS);
    assert_int_equal(err.sys, EEXIST);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(cl_file_name(fd, path, &err), -1);
    assert_int_equal(err.sys, ENOENT);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(close(fd), 0);
    assert_int_equal(cl_remove_tree(dir, &err), 0);
}

static void test_a_name_that_is_anothers_by_now_stays(void **state)
{
    (void)state;
    char dir[] = "/tmp/cl-base-XXXXXX", path[64];
    struct cl_err err = {0};
    int fd;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/f", dir);
    assert_int_equal(cl_file_nameable(dir, &fd, &err), 0);
    assert_int_equal(cl_file_name(fd, path, &err), 0);
    cl_file_unname(fd, path);
    assert_int_equal(access(path, F_OK), -1);
    cl_file_unname(fd, path); /* there is none */
    assert_int_equal(cl_file_write(path, "other", 5, 0600, &err), 0);
    cl_file_unname(fd, path);
    assert_int_equal(access(path, F_OK), 0);
    cl_file_unname(-1, path);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(cl_remove_tree(dir, &err), 0);
}

static void test_a_file_that_shall_have_no_name_gets_none(void **state)
{
    (void)state;
    char dir[] = "/tmp/cl-base-XXXXXX", path[64], got[5];
    struct cl_err err = {0};
    int fd;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/f", dir);
    assert_int_equal(cl_file_unnamed(dir, &fd, &err), 0);
    assert_int_equal(cl_write_all(fd, "hello", 5, &err), 0);
    assert_int_equal(cl_file_name(fd, path, &err), -1);
    assert_int_equal(err.sys, ENOENT);
    assert_int_equal(pread(fd, got, sizeof got, 0), 5); /* it is as it was */
    assert_memory_equal(got, "hello", 5);
    assert_int_equal(close(fd), 0);
    assert_int_equal(rmdir(dir), 0); /* it has nothing in it */
    assert_int_equal(cl_file_nameable(dir, &fd, &err), -1);
    assert_int_equal(err.sys, ENOENT);
}

static void test_a_socket_that_somebody_has_is_not_replaced(void **state)
{
    (void)state;
    char dir[] = "/tmp/cloche-base.XXXXXX", path[64];
    int theirs, mine, full[2];
    struct cl_err err = {0};
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/s", dir);
    assert_int_equal(cl_unix_bind(path, 0600, &theirs, NULL), 0);
    assert_int_equal(cl_unix_connect(path, &mine, NULL), -1); /* it does not listen yet */
    assert_int_equal(cl_unix_listen(path, 0600, &mine, &err), -1);
    assert_int_equal(err.code, CL_E_EXISTS);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(listen(theirs, 0), 0);
    for (size_t i = 0; i < CL_COUNT(full); i++) { /* nobody accepts: then there is no room */
        full[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        struct sockaddr_un at = {.sun_family = AF_UNIX};
        (void)snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
        assert_int_equal(connect(full[i], (struct sockaddr *)&at, sizeof at), i == 0 ? 0 : -1);
    }
    assert_int_equal(cl_unix_listen(path, 0600, &mine, &err), -1);
    assert_int_equal(err.code, CL_E_EXISTS);
    (void)close(theirs); /* as a process that died: its name stays */
    assert_int_equal(cl_unix_listen(path, 0600, &mine, NULL), 0);
    (void)close(mine);
    (void)close(full[0]);
    (void)close(full[1]);
    (void)unlink(path);
    (void)rmdir(dir);
}

static void test_a_socket_path_that_is_too_long_names_the_remedy(void **state)
{
    (void)state;
    char path[200];
    struct cl_err err = {0};
    int fd;
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    assert_int_equal(cl_unix_listen(path, 0600, &fd, &err), -1);
    assert_non_null(strstr(err.text, "--run-dir"));
}

/* --- configuration -----------------------------------------------------------------------------
 */

struct values {
    char name[CL_CONF_STR];
    bool on;
    uint64_t n, bytes, wait;
};

static const struct cl_conf_row rows[] = {
    {"t", "name", CL_CONF_STRING, offsetof(struct values, name), "none", 0, 0, false, "a name"},
    {"t", "on", CL_CONF_BOOL, offsetof(struct values, on), "no", 0, 0, false, "a switch"},
    {"t", "n", CL_CONF_U64, offsetof(struct values, n), "3", 1, 10, false, "a number"},
    {"t", "bytes", CL_CONF_BYTES, offsetof(struct values, bytes), "1MiB", 0, 0, false, "a size"},
    {"t", "wait", CL_CONF_DURATION, offsetof(struct values, wait), "5s", 0, 0, false, "a time"},
};

static int load(struct values *v, const char *text, struct cl_err *err)
{
    return cl_conf_parse(rows, CL_COUNT(rows), v, "test.ini", text, strlen(text), err);
}

static void test_flag_beats_variable_beats_file_beats_default(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct values v;
    char dir[] = "/tmp/cl-conf-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/c", dir);
    static const char text[] = "[t]\nname = file\nn = 4\nwait = 2m\nbytes=2k\n";
    assert_int_equal(cl_file_write(path, text, strlen(text), 0600, &err), 0);
    assert_int_equal(setenv("CLOCHE_T_NAME", "variable", 1), 0);
    assert_int_equal(setenv("CLOCHE_T_N", "5", 1), 0);
    char *argv[] = {(char *)(uintptr_t) "prog", (char *)(uintptr_t) "--name=flag",
                    (char *)(uintptr_t) "--on", (char *)(uintptr_t) "rest", NULL};
    int argc = 4;
    assert_int_equal(cl_conf_load(rows, CL_COUNT(rows), &v, path, &argc, argv, &err), 0);
    assert_string_equal(v.name, "flag");
    assert_int_equal(v.n, 5);
    assert_int_equal(v.wait, 120 * CL_NS_PER_S);
    assert_int_equal(v.bytes, 2048);
    assert_true(v.on);
    assert_int_equal(argc, 2);
    assert_string_equal(argv[1], "rest");
    assert_int_equal(unsetenv("CLOCHE_T_NAME") + unsetenv("CLOCHE_T_N"), 0);
    assert_int_equal(cl_remove_tree(dir, &err), 0);
}

static void test_a_bad_configuration_line_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"[t]\nname = a\nbogus = 1\n", "test.ini:3: [t] bogus: no such option"},
        {"[t]\nn = 11\n", "test.ini:2: [t] n: 11 is outside its range"},
        {"[t]\nn = x\n", "test.ini:2: [t] n: 'x' is not a number"},
        {"[t]\nn = -1\n", "test.ini:2: [t] n: '-1' is not a number"},
        {"[t]\nbytes = 99999999999999999999\n", "test.ini:2: [t] bytes: "},
        {"[t]\nwait = 5 parsecs\n", "test.ini:2: [t] wait: "},
        {"[t]\non = maybe\n", "test.ini:2: [t] on: 'maybe' is not yes or no"},
        {"[t\n", "test.ini:1: not an INI line"},
    };
    for (size_t i = 0; i < CL_COUNT(cases); i++) {
        struct values v = {0};
        struct cl_err err = {0};
        assert_int_equal(load(&v, cases[i].text, &err), -1);
        assert_int_equal(err.code, CL_E_INVALID);
        if (strncmp(err.text, cases[i].want, strlen(cases[i].want)) != 0)
            fail_msg("got '%s', want '%s'", err.text, cases[i].want);
    }
}

static void test_an_arena_stops_at_its_cap(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct cl_arena *arena;
    assert_int_equal(cl_arena_new(10000, &arena, &err), 0);
    char *p = cl_arena_alloc(arena, 9000);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 16, 0);
    assert_null(cl_arena_alloc(arena, 2000));
    assert_true(cl_arena_capped(arena));
    assert_non_null(cl_arena_alloc(arena, 100));
    cl_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_error_carries_code_text_and_errno),
        cmocka_unit_test(test_every_error_row_has_cause_and_remedy),
        cmocka_unit_test(test_grpc_and_errno_map_to_codes),
        cmocka_unit_test(test_a_buffer_grows_to_its_limit_and_no_further),
        cmocka_unit_test(test_a_buffer_survives_each_failed_allocation),
        cmocka_unit_test(test_a_map_agrees_with_a_plain_table_over_random_operations),
        cmocka_unit_test(test_a_map_refuses_more_than_its_limit),
        cmocka_unit_test(test_ids_are_well_formed_sorted_and_unlike),
        cmocka_unit_test(test_ids_of_one_moment_sort_as_they_were_made),
        cmocka_unit_test(test_names_follow_their_rule),
        cmocka_unit_test(test_utf8_is_strict),
        cmocka_unit_test(test_hex_round_trips_and_refuses_others),
        cmocka_unit_test(test_a_file_is_written_whole_or_not_at_all),
        cmocka_unit_test(test_a_folder_is_for_many_or_for_one),
        cmocka_unit_test(test_a_file_without_a_name_gets_one_once),
        cmocka_unit_test(test_a_name_that_is_anothers_by_now_stays),
        cmocka_unit_test(test_a_file_that_shall_have_no_name_gets_none),
        cmocka_unit_test(test_a_socket_that_somebody_has_is_not_replaced),
        cmocka_unit_test(test_a_socket_path_that_is_too_long_names_the_remedy),
        cmocka_unit_test(test_flag_beats_variable_beats_file_beats_default),
        cmocka_unit_test(test_a_bad_configuration_line_is_named),
        cmocka_unit_test(test_an_arena_stops_at_its_cap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
