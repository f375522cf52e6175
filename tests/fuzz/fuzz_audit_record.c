/* tests/fuzz/fuzz_audit_record.c - the parser of audit records: what it takes must be canonical,
 * that is, formatting it again gives the same bytes. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "audit/verify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct audit_record r;
    struct audit_stream_check check;
    if (audit_record_parse((const char *)data, n, &r, NULL) == 0) {
        struct cl_buf out;
        cl_buf_init(&out, 2 * AUDIT_RECORD_MAX);
        int rc = audit_record_format(&out, &r, NULL);
        CL_ASSERT(rc == 0 || cl_test_alloc_failed());
        CL_ASSERT(rc < 0 || (out.len == n + 1 && memcmp(out.data, data, n) == 0));
        cl_buf_fini(&out);
    }
    (void)audit_fields_is_canonical((const char *)data, n);
    audit_stream_check_init(&check, "tenant/acme", NULL);
    CL_ASSERT(audit_stream_check_feed(&check, (const char *)data, n, true, NULL) != AUDIT_OK ||
              n == 0 || check.records > 0);
    return 0;
}
