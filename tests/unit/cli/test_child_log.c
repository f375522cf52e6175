/* tests/unit/cli/test_child_log.c - a log that somebody appends to while it is cut. */
#include "cli/child_log.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { LINES = 400000, MAX = 256 * 1024, PATH = 300 };

/* The second is one that cannot cut a file at its beginning, as tmpfs. */
static const char *home = "/tmp";
static char folder[64], path[PATH], old[PATH];

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "%s/test-child-log-XXXXXX", home);
    if (!mkdtemp(folder))
        return -1;
    (void)snprintf(path, sizeof path, "%s/a.log", folder);
    (void)snprintf(old, sizeof old, "%s.1", path);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)unlink(path);
    (void)unlink(old);
    return rmdir(folder);
}

static off_t size_of(const char *name)
{
    struct stat st;
    return stat(name, &st) == 0 ? st.st_size : -1;
}

static bool can_cut_at_the_beginning(void)
{
    char name[PATH + 8];
    (void)snprintf(name, sizeof name, "%s/probe", folder);
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    bool can = ftruncate(fd, 16384) == 0 && fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, 4096) == 0;
    (void)close(fd);
    (void)unlink(name);
    return can;
}

/* A process of its own, which has the file from its parent.  It is not faster than who cuts, or
 * there would be little to cut. */
static pid_t start_writer(void)
{
    int fd;
    assert_int_equal(child_log_open(path, &fd, NULL), 0);
    pid_t pid = fork();
    for (unsigned i = 0; pid == 0 && i < LINES; i++) {
        char line[32];
        int n = snprintf(line, sizeof line, "line %08u\n", i);
        while (i % 1000 == 0 && size_of(path) > 4 * MAX)
            (void)usleep(1000);
        if (write(fd, line, (size_t)n) != n)
            _exit(1);
    }
    if (pid == 0)
        _exit(0);
    (void)close(fd);
    return pid;
}

static char *read_both(void)
{
    const char *names[] = {old, path};
    char *text = malloc((size_t)(size_of(old) + size_of(path)) + 1);
    size_t n = 0;
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(names[i], "re");
        assert_non_null(f);
        n += fread(text + n, 1, (size_t)size_of(names[i]), f);
        (void)fclose(f);
    }
    text[n] = '\0';
    return text;
}

/* Of a whole text: each line is the next one. */
static void check_lines(const char *text)
{
    unsigned long last = 0;
    char *end = NULL;
    bool first = true;
    for (const char *line = strchr(text, '\n') + 1; *line; line = end + 1, first = false) {
        assert_memory_equal(line, "line ", 5);
        unsigned long number = strtoul(line + 5, &end, 10);
        assert_int_equal(*end, '\n');
        assert_true(first || number == last + 1);
        last = number;
    }
}

static void test_nothing_is_lost_while_it_is_cut(void **state)
{
    (void)state;
    int status, cuts = 0;
    char last[32];
    pid_t writer = start_writer();
    while (waitpid(writer, &status, WNOHANG) == 0) {
        off_t before = size_of(path);
        assert_int_equal(child_log_trim(path, MAX, NULL), 0);
        cuts += before > MAX;
    }
    assert_int_equal(status, 0);
    assert_true(cuts > 2);
    char *text = read_both();
    if (can_cut_at_the_beginning())
        check_lines(text);
    (void)snprintf(last, sizeof last, "line %08u\n", LINES - 1);
    assert_string_equal(text + strlen(text) - strlen(last), last);
    free(text);
}

static void test_a_small_one_is_left_alone(void **state)
{
    (void)state;
    int fd;
    char line[64];
    (void)unlink(path);
    (void)unlink(old);
    assert_int_equal(child_log_trim(path, MAX, NULL), 0); /* none at all */
    child_log_last_line(path, line, sizeof line);
    assert_string_equal(line, "");
    assert_int_equal(child_log_open(path, &fd, NULL), 0);
    assert_int_equal(write(fd, "one\ntwo\n\n", 9), 9);
    assert_int_equal(child_log_trim(path, 9, NULL), 0);
    assert_int_equal(size_of(path), 9);
    assert_int_equal(size_of(old), -1);
    child_log_last_line(path, line, sizeof line);
    assert_string_equal(line, "two");
    child_log_last_line(path, line, 3);
    assert_string_equal(line, "tw");
    (void)close(fd);
}

static void test_a_link_is_not_followed(void **state)
{
    (void)state;
    int fd;
    (void)unlink(path);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_int_equal(child_log_open(path, &fd, NULL), -1);
    assert_int_equal(child_log_trim(path, 0, NULL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_lost_while_it_is_cut),
        cmocka_unit_test(test_a_small_one_is_left_alone),
        cmocka_unit_test(test_a_link_is_not_followed),
    };
    int failed = cmocka_run_group_tests(tests, make_folder, remove_folder);
    home = "/dev/shm";
    return failed + cmocka_run_group_tests(tests, make_folder, remove_folder);
}
