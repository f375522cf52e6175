/* observability/log.h - one JSON object a line on stderr, from the table events.def.
 *
 * {"ts":"2026-…Z","level":"info","process":"worker","component":"pool","event":"TEMPLATE_READY",
 *  "msg":"snapshot is ready","template":"base",…}
 * Fields are written in the format as name=%s or name='words %s'; each value is escaped for itself,
 * so no text can become a field.  Conversions: %s %.Ns %d %u %zu %llu %lld.  Values are never
 * secrets. Thread: any one loop; a line is one write(2). WARN and below of one event are limited to
 * LOG_BURST lines a second; what was left out is said: without it a guest could fill the disk.
 */
#ifndef CL_OBSERVABILITY_LOG_H
#define CL_OBSERVABILITY_LOG_H

#include <stddef.h>

#include "base/err.h"
#include "base/util.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

enum log_event {
#define LOG_EVENT(name, level, component, text) LOG_##name##_EVENT,
#include "observability/events.def"
#undef LOG_EVENT
    LOG_EVENT_NR
};

enum { LOG_BURST = 50, LOG_LINE_MAX = 2048 };

/* Name the process in every line, and set the lowest level that is written. */
void log_init(const char *process, enum log_level level);
int log_level_parse(const char *name, enum log_level *ret_level, struct cl_err *err) CL_MUST;
void log_write(enum log_event event, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define log_event(name, ...) log_write(name##_EVENT, __VA_ARGS__)

/* Pure: the fields of a line, `"a":"1","b":"x y"`, for tests.  Returns the length. */
size_t log_format_fields(char *out, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
