/* tests/unit/base/test_addr.c - HOST:PORT. */
#include "base/addr.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void expect(const char *text, const char *host, int family, uint16_t port)
{
    struct cl_addr addr;
    struct cl_err err = {0};
    if (cl_addr_parse(text, &addr, &err) < 0)
        fail_msg("'%s': %s", text, err.text);
    assert_string_equal(addr.host, host);
    assert_int_equal(addr.sa.ss_family, family);
    in_port_t got = family == AF_INET ? ((struct sockaddr_in *)&addr.sa)->sin_port
                                      : ((struct sockaddr_in6 *)&addr.sa)->sin6_port;
    assert_int_equal(ntohs(got), port);
}

static void test_literal_addresses_are_taken_as_they_are(void **state)
{
    (void)state;
    expect("127.0.0.1:80", "127.0.0.1", AF_INET, 80);
    expect("[::1]:65535", "::1", AF_INET6, 65535);
    expect("0.0.0.0:0", "0.0.0.0", AF_INET, 0);
    struct cl_addr addr;
    assert_int_equal(cl_addr_parse(":8080", &addr, NULL), 0);
    assert_string_equal(addr.host, "");
}

static void test_other_texts_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http-x", "127.0.0.1:-1"};
    char longest[CL_ADDR_HOST + 8];
    memset(longest, 'a', sizeof longest);
    memcpy(longest + CL_ADDR_HOST, ":80", 4);
    struct cl_addr addr;
    for (size_t i = 0; i < CL_COUNT(bad); i++)
        assert_int_equal(cl_addr_parse(bad[i], &addr, NULL), -1);
    assert_int_equal(cl_addr_parse(longest, &addr, NULL), -1);
}

static void test_listen_gives_a_socket_or_the_reason(void **state)
{
    (void)state;
    int fd = -1, second = -1;
    char taken[64];
    struct sockaddr_in sin;
    socklen_t n = sizeof sin;
    struct cl_err err = {0};
    assert_int_equal(cl_tcp_listen("127.0.0.1:0", 4, &fd, &err), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sin, &n), 0);
    (void)snprintf(taken, sizeof taken, "127.0.0.1:%d", ntohs(sin.sin_port));
    assert_int_equal(cl_tcp_port(fd), ntohs(sin.sin_port));
    assert_int_equal(cl_tcp_port(-1), 0);
    assert_int_equal(cl_tcp_listen(taken, 4, &second, &err), -1);
    assert_int_equal(second, -1);
    assert_non_null(strstr(err.text, taken));
    (void)close(fd);
}

/* In a child: descriptor 3 may be somebody's here. */
static int listen_as_given(int fd, const char *address, const char *pid)
{
    int got = -1;
    if (dup2(fd, 3) < 0 || setenv("LISTEN_FDS", "1", 1) < 0 || setenv("LISTEN_PID", pid, 1) < 0)
        return 9;
    if (cl_tcp_listen(address, 4, &got, NULL) < 0)
        return 1;
    return got == 3 || (fcntl(3, F_GETFD) & FD_CLOEXEC) == 0 ||
           (fcntl(got, F_GETFD) & FD_CLOEXEC) == 0;
}

static int child_listens(int fd, const char *address, bool is_for_it)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        char pid[16];
        (void)snprintf(pid, sizeof pid, "%d", (int)(is_for_it ? getpid() : getppid()));
        _exit(listen_as_given(fd, address, pid));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_a_socket_that_was_given_is_taken_for_its_address_alone(void **state)
{
    (void)state;
    int fd = -1;
    char taken[64];
    struct sockaddr_in sin;
    socklen_t n = sizeof sin;
    assert_int_equal(cl_tcp_listen("127.0.0.1:0", 4, &fd, NULL), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sin, &n), 0);
    (void)snprintf(taken, sizeof taken, "127.0.0.1:%d", ntohs(sin.sin_port));
    assert_int_equal(child_listens(fd, taken, true), 0);
    assert_int_equal(child_listens(fd, taken, false), 1); /* it is another process's */
    (void)snprintf(taken, sizeof taken, "127.0.0.2:%d", ntohs(sin.sin_port));
    int other = -1;
    assert_int_equal(cl_tcp_listen(taken, 4, &other, NULL), 0);
    assert_int_equal(child_listens(fd, taken, true), 1);
    (void)close(other);
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_literal_addresses_are_taken_as_they_are),
        cmocka_unit_test(test_other_texts_are_refused),
        cmocka_unit_test(test_listen_gives_a_socket_or_the_reason),
        cmocka_unit_test(test_a_socket_that_was_given_is_taken_for_its_address_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
