/* tests/unit/worker/test_move.c - worker/move.h: what a kept sandbox consists of, and that nothing
 * else is taken of one that comes from another worker.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/id.h"
#include "worker/move.h"

enum { MEMORY = 300, IMAGE = 200, DISK = 1 << 20, OUT = 70 };

static struct bench {
    Cloche__V1__KeptSandbox record;
    Cloche__V1__Assign assign;
    Cloche__V1__KeptTemplate template;
    Cloche__V1__SealedFile image, memory;
    Cloche__V1__KeptExec exec, *execs[1];
    Cloche__V1__ExecStartCommand start;
    Cloche__V1__KeptOutput output;
    Cloche__V1__KeptBytes lanes[SPOOL_STREAMS], *streams[SPOOL_STREAMS];
    char unit_id[CL_ID_MAX], exec_id[CL_ID_MAX], ram_id[CL_ID_MAX];
    char image_name[MOVE_NAME_MAX], disk_name[MOVE_NAME_MAX];
    char out_name[MOVE_NAME_MAX], err_name[MOVE_NAME_MAX];
    struct move move;
    uint8_t bytes[MOVE_DATA_MAX + 1];
    struct cl_err err;
} b;

static int set_up(void **state)
{
    (void)state;
    b = (struct bench){0};
    cl_id_new("sbx", b.unit_id);
    cl_id_new("exec", b.exec_id);
    cl_id_new("ram", b.ram_id);
    cloche__v1__kept_sandbox__init(&b.record);
    cloche__v1__assign__init(&b.assign);
    cloche__v1__kept_template__init(&b.template);
    cloche__v1__sealed_file__init(&b.image);
    cloche__v1__sealed_file__init(&b.memory);
    cloche__v1__kept_exec__init(&b.exec);
    cloche__v1__exec_start_command__init(&b.start);
    cloche__v1__kept_output__init(&b.output);
    for (size_t i = 0; i < SPOOL_STREAMS; i++) {
        cloche__v1__kept_bytes__init(&b.lanes[i]);
        b.streams[i] = &b.lanes[i];
    }
    b.assign.unit_id = b.image.name = b.unit_id;
    b.memory.name = b.ram_id;
    b.memory.bytes = MEMORY;
    b.image.bytes = IMAGE;
    b.template.memory = &b.memory;
    b.start.exec_id = b.exec_id;
    b.lanes[SPOOL_STDOUT].bytes = 2 * OUT;
    b.lanes[SPOOL_STDOUT].kept = OUT;
    b.output.streams = b.streams;
    b.output.n_streams = SPOOL_STREAMS;
    b.exec.start = &b.start;
    b.exec.output = &b.output;
    b.execs[0] = &b.exec;
    b.record.assign = &b.assign;
    b.record.template_ = &b.template;
    b.record.image = &b.image;
    b.record.disk_bytes = DISK;
    b.record.execs = b.execs;
    b.record.n_execs = 1;
    (void)snprintf(b.image_name, sizeof b.image_name, "%s.image", b.unit_id);
    (void)snprintf(b.disk_name, sizeof b.disk_name, "%s.disk", b.unit_id);
    (void)snprintf(b.out_name, sizeof b.out_name, "%s.%s.out", b.unit_id, b.exec_id);
    (void)snprintf(b.err_name, sizeof b.err_name, "%s.%s.err", b.unit_id, b.exec_id);
    return 0;
}

/* --- pieces ---------------------------------------------------------------------------------- */

static int take(Cloche__V1__MovePiece *piece)
{
    b.err = (struct cl_err){0};
    int rc = move_take(&b.move, piece, &b.err);
    assert_int_equal(b.err.code, rc < 0 ? CL_E_PEER : CL_OK);
    return rc;
}

static int take_record(void)
{
    Cloche__V1__MovePiece piece = CLOCHE__V1__MOVE_PIECE__INIT;
    piece.what_case = CLOCHE__V1__MOVE_PIECE__WHAT_RECORD;
    return take(&piece);
}

