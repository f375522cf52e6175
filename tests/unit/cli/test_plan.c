/* tests/unit/cli/test_plan.c - what `up` decides before it starts anything. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/plan.h"

static void test_addresses(void **state)
{
    (void)state;
    char host[64];
    assert_int_equal(address_host("0.0.0.0:80", host, sizeof host, NULL), 0);
    assert_string_equal(host, "0.0.0.0");
    assert_int_equal(address_host("[::1]:80", host, sizeof host, NULL), 0);
    assert_string_equal(host, "::1");
    assert_int_equal(address_host("a.example:7443", host, sizeof host, NULL), 0);
    static const char *const bad[] = {"", "host", ":80", "host:", "host:x", "::1:80"};
    for (size_t i = 0; i < CL_COUNT(bad); i++)
        assert_int_equal(address_host(bad[i], host, sizeof host, NULL), -1);
    assert_true(address_is_loopback("127.0.0.1:1") && address_is_loopback("[::1]:1"));
    assert_false(address_is_loopback("10.0.0.1:1"));
}

static void test_who_listens_everywhere_is_reached_as_we_came(void **state)
{
    (void)state;
    static const struct {
        const char *address, *through, *reached;
    } cases[] = {
        {"0.0.0.0:7444", "host-a:7443", "host-a:7444"},
        {"[::]:7444", "[2001:db8::1]:7443", "[2001:db8::1]:7444"},
        {"0.0.0.0:7444", "unix:/run/cloche/api.sock", "127.0.0.1:7444"},
        {"10.0.0.1:7444", "host-a:7443", "10.0.0.1:7444"},
        {"0.0.0.0:7444", "nowhere", "0.0.0.0:7444"},
        {"", "host-a:7443", ""},
    };
    for (size_t i = 0; i < CL_COUNT(cases); i++) {
        char out[64];
        address_as_reached(cases[i].address, cases[i].through, out, sizeof out);
        assert_string_equal(out, cases[i].reached);
    }
}

static void test_redis_promises_what_the_books_need(void **state)
{
    (void)state;
    struct cl_buf out;
    cl_buf_init(&out, 8192);
    assert_int_equal(redis_conf_format(&out, "/s/redis", "/r/redis.sock", NULL), 0);
    assert_int_equal(cl_buf_append(&out, "", 1, NULL), 0);
    static const char *const lines[] = {"\nport 0\n",
                                        "\nappendonly yes\n",
                                        "\nappendfsync always\n",
                                        "\nno-appendfsync-on-rewrite no\n",
                                        "\nsave \"\"\n",
                                        "\naof-load-truncated yes\n",
                                        "\nmaxmemory-policy noeviction\n",
                                        "\ndir \"/s/redis\"\n",
                                        "\nunixsocket \"/r/redis.sock\"\n"};
    for (size_t i = 0; i < CL_COUNT(lines); i++)
        assert_non_null(strstr((const char *)out.data, lines[i]));
    cl_buf_fini(&out);
}

static void test_a_path_cannot_add_lines_to_redis_conf(void **state)
{
    (void)state;
    static const char *const bad[] = {"/a\"b", "/a\nport 1", "/a\\"};
    for (size_t i = 0; i < CL_COUNT(bad); i++) {
        struct cl_buf out;
        cl_buf_init(&out, 8192);
        assert_int_equal(redis_conf_format(&out, bad[i], "/r", NULL), -1);
        cl_buf_fini(&out);
    }
}

static int make(const struct cli_opts *o, struct cl_err *err)
{
    struct plan *p = cl_zalloc(sizeof *p);
    assert_non_null(p);
    int rc = plan_make(o, p, err);
    cl_free(p);
    return rc;
}

static void test_a_socket_path_that_is_too_long_is_refused_with_a_remedy(void **state)
{
    (void)state;
    char run[160];
    struct cl_err err = {0};
    memset(run, 'a', sizeof run);
    run[0] = '/';
    run[sizeof run - 1] = '\0';
    struct cli_opts o = {.state_dir = "/tmp/s", .run_dir = run, .warm = UINT64_MAX};
    assert_int_equal(make(&o, &err), -1);
    assert_non_null(strstr(err.text, "\nchoose a shorter --run-dir"));
}

static void test_tls_is_for_addresses_off_loopback(void **state)
{
    (void)state;
    static const struct {
        const char *listen;
        bool insecure, tls;
    } rows[] = {
        {"127.0.0.1:1", false, false}, {"0.0.0.0:1", false, true}, {"0.0.0.0:1", true, false}};
    struct plan *p = cl_zalloc(sizeof *p);
    assert_non_null(p);
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct cli_opts o = {.state_dir = "/tmp/s",
                             .run_dir = "/tmp/r",
                             .listen = rows[i].listen,
                             .insecure_listen = rows[i].insecure,
                             .metrics = "none"};
        assert_int_equal(plan_make(&o, p, NULL), 0);
        assert_int_equal(p->ca[0] != '\0', rows[i].tls);
        assert_string_equal(p->endpoint, "unix:/tmp/r/api.sock");
        assert_string_equal(p->procs[PROC_SCHEDULER].metrics, "");
    }
    cl_free(p);
}

static void test_only_who_stays_logs_to_its_stderr(void **state)
{
    (void)state;
    struct plan *p = cl_zalloc(sizeof *p);
    struct cl_err err = {0};
    struct cli_opts o = {.state_dir = "/tmp/s", .run_dir = "/tmp/r", .log_to_stderr = true};
    assert_int_equal(plan_make(&o, p, &err), -1);
    assert_non_null(strstr(err.text, "--foreground"));
    o.foreground = true;
    assert_int_equal(plan_make(&o, p, &err), 0);
    assert_string_equal(p->procs[PROC_WORKER].log, "");
    o.log_to_stderr = false;
    assert_int_equal(plan_make(&o, p, &err), 0);
    assert_string_equal(p->procs[PROC_WORKER].log, "/tmp/s/log/worker.log");
    cl_free(p);
}

static void test_a_bad_listen_address_is_named(void **state)
{
    (void)state;
    struct cl_err err = {0};
    struct cli_opts o = {.state_dir = "/tmp/s", .run_dir = "/tmp/r", .listen = "7443"};
    assert_int_equal(make(&o, &err), -1);
    assert_non_null(strstr(err.text, "--listen"));
}

static void test_a_run_folder_that_is_missing_or_ours_is_safe(void **state)
{
    (void)state;
    char dir[] = "/tmp/cloche-run-XXXXXX";
    assert_int_equal(path_check_run("/tmp/cloche-there-is-no-such", NULL), 0);
    assert_non_null(mkdtemp(dir));
    assert_int_equal(path_check_run(dir, NULL), 0);
    if (geteuid() != 0) {
        char link[64];
        (void)snprintf(link, sizeof link, "%s/link", dir);
        assert_int_equal(symlink("/tmp", link), 0);
        assert_int_equal(path_check_run(link, NULL), -1);
        assert_int_equal(unlink(link), 0);
    }
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_who_listens_everywhere_is_reached_as_we_came),
        cmocka_unit_test(test_redis_promises_what_the_books_need),
        cmocka_unit_test(test_a_path_cannot_add_lines_to_redis_conf),
        cmocka_unit_test(test_a_socket_path_that_is_too_long_is_refused_with_a_remedy),
        cmocka_unit_test(test_tls_is_for_addresses_off_loopback),
        cmocka_unit_test(test_only_who_stays_logs_to_its_stderr),
        cmocka_unit_test(test_a_bad_listen_address_is_named),
        cmocka_unit_test(test_a_run_folder_that_is_missing_or_ours_is_safe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
