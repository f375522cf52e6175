/* tests/unit/cli/test_forward.c - words of `sandbox forward`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "cli/forward.h"

static void test_words_are_ports(void **state)
{
    (void)state;
    static const struct {
        const char *word, *address; /* NULL = refused */
        uint32_t port;
    } rows[] = {
        {"8000", "127.0.0.1:8000", 8000},
        {"9000:8000", "127.0.0.1:9000", 8000},
        {"0:8000", "127.0.0.1:0", 8000},
        {"0.0.0.0:9000:8000", "0.0.0.0:9000", 8000},
        {"[::1]:0:65535", "[::1]:0", 65535},
        {"", NULL, 0},
        {"0", NULL, 0},
        {"65536", NULL, 0},
        {"000008000", NULL, 0},
        {"-1", NULL, 0},
        {"8000:", NULL, 0},
        {":8000", NULL, 0},
        {"9000:0", NULL, 0},
        {"9000:http", NULL, 0},
        {"localhost:8000", NULL, 0}, /* which of the two would be local? */
        {":9000:8000", NULL, 0},
        {"a:b:c", NULL, 0},
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct forward_port p;
        struct cl_err err = {0};
        int rc = forward_parse(rows[i].word, &p, &err);
        assert_int_equal(rc, rows[i].address ? 0 : -1);
        if (rc < 0) {
            assert_int_equal(err.code, CL_E_INVALID);
            continue;
        }
        assert_string_equal(p.address, rows[i].address);
        assert_int_equal(p.port, rows[i].port);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_are_ports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
