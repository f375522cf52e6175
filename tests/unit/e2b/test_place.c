/* tests/unit/e2b/test_place.c - how commands run in a built template, as labels and back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/id.h"
#include "e2b/place.h"

static struct e2b_place place, back;
static struct e2b_place_labels labels;

static void there_and_back(void)
{
    e2b_place_write(&place, &labels);
    for (size_t i = 0; i < labels.n; i++) {
        assert_true(cl_name_is_valid(labels.list[i]->key));
        assert_true(e2b_place_has(labels.list[i]->key));
        assert_in_range(strlen(labels.list[i]->value), 1, E2B_PLACE_TEXT - 1);
    }
    e2b_place_read(labels.list, labels.n, &back);
    assert_string_equal(back.template_, place.template_);
    assert_string_equal(back.user, place.user);
    assert_string_equal(back.cwd, place.cwd);
    assert_string_equal(back.env, place.env);
}

static void test_there_and_back(void **state)
{
    (void)state;
    place = (struct e2b_place){.template_ = "my.app", .user = "root", .cwd = "/app"};
    json_t *env = json_pack("{s:s, s:s}", "A", "\xc3\xbc", "B", "\"\n");
    assert_int_equal(e2b_place_set_env(&place, env, NULL), 0);
    assert_string_equal(place.env, "{\"A\":\"\\u00FC\",\"B\":\"\\\"\\n\"}");
    there_and_back();
    assert_int_equal(labels.n, 4);
    json_decref(env);
    place = (struct e2b_place){.template_ = ""};
    there_and_back();
    assert_int_equal(labels.n, 0);
}

/* An object {"A":"xx..."} of n bytes. */
static int set_env_of(size_t n, struct cl_err *err)
{
    static char value[E2B_PLACE_ENV + 16];
    memset(value, 'x', sizeof value);
    value[n - strlen("{\"A\":\"\"}")] = '\0';
    json_t *env = json_pack("{s:s}", "A", value);
    int rc = e2b_place_set_env(&place, env, err);
    json_decref(env);
    return rc;
}

static void test_an_environment_has_as_many_pieces_as_it_needs(void **state)
{
    (void)state;
    static const size_t sizes[] = {255, 256, 257, 511, 512, 513, E2B_PLACE_ENV - 1};
    place = (struct e2b_place){.template_ = "a"};
    for (size_t i = 0; i < CL_COUNT(sizes); i++) {
        assert_int_equal(set_env_of(sizes[i], NULL), 0);
        assert_int_equal(strlen(place.env), sizes[i]);
        there_and_back();
        assert_int_equal(labels.n, 1 + (sizes[i] + 255) / 256);
    }
    struct cl_err err = {0};
    assert_int_equal(set_env_of(E2B_PLACE_ENV, &err), -1);
    assert_int_equal(err.code, CL_E_TOOBIG);
    assert_string_equal(place.env, "");
}

static void test_labels_of_strangers(void **state)
{
    (void)state;
    char value[2 * E2B_PLACE_TEXT];
    memset(value, 'v', sizeof value);
    value[sizeof value - 1] = '\0';
    static char keys[][E2B_PLACE_KEY] = {"e2b-template", "e2b-user",  "e2b-cwd", "e2b-env-a",
                                         "e2b-env-l",    "e2b-env-m", "m-a"};
    Cloche__V1__Label l[CL_COUNT(keys)], *list[CL_COUNT(keys)];
    for (size_t i = 0; i < CL_COUNT(keys); i++) {
        cloche__v1__label__init(&l[i]);
        l[i].key = keys[i];
        l[i].value = value;
        list[i] = &l[i];
    }
    e2b_place_read(list, CL_COUNT(keys), &back);
    assert_int_equal(strlen(back.cwd), E2B_PLACE_TEXT - 1);
    assert_int_equal(strlen(back.env), 512); /* of -a and -l */
    assert_false(e2b_place_has("m-a"));
    assert_false(e2b_place_has("e2b-traffic"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_an_environment_has_as_many_pieces_as_it_needs),
        cmocka_unit_test(test_labels_of_strangers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
