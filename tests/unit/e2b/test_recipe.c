/* tests/unit/e2b/test_recipe.c - what Template.build of the SDKs says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "e2b/recipe.h"
#include "mcp/json.h"

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static json_t *body;
static struct e2b_recipe recipe;

/* Of steps, in JSON. */
static enum cl_code read_steps(const char *steps, struct cl_err *err)
{
    char text[4096];
    (void)snprintf(text, sizeof text, "{\"fromTemplate\":\"python\",\"steps\":[%s]}", steps);
    json_decref(body);
    body = NULL;
    assert_int_equal(mcp_json_parse(text, strlen(text), &body, NULL), 0);
    *err = (struct cl_err){0};
    return e2b_recipe_read(body, &recipe, err) == 0 ? CL_OK : err->code;
}

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum cl_code code;
        uint32_t vcpus, memory_mib, free_mib;
    } rows[] = {{"{\"name\":\"my-app.1_x\"}", CL_OK, 0, 0, 0},
                {"{\"alias\":\"a\",\"cpuCount\":2,\"memoryMB\":512,\"tags\":[]}", CL_OK, 2, 512, 0},
                {"{\"name\":\"a\",\"cpuCount\":null,\"tags\":null}", CL_OK, 0, 0, 0},
                {"{\"name\":\"a\",\"minFreeDiskMb\":0}", CL_OK, 0, 0, 0},
                {"{\"name\":\"a\",\"minFreeDiskMb\":1000}", CL_OK, 0, 0, 1000},
                {"{\"name\":\"a\",\"minFreeDiskMb\":-1}", CL_E_INVALID, 0, 0, 0},
                {"{}", CL_E_INVALID, 0, 0, 0},
                {"{\"name\":\"\"}", CL_E_INVALID, 0, 0, 0},
                {"{\"name\":\"A\"}", CL_E_INVALID, 0, 0, 0},
                {"{\"name\":\"a/b\"}", CL_E_INVALID, 0, 0, 0},
                {"{\"name\":\"-a\"}", CL_E_INVALID, 0, 0, 0},
                {"{\"name\":\"snp_a\"}", CL_E_INVALID, 0, 0, 0},
                {"{\"name\":1}", CL_E_INVALID, 0, 0, 0},
                {"{\"name\":\"a:v1\"}", CL_E_UNIMPL, 0, 0, 0},
                {"{\"name\":\"a\",\"tags\":[\"v1\"]}", CL_E_UNIMPL, 0, 0, 0},
                {"{\"name\":\"a\",\"cpuCount\":0}", CL_E_INVALID, 0, 0, 0},
                {"{\"name\":\"a\",\"memoryMB\":\"1\"}", CL_E_INVALID, 0, 0, 0},
                {"{\"name\":\"a\",\"memoryMB\":4294967296}", CL_E_INVALID, 0, 0, 0}};
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct e2b_build_wish wish = {.name = NULL};
        struct cl_err err = {0};
        json_t *o = NULL;
        assert_int_equal(mcp_json_parse(rows[i].text, strlen(rows[i].text), &o, NULL), 0);
        int rc = e2b_build_wish_read(o, &wish, &err);
        if ((rc == 0) != (rows[i].code == CL_OK) || err.code != rows[i].code)
            fail_msg("%s: %d, %s", rows[i].text, (int)err.code, err.text);
        if (rc == 0) {
            assert_int_equal(wish.vcpus, rows[i].vcpus);
            assert_int_equal(wish.memory_mib, rows[i].memory_mib);
            assert_int_equal(wish.free_mib, rows[i].free_mib);
        }
        json_decref(o);
    }
    assert_int_equal(e2b_build_wish_read(NULL, &(struct e2b_build_wish){.name = NULL}, NULL), -1);
}

static void test_bases(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum cl_code code;
        const char *base;
    } rows[] = {
        {"{\"fromTemplate\":\"my-app\"}", CL_OK, "my-app"},
        {"{\"fromImage\":\"e2bdev/base\"}", CL_OK, "base"},
        {"{\"fromImage\":\"e2bdev/base:latest\",\"steps\":null}", CL_OK, "base"},
        {"{\"fromImage\":\"e2bdev/code-interpreter@sha256:0\"}", CL_OK, "code-interpreter-v1"},
        {"{\"fromImage\":\"docker.io/e2bdev/base:1\"}", CL_OK, "base"},
        {"{\"fromImage\":\"e2bdev/base2\"}", CL_OK, NULL},
        {"{\"fromImage\":\"python:3.12\"}", CL_OK, NULL},
        {"{\"fromImage\":\"\"}", CL_E_INVALID, NULL},
        {"{}", CL_E_INVALID, NULL},
        {"{\"fromTemplate\":\"\"}", CL_E_INVALID, NULL},
        {"{\"fromTemplate\":\"a\",\"fromImage\":\"b\"}", CL_E_INVALID, NULL},
        {"{\"fromTemplate\":\"a\",\"steps\":{}}", CL_E_INVALID, NULL},
        {"{\"fromTemplate\":\"a\",\"startCmd\":1}", CL_E_INVALID, NULL}};
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct cl_err err = {0};
        json_t *o = NULL;
        assert_int_equal(mcp_json_parse(rows[i].text, strlen(rows[i].text), &o, NULL), 0);
        int rc = e2b_recipe_read(o, &recipe, &err);
        if ((rc == 0) != (rows[i].code == CL_OK) || err.code != rows[i].code)
            fail_msg("%s: %d, %s", rows[i].text, (int)err.code, err.text);
        if (rc == 0 && rows[i].base)
            assert_string_equal(recipe.base, rows[i].base);
        if (rc == 0)
            assert_int_equal(!recipe.image, rows[i].base != NULL);
        json_decref(o);
    }
    assert_int_equal(e2b_recipe_read(NULL, &recipe, NULL), -1);
}

