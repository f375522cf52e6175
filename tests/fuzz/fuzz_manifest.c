/* A template's manifest: any bytes, no crash, no leak, and what is accepted has a valid name. */
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "worker/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct template_manifest m;
    struct cl_err err = {0};
    if (template_parse((const char *)data, size, &m, &err) < 0) {
        CL_ASSERT(err.code != CL_OK);
        return 0;
    }
    CL_ASSERT(cl_name_is_valid(m.name) && m.n_warmups <= TEMPLATE_WARMUPS_MAX);
    template_manifest_fini(&m);
    return 0;
}
