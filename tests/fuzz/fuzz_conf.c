/* A configuration file over a table with every type of option. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct values {
    char name[CL_CONF_STR];
    bool on;
    uint64_t n, bytes, wait;
};

static const struct cl_conf_row rows[] = {
    {"t", "name", CL_CONF_STRING, offsetof(struct values, name), "", 0, 0, false, ""},
    {"t", "on", CL_CONF_BOOL, offsetof(struct values, on), "no", 0, 0, false, ""},
    {"t", "n", CL_CONF_U64, offsetof(struct values, n), "3", 1, 10, false, ""},
    {"t", "bytes", CL_CONF_BYTES, offsetof(struct values, bytes), "1MiB", 0, 0, false, ""},
    {"t", "wait", CL_CONF_DURATION, offsetof(struct values, wait), "5s", 0, 0, false, ""},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct values v = {.n = 3};
    struct cl_err err = {0};
    int rc = cl_conf_parse(rows, CL_COUNT(rows), &v, "fuzz", (const char *)data, size, &err);
    CL_ASSERT((rc == 0) == (err.code == CL_OK));
    CL_ASSERT(v.n >= 1 && v.n <= 10 && memchr(v.name, '\0', sizeof v.name));
    return 0;
}