static void test_images(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool same;
    } rows[] = {{"python", "docker.io/library/python:latest", true},
                {"python:3.12", "library/python:3.12", true},
                {"a.org:5000/x/y", "a.org:5000/x/y:latest", true},
                {"a.org/x@sha256:0", "a.org/x@sha256:0", true},
                {"index.docker.io/me/app:1", "me/app:1", true},
                {"python:3.12", "python:3.11", false},
                {"python:3.12", "python", false},
                {"a.org/python", "python", false},
                {"a.org:5000/y", "a.org", false},
                {"python", "", false},
                {"", "", false},
                {":1", ":1", false}};
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        if (e2b_image_is(rows[i].a, rows[i].b) != rows[i].same ||
            e2b_image_is(rows[i].b, rows[i].a) != rows[i].same)
            fail_msg("%s, %s", rows[i].a, rows[i].b);
    }
}

static void test_start_and_ready(void **state)
{
    (void)state;
    static const char text[] = "{\"fromTemplate\":\"a\",\"startCmd\":\"serve\",\"readyCmd\":\"\"}";
    json_t *o = NULL;
    assert_int_equal(mcp_json_parse(text, sizeof text - 1, &o, NULL), 0);
    assert_int_equal(e2b_recipe_read(o, &recipe, NULL), 0);
    assert_string_equal(recipe.start, "serve");
    assert_null(recipe.ready);
    json_decref(o);
}

static void test_each_step_changes_the_place(void **state)
{
    (void)state;
    struct cl_err err;
    struct e2b_place place = {.user = ""};
    struct e2b_step s;
    char line[64];
    assert_int_equal(
        read_steps(
            "{\"type\":\"RUN\",\"args\":[\"make\\nall\"],\"force\":false},"
            "{\"type\":\"WORKDIR\",\"args\":[\"app\"]},"
            "{\"type\":\"USER\",\"args\":[\"root\"]},"
            "{\"type\":\"ENV\",\"args\":[\"A\",\"1\",\"B\",\"\"]},"
            "{\"type\":\"ENV\",\"args\":[\"A\",\"2\"]},"
            "{\"type\":\"COPY\",\"args\":[\"src\",\"lib/\",\"\",\"0755\"],\"filesHash\":\"" HASH
            "\"},"
            "{\"type\":\"COPY\",\"args\":[\"a\",\"/b\",\"user\",\"\"],\"filesHash\":\"" HASH "\"},"
            "{\"type\":\"RUN\",\"args\":[\"id\",\"user\"]},"
            "{\"type\":\"WORKDIR\",\"args\":[\"~/x\"]}",
            &err),
        CL_OK);
    assert_int_equal(recipe.n, 9);
    assert_int_equal(e2b_recipe_step(&recipe, 0, &place, &s, NULL), 0);
    assert_int_equal(s.kind, E2B_RUN);
    assert_string_equal(s.user, "user");
    e2b_step_text(&s, line, sizeof line);
    assert_string_equal(line, "RUN make");
    assert_int_equal(e2b_recipe_step(&recipe, 1, &place, &s, NULL), 0);
    assert_string_equal(s.to, "/home/user/app");
    assert_string_equal(s.user, "user");
    assert_string_equal(place.cwd, "/home/user/app");
    assert_int_equal(e2b_recipe_step(&recipe, 2, &place, &s, NULL), 0);
    assert_string_equal(place.user, "root");
    assert_int_equal(e2b_recipe_step(&recipe, 3, &place, &s, NULL), 0);
    assert_int_equal(e2b_recipe_step(&recipe, 4, &place, &s, NULL), 0);
    assert_string_equal(place.env, "{\"A\":\"2\",\"B\":\"\"}");
    assert_int_equal(e2b_recipe_step(&recipe, 5, &place, &s, NULL), 0);
    assert_string_equal(s.to, "/home/user/app/lib/");
    assert_string_equal(s.owner, "0:0");
    assert_string_equal(s.mode, "0755");
    assert_string_equal(s.hash, HASH);
    e2b_step_text(&s, line, sizeof line);
    assert_string_equal(line, "COPY src /home/user/app/lib/");
    assert_int_equal(e2b_recipe_step(&recipe, 6, &place, &s, NULL), 0);
    assert_string_equal(s.to, "/b");
    assert_string_equal(s.owner, "1000:1000");
    assert_int_equal(e2b_recipe_step(&recipe, 7, &place, &s, NULL), 0);
    assert_string_equal(s.user, "user");
    assert_string_equal(place.user, "root");
    assert_int_equal(e2b_recipe_step(&recipe, 8, &place, &s, NULL), 0);
    assert_string_equal(place.cwd, "/root/x");
}

