/* base/map.h - a hash map from short strings to pointers, keyed with a per-process secret
 * (SipHash-1-3), so that a client who picks ids cannot make every look-up a long walk.
 *
 * Owns:    its table and copies of the keys; the values are borrowed.
 * Limit:   `max` entries; cl_map_put beyond it fails with TOOBIG.
 * Thread:  its owner's.
 */
#ifndef CL_BASE_MAP_H
#define CL_BASE_MAP_H

#include <stddef.h>

#include "base/err.h"
#include "base/own.h"
#include "base/util.h"

struct cl_map;

int cl_map_new(size_t max, struct cl_map **ret_map, struct cl_err *err) CL_MUST;
/* NULL is a no-op.  Values are not touched. */
void cl_map_free(struct cl_map *map);
CL_DEFINE_AUTO(struct cl_map, cl_map_free)

void *cl_map_get(const struct cl_map *map, const char *key);
/* Insert or replace; value must not be NULL. */
int cl_map_put(struct cl_map *map, const char *key, void *value, struct cl_err *err) CL_MUST;
/* Returns the value that was there, or NULL. */
void *cl_map_del(struct cl_map *map, const char *key);
size_t cl_map_count(const struct cl_map *map);

/* Iterate in no order: start with *at = 0; NULL at the end.  The map must not change meanwhile. */
void *cl_map_next(const struct cl_map *map, size_t *at, const char **ret_key);

#endif
