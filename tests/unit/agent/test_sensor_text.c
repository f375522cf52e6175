/* agent/sensor_text.h: records of the sensor in the words of the guest protocol. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <sys/un.h>

#include "agent/ids.h"
#include "agent/sensor_text.h"

static struct sensor_text text;
static Cloche__V1__GuestEvent out;

static struct sensor_exec exec_of(const char *args, uint32_t bytes, uint32_t n)
{
    struct sensor_exec e = {
        .event = {.kind = SENSOR_EXEC, .number = 9, .uid = AGENT_ID_BASE + 1000},
        .n_args = n,
        .args_bytes = bytes};
    memcpy(e.args, args, bytes);
    return e;
}

static void test_arguments_end_where_the_environment_begins(void **state)
{
    (void)state;
    struct sensor_exec e = exec_of("ls\0-l\0\0SECRET=1\0", 16, 3);
    (void)snprintf(e.path, sizeof e.path, "/bin/ls");
    sensor_describe(&e, sizeof e, &text, &out);
    assert_int_equal(out.n_argv, 3);
    assert_string_equal(out.argv[0], "ls");
    assert_string_equal(out.argv[1], "-l");
    assert_string_equal(out.argv[2], "");
    assert_false(out.cut);
    assert_string_equal(out.path, "/bin/ls");
    assert_int_equal(out.uid, 1000);
    assert_int_equal(out.number, 9);
}

static void test_what_is_cut_says_so(void **state)
{
    (void)state;
    struct sensor_exec e = exec_of("ls\0-l", 5, 2); /* no NUL */
    sensor_describe(&e, sizeof e, &text, &out);
    assert_int_equal(out.n_argv, 2);
    assert_true(out.cut);
    e = exec_of("ls\0", 3, 2); /* one is missing */
    sensor_describe(&e, sizeof e, &text, &out);
    assert_int_equal(out.n_argv, 1);
    assert_true(out.cut);
    e = exec_of("", 0, 1); /* nothing could be read */
    sensor_describe(&e, sizeof e, &text, &out);
    assert_int_equal(out.n_argv, 0);
    assert_true(out.cut);
}

static void test_more_arguments_than_are_kept(void **state)
{
    (void)state;
    char args[2 * 100] = "";
    for (size_t i = 0; i < 100; i++)
        args[2 * i] = 'a';
    struct sensor_exec e = exec_of(args, sizeof args, 100);
    sensor_describe(&e, sizeof e, &text, &out);
    assert_int_equal(out.n_argv, SENSOR_ARGV_MAX);
    assert_true(out.cut);
}

static void test_bytes_that_are_no_text_are_escaped(void **state)
{
    (void)state;
    struct sensor_file w = {.event = {.kind = SENSOR_WRITE, .uid = AGENT_NOBODY_OUT}, .is_new = 1};
    memset(w.path, 0xff, sizeof w.path);
    memcpy(w.event.comm, "sixteen bytes \xff!", SENSOR_COMM_MAX);
    sensor_describe(&w, sizeof w, &text, &out);
    assert_int_equal(strlen(out.path), 4 * sizeof w.path);
    assert_string_equal(out.comm, "sixteen bytes \\xff!");
    assert_int_equal(out.uid, AGENT_NOBODY);
    assert_true(out.created);
    assert_false(out.cut);
    w.is_cut = 1;
    sensor_describe(&w, sizeof w, &text, &out);
    assert_true(out.cut);
}

static void put(struct sensor_place *place, const char *path, bool is_cut)
{
    place->from = (uint32_t)(SENSOR_PATH_MAX - 1 - strlen(path));
    place->is_cut = is_cut;
    memset(place->text, '#', sizeof place->text); /* what is around it means nothing */
    memcpy(place->text + place->from, path, strlen(path));
}

