/* A line of QEMU's monitor. */
#include <stddef.h>
#include <stdint.h>

#include "worker/qmp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qmp_line line;
    struct cl_err err = {0};
    int rc = qmp_parse((const char *)data, size, &line, &err);
    CL_ASSERT((rc == 0) == (err.code == CL_OK));
    return 0;
}
