/* A link of an unknown caller: it never opens, unless this pepper made it; what was made, opens. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "policy/link.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t pepper[32] = {1};
    char text[256], again[LINK_TEXT];
    struct link_facts facts;
    struct cl_err err = {0};
    (void)snprintf(text, sizeof text, "%.*s", (int)CL_MIN(size, sizeof text - 1),
                   (const char *)data);
    if (link_open(text, pepper, sizeof pepper, 0, &facts, &err) < 0) {
        CL_ASSERT(err.code == CL_E_UNAUTH);
        return 0;
    }
    CL_ASSERT(link_make(&facts, pepper, sizeof pepper, again, &err) == 0);
    CL_ASSERT(strcmp(text, again) == 0);
    return 0;
}
