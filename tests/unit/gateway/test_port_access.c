/* tests/unit/gateway/test_port_access.c - which credential a proxied request carries. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>

#include "gateway/port_access.h"

#define ID "0123456789abcdefghjkmnpqrs"
#define OTHER "1123456789abcdefghjkmnpqrs"
#define SECRET "abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnop"
#define LINK "clp_" ID "_" SECRET
#define LINK2 "clp_" ID "_0bcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnop"
#define FOREIGN "clp_" OTHER "_" SECRET

static const uint8_t secret[E2B_SECRET] = {1, 2, 3}, wrong[E2B_SECRET] = {4};

struct ask {
    const char *method, *target, *fields, *name_secret;
    bool tls;
};

static struct port_access find(const struct ask *a)
{
    char text[16 * 1024];
    struct port_message *m = NULL;
    struct port_host host = {.port = 80, .sandbox = "sbx_" ID};
    struct port_access access;
    size_t used;
    (void)snprintf(host.secret, sizeof host.secret, "%s", a->name_secret ? a->name_secret : "");
    int n = snprintf(text, sizeof text, "%s %s HTTP/1.1\r\nHost: a\r\n%s\r\n",
                     a->method ? a->method : "GET", a->target ? a->target : "/",
                     a->fields ? a->fields : "");
    assert_int_equal(port_message_new(PORT_REQUEST, &m, NULL), 0);
    assert_int_equal(port_message_feed(m, text, (size_t)n, &used), PORT_HEAD);
    port_access_find(
        &(struct port_asked){
            .request = m, .host = &host, .domain = "example.org", .secret = secret, .tls = a->tls},
        &access);
    port_message_free(m);
    return access;
}

static void test_where_a_credential_can_be(void **state)
{
    (void)state;
    static const struct {
        struct ask ask;
        int status;
        const char *credential;
    } rows[] = {
        {{0}, 401, ""},
        {{.fields = "Authorization: Bearer clk_x\r\n"}, 401, ""},
        {{.name_secret = SECRET}, 0, "Bearer " LINK},
        {{.name_secret = SECRET, .target = "/?cloche_link=" FOREIGN}, 0, "Bearer " LINK},
        {{.fields = "E2B-Traffic-Access-Token: " LINK "\r\n"}, 0, "Bearer " LINK},
        {{.fields = "E2b-Traffic-Access-Token: clk_0_1\r\n"}, 0, "Bearer clk_0_1"},
        {{.fields = "E2b-Traffic-Access-Token: " FOREIGN "\r\n"}, 403, ""},
        {{.fields = "E2b-Traffic-Access-Token: clp_x\r\n"}, 403, ""},
        {{.fields = "E2b-Traffic-Access-Token: nonsense\r\n"}, 401, ""},
        {{.fields = "E2b-Traffic-Access-Token: clk_0 1\r\n"}, 400, ""},
        {{.fields = "E2b-Traffic-Access-Token: clk_\x80\r\n"}, 400, ""},
        {{.fields = "E2b-Traffic-Access-Token: clk_0\r\nE2b-Traffic-Access-Token: clk_0\r\n"},
         400,
         ""},
        {{.fields = "E2b-Traffic-Access-Token: \r\n"}, 401, ""},
        {{.fields = "E2b-Traffic-Access-Token: clk_1\r\n", .name_secret = SECRET},
         0,
         "Bearer " LINK},
        {{.target = "/a?cloche_link=" LINK}, 302, ""},
        {{.target = "/a?cloche_link=" LINK, .method = "POST"}, 0, "Bearer " LINK},
        {{.target = "/a?cloche_link=" FOREIGN}, 403, ""},
        {{.target = "/a?cloche_link="}, 403, ""},
        {{.target = "/a?cloche_link"}, 401, ""},
        {{.target = "/a?cloche_link=" LINK2, .fields = "Cookie: cloche_link=" LINK "\r\n"},
         302,
         ""},
        {{.fields = "Cookie: a=b; cloche_link=" LINK "; c=d\r\n"}, 0, "Bearer " LINK},
        {{.fields = "Cookie: cloche_link=" FOREIGN "\r\n"}, 401, ""},
        {{.fields = "Cookie: cloche_link=" LINK "\r\n", .tls = true}, 401, ""},
        {{.fields = "Cookie: __Host-cloche_link=" LINK "\r\n", .tls = true}, 0, "Bearer " LINK},
        {{.fields = "Cookie: __Host-cloche_link=" LINK "\r\n"}, 401, ""},
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        struct port_access a = find(&rows[i].ask);
        if (a.status != rows[i].status || strcmp(a.credential, rows[i].credential) != 0)
            fail_msg("row %zu: %d '%s'", i, a.status, a.credential);
        assert_true(a.status < 400 || (a.text && a.text[0]));
        assert_true(a.status != 302 || strncmp(a.link, "clp_" ID, 30) == 0);
    }
}

static void test_the_cookie_is_for_the_sandboxs_own_pages(void **state)
{
    (void)state;
    static const struct {
        const char *origin;
        int status;
    } rows[] = {
        {"http://80-sbx_" ID ".example.org", 0},
        {"https://8080-sbx-" ID ".example.org:8443", 0},
        {"http://80-sbx_" ID "." SECRET ".example.org", 0},
        {"http://80-sbx_" OTHER ".example.org", 403},
        {"http://example.org", 403},
        {"http://evil.org", 403},
        {"http://evil.org/80-sbx_" ID ".example.org", 403},
        {"80-sbx_" ID ".example.org", 403},
        {"null", 403},
        {"", 403},
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        char fields[400];
        int n = snprintf(fields, sizeof fields, "Origin: %s\r\n", rows[i].origin);
        (void)snprintf(fields + n, sizeof fields - (size_t)n, "Cookie: cloche_link=" LINK "\r\n");
        struct port_access a = find(&(struct ask){.fields = fields});
        if (a.status != rows[i].status)
            fail_msg("'%s': %d", rows[i].origin, a.status);
        a = find(&(struct ask){.fields = fields, .name_secret = SECRET});
        assert_int_equal(a.status, 0); /* who knows it may ask from anywhere */
    }
    struct port_access a = find(&(struct ask){
        .fields = "Cookie: cloche_link=" LINK "\r\nOrigin: http://1-sbx_" ID ".example.org\r\n"
                  "Origin: http://1-sbx_" ID ".example.org\r\n"});
    assert_int_equal(a.status, 403);
}

static void test_the_access_token_of_e2b(void **state)
{
    (void)state;
    struct e2b_grant grant;
    char token[E2B_TOKEN_MAX], fields[E2B_TOKEN_MAX + 100];
    static const struct {
        const char *sandbox;
        const uint8_t *secret;
        int status;
    } rows[] = {{"sbx_" ID, secret, 0}, {"sbx_" OTHER, secret, 403}, {"sbx_" ID, wrong, 401}};
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        assert_int_equal(
            e2b_grant_make(rows[i].sandbox, "Bearer clk_1_2", "{\"A\":1}", &grant, NULL), 0);
        assert_int_equal(e2b_token_seal(rows[i].secret, &grant, token, NULL), 0);
        (void)snprintf(fields, sizeof fields, "E2b-Traffic-Access-Token: %s\r\n", token);
        struct port_access a = find(&(struct ask){.fields = fields});
        assert_int_equal(a.status, rows[i].status);
        assert_string_equal(a.credential, rows[i].status ? "" : "Bearer clk_1_2");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_where_a_credential_can_be),
        cmocka_unit_test(test_the_cookie_is_for_the_sandboxs_own_pages),
        cmocka_unit_test(test_the_access_token_of_e2b),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
