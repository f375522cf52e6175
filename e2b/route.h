/* e2b/route.h - from verb, path and query to what is asked for.
 *
 * Owns:    nothing.
 * Thread:  any.  Pure.
 * Source:  e2b-dev/E2B, spec/openapi.yml, spec/envd/envd.yaml; RFC 3986 section 2.1.
 */
#ifndef CL_E2B_ROUTE_H
#define CL_E2B_ROUTE_H

#include <stdbool.h>
#include <stddef.h>

#include "e2b/server.h"

enum { E2B_ID_MAX = 80 /* a digest in hexadecimal, too */ };

/* Of which surface; each says errors in its own way. */
enum e2b_plane {
    PLANE_CONTROL,
    PLANE_RPC,    /* Connect, one answer */
    PLANE_STREAM, /* Connect, a stream of answers */
    PLANE_FILES,
    PLANE_UPLOAD, /* likewise; the body is taken as it comes */
    PLANE_CODE,
};

struct e2b_call;
typedef void e2b_run_fn(struct e2b_call *c);

struct e2b_route {
    enum e2b_verb verb;
    const char *pattern; /* "*" stands for one segment, which is an id; at most two */
    enum e2b_plane plane;
    e2b_run_fn *run;
};

/* The segments of each "*", or "". */
struct e2b_ids {
    char id[E2B_ID_MAX], below[E2B_ID_MAX];
};

/* The table; NULL: nothing, and *ret_other says whether another verb has something there. */
const struct e2b_route *e2b_route_find(enum e2b_verb verb, const char *path,
                                       struct e2b_ids *ret_ids, bool *ret_other);

/* A parameter of a query, decoded.  1; 0: it is not there; -1: it is malformed, holds NUL, or has
 * no room in `out`.  `query` may be NULL. */
int e2b_query_get(const char *query, const char *name, char *out, size_t size);

/* In place; false when it is malformed, or would hold NUL. */
bool e2b_decode(char *text);

#endif
