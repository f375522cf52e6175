/* tests/unit/web/test_methods.c - which methods there are, by path, as the .proto files have them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "web/methods.h"
#include "web/page.h"
#include "web/protojson.h"
#include "web/server.h"

static void test_all_have_json(void **state)
{
    (void)state;
    size_t n = 0;
    for (size_t i = 0; web_method_service(i); i++) {
        const ProtobufCServiceDescriptor *service = web_method_service(i);
        for (unsigned j = 0; j < service->n_methods; j++, n++) {
            assert_true(protojson_can(service->methods[j].input));
            assert_true(protojson_can(service->methods[j].output));
        }
    }
    assert_true(n > 50);
}

/* The table of what streams is by hand: it must say what the sources say. */
static void test_streams_are_those_of_the_sources(void **state)
{
    (void)state;
    size_t n = 0;
    for (size_t i = 0; web_method_service(i); i++) {
        const ProtobufCServiceDescriptor *service = web_method_service(i);
        char name[64], file[256], line[512], method[64], in[96], out[96];
        size_t len = (size_t)(strstr(service->short_name, "Service") - service->short_name);
        (void)snprintf(name, sizeof name, "%.*s", (int)len, service->short_name);
        name[0] = (char)(name[0] - 'A' + 'a');
        (void)snprintf(file, sizeof file, "%s/proto/cloche/v1/%s.proto", CLOCHE_SOURCE, name);
        FILE *f = fopen(file, "r");
        assert_non_null(f);
        while (fgets(line, sizeof line, f)) {
            if (sscanf(line, "  rpc %63[A-Za-z](%95[^)]) returns (%95[^)]);", method, in, out) != 3)
                continue;
            char path[160];
            struct web_method found;
            struct cl_err err = {0};
            (void)snprintf(path, sizeof path, "/%s/%s", service->name, method);
            int rc = web_method_find(path, &found, &err);
            bool takes = strncmp(in, "stream ", 7) == 0, gives = strncmp(out, "stream ", 7) == 0;
            if (takes && gives ? rc == 0 || err.code != CL_E_UNIMPL
                               : rc < 0 || found.takes_many != takes || found.streams != gives)
                fail_msg("%s is not as %s says", path, file);
            n++;
        }
        (void)fclose(f);
    }
    assert_true(n > 50);
}

static void test_others(void **state)
{
    (void)state;
    static const char *const none[] = {
        "/cloche.v1.JobService/Fly", "/cloche.v1.JobService/",
        "/cloche.v1.JobService/run", "/cloche.v1.WorkerService/Session",
        "/cloche.v1.JobService",     "/cloche.v1.JobServiceX/Run",
        "cloche.v1.JobService/Run",  "/"};
    for (size_t i = 0; i < CL_COUNT(none); i++) {
        struct web_method found;
        struct cl_err err = {0};
        assert_int_equal(web_method_find(none[i], &found, &err), -1);
        assert_int_equal(err.code, CL_E_NOTFOUND);
    }
    assert_true(web_serves("/cloche.v1.JobService/Fly"));
    assert_true(web_serves("/"));
    assert_true(web_serves("/dashboard/app.js"));
    assert_true(web_serves("/dashboard/tenants.js"));
    assert_false(web_serves("/cloche.v1.WorkerService/Session"));
    assert_false(web_serves("/dashboard/../app.js"));
    assert_false(web_serves("/mcp"));
}

static void test_the_pages_config(void **state)
{
    (void)state;
    char json[WEB_CONFIG_MAX];
    web_page_config("localhost:7780", json);
    assert_string_equal(json, "{\"port_url\":\"http://0-sbx-{id}.{secret}.localhost:7780/\"}");
    web_page_config("https://a.org", json);
    assert_string_equal(
        json, "{\"port_url\":\"https://0-sbx-{id}.a.org/?cloche_link=clp_{id}_{secret}\"}");
    web_page_config("", json);
    assert_string_equal(json, "{}");
    web_page_config("a\".org", json);
    assert_string_equal(json, "{}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_have_json),
        cmocka_unit_test(test_streams_are_those_of_the_sources),
        cmocka_unit_test(test_others),
        cmocka_unit_test(test_the_pages_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
