/* observability/metrics.h - counters, gauges and histograms of one process, in Prometheus' text
 * form.
 *
 * Owns:    its series.
 * Limit:   METRICS_SERIES label sets a metric; more are counted under "other", so that a client who
 *          invents labels cannot make us hold them.
 * Thread:  its owner's loop.  No I/O: metrics_io.c serves it.
 * Source:  Prometheus text exposition format 0.0.4.
 */
#ifndef CL_OBSERVABILITY_METRICS_H
#define CL_OBSERVABILITY_METRICS_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/loop.h"
#include "base/util.h"

enum { METRICS_SERIES = 128, METRICS_TEXT_MAX = 4 * 1024 * 1024 };

enum metric {
#define METRIC(id, kind, name, label1, label2, help) METRIC_##id,
#include "observability/metrics.def"
#undef METRIC
    METRIC_NR
};

struct metrics;

int metrics_new(struct metrics **ret_metrics, struct cl_err *err) CL_MUST;
void metrics_free(struct metrics *m);
/* Labels that a metric does not have are NULL.  All of them accept m == NULL: nothing is counted.
 */
void metrics_add(struct metrics *m, enum metric id, const char *l1, const char *l2, uint64_t n);
void metrics_set(struct metrics *m, enum metric id, const char *l1, const char *l2, uint64_t value);
void metrics_observe(struct metrics *m, enum metric id, const char *l1, const char *l2,
                     uint64_t ns);
/* Forget a gauge's series, to write them anew. */
void metrics_clear(struct metrics *m, enum metric id);
int metrics_render(const struct metrics *m, struct cl_buf *out, struct cl_err *err) CL_MUST;

/* --- served over HTTP ------------------------------------------------------------------------- */

struct metrics_server;
/* GET /metrics on HOST:PORT (port 0 = any; *ret_port says which).  `refresh` runs before each. */
int metrics_serve(struct cl_loop *loop, const char *address, struct metrics *m,
                  void (*refresh)(void *arg), void *arg, struct metrics_server **ret_server,
                  uint16_t *ret_port, struct cl_err *err) CL_MUST;
void metrics_server_free(struct metrics_server *s);
/* Fill METRIC_OPEN_FDS and METRIC_RSS_BYTES. */
void metrics_read_process(struct metrics *m);

#endif