static int take_file(const char *name, uint64_t bytes)
{
    Cloche__V1__MovePiece piece = CLOCHE__V1__MOVE_PIECE__INIT;
    Cloche__V1__MoveFile file = CLOCHE__V1__MOVE_FILE__INIT;
    file.name = (char *)(uintptr_t)name;
    file.bytes = bytes;
    piece.what_case = CLOCHE__V1__MOVE_PIECE__WHAT_FILE;
    piece.file = &file;
    return take(&piece);
}

static int take_data(uint64_t offset, size_t n)
{
    Cloche__V1__MovePiece piece = CLOCHE__V1__MOVE_PIECE__INIT;
    Cloche__V1__MoveData data = CLOCHE__V1__MOVE_DATA__INIT;
    data.offset = offset;
    data.data.data = b.bytes;
    data.data.len = n;
    piece.what_case = CLOCHE__V1__MOVE_PIECE__WHAT_DATA;
    piece.data = &data;
    return take(&piece);
}

static int take_end(void)
{
    Cloche__V1__MovePiece piece = CLOCHE__V1__MOVE_PIECE__INIT;
    piece.what_case = CLOCHE__V1__MOVE_PIECE__WHAT_END;
    piece.end = true;
    return take(&piece);
}

/* The record came, and all of its files are asked for. */
static void ask_for_all(void)
{
    move_init(&b.move);
    assert_int_equal(take_record(), 0);
    assert_int_equal(move_files_of(&b.record, &b.move.files, &b.err), 0);
    for (size_t i = 0; i < b.move.files.n; i++)
        b.move.files.list[i].state = MOVE_FILE_MISSING;
    move_ask(&b.move);
}

static void take_whole(const char *name, uint64_t bytes)
{
    assert_int_equal(take_file(name, bytes), 0);
    for (uint64_t at = 0; at < bytes; at += 50)
        assert_int_equal(take_data(at, (size_t)CL_MIN(bytes - at, (uint64_t)50)), 0);
}

static void take_all_but_disk(void)
{
    take_whole(b.out_name, OUT);
    take_whole(b.err_name, 0);
    take_whole(b.ram_id, MEMORY);
    take_whole(b.image_name, IMAGE);
}

static void refused(int rc, const char *text)
{
    assert_int_equal(rc, -1);
    if (!strstr(b.err.text, text))
        fail_msg("'%s' has no '%s'", b.err.text, text);
}

/* --- tests ------------------------------------------------------------------------------------ */

static void test_a_record_names_its_files(void **state)
{
    (void)state;
    static struct move_files files;
    assert_int_equal(move_files_of(&b.record, &files, &b.err), 0);
    assert_int_equal(files.n, 5);
    const struct {
        const char *name;
        uint64_t bytes;
        bool is_sparse, is_memory;
    } want[] = {{b.ram_id, MEMORY, false, true},
                {b.image_name, IMAGE, false, false},
                {b.disk_name, DISK, true, false},
                {b.out_name, OUT, false, false},
                {b.err_name, 0, false, false}};
    for (size_t i = 0; i < CL_COUNT(want); i++) {
        const struct move_file *f = move_find(&files, want[i].name);
        assert_non_null(f);
        assert_int_equal(f->bytes, want[i].bytes);
        assert_int_equal(f->is_sparse, want[i].is_sparse);
        assert_int_equal(f->is_memory, want[i].is_memory);
        assert_int_equal(f->state, MOVE_FILE_HERE);
    }
    assert_null(move_find(&files, b.unit_id));
    assert_null(move_find(&files, ""));
    b.record.disk_bytes = 0;
    b.record.n_execs = 0;
    assert_int_equal(move_files_of(&b.record, &files, &b.err), 0);
    assert_int_equal(files.n, 2);
}