static void test_places_are_read_from_where_they_begin(void **state)
{
    (void)state;
    struct sensor_rename r = {.event = {.kind = SENSOR_RENAME, .uid = AGENT_ID_BASE}};
    put(&r.place, "/tmp/a\xff", false);
    put(&r.to, "/b", false);
    sensor_describe(&r, sizeof r, &text, &out);
    assert_string_equal(out.path, "/tmp/a\\xff");
    assert_string_equal(out.to, "/b");
    assert_false(out.cut);
    char longest[SENSOR_PATH_MAX];
    memset(longest, 'n', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    put(&r.to, longest, true);
    sensor_describe(&r, sizeof r, &text, &out);
    assert_string_equal(out.to, longest);
    assert_true(out.cut);
    struct sensor_remove gone = {.event = {.kind = SENSOR_REMOVE}, .is_folder = 1};
    put(&gone.place, "/d", false);
    sensor_describe(&gone, sizeof gone, &text, &out);
    assert_string_equal(out.path, "/d");
    assert_true(out.folder);
    gone.place.from = UINT32_MAX;
    sensor_describe(&gone, sizeof gone, &text, &out);
    assert_string_equal(out.path, "");
}

static void test_what_is_told_of_files(void **state)
{
    (void)state;
    struct sensor_file f = {
        .event = {.kind = SENSOR_WRITE}, .size = 0, .is_new = 1, .path = "/tmp/\xff"};
    sensor_describe(&f, sizeof f, &text, &out);
    assert_int_equal(out.kind, CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_WRITE);
    assert_string_equal(out.path, "/tmp/\\xff");
    assert_true(out.created);
    assert_false(out.cut);
    f = (struct sensor_file){.event = {.kind = SENSOR_READ}, .is_cut = 1, .path = "end/of/it"};
    sensor_describe(&f, sizeof f, &text, &out);
    assert_int_equal(out.kind, CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_READ);
    assert_string_equal(out.path, "end/of/it");
    assert_false(out.created);
    assert_true(out.cut);
    f = (struct sensor_file){.event = {.kind = SENSOR_TRUNCATE}, .size = 1ULL << 40, .path = "/a"};
    sensor_describe(&f, sizeof f, &text, &out);
    assert_int_equal(out.kind, CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_TRUNCATE);
    assert_string_equal(out.path, "/a");
    assert_int_equal(out.size, 1ULL << 40);
}

static const Cloche__V1__GuestEvent *address_of(const void *address, size_t bytes)
{
    struct sensor_address a = {.event = {.kind = SENSOR_CONNECT}, .bytes = (uint32_t)bytes};
    memcpy(a.address, address, bytes);
    sensor_describe(&a, sizeof a, &text, &out);
    return &out;
}

static void test_addresses_of_each_family(void **state)
{
    (void)state;
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(443)};
    (void)inet_pton(AF_INET, "192.0.2.9", &in.sin_addr);
    assert_string_equal(address_of(&in, sizeof in)->address, "192.0.2.9");
    assert_int_equal(out.port, 443);
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(53)};
    (void)inet_pton(AF_INET6, "2001:db8::1", &in6.sin6_addr);
    assert_string_equal(address_of(&in6, sizeof in6)->address, "2001:db8::1");
    assert_int_equal(out.port, 53);
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    memset(un.sun_path, 'p', sizeof un.sun_path); /* no NUL: allowed */
    assert_int_equal(strlen(address_of(&un, sizeof un)->path), sizeof un.sun_path);
    memcpy(un.sun_path, "\0name", 6);
    assert_string_equal(address_of(&un, offsetof(struct sockaddr_un, sun_path) + 5)->path, "@name");
    assert_string_equal(address_of(&un, offsetof(struct sockaddr_un, sun_path))->path, "");
    struct sockaddr netlink = {.sa_family = AF_NETLINK};
    assert_string_equal(address_of(&netlink, sizeof netlink)->address, "family 16");
}

