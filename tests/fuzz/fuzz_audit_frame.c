/* tests/fuzz/fuzz_audit_frame.c - the frames between producers and cloche-audit. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "audit/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    for (size_t at = 0; at < n;) {
        struct audit_frame f;
        size_t used;
        if (audit_frame_parse(data + at, n - at, &f, &used, NULL) < 0 || used == 0)
            break;
        CL_ASSERT(used <= n - at);
        if (f.type == AUDIT_F_RECORD)
            CL_ASSERT(audit_fields_is_canonical(f.fields, f.fields_n));
        at += used;
    }
    return 0;
}
