/* Arguments of every tool; output of a guest as text. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "mcp/capture.h"
#include "mcp/catalog.h"
#include "mcp/schema.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void capture(const uint8_t *data, size_t size)
{
    struct mcp_capture c;
    if (mcp_capture_init(&c, 2 + data[0], NULL) < 0) {
        CL_ASSERT(cl_test_alloc_failed());
        return;
    }
    for (size_t at = 1, n; at < size; at += n) {
        n = CL_MIN(size - at, (size_t)1 + data[at] % 64);
        mcp_capture_add(&c, data + at, n);
    }
    char *text = mcp_capture_text(&c);
    CL_ASSERT(text ? cl_utf8_is_valid(text, strlen(text)) : cl_test_alloc_failed());
    cl_free(text);
    mcp_capture_fini(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const tools[] = {"run_code",
                                        "exec",
                                        "exec_start",
                                        "exec_poll",
                                        "exec_signal",
                                        "sandbox_create",
                                        "sandbox_list",
                                        "sandbox_kill",
                                        "sandbox_pause",
                                        "sandbox_resume",
                                        "file_read",
                                        "file_write",
                                        "file_list",
                                        "port_url",
                                        "create-python-repl",
                                        "run-python-in-repl",
                                        "sandbox_start",
                                        "sandbox_stop",
                                        "sandbox_run_code",
                                        "sandbox_run_command",
                                        "sandbox_get_metrics",
                                        "sandbox_fork",
                                        "snapshot_create",
                                        "snapshot_list",
                                        "snapshot_delete"};
    static struct mcp_catalog *catalog;
    json_t *args = NULL;
    if (!catalog)
        CL_ASSERT(mcp_catalog_new(NULL, true, &catalog, NULL) == 0);
    if (size < 2)
        return 0;
    capture(data, size);
    if (mcp_json_parse((const char *)data + 1, size - 1, &args, NULL) < 0)
        return 0;
    for (size_t i = 0; i < CL_COUNT(tools); i++) {
        struct cl_err err = {0};
        int rc = mcp_schema_check(mcp_catalog_find(catalog, tools[i])->input, args, &err);
        CL_ASSERT((rc == 0) == (err.code == CL_OK));
    }
    json_decref(args);
    return 0;
}
