/* rpc/metadata.h - the metadata pairs of one call, kept as bytes in arrival order.
 *
 * Owns:    its buffer.
 * Limit:   RPC_METADATA_MAX by the rule of HTTP/2 (name + value + 32 each) and RPC_METADATA_PAIRS;
 *          without them one request could hold any amount of our memory.
 * Thread:  its owner's.  Pure.
 */
#ifndef CL_RPC_METADATA_H
#define CL_RPC_METADATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct metadata {
    struct cl_buf bytes; /* entries: header, name, NUL, value, NUL */
    size_t size;         /* by the rule of RFC 9113 §6.5.2 */
    size_t pairs;
};

struct metadata_pair {
    const char *name, *value; /* borrowed: until the next add */
    size_t name_len, value_len;
};

void metadata_init(struct metadata *md);
void metadata_fini(struct metadata *md);
/* A pair from the wire: "-bin" values are decoded, comma-joined ones become several pairs. */
int metadata_add_received(struct metadata *md, struct metadata_pair pair,
                          struct cl_err *err) CL_MUST;
/* A pair to send, checked; "-bin" values are encoded.  Replaces nothing. */
int metadata_add_outgoing(struct metadata *md, const char *name, const char *value,
                          struct cl_err *err) CL_MUST;
/* A pair of another list, as it is there. */
int metadata_copy(struct metadata *md, struct metadata_pair pair, struct cl_err *err) CL_MUST;
/* Forget every pair of this name. */
void metadata_remove(struct metadata *md, const char *name);
/* The first pair of the name; NULL when there is none. */
const char *metadata_get(const struct metadata *md, const char *name, size_t *ret_len);
/* Walk: start with *at = 0; false at the end. */
bool metadata_next(const struct metadata *md, size_t *at, struct metadata_pair *ret_pair);

#endif
