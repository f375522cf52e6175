/* What a snapshot tells of pages: the list, and the bytes that hold it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "vmm/page_runs.h"

#define MEM (UINT64_C(64) << 20)
enum { PAGES = 16384, ROOM = 65536 };

static struct page_runs list, loaded;

static size_t save(const struct page_runs *w, uint8_t *bytes)
{
    static const struct state_head head = {.mem_bytes = MEM, .vcpus = 1};
    struct state_writer out;
    size_t n = 0;
    state_writer_init(&out, bytes, ROOM, &head);
    page_runs_save(w, STATE_HOLES, &out);
    assert_int_equal(state_finish(&out, &n, NULL), 0);
    return n;
}

static enum cl_code load(const uint8_t *bytes, size_t n)
{
    struct state_reader in;
    struct state_head head;
    struct cl_err err = {0};
    memset(&loaded, 0xee, sizeof loaded);
    assert_int_equal(state_reader_init(&in, bytes, n, &head, NULL), 0);
    if (page_runs_load(&loaded, STATE_HOLES, head.mem_bytes, &in, &err) < 0)
        return err.code;
    return state_reader_finish(&in, &err) < 0 ? err.code : CL_OK;
}

static void test_pages_become_runs(void **state)
{
    (void)state;
    static const uint32_t pages[] = {0, 1, 2, 4, 7, 8, 16383};
    static const struct page_run want[] = {{0, 5}, {7, 2}, {16383, 1}};
    uint8_t bytes[ROOM];
    list.n = 0;
    for (size_t i = 0; i < CL_COUNT(pages); i++)
        page_runs_add(&list, pages[i]);
    assert_int_equal(list.n, CL_COUNT(want));
    assert_memory_equal(list.runs, want, sizeof want);
    assert_int_equal(load(bytes, save(&list, bytes)), CL_OK);
    assert_int_equal(loaded.n, CL_COUNT(want));
    assert_memory_equal(loaded.runs, want, sizeof want);
}

static void test_a_full_list_takes_no_more_runs(void **state)
{
    (void)state;
    uint8_t bytes[ROOM];
    list.n = 0;
    for (uint32_t i = 0; i < PAGE_RUNS_MAX + 10; i++)
        page_runs_add(&list, 3 * i);
    assert_int_equal(list.n, PAGE_RUNS_MAX);
    assert_int_equal(list.runs[PAGE_RUNS_MAX - 1].first, 3 * (PAGE_RUNS_MAX - 1));
    assert_int_equal(list.runs[PAGE_RUNS_MAX - 1].pages, 1);
    assert_int_equal(load(bytes, save(&list, bytes)), CL_OK);
    list.n = 0;
    assert_int_equal(load(bytes, save(&list, bytes)), CL_OK);
    assert_int_equal(loaded.n, 0);
}

static void test_runs_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const struct page_runs bad[] = {
        {1, {{5, 0}}},                    /* empty */
        {1, {{PAGES, 1}}},                /* behind memory */
        {1, {{PAGES - 1, 2}}},            /* out of it */
        {1, {{1, UINT32_MAX}}},           /* around */
        {2, {{8, 2}, {9, 1}}},            /* into the one before */
        {2, {{8, 2}, {4, 1}}},            /* backwards */
        {2, {{8, 2}, {UINT32_MAX, 1}}},   /* far behind */
        {3, {{0, 1}, {2, 1}, {4, PAGES}}} /* the last */
    };
    uint8_t bytes[ROOM];
    for (size_t i = 0; i < CL_COUNT(bad); i++)
        assert_int_equal(load(bytes, save(&bad[i], bytes)), CL_E_INVALID);
}

static void test_a_list_of_another_length_is_refused(void **state)
{
    (void)state;
    enum { COUNT_AT = STATE_HEAD_BYTES + 8 };
    static const uint32_t counts[] = {0, 1, 3, PAGE_RUNS_MAX, PAGE_RUNS_MAX + 1, UINT32_MAX};
    uint8_t bytes[ROOM];
    list = (struct page_runs){2, {{1, 2}, {10, 3}}};
    size_t n = save(&list, bytes);
    assert_int_equal(load(bytes, n), CL_OK);
    for (size_t i = 0; i < CL_COUNT(counts); i++) {
        memcpy(bytes + COUNT_AT, &counts[i], sizeof counts[i]);
        assert_int_equal(load(bytes, n), CL_E_INVALID);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages_become_runs),
        cmocka_unit_test(test_a_full_list_takes_no_more_runs),
        cmocka_unit_test(test_runs_that_cannot_be_are_refused),
        cmocka_unit_test(test_a_list_of_another_length_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