static void test_steps_that_are_none(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "{}",
        "1",
        "{\"type\":\"run\",\"args\":[\"a\"]}",
        "{\"type\":\"ADD\",\"args\":[\"a\"]}",
        "{\"type\":\"RUN\"}",
        "{\"type\":\"RUN\",\"args\":[]}",
        "{\"type\":\"RUN\",\"args\":[\"\"]}",
        "{\"type\":\"RUN\",\"args\":[1]}",
        "{\"type\":\"RUN\",\"args\":[\"a\\u0000b\"]}",
        "{\"type\":\"RUN\",\"args\":[\"a\",\"nobody\"]}",
        "{\"type\":\"RUN\",\"args\":[\"a\",\"root\",\"b\"]}",
        "{\"type\":\"USER\",\"args\":[\"app\"]}",
        "{\"type\":\"WORKDIR\",\"args\":[\"\"]}",
        "{\"type\":\"ENV\",\"args\":[\"A\"]}",
        "{\"type\":\"ENV\",\"args\":[\"A\",\"1\",\"B\"]}",
        "{\"type\":\"ENV\",\"args\":[\"\",\"1\"]}",
        "{\"type\":\"ENV\",\"args\":[\"A=B\",\"1\"]}",
        "{\"type\":\"COPY\",\"args\":[\"a\",\"b\"]}",
        "{\"type\":\"COPY\",\"args\":[\"a\",\"b\"],\"filesHash\":\"../x\"}",
        "{\"type\":\"COPY\",\"args\":[\"\",\"b\"],\"filesHash\":\"" HASH "\"}",
        "{\"type\":\"COPY\",\"args\":[\"a\",\"\"],\"filesHash\":\"" HASH "\"}",
        "{\"type\":\"COPY\",\"args\":[\"a\",\"b\",\"--x\"],\"filesHash\":\"" HASH "\"}",
        "{\"type\":\"COPY\",\"args\":[\"a\",\"b\",\"u$x\"],\"filesHash\":\"" HASH "\"}",
        "{\"type\":\"COPY\",\"args\":[\"a\",\"b\",\"\",\"u+s\"],\"filesHash\":\"" HASH "\"}"};
    struct cl_err err;
    char steps[1024];
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        (void)snprintf(steps, sizeof steps, "{\"type\":\"RUN\",\"args\":[\"true\"]},%s", rows[i]);
        if (read_steps(steps, &err) != CL_E_INVALID || strncmp(err.text, "step 2: ", 8) != 0)
            fail_msg("%s: %d, %s", rows[i], (int)err.code, err.text);
    }
}

static void test_there_may_be_so_many(void **state)
{
    (void)state;
    json_t *o = json_pack("{s:s, s:[]}", "fromTemplate", "a", "steps");
    json_t *steps = json_object_get(o, "steps");
    char *big = test_malloc(E2B_COMMAND_MAX + 2);
    for (int i = 0; i < E2B_STEPS_MAX; i++)
        json_array_append_new(steps, json_pack("{s:s, s:[s]}", "type", "RUN", "args", "true"));
    assert_int_equal(e2b_recipe_read(o, &recipe, NULL), 0);
    json_array_append_new(steps, json_pack("{s:s, s:[s]}", "type", "RUN", "args", "true"));
    struct cl_err err = {0};
    assert_int_equal(e2b_recipe_read(o, &recipe, &err), -1);
    assert_int_equal(err.code, CL_E_TOOBIG);
    memset(big, 'x', E2B_COMMAND_MAX + 1);
    big[E2B_COMMAND_MAX + 1] = '\0';
    json_array_clear(steps);
    json_array_append_new(steps, json_pack("{s:s, s:[s]}", "type", "RUN", "args", big));
    assert_int_equal(e2b_recipe_read(o, &recipe, &err), -1);
    assert_int_equal(
        json_array_set_new(steps, 0, json_pack("{s:s, s:[s]}", "type", "RUN", "args", big + 1)), 0);
    assert_int_equal(e2b_recipe_read(o, &recipe, NULL), 0);
    test_free(big);
    json_decref(o);
}

static int teardown(void **state)
{
    (void)state;
    json_decref(body);
    body = NULL;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_bases),
        cmocka_unit_test(test_images),
        cmocka_unit_test(test_start_and_ready),
        cmocka_unit_test_teardown(test_each_step_changes_the_place, teardown),
        cmocka_unit_test_teardown(test_steps_that_are_none, teardown),
        cmocka_unit_test(test_there_may_be_so_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
