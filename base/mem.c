/* base/mem.c - see base/mem.h. */
#include "base/mem.h"

#include <errno.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/own.h"

static _Thread_local long fail_nth = -1; /* tests only */
static _Thread_local bool fail_hit;

void cl_test_fail_alloc(long nth)
{
    fail_nth = nth;
    fail_hit = false;
}

bool cl_test_alloc_failed(void)
{
    return fail_hit;
}

static bool inject_failure(void)
{
    if (fail_nth < 0)
        return false;
    if (fail_nth-- > 0)
        return false;
    fail_hit = true;
    return true;
}

void *cl_zalloc(size_t n)
{
    return inject_failure() ? NULL : calloc(1, n ? n : 1);
}

void *cl_zalloc_array(size_t n, size_t size)
{
    return inject_failure() ? NULL : calloc(n ? n : 1, size ? size : 1);
}

void *cl_realloc(void *p, size_t n)
{
    return inject_failure() ? NULL : realloc(p, n ? n : 1);
}

void cl_free(void *p)
{
    free(p);
}

void cl_freep(void *pp)
{
    void *p;
    memcpy(&p, pp, sizeof p);
    free(p);
}

void cl_closep(int *fd)
{
    if (*fd < 0)
        return;
    int saved = errno;
    (void)close(*fd);
    errno = saved;
    *fd = -1;
}

void cl_fclosep(FILE **f)
{
    if (*f)
        (void)fclose(*f);
    *f = NULL;
}

char *cl_strndup(const char *s, size_t n)
{
    size_t len = strnlen(s, n);
    char *copy = cl_zalloc(len + 1);
    if (copy)
        memcpy(copy, s, len);
    return copy;
}

char *cl_strdup(const char *s)
{
    return cl_strndup(s, SIZE_MAX - 1);
}

char *cl_asprintf(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *s = n < 0 ? NULL : cl_zalloc((size_t)n + 1);
    if (!s)
        return NULL;
    va_start(ap, fmt);
    (void)vsnprintf(s, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return s;
}

int cl_grow(void *arrayp, size_t *cap, size_t need, size_t max, size_t size, struct cl_err *err)
{
    if (need <= *cap)
        return 0;
    if (need > max)
        return cl_fail(err, CL_E_TOOBIG, 0, "%zu elements, at most %zu", need, max);
    size_t grown = CL_MIN(CL_MAX(need, *cap * 2), max);
    void *old;
    memcpy(&old, arrayp, sizeof old);
    void *p = cl_realloc(old, grown * size);
    if (!p)
        return cl_fail(err, CL_E_NOMEM, 0, "grow to %zu elements of %zu bytes", grown, size);
    memset((char *)p + *cap * size, 0, (grown - *cap) * size);
    memcpy(arrayp, &p, sizeof p);
    *cap = grown;
    return 0;
}

/* --- arena: a list of chunks, newest first -------------------------------------------------- */

enum { ARENA_ALIGN = 16, ARENA_CHUNK = 4096 };

struct chunk {
    struct chunk *next; /* owned */
    size_t size, used;
    _Alignas(ARENA_ALIGN) unsigned char data[];
};

struct cl_arena {
    struct chunk *chunks; /* owned */
    size_t cap, used;
    bool capped;
};

int cl_arena_new(size_t cap_bytes, struct cl_arena **ret_arena, struct cl_err *err)
{
    CL_ASSERT(cap_bytes > 0);
    struct cl_arena *arena = cl_zalloc(sizeof *arena);
    if (!arena)
        return cl_fail(err, CL_E_NOMEM, 0, "arena");
    arena->cap = cap_bytes;
    *ret_arena = arena;
    return 0;
}

void cl_arena_free(struct cl_arena *arena)
{
    if (!arena)
        return;
    while (arena->chunks) {
        struct chunk *c = arena->chunks;
        arena->chunks = c->next;
        cl_free(c);
    }
    cl_free(arena);
}

void *cl_arena_alloc(struct cl_arena *arena, size_t n)
{
    if (n > arena->cap || arena->used > arena->cap - n) {
        arena->capped = true;
        return NULL;
    }
    size_t want = (n + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
    struct chunk *c = arena->chunks;
    if (!c || c->size - c->used < want) {
        size_t size = CL_MAX(want, (size_t)ARENA_CHUNK);
        c = cl_zalloc(sizeof *c + size);
        if (!c)
            return NULL;
        c->size = size;
        c->next = arena->chunks;
        arena->chunks = c;
    }
    void *p = c->data + c->used;
    c->used += want;
    arena->used += want;
    return p;
}

bool cl_arena_capped(const struct cl_arena *arena)
{
    return arena->capped;
}

size_t cl_arena_used(const struct cl_arena *arena)
{
    return arena->used;
}