static void test_a_record_with_the_most_commands_has_room(void **state)
{
    (void)state;
    static Cloche__V1__KeptExec *many[KEPT_EXECS_MAX];
    static struct move_files files;
    for (size_t i = 0; i < KEPT_EXECS_MAX; i++)
        many[i] = &b.exec;
    b.record.execs = many;
    b.record.n_execs = KEPT_EXECS_MAX;
    assert_int_equal(move_files_of(&b.record, &files, &b.err), 0);
    assert_int_equal(files.n, MOVE_FILES_MAX);
}

static void test_memory_by_the_name_of_anothers_file_is_refused(void **state)
{
    (void)state;
    static struct move_files files;
    char other[CL_ID_MAX + 8];
    (void)snprintf(other, sizeof other, "%s.image", b.unit_id);
    const char *const names[] = {other, b.unit_id, "ram", "ram_", "core"};
    for (size_t i = 0; i < CL_COUNT(names); i++) {
        b.err = (struct cl_err){0};
        b.memory.name = (char *)(uintptr_t)names[i];
        assert_int_equal(move_files_of(&b.record, &files, &b.err), -1);
        assert_int_equal(b.err.code, CL_E_INVALID);
    }
}

static void test_lengths_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static struct move_files files;
    uint64_t *const lengths[] = {&b.memory.bytes, &b.image.bytes, &b.record.disk_bytes,
                                 &b.lanes[SPOOL_STDERR].kept};
    for (size_t i = 0; i < CL_COUNT(lengths); i++) {
        uint64_t was = *lengths[i];
        *lengths[i] = (uint64_t)INT64_MAX + 1;
        b.err = (struct cl_err){0};
        assert_int_equal(move_files_of(&b.record, &files, &b.err), -1);
        assert_int_equal(b.err.code, CL_E_INVALID);
        *lengths[i] = was;
    }
}

static void test_all_that_was_asked_for_comes_in_any_order(void **state)
{
    (void)state;
    ask_for_all();
    take_all_but_disk();
    assert_int_equal(take_file(b.disk_name, DISK), 0);
    assert_int_equal(take_data(4096, 4096), 0);
    assert_int_equal(take_data(DISK - 1, 1), 0);
    assert_int_equal(take_end(), 0);
    assert_int_equal(b.move.state, MOVE_DONE);
    ask_for_all();
    take_whole(b.disk_name, DISK);
    take_all_but_disk();
    assert_int_equal(take_end(), 0);
}

static void test_a_file_that_is_here_does_not_come(void **state)
{
    (void)state;
    ask_for_all();
    move_find(&b.move.files, b.ram_id)->state = MOVE_FILE_HERE;
    refused(take_file(b.ram_id, MEMORY), "not asked for");
    ask_for_all();
    move_find(&b.move.files, b.ram_id)->state = MOVE_FILE_HERE;
    take_whole(b.out_name, OUT);
    take_whole(b.err_name, 0);
    take_whole(b.image_name, IMAGE);
    assert_int_equal(take_file(b.disk_name, DISK), 0); /* one without a byte that is not 0 */
    assert_int_equal(take_end(), 0);
}

static void test_what_is_out_of_turn_is_refused(void **state)
{
    (void)state;
    move_init(&b.move);
    refused(take_file(b.ram_id, MEMORY), "a file of a sandbox came out of turn");
    refused(take_data(0, 1), "bytes of a sandbox came out of turn");
    refused(take_end(), "the end of a sandbox came out of turn");
    assert_int_equal(take_record(), 0);
    refused(take_record(), "the record of a sandbox came out of turn");
    refused(take_file(b.ram_id, MEMORY), "out of turn");
    refused(take_data(0, 1), "out of turn");
    refused(take_end(), "out of turn");
    ask_for_all();
    refused(take_record(), "out of turn");
    refused(take_data(0, 1), "out of turn");
    take_all_but_disk();
    take_whole(b.disk_name, DISK);
    assert_int_equal(take_end(), 0);
    refused(take_record(), "out of turn");
    refused(take_file(b.ram_id, MEMORY), "out of turn");
    refused(take_data(0, 1), "out of turn");
    refused(take_end(), "out of turn");
    Cloche__V1__MovePiece piece = CLOCHE__V1__MOVE_PIECE__INIT;
    ask_for_all();
    refused(take(&piece), "does not know");
}

