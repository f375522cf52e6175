/* tests/unit/agent/test_port.c - agent/port.h, on folders and a unix socket of our own. */
#include "agent/port.h"

#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"

struct place {
    char dir[64], ports[96], devices[96];
    struct sockaddr_un host;
    struct port_places places;
};

static int make_place(void **state)
{
    static struct place p;
    (void)snprintf(p.dir, sizeof p.dir, "/tmp/cloche-port-XXXXXX");
    assert_non_null(mkdtemp(p.dir));
    (void)snprintf(p.ports, sizeof p.ports, "%s/ports", p.dir);
    (void)snprintf(p.devices, sizeof p.devices, "%s/dev", p.dir);
    p.host = (struct sockaddr_un){.sun_family = AF_UNIX};
    (void)snprintf(p.host.sun_path, sizeof p.host.sun_path, "%s/host", p.dir);
    p.places =
        (struct port_places){p.ports, p.devices, (const struct sockaddr *)&p.host, sizeof p.host};
    assert_return_code(mkdir(p.devices, 0700), 0);
    *state = &p;
    return 0;
}

static int remove_place(void **state)
{
    struct place *p = *state;
    return cl_remove_tree(p->dir, NULL);
}

static void write_text(const char *path, const char *text)
{
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && cl_write_all(fd, text, strlen(text), NULL) == 0);
    (void)close(fd);
}

/* A port with a name, and its device: a plain file with that name in it. */
static void add_port(const struct place *p, const char *entry, const char *name)
{
    char path[256];
    assert_return_code(cl_mkdir_p(p->ports, 0700, NULL), 0);
    (void)snprintf(path, sizeof path, "%s/%s", p->ports, entry);
    assert_return_code(mkdir(path, 0700), 0);
    (void)snprintf(path, sizeof path, "%s/%s/name", p->ports, entry);
    write_text(path, name);
    (void)snprintf(path, sizeof path, "%s/%s", p->devices, entry);
    write_text(path, name);
}

static int listen_as_host(const struct place *p)
{
    int fd = -1;
    assert_return_code(cl_unix_listen(p->host.sun_path, 0600, &fd, NULL), 0);
    return fd;
}

static bool is_socket(int fd)
{
    struct stat st;
    assert_return_code(fstat(fd, &st), 0);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    (void)close(fd);
    return S_ISSOCK(st.st_mode);
}

static void test_without_either_there_is_none(void **state)
{
    struct place *p = *state;
    struct cl_err err = {0};
    int fd = -7;
    assert_int_equal(port_open(&p->places, &fd, &err), -1);
    assert_int_equal(err.code, CL_E_NOTFOUND);
    assert_int_equal(fd, -7);
}

static void test_the_named_port_comes_before_the_host(void **state)
{
    struct place *p = *state;
    int host = listen_as_host(p), fd;
    add_port(p, "vport0p1", "some.other\n");
    add_port(p, "vport0p2", "cloche.agent\n");
    assert_int_equal(port_open(&p->places, &fd, NULL), 0);
    assert_false(is_socket(fd));
    (void)close(host);
}

static void test_without_the_named_port_it_is_the_host(void **state)
{
    struct place *p = *state;
    int host = listen_as_host(p), fd;
    add_port(p, "vport0p1", "cloche.agent.not\n");
    assert_int_equal(port_open(&p->places, &fd, NULL), 0);
    assert_true(is_socket(fd));
    (void)close(host);
}

static void test_a_port_that_has_no_device_yet_is_waited_for(void **state)
{
    struct place *p = *state;
    char path[256];
    int fd;
    add_port(p, "vport0p1", "cloche.agent\n");
    (void)snprintf(path, sizeof path, "%s/vport0p1", p->devices);
    assert_return_code(unlink(path), 0);
    assert_int_equal(port_open(&p->places, &fd, NULL), -1);
    write_text(path, "");
    assert_int_equal(port_open(&p->places, &fd, NULL), 0);
    (void)close(fd);
}

static void test_a_guest_asks_the_host_at_port_1024(void **state)
{
    (void)state;
    struct port_places places;
    port_places_init(&places);
    const struct sockaddr_vm *vm = (const void *)places.host;
    assert_int_equal(places.host_len, sizeof *vm);
    assert_int_equal(vm->svm_family, AF_VSOCK);
    assert_int_equal(vm->svm_cid, 2);
    assert_int_equal(vm->svm_port, 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_without_either_there_is_none, make_place,
                                        remove_place),
        cmocka_unit_test_setup_teardown(test_the_named_port_comes_before_the_host, make_place,
                                        remove_place),
        cmocka_unit_test_setup_teardown(test_without_the_named_port_it_is_the_host, make_place,
                                        remove_place),
        cmocka_unit_test_setup_teardown(test_a_port_that_has_no_device_yet_is_waited_for,
                                        make_place, remove_place),
        cmocka_unit_test(test_a_guest_asks_the_host_at_port_1024),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
