/* tests/unit/agent/test_image_conf.c - agent/image_conf.h. */
#include "agent/image_conf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/person.h"

static void test_what_it_says_is_read(void **state)
{
    (void)state;
    static const char text[] =
        "name=app\0home=/srv/app\0cwd=/srv/app/src\0env=A=1\0env=B=x=y\0env=C=";
    struct image_conf conf;
    assert_int_equal(image_conf_parse(text, sizeof text, &conf, NULL), 0);
    assert_string_equal(conf.name, "app");
    assert_string_equal(conf.home, "/srv/app");
    assert_string_equal(conf.cwd, "/srv/app/src");
    assert_int_equal(conf.n_env, 3);
    assert_string_equal(image_conf_getenv(&conf, "A"), "1");
    assert_string_equal(image_conf_getenv(&conf, "B"), "x=y");
    assert_string_equal(image_conf_getenv(&conf, "C"), "");
    assert_null(image_conf_getenv(&conf, "x"));
}

static void test_nothing_is_an_image_without_a_say(void **state)
{
    (void)state;
    struct image_conf conf;
    assert_int_equal(image_conf_parse("", 0, &conf, NULL), 0);
    assert_null(conf.name);
    assert_null(conf.home);
    assert_null(conf.cwd);
    assert_int_equal(conf.n_env, 0);
}

static void test_what_is_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n;
        const char *says;
    } rows[] = {
#define ROW(text, says) {text, sizeof text, says}
        ROW("cwd=/a\0what=1", "record 2: unknown key"),
        ROW("", "record 1: unknown key"),
        ROW("cwd=relative", "record 1"),
        ROW("home=/a\0home=/b", "record 2: the same folder twice"),
        ROW("name=", "record 1"),
        ROW("env==1", "a variable without a name"),
        ROW("env=A", "a variable without a name"),
        ROW("env=A=1\0env=AB=1\0env=A=2", "record 3: variable 'A' twice"),
#undef ROW
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct image_conf conf;
        struct cl_err err = {0};
        assert_int_equal(image_conf_parse(rows[i].text, rows[i].n, &conf, &err), -1);
        assert_int_equal(err.code, CL_E_INVALID);
        assert_non_null(strstr(err.text, rows[i].says));
    }
    struct image_conf conf;
    struct cl_err err = {0};
    assert_int_equal(image_conf_parse("cwd=/a", 6, &conf, &err), -1);
    assert_non_null(strstr(err.text, "no end"));
}

static void test_limits(void **state)
{
    (void)state;
    static char text[IMAGE_CONF_MAX + 1];
    size_t n = 0;
    struct image_conf conf;
    struct people people;
    struct cl_err err = {0};
    for (int i = 0; i <= IMAGE_ENV_MAX; i++) {
        assert_int_equal(image_conf_parse(text, n, &conf, &err), 0);
        n += (size_t)snprintf(text + n, sizeof text - n, "env=V%d=", i) + 1;
    }
    assert_int_equal(image_conf_parse(text, n, &conf, &err), -1);
    assert_int_equal(err.code, CL_E_TOOBIG);
    assert_int_equal(image_conf_parse(text, sizeof text, &conf, &err), -1);
    assert_int_equal(err.code, CL_E_TOOBIG);

    memset(text, 'x', PEOPLE_PATH_MAX + 16);
    memcpy(text, "env=PATH=", 9);
    text[PEOPLE_PATH_MAX + 16] = '\0';
    assert_int_equal(image_conf_parse(text, PEOPLE_PATH_MAX + 17, &conf, &err), 0);
    assert_int_equal(people_init(&people, &conf, &err), -1);
    assert_int_equal(err.code, CL_E_TOOBIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_it_says_is_read),
        cmocka_unit_test(test_nothing_is_an_image_without_a_say),
        cmocka_unit_test(test_what_is_wrong_is_named),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