static void test_system_calls_have_names_or_numbers(void **state)
{
    (void)state;
    struct sensor_call c = {.event = {.kind = SENSOR_DENIED}, .number = 165, .args = {1, 2, 3}};
    sensor_describe(&c, sizeof c, &text, &out);
    assert_string_equal(out.call, "mount");
    assert_int_equal(out.n_args, 3);
    assert_int_equal(out.args[2], 3);
    c.number = 99999;
    sensor_describe(&c, sizeof c, &text, &out);
    assert_string_equal(out.call, "99999");
    c.number = 20;
    c.is_i386 = 1;
    sensor_describe(&c, sizeof c, &text, &out);
    assert_string_equal(out.call, "i386:getpid");
}

static void test_a_short_record_is_filled_up_with_zeros(void **state)
{
    (void)state;
    struct sensor_trace t = {.event = {.kind = SENSOR_TRACE}, .target = 77};
    sensor_describe(&t, sizeof t, &text, &out);
    assert_int_equal(out.target, 77);
    sensor_describe(&t, sizeof t.event, &text, &out);
    assert_int_equal(out.target, 0);
}

static struct sensor_calls calls;
static struct sensor_calls_text calls_text;

static void test_calls_have_their_names(void **state)
{
    (void)state;
    memset(&calls, 0, sizeof calls);
    calls.times[0] = 7;   /* read */
    calls.times[231] = 1; /* exit_group */
    calls.times[SENSOR_CALLS_OTHER] = 5;
    assert_int_equal(sensor_calls_total(&calls), 13);
    sensor_describe_calls(&calls, 42, &calls_text, &out);
    assert_int_equal(out.kind, CLOCHE__V1__GUEST_EVENT_KIND__GUEST_EVENT_KIND_CALLS);
    assert_int_equal(out.at_ns, 42);
    assert_int_equal(out.n_calls, 3);
    assert_string_equal(out.calls[0]->call, "read");
    assert_int_equal(out.calls[0]->times, 7);
    assert_string_equal(out.calls[1]->call, "exit_group");
    assert_string_equal(out.calls[2]->call, "other");
    assert_int_equal(out.calls[2]->times, 5);
}

static void test_no_calls_are_none(void **state)
{
    (void)state;
    memset(&calls, 0, sizeof calls);
    sensor_describe_calls(&calls, 1, &calls_text, &out);
    assert_int_equal(out.n_calls, 0);
}

/* Whatever was called: it fits, none is missing in the sum, and what has no name keeps its number.
 */
static void test_all_calls_fit(void **state)
{
    (void)state;
    uint64_t total = 0;
    for (size_t i = 0; i < SENSOR_CALLS_MAX; i++)
        calls.times[i] = 1;
    sensor_describe_calls(&calls, 1, &calls_text, &out);
    assert_int_equal(out.n_calls, SENSOR_CALLS_TOLD + 1);
    assert_string_equal(out.calls[SENSOR_CALLS_TOLD]->call, "other");
    for (size_t i = 0; i < out.n_calls; i++)
        total += out.calls[i]->times;
    assert_int_equal(total, SENSOR_CALLS_MAX);
    memset(&calls, 0, sizeof calls);
    calls.times[SENSOR_CALLS_OTHER - 1] = 3;
    sensor_describe_calls(&calls, 1, &calls_text, &out);
    assert_string_equal(out.calls[0]->call, "478");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments_end_where_the_environment_begins),
        cmocka_unit_test(test_what_is_cut_says_so),
        cmocka_unit_test(test_more_arguments_than_are_kept),
        cmocka_unit_test(test_bytes_that_are_no_text_are_escaped),
        cmocka_unit_test(test_places_are_read_from_where_they_begin),
        cmocka_unit_test(test_what_is_told_of_files),
        cmocka_unit_test(test_addresses_of_each_family),
        cmocka_unit_test(test_system_calls_have_names_or_numbers),
        cmocka_unit_test(test_a_short_record_is_filled_up_with_zeros),
        cmocka_unit_test(test_calls_have_their_names),
        cmocka_unit_test(test_no_calls_are_none),
        cmocka_unit_test(test_all_calls_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
