/* tests/unit/base/test_notify.c - what a service manager hears, on a real socket of its kind. */
#include "base/notify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int manager_at(const char *name) /* '@' first: one without a file */
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    size_t n = strlen(name);
    memcpy(at.sun_path, name, n);
    if (name[0] == '@')
        at.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)),
                     0);
    return fd;
}

static void expect(int fd, const char *text)
{
    char got[2 * CL_NOTIFY_TEXT] = "";
    ssize_t n = recv(fd, got, sizeof got - 1, 0);
    assert_int_equal(n, text ? (ssize_t)strlen(text) : -1);
    if (text)
        assert_string_equal(got, text);
}

/* In a process of its own: it has one manager for life.  Its exit code: 0 when no child would hear
 * of the manager. */
static void in_a_process(const char *socket_at, void (*say)(void))
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        (void)setenv("NOTIFY_SOCKET", socket_at, 1);
        cl_notify_open();
        say();
        _exit(getenv("NOTIFY_SOCKET") != NULL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void say_ready(void)
{
    cl_notify("READY=1");
    cl_notify_status("serves at %s", "here\nSTOPPING=1");
}

static void test_a_manager_hears_each_word(void **state)
{
    (void)state;
    char path[64], name[64];
    (void)snprintf(path, sizeof path, "/tmp/test-notify-%d", (int)getpid());
    (void)snprintf(name, sizeof name, "@test-notify-%d", (int)getpid());
    const char *const places[] = {path, name};
    for (size_t i = 0; i < 2; i++) {
        int fd = manager_at(places[i]);
        in_a_process(places[i], say_ready);
        expect(fd, "READY=1");
        expect(fd, "STATUS=serves at here"); /* and no word that a text brought along */
        expect(fd, NULL);
        (void)close(fd);
    }
    (void)unlink(path);
}

static void say_too_much(void)
{
    char text[CL_NOTIFY_TEXT + 100];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    cl_notify_status("%s", text);
}

static void test_what_is_too_long_is_cut(void **state)
{
    (void)state;
    char name[64], cut[CL_NOTIFY_TEXT];
    (void)snprintf(name, sizeof name, "@test-notify-long-%d", (int)getpid());
    int fd = manager_at(name);
    in_a_process(name, say_too_much);
    memset(cut, 'a', sizeof cut - 1);
    memcpy(cut, "STATUS=", 7);
    cut[sizeof cut - 1] = '\0';
    expect(fd, cut);
    (void)close(fd);
}

static void say_more_than_fits(void)
{
    for (int i = 0; i < 100000; i++)
        cl_notify_status("%d", i);
}

static void test_nobody_waits_for_a_manager(void **state)
{
    (void)state;
    char name[64];
    (void)snprintf(name, sizeof name, "@test-notify-busy-%d", (int)getpid());
    int fd = manager_at(name);
    in_a_process(name, say_more_than_fits);
    expect(fd, "STATUS=0");
    (void)close(fd);
    in_a_process("/tmp/no-manager-here", say_ready); /* gone: nothing is told */
}

static void test_what_names_no_socket_is_left_alone(void **state)
{
    (void)state;
    char longest[200];
    memset(longest, 'a', sizeof longest - 1);
    longest[0] = '/', longest[sizeof longest - 1] = '\0';
    const char *const bad[] = {"", "@", "relative", "vsock:2:1", longest};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        (void)setenv("NOTIFY_SOCKET", bad[i], 1);
        cl_notify_open();
        cl_notify("READY=1");
        assert_string_equal(getenv("NOTIFY_SOCKET"), bad[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_manager_hears_each_word),
        cmocka_unit_test(test_what_is_too_long_is_cut),
        cmocka_unit_test(test_nobody_waits_for_a_manager),
        cmocka_unit_test(test_what_names_no_socket_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
