/* base/mem.h - the one door to the heap, so that tests can fail the n-th allocation, and an arena
 * for memory that dies with a request.
 *
 * Thread: an arena belongs to one loop; the heap functions are free of threads.
 */
#ifndef CL_BASE_MEM_H
#define CL_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

/* Zeroed memory, or NULL.  n == 0 gives a unique pointer. */
void *cl_zalloc(size_t n) CL_MUST;
/* n * size zeroed, NULL on overflow. */
void *cl_zalloc_array(size_t n, size_t size) CL_MUST;
void *cl_realloc(void *p, size_t n) CL_MUST;
void cl_free(void *p);
char *cl_strdup(const char *s) CL_MUST;
char *cl_strndup(const char *s, size_t n) CL_MUST;
/* printf into fresh memory; NULL when out of memory. */
char *cl_asprintf(const char *fmt, ...) CL_MUST __attribute__((format(printf, 1, 2)));

/* Grow an array that holds *cap elements so that it holds `need`, at most `max` (a named limit:
 * without it a peer could make us hold any amount).  New elements are zero. */
int cl_grow(void *arrayp, size_t *cap, size_t need, size_t max, size_t size,
            struct cl_err *err) CL_MUST;

/* Fail the nth (0-based) allocation from now on; negative switches it off.  Tests only. */
void cl_test_fail_alloc(long nth);
/* Did the injected failure happen? */
bool cl_test_alloc_failed(void);

/* An arena: everything is freed at once.  `cap_bytes` bounds what a hostile request can make us
 * hold; 0 is not allowed. */
struct cl_arena;
int cl_arena_new(size_t cap_bytes, struct cl_arena **ret_arena, struct cl_err *err) CL_MUST;
void cl_arena_free(struct cl_arena *arena);
/* Zeroed, 16-byte aligned; NULL when the cap is reached or memory is short. */
void *cl_arena_alloc(struct cl_arena *arena, size_t n) CL_MUST;
/* True once an allocation was refused because of the cap (not for lack of memory). */
bool cl_arena_capped(const struct cl_arena *arena);
size_t cl_arena_used(const struct cl_arena *arena);

#endif
