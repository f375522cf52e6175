/* A trace context of an unknown caller: what is taken reads the same again, and so does what a
 * later version would add to it. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/util.h"
#include "observability/traceparent.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[128], out[TRACEPARENT_TEXT], again[TRACEPARENT_TEXT];
    (void)snprintf(text, sizeof text, "%.*s", (int)CL_MIN(size, sizeof text - 1),
                   (const char *)data);
    if (!traceparent_read(text, out)) {
        CL_ASSERT(out[0] == '\0');
        return 0;
    }
    CL_ASSERT(strlen(out) == TRACEPARENT_TEXT - 1 && traceparent_read(out, again));
    CL_ASSERT(strcmp(out, again) == 0);
    return 0;
}