static void test_no_file_but_those_and_each_once(void **state)
{
    (void)state;
    const char *const names[] = {"", "../passwd", "/etc/passwd", b.unit_id, "ram_x"};
    for (size_t i = 0; i < CL_COUNT(names); i++) {
        ask_for_all();
        refused(take_file(names[i], 1), "not asked for, or came before");
    }
    ask_for_all();
    take_whole(b.image_name, IMAGE);
    refused(take_file(b.image_name, IMAGE), "not asked for, or came before");
    ask_for_all();
    refused(take_file(b.image_name, IMAGE - 1), "where its record says 200");
    ask_for_all();
    refused(take_file(b.image_name, UINT64_MAX), "where its record says 200");
}

static void test_each_byte_once_and_within_the_file(void **state)
{
    (void)state;
    static const struct {
        uint64_t offset;
        size_t n;
        const char *text;
    } cases[] = {
        {0, 0, "with 0 bytes"},
        {0, MOVE_DATA_MAX + 1, "where 1 to 1048576 are taken"},
        {99, 1, "where those from 100 are next"},
        {0, 100, "where those from 100 are next"},
        {101, 1, "where those from 100 are next"},
        {UINT64_MAX, 1, "where those from 100 are next"},
        {100, IMAGE - 99, "which has 200"},
        {100, MOVE_DATA_MAX, "which has 200"},
    };
    for (size_t i = 0; i < CL_COUNT(cases); i++) {
        ask_for_all();
        assert_int_equal(take_file(b.image_name, IMAGE), 0);
        assert_int_equal(take_data(0, 100), 0);
        refused(take_data(cases[i].offset, cases[i].n), cases[i].text);
    }
    static const struct {
        uint64_t offset;
        size_t n;
    } sparse[] = {{4095, 1},     {0, 4096},       {DISK, 1},       {DISK + 1, 1},
                  {DISK - 1, 2}, {UINT64_MAX, 1}, {INT64_MAX, 99}, {4096, DISK - 4095}};
    for (size_t i = 0; i < CL_COUNT(sparse); i++) {
        ask_for_all();
        assert_int_equal(take_file(b.disk_name, DISK), 0);
        assert_int_equal(take_data(0, 4096), 0);
        assert_int_equal(take_data(sparse[i].offset, sparse[i].n), -1);
    }
}

static void test_what_ends_too_early_is_refused(void **state)
{
    (void)state;
    ask_for_all();
    refused(take_end(), "came before its");
    ask_for_all();
    assert_int_equal(take_file(b.image_name, IMAGE), 0);
    assert_int_equal(take_data(0, IMAGE - 1), 0);
    refused(take_file(b.ram_id, MEMORY), "ends after 199 of 200 bytes");
    ask_for_all();
    assert_int_equal(take_file(b.out_name, OUT), 0);
    refused(take_end(), "ends after 0 of 70 bytes");
    ask_for_all();
    take_all_but_disk();
    refused(take_end(), b.disk_name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_record_names_its_files, set_up),
        cmocka_unit_test_setup(test_a_record_with_the_most_commands_has_room, set_up),
        cmocka_unit_test_setup(test_memory_by_the_name_of_anothers_file_is_refused, set_up),
        cmocka_unit_test_setup(test_lengths_that_cannot_be_are_refused, set_up),
        cmocka_unit_test_setup(test_all_that_was_asked_for_comes_in_any_order, set_up),
        cmocka_unit_test_setup(test_a_file_that_is_here_does_not_come, set_up),
        cmocka_unit_test_setup(test_what_is_out_of_turn_is_refused, set_up),
        cmocka_unit_test_setup(test_no_file_but_those_and_each_once, set_up),
        cmocka_unit_test_setup(test_each_byte_once_and_within_the_file, set_up),
        cmocka_unit_test_setup(test_what_ends_too_early_is_refused, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
