/* tests/unit/agent/test_cell_env.c - agent/cell_env.h. */
#include "agent/cell_env.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"

enum { VARS = 2 };
#define PYTHON CLOCHE__V1__GUEST_LANGUAGE__GUEST_LANGUAGE_PYTHON
#define BASH CLOCHE__V1__GUEST_LANGUAGE__GUEST_LANGUAGE_BASH
#define JAVASCRIPT CLOCHE__V1__GUEST_LANGUAGE__GUEST_LANGUAGE_JAVASCRIPT

struct request {
    Cloche__V1__GuestCell cell;
    Cloche__V1__GuestEnv rows[VARS], *list[VARS];
};

static void fill(struct request *r, const char *const texts[VARS][2])
{
    cloche__v1__guest_cell__init(&r->cell);
    for (size_t i = 0; i < VARS; i++) {
        cloche__v1__guest_env__init(&r->rows[i]);
        r->rows[i].name = (char *)(uintptr_t)texts[i][0];
        r->rows[i].value = (char *)(uintptr_t)texts[i][1];
        r->list[i] = &r->rows[i];
    }
    r->cell.env = r->list;
    r->cell.n_env = VARS;
}

static int check(const char *name, Cloche__V1__GuestLanguage language)
{
    struct request r;
    const char *why = NULL;
    fill(&r, (const char *const[VARS][2]){{"GOOD", "1"}, {name, "2"}});
    int rc = cell_env_check(&r.cell, language, &why);
    if (rc)
        assert_non_null(strstr(why, "name"));
    return rc;
}

static void test_a_name_is_neither_empty_nor_cut(void **state)
{
    (void)state;
    static const Cloche__V1__GuestLanguage all[] = {PYTHON, BASH, JAVASCRIPT};
    for (size_t i = 0; i < CL_COUNT(all); i++) {
        assert_int_equal(check("A", all[i]), 0);
        assert_int_equal(check("_a9", all[i]), 0);
        assert_int_equal(check("", all[i]), EINVAL);
        assert_int_equal(check("A=B", all[i]), EINVAL);
        assert_int_equal(check("=", all[i]), EINVAL);
    }
}

static void test_bash_takes_only_what_it_can_name(void **state)
{
    (void)state;
    static const char *const odd[] = {"9A", "a.b",     "a b", "a-b", "a[0]",
                                      "a+", "a;touch", "$a",  "ä",   "a\nb"};
    for (size_t i = 0; i < CL_COUNT(odd); i++) {
        assert_int_equal(check(odd[i], BASH), EINVAL);
        assert_int_equal(check(odd[i], PYTHON), 0);
        assert_int_equal(check(odd[i], JAVASCRIPT), 0);
    }
}

static void test_more_than_64_kib_is_refused(void **state)
{
    (void)state;
    static char value[CELL_ENV_MAX];
    const char *why;
    struct request r;
    enum { REST = CELL_ENV_MAX - 2 * (CELL_ENV_EACH + 1) };
    memset(value, 'x', REST);
    value[REST] = '\0';
    fill(&r, (const char *const[VARS][2]){{"A", ""}, {"B", value}});
    assert_int_equal(cell_env_check(&r.cell, PYTHON, &why), 0);
    r.rows[0].value = (char *)(uintptr_t) "x";
    assert_int_equal(cell_env_check(&r.cell, PYTHON, &why), E2BIG);
}

static void test_a_line_of_each_goes_to_the_runner(void **state)
{
    (void)state;
    static const char want[] = "env 2\nA=env 8\nB=\xc3\xa4\n'\"=";
    struct request r;
    struct cl_buf out;
    cl_buf_init(&out, 4096);
    fill(&r, (const char *const[VARS][2]){{"A", ""}, {"B", "\xc3\xa4\n'\"="}});
    assert_int_equal(cell_env_write(&r.cell, &out, NULL), 0);
    assert_int_equal(out.len, sizeof want - 1);
    assert_memory_equal(out.data, want, out.len);
    cl_buf_fini(&out);
}

static void test_what_is_counted_has_room_for_the_lines(void **state)
{
    (void)state;
    enum { MANY = CELL_ENV_MAX / (CELL_ENV_EACH + 1), SLACK = 64 };
    static Cloche__V1__GuestEnv row, *list[MANY];
    Cloche__V1__GuestCell cell = CLOCHE__V1__GUEST_CELL__INIT;
    const char *why;
    struct cl_buf out;
    cl_buf_init(&out, CELL_ENV_MAX + SLACK);
    cloche__v1__guest_env__init(&row);
    row.name = (char *)(uintptr_t) "A";
    row.value = (char *)(uintptr_t) "";
    for (size_t i = 0; i < MANY; i++)
        list[i] = &row;
    cell.env = list;
    cell.n_env = MANY;
    assert_int_equal(cell_env_check(&cell, PYTHON, &why), 0);
    assert_int_equal(cell_env_write(&cell, &out, NULL), 0);
    cl_buf_fini(&out);
}

static void test_a_full_buffer_is_said(void **state)
{
    (void)state;
    struct request r;
    struct cl_err err = {0};
    fill(&r, (const char *const[VARS][2]){{"A", "1"}, {"B", "2"}});
    for (size_t max = 0; max < strlen("env 3\nA=1env 3\nB=2"); max++) {
        struct cl_buf out;
        cl_buf_init(&out, max);
        assert_int_equal(cell_env_write(&r.cell, &out, &err), -1);
        cl_buf_fini(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_name_is_neither_empty_nor_cut),
        cmocka_unit_test(test_bash_takes_only_what_it_can_name),
        cmocka_unit_test(test_more_than_64_kib_is_refused),
        cmocka_unit_test(test_a_line_of_each_goes_to_the_runner),
        cmocka_unit_test(test_what_is_counted_has_room_for_the_lines),
        cmocka_unit_test(test_a_full_buffer_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
