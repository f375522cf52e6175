/* The bytes of an HTTP connection, in pieces; what is understood must not depend on the pieces. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "gateway/endpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Requests until the bytes or the parser end; a sum of what was understood. */
static unsigned read_all(const uint8_t *data, size_t size, size_t piece)
{
    static const struct endpoint e = {.hosts = "a.org", .origins = "https://a.org"};
    struct http_parser *p = NULL;
    unsigned sum = 0, streamed = 0;
    if (http_parser_new(&p, NULL) < 0) {
        CL_ASSERT(cl_test_alloc_failed());
        return 0;
    }
    enum http_step step = STEP_MORE;
    for (size_t at = 0, used; at < size || step == STEP_HEAD || step == STEP_CONTINUE; at += used) {
        step = http_parser_feed(p, data + at, CL_MIN(piece, size - at), &used);
        const struct http_request *r = http_parser_request(p);
        const char *text;
        CL_ASSERT(used <= size - at);
        if (step == STEP_BAD)
            break;
        if (step == STEP_HEAD && r->path[1] == 'f') {
            http_parser_stream(p);
            streamed = 1;
        }
        if (streamed && (step == STEP_MORE || step == STEP_DONE)) {
            struct cl_buf *body = http_parser_body(p);
            CL_ASSERT(body->len <= CL_MIN(piece, size));
            streamed += (unsigned)body->len;
            cl_buf_consume(body, body->len);
        }
        if (step != STEP_DONE)
            continue;
        sum = sum * 31 + (unsigned)r->n + streamed + (unsigned)endpoint_check(&e, r, &text) +
              (unsigned)endpoint_check_types(r, &text) + (unsigned)strlen(r->path);
        struct mcp_headers h = endpoint_headers(r);
        sum += h.name ? (unsigned)strlen(h.name) : 0;
        streamed = 0;
        http_parser_reset(p);
    }
    sum = sum * 31 + (unsigned)http_parser_status(p);
    http_parser_free(p);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned whole = read_all(data, size, size);
    CL_ASSERT(read_all(data, size, 1) == whole || cl_test_alloc_failed());
    CL_ASSERT(read_all(data, size, 7) == whole || cl_test_alloc_failed());
    return 0;
}
