/* rpc/outq.h - the messages of one call that wait to be sent, packed and framed.
 *
 * Owns:    the packed bytes.
 * Limit:   RPC_OUT_MAX bytes: a writer that ignores back-pressure gets TOOBIG.
 * Thread:  its call's.  Pure.
 */
#ifndef CL_RPC_OUTQ_H
#define CL_RPC_OUTQ_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

struct outq {
    struct outq_item *head, *tail; /* owned */
    size_t bytes;                  /* not yet taken */
};

/* Pack, perhaps compress, and append. */
int outq_push(struct outq *q, const ProtobufCMessage *msg, bool gzip, struct cl_err *err) CL_MUST;
/* Append plain bytes without a prefix (bodies of HTTP errors). */
int outq_push_raw(struct outq *q, const void *data, size_t n, struct cl_err *err) CL_MUST;
/* Move up to n bytes to dst; returns how many. */
size_t outq_take(struct outq *q, uint8_t *dst, size_t n);
/* Drop every message of which no byte was taken yet. */
void outq_drop_unsent(struct outq *q);
void outq_fini(struct outq *q);

#endif
