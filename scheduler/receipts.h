/* scheduler/receipts.h - tells a worker that what it told of units' doings is in the audit log, so
 * that it need not tell that to the next scheduler.
 *
 * Owns:    a receipt each message, until its records are written and it was sent; or its worker's
 *          session has ended, and they are written.
 * Order:   of one session as the messages came, and each stands for all before it.
 * Limits:  as the worker's (worker/told.h): it sends no more before it has receipts.  One that does
 *          not keep to that costs some 64 bytes a message, and its own tenants' rates of records.
 * Thread:  the scheduler's loop.
 */
#ifndef CL_SCHEDULER_RECEIPTS_H
#define CL_SCHEDULER_RECEIPTS_H

#include <stdint.h>

#include "audit/producer.h"
#include "base/list.h"

struct worker;
struct receipt;

/* For the message of this number; NULL for 0 (it wants none), and without memory (the next is as
 * good). */
struct receipt *receipt_begin(struct worker *w, uint64_t number);
/* One of its records was handed to the log with receipt_written() as on_ack. */
void receipt_awaits(struct receipt *r);
audit_ack_fn receipt_written;
/* It has no more records; NULL is a no-op. */
void receipt_end(struct receipt *r);
/* Its session has ended: nobody is told. */
void receipts_forget(struct worker *w);

#endif
