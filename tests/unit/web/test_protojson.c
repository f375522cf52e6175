/* tests/unit/web/test_protojson.c - messages as JSON and back, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "cloche/v1/exec.pb-c.h"
#include "cloche/v1/job.pb-c.h"
#include "cloche/v1/sandbox.pb-c.h"
#include "cloche/v1/tenant.pb-c.h"
#include "mcp/json.h"
#include "proto/unpack.h"
#include "web/protojson.h"

/* The JSON as a message, in the arena. */
static const ProtobufCMessage *read_as(const char *text, const ProtobufCMessageDescriptor *type,
                                       struct cl_arena *arena)
{
    struct cl_buf wire;
    json_t *object = NULL;
    const ProtobufCMessage *msg = NULL;
    struct cl_err err = {0};
    cl_buf_init(&wire, 65536);
    assert_int_equal(mcp_json_parse(text, strlen(text), &object, &err), 0);
    if (protojson_read(object, type, &wire, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(pb_unpack(type, wire.data, wire.len, arena, &msg, &err), 0);
    json_decref(object);
    cl_buf_fini(&wire);
    return msg;
}

static void assert_refused(const char *text, const ProtobufCMessageDescriptor *type,
                           const char *why)
{
    struct cl_buf wire;
    json_t *object = NULL;
    struct cl_err err = {0};
    cl_buf_init(&wire, 65536);
    assert_int_equal(mcp_json_parse(text, strlen(text), &object, NULL), 0);
    assert_int_equal(protojson_read(object, type, &wire, &err), -1);
    assert_int_equal(err.code, CL_E_INVALID);
    assert_string_equal(err.text, why);
    json_decref(object);
    cl_buf_fini(&wire);
}

static void assert_written(const ProtobufCMessage *msg, const char *want)
{
    json_t *object = protojson_write(msg);
    char *text = json_dumps(object, JSON_COMPACT);
    assert_string_equal(text, want);
    free(text);
    json_decref(object);
}

static void test_all_kinds(void **state)
{
    (void)state;
    static const char text[] =
        "{\"spec\":{\"template\":\"python\",\"command\":{\"argv\":[\"a\",\"\"],"
        "\"env\":[{\"name\":\"A\",\"value\":\"1\"},{}],\"pty\":{\"rows\":4294967295},"
        "\"timeoutNs\":\"18446744073709551615\",\"openStdin\":true},\"network\":\"NETWORK_NONE\"}}";
    struct cl_arena *arena;
    assert_int_equal(cl_arena_new(65536, &arena, NULL), 0);
    const ProtobufCMessage *msg = read_as(text, &cloche__v1__run_request__descriptor, arena);
    const Cloche__V1__JobSpec *spec = ((const Cloche__V1__RunRequest *)msg)->spec;
    assert_string_equal(spec->template_, "python");
    assert_int_equal(spec->command->n_argv, 2);
    assert_int_equal(spec->command->pty->rows, UINT32_MAX);
    assert_true(spec->command->timeout_ns == UINT64_MAX);
    assert_int_equal(spec->network, CLOCHE__V1__NETWORK__NETWORK_NONE);
    assert_written(msg, text); /* in the order of the .proto, defaults left out */
    cl_arena_free(arena);
}

static void test_names_and_forms(void **state)
{
    (void)state;
    static const char *const same[] = {
        "{\"command\":{\"timeoutNs\":\"7\",\"openStdin\":true}}",
        "{\"command\":{\"timeout_ns\":7,\"open_stdin\":true},\"sandboxId\":null,\"labels\":[]}",
    };
    for (size_t i = 0; i < CL_COUNT(same); i++) {
        struct cl_arena *arena;
        assert_int_equal(cl_arena_new(65536, &arena, NULL), 0);
        const ProtobufCMessage *msg =
            read_as(same[i], &cloche__v1__start_request__descriptor, arena);
        assert_written(msg, same[0]);
        cl_arena_free(arena);
    }
}

static void test_bytes(void **state)
{
    (void)state;
    static const char *const same[] = {"{\"data\":\"+/8=\"}", "{\"data\":\"-_8\"}",
                                       "{\"data\":\"+/8\"}"};
    for (size_t i = 0; i < CL_COUNT(same); i++) {
        struct cl_arena *arena;
        assert_int_equal(cl_arena_new(65536, &arena, NULL), 0);
        const ProtobufCMessage *msg = read_as(same[i], &cloche__v1__output__descriptor, arena);
        assert_int_equal(((const Cloche__V1__Output *)msg)->data.len, 2);
        assert_written(msg, same[0]);
        cl_arena_free(arena);
    }
}

/* A number of a oneof counts also when it is 0; a sign is kept. */
static void test_oneof_and_sign(void **state)
{
    (void)state;
    struct cl_arena *arena;
    assert_int_equal(cl_arena_new(65536, &arena, NULL), 0);
    const ProtobufCMessage *msg =
        read_as("{\"signal\":0}", &cloche__v1__control_request__descriptor, arena);
    assert_int_equal(((const Cloche__V1__ControlRequest *)msg)->what_case,
                     CLOCHE__V1__CONTROL_REQUEST__WHAT_SIGNAL);
    assert_written(msg, "{\"signal\":0}");
    assert_written(read_as("{}", &cloche__v1__control_request__descriptor, arena), "{}");
    assert_written(read_as("{\"drift\":-5}", &cloche__v1__get_usage_response__descriptor, arena),
                   "{\"drift\":\"-5\"}");
    assert_written(read_as("{\"drift\":\"-9223372036854775808\"}",
                           &cloche__v1__get_usage_response__descriptor, arena),
                   "{\"drift\":\"-9223372036854775808\"}");
    assert_written(read_as("{\"exitCode\":-1}", &cloche__v1__exec_result__descriptor, arena),
                   "{\"exitCode\":-1}");
    cl_arena_free(arena);
}

/* What a newer scheduler says: the number stands for its name. */
static void test_an_enum_of_tomorrow(void **state)
{
    (void)state;
    Cloche__V1__Sandbox box = CLOCHE__V1__SANDBOX__INIT;
    box.state = (Cloche__V1__UnitState)77;
    assert_written(&box.base, "{\"state\":77}");
    box.state = CLOCHE__V1__UNIT_STATE__UNIT_STATE_PAUSED;
    assert_written(&box.base, "{\"state\":\"UNIT_STATE_PAUSED\"}");
}

static void test_refusals(void **state)
{
    (void)state;
    const ProtobufCMessageDescriptor *run = &cloche__v1__run_request__descriptor,
                                     *control = &cloche__v1__control_request__descriptor;
    static const char range[] = "expected an integer from 0 to 4294967295";
    char why[200];
    assert_refused("[]", run, "expected an object");
    assert_refused("{\"spec\":{\"comand\":{}}}", run, "spec: JobSpec has no field 'comand'");
    assert_refused("{\"spec\":{\"command\":{\"argv\":\"ls\"}}}", run,
                   "spec: command: argv: expected a list");
    assert_refused("{\"spec\":{\"command\":{\"argv\":[\"ls\",7]}}}", run,
                   "spec: command: argv: 1: expected a text");
    assert_refused("{\"spec\":{\"command\":{\"argv\":[null]}}}", run,
                   "spec: command: argv: 0: expected a text");
    assert_refused("{\"spec\":{\"network\":\"NETWORK_ALL\"}}", run,
                   "spec: network: 'NETWORK_ALL' is no Network");
    assert_refused("{\"detachOnDisconnect\":1}", run, "detachOnDisconnect: expected true or false");
    assert_refused("{\"detachOnDisconnect\":true,\"detach_on_disconnect\":true}", run,
                   "detachOnDisconnect: given twice");
    assert_refused("{\"resize\":{},\"signal\":9}", control,
                   "signal: one of those that exclude it is given, too");
    assert_refused("{\"data\":\"a\"}", &cloche__v1__output__descriptor, "data: expected base64");
    static const char *const numbers[] = {"-1",
                                          "4294967296",
                                          "1.5",
                                          "\"\"",
                                          "\"+1\"",
                                          "\"-\"",
                                          "\" 1\"",
                                          "\"0x1\"",
                                          "true",
                                          "{}",
                                          "\"99999999999999999999\""};
    for (size_t i = 0; i < CL_COUNT(numbers); i++) {
        char text[80];
        (void)snprintf(text, sizeof text, "{\"signal\":%s}", numbers[i]);
        (void)snprintf(why, sizeof why, "signal: %s", range);
        assert_refused(text, control, why);
    }
    assert_refused("{\"spec\":{\"maxQueueWaitNs\":\"18446744073709551616\"}}", run,
                   "spec: maxQueueWaitNs: expected an integer from 0 to 18446744073709551615");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_kinds),
        cmocka_unit_test(test_names_and_forms),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_oneof_and_sign),
        cmocka_unit_test(test_an_enum_of_tomorrow),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
