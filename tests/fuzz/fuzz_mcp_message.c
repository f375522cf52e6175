/* A JSON-RPC message of an MCP client, with and without headers. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "mcp/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct mcp_message *m, const struct mcp_headers *headers)
{
    struct mcp_refusal why = {0};
    enum mcp_era era = 0;
    int rc = mcp_era_check(m, headers, &era, &why);
    CL_ASSERT((rc == 0) == (why.code == 0) && era != 0);
    json_decref(why.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mcp_message m;
    struct mcp_refusal why = {0};
    char name[64] = "";
    size_t n = size > 0 ? CL_MIN(size - 1, (size_t)data[0] % sizeof name) : 0;
    if (n > 0)
        memcpy(name, data + 1, n - (n == sizeof name));
    data += size > 0 ? 1 + n : 0;
    size -= size > 0 ? 1 + n : 0;
    int rc = mcp_message_parse((const char *)data, size, &m, &why);
    CL_ASSERT((rc == 0) == (why.code == 0));
    if (rc == 0 && m.kind != MCP_RESPONSE) {
        struct mcp_headers headers = {MCP_MODERN_VERSION, m.method, name, name, name};
        char trace[TRACEPARENT_TEXT];
        mcp_trace_find(&m, &headers, trace);
        check(&m, NULL);
        check(&m, &headers);
        headers.version = name;
        check(&m, &headers);
    }
    json_decref(why.data);
    mcp_message_fini(&m);
    return 0;
}
