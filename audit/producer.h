/* audit/producer.h - the emitting side: the scheduler's and the worker's line to cloche-audit.
 *
 * Owns:    the connection, and every record until the writer's ack.
 * Limit:   `max_records` and `max_bytes` kept; what does not fit is counted and becomes a gap
 * record. Thread:  its loop; on_ack never runs inside audit_emit().  The process must ignore
 * SIGPIPE. Records are numbered per (source, epoch) and sent again after a reconnect; the writer
 * drops those it has.  A state-changing call is answered from on_ack.
 */
#ifndef CL_AUDIT_PRODUCER_H
#define CL_AUDIT_PRODUCER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "audit/record.h"
#include "base/err.h"
#include "base/loop.h"
#include "base/own.h"
#include "base/util.h"

struct audit_producer;

/* The newest head of the host stream, as the writer tells it once a second. */
typedef void audit_head_fn(uint64_t seq, const char *hash, void *arg);
/* NULL: the record is written.  Else it is not known to be (UNAVAILABLE: no ack in time; it is
 * still kept and sent; CANCELLED: the producer closes): refuse the call. */
typedef void audit_ack_fn(const struct cl_err *err, void *arg);

struct audit_producer_conf {
    const char *socket;      /* of cloche-audit; copied */
    const char *source;      /* "scheduler", "worker/wrk_..."; copied */
    size_t max_records;      /* 0 = 16384 */
    size_t max_bytes;        /* 0 = 16 MiB */
    uint64_t ack_timeout_ns; /* a record with on_ack waits at most this; 0 = 10 s */
    audit_head_fn *on_head;  /* may be NULL */
    void *arg;
};

int audit_producer_new(struct cl_loop *loop, const struct audit_producer_conf *conf,
                       struct audit_producer **ret_producer, struct cl_err *err) CL_MUST;
/* NULL is a no-op.  Records without ack are given up; their on_ack get CANCELLED first. */
void audit_producer_free(struct audit_producer *producer);
CL_DEFINE_AUTO(struct audit_producer, audit_producer_free)

/* tenant NULL = the host's stream.  Fails (UNAVAILABLE with the remedy) when the writer refuses or
 * too much waits already; on_ack, which may be NULL, is then never called.  A record without on_ack
 * that cannot be kept is counted for the gap record, and the call succeeds. */
int audit_emit(struct audit_producer *producer, const char *tenant, enum audit_event ev,
               const struct audit_field *fields, size_t n, audit_ack_fn *on_ack, void *arg,
               struct cl_err *err) CL_MUST;
/* As above with another assurance than H0. */
int audit_emit_as(struct audit_producer *producer, enum audit_assurance assurance,
                  const char *tenant, enum audit_event ev, const struct audit_field *fields,
                  size_t n, audit_ack_fn *on_ack, void *arg, struct cl_err *err) CL_MUST;

/* Connected, and the writer takes records.  *ret_why (may be NULL) is for people, never NULL. */
bool audit_is_healthy(const struct audit_producer *producer, const char **ret_why);
size_t audit_producer_waiting(const struct audit_producer *producer);
uint64_t audit_producer_lost(const struct audit_producer *producer);

#endif
