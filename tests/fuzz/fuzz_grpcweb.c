/* A request in base64, as gRPC-Web's text form has it: in one piece or several.  What is read is
 * written in one piece, and read again it is the same. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "web/grpcweb.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_memory(const struct cl_err *err)
{
    return err->code == CL_E_NOMEM;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cl_buf plain, text, back;
    struct cl_err err = {0};
    cl_buf_init(&plain, size); /* as much as a body: what it says is never more */
    cl_buf_init(&text, 2 * size + 64);
    cl_buf_init(&back, size);
    if (grpcweb_text_read((const char *)data, size, &plain, &err) < 0) {
        CL_ASSERT(err.code == CL_E_INVALID || is_memory(&err));
    } else if (grpcweb_text_write(plain.data, plain.len, &text, &err) < 0 ||
               grpcweb_text_read((const char *)text.data, text.len, &back, &err) < 0) {
        CL_ASSERT(is_memory(&err));
    } else {
        CL_ASSERT(plain.len <= size && back.len == plain.len);
        CL_ASSERT(plain.len == 0 || memcmp(back.data, plain.data, plain.len) == 0);
    }
    cl_buf_fini(&plain);
    cl_buf_fini(&text);
    cl_buf_fini(&back);
    return 0;
}
