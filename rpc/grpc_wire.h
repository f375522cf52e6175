/* rpc/grpc_wire.h - the byte-level rules of gRPC over HTTP/2: prefixes, timeouts, escapes, maps.
 *
 * Owns:    nothing; pure functions on bytes.
 * Thread:  any.
 * Source:  grpc/doc/PROTOCOL-HTTP2.md, grpc/doc/http-grpc-status-mapping.md, RFC 4648.
 */
#ifndef CL_RPC_GRPC_WIRE_H
#define CL_RPC_GRPC_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

enum {
    GW_PREFIX = 5,       /* flag byte and big-endian length before each message */
    GW_TIMEOUT_MAX = 16, /* room for a formatted grpc-timeout */
};

enum grpc_status {
    GRPC_OK = 0,
    GRPC_CANCELLED = 1,
    GRPC_UNKNOWN = 2,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_NOT_FOUND = 5,
    GRPC_PERMISSION_DENIED = 7,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14,
    GRPC_UNAUTHENTICATED = 16,
};

struct gw_prefix {
    bool compressed;
    uint32_t len;
};

/* Read a message prefix; PEER when the flag byte is neither 0 nor 1. */
int gw_prefix_read(const uint8_t in[static GW_PREFIX], struct gw_prefix *ret_prefix,
                   struct cl_err *err) CL_MUST;
void gw_prefix_write(uint8_t out[static GW_PREFIX], bool compressed, uint32_t len);

/* "100m" to ns: 1 to 8 digits and one of H M S m u n.  False when malformed. */
bool gw_timeout_read(const uint8_t *s, size_t n, uint64_t *ret_ns) CL_MUST;
/* The shortest unit in which ns fits eight digits, rounded up so it never fires early. */
void gw_timeout_write(uint64_t ns, char out[static GW_TIMEOUT_MAX]);

/* grpc-message: all outside 0x20..0x7e, and '%', become %XX.  Writes at most cap bytes with the
 * NUL, never half an escape; returns the length. */
size_t gw_percent_encode(const char *in, char *out, size_t cap);
/* The reverse; a malformed escape stands for itself, NUL becomes '?'.  Returns the length. */
size_t gw_percent_decode(const uint8_t *in, size_t n, char *out, size_t cap);

/* Base64 without padding.  out holds gw_base64_size(n), with a NUL. */
size_t gw_base64_size(size_t n);
size_t gw_base64_encode(const uint8_t *in, size_t n, char *out);
/* Padded or not; out holds n / 4 * 3 + 3.  False when malformed. */
bool gw_base64_decode(const uint8_t *in, size_t n, uint8_t *out, size_t *ret_n) CL_MUST;

/* "application/grpc", also with "+proto" or parameters. */
bool gw_is_grpc_content_type(const uint8_t *s, size_t n);
/* Is `token` an element of the comma-separated list? */
bool gw_list_has(const uint8_t *s, size_t n, const char *token);
/* A decimal grpc-status; -1 when malformed. */
int gw_status_read(const uint8_t *s, size_t n);
/* May `name` be sent as metadata: lower-case token, not reserved. */
bool gw_is_metadata_name(const char *name);
/* Printable ASCII, as HTTP/2 header values of gRPC must be. */
bool gw_is_metadata_value(const char *value);
bool gw_is_binary_name(const char *name, size_t n);

/* The status a call gets when the server sent none. */
int gw_status_from_http(int http);
int gw_status_from_h2_error(uint32_t h2_error);

#endif
