/* A file of detection rules; what is taken is matched against a record. */
#include <stdint.h>
#include <string.h>

#include "base/util.h"
#include "trail/rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rules *rules = NULL;
    struct cl_err err = {0};
    char subject[DETECT_SUBJECT], value[DETECT_VALUE];
    if (rules_parse("rules", (const char *)data, size, &rules, &err) < 0) {
        CL_ASSERT(err.code == CL_E_INVALID || err.code == CL_E_TOOBIG || err.code == CL_E_NOMEM);
        return 0;
    }
    json_t *fields = json_pack("{s:s, s:s, s:[s,s], s:i, s:b}", "name", "a.example.org", "unit",
                               "sbx_1", "argv", "sh", "-c", "signal", 9, "created", 1);
    for (size_t i = 0; i < rules_count(rules); i++) {
        const struct detection *about = rules_at(rules, i);
        CL_ASSERT(about->name[0] && about->what[0] && about->threshold >= 1 &&
                  about->threshold <= DETECT_OF_MAX);
        const char *const events[] = {"net.dns", "exec.start", "exec.signal", "guest.write"};
        for (size_t k = 0; k < CL_COUNT(events); k++) {
            const struct detect_record r = {"tenant/a", "2026-01-02T03:04:05.000000Z", events[k], 1,
                                            fields};
            if (rules_match(rules, i, &r, subject, value))
                CL_ASSERT(strlen(subject) < sizeof subject && strlen(value) < sizeof value);
        }
    }
    json_decref(fields);
    rules_free(rules);
    return 0;
}
