/* cli/capture.h - output kept in memory, for `run --json`.
 *
 * Owns:    at most CAPTURE_MAX bytes of each stream; what is more is dropped and said.
 * Thread:  the only one.
 */
#ifndef CL_CLI_CAPTURE_H
#define CL_CLI_CAPTURE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "cloche/v1/common.pb-c.h"

enum { CAPTURE_MAX = 64 * 1024 * 1024 };

struct capture {
    struct cl_buf stream[2];
    bool cut[2];
};

struct follow_result;

void capture_init(struct capture *c);
void capture_fini(struct capture *c);
void capture_add(struct capture *c, int stream, const void *data, size_t n);
/* What was kept of a stream as a JSON string. */
json_t *capture_text(const struct capture *c, int stream);
/* The result of a process as JSON; bytes that are not UTF-8 become U+FFFD, the digests tell. */
json_t *capture_json(const struct capture *c, const struct follow_result *r, const char *id_name);
/* Only the result: outcome, exit code, usage, totals. */
json_t *result_json(const Cloche__V1__ExecResult *r);

#endif
