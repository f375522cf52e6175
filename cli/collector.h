/* cli/collector.h - a collector of traces (OTLP/HTTP, JSON) and what is sent to it.
 *
 * Owns:    the loop and the connection of the request under way.
 * Limit:   COLLECTOR_LIMIT_S for one request, 64 KiB of its answer.
 * Thread:  the only one; blocks until the collector has it, or will never take it.
 */
#ifndef CL_CLI_COLLECTOR_H
#define CL_CLI_COLLECTOR_H

#include <jansson.h>

#include "base/err.h"
#include "base/own.h"
#include "base/util.h"

enum { COLLECTOR_LIMIT_S = 30, COLLECTOR_AGAIN_MAX_S = 60 };

struct collector;

/* to: as otlp_url() takes it.  Headers and whom to believe are of the environment, as exporters
 * have them: OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_CERTIFICATE.  SIGPIPE is ignored from
 * now on. */
int collector_open(const char *to, struct collector **ret_collector, struct cl_err *err) CL_MUST;
/* NULL is a no-op. */
void collector_close(struct collector *c);
CL_DEFINE_AUTO(struct collector, collector_close)

/* An ExportTraceServiceRequest.  0: it was taken, or will never be, which stderr tells; while the
 * collector is busy or away it is sent again, later and later.  DENIED: nothing will be taken from
 * us there. */
int collector_send(struct collector *c, const json_t *request, struct cl_err *err) CL_MUST;

#endif
