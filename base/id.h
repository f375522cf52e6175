/* base/id.h - object ids and hexadecimal.
 *
 * An id is a prefix and 26 characters of Crockford base32: 50 bits of wall-clock milliseconds (the
 * layout of ULID), 20 of nanoseconds within that one (RFC 9562 §6.2, method 3) and 60 random ones.
 * A thread's ids sort as they were made unless the clock is set back by a millisecond or more.
 * Unguessable by chance, but never a capability.  Prefixes: job_ sbx_ snp_ exec_ wrk_ lease_.
 */
#ifndef CL_BASE_ID_H
#define CL_BASE_ID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CL_ID_MAX = 40 }; /* longest id and its NUL, with room */

/* Make a new id "<prefix>_<26 chars>"; prefix is lower-case, at most 10 characters. */
void cl_id_new(const char *prefix, char out[static CL_ID_MAX]);
/* Is s a well-formed id of this prefix? */
bool cl_id_is(const char *s, const char *prefix);
/* Milliseconds since 1970 at which a well-formed id was made. */
uint64_t cl_id_time_ms(const char *id);

/* Lower-case hex; out holds 2 * n + 1. */
void cl_hex(const void *data, size_t n, char *out);
/* Exactly 2 * n hex digits (either case) into n bytes; false otherwise. */
bool cl_unhex(const char *hex, size_t hex_len, void *out, size_t n);

/* Names of tenants, templates, keys: ^[a-z][a-z0-9-]{0,62}$ (DNS label, RFC 1035 form). */
bool cl_name_is_valid(const char *s);

#endif
