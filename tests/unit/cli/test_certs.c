/* tests/unit/cli/test_certs.c - a CA and a server's certificate, in a folder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "base/fs.h"
#include "cli/plan.h"

static char dir[] = "/tmp/cloche-certs-XXXXXX";

static int setup(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return cl_remove_tree(dir, NULL);
}

static X509 *load(const char *name)
{
    char path[PATH_TEXT];
    path_join(path, dir, name);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    X509 *cert = PEM_read_X509(f, NULL, NULL, NULL);
    assert_int_equal(fclose(f), 0);
    assert_non_null(cert);
    return cert;
}

static mode_t mode_of(const char *name)
{
    struct stat st;
    char path[PATH_TEXT];
    path_join(path, dir, name);
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 0777;
}

static void test_the_server_is_signed_by_the_ca_for_its_host(void **state)
{
    (void)state;
    assert_int_equal(certs_ensure(dir, "10.1.2.3", NULL), 0);
    X509 *ca = load("ca.pem"), *server = load("server.pem");
    EVP_PKEY *key = X509_get_pubkey(ca);
    assert_int_equal(X509_verify(server, key), 1);
    assert_int_equal(X509_check_issued(ca, server), X509_V_OK);
    assert_int_equal(X509_check_ca(ca), 1);
    assert_int_equal(X509_check_ca(server), 0);
    assert_int_equal(X509_check_ip_asc(server, "10.1.2.3", 0), 1);
    assert_int_equal(X509_check_ip_asc(server, "127.0.0.1", 0), 1);
    assert_int_equal(X509_check_host(server, "localhost", 0, 0, NULL), 1);
    assert_int_equal(X509_check_ip_asc(server, "10.9.9.9", 0), 0);
    assert_int_equal(mode_of("ca.key"), 0600);
    assert_int_equal(mode_of("server.key"), 0600);
    EVP_PKEY_free(key);
    X509_free(ca);
    X509_free(server);
}

static void test_a_certificate_that_fits_stays(void **state)
{
    (void)state;
    X509 *before = load("server.pem"), *ca = load("ca.pem");
    assert_int_equal(certs_ensure(dir, "10.1.2.3", NULL), 0);
    X509 *after = load("server.pem");
    assert_int_equal(X509_cmp(before, after), 0);
    X509_free(after);
    assert_int_equal(certs_ensure(dir, "a.example", NULL), 0);
    after = load("server.pem");
    X509 *ca_after = load("ca.pem");
    assert_int_not_equal(X509_cmp(before, after), 0);
    assert_int_equal(X509_cmp(ca, ca_after), 0);
    assert_int_equal(X509_check_host(after, "a.example", 0, 0, NULL), 1);
    X509_free(before);
    X509_free(after);
    X509_free(ca);
    X509_free(ca_after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_server_is_signed_by_the_ca_for_its_host),
        cmocka_unit_test(test_a_certificate_that_fits_stays),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
