/* scheduler/key_fetch.h - fetch a token issuer's key set over HTTPS, again and again.
 *
 * Owns:    the connection of the fetch under way.
 * Limit:   JWKS_MAX bytes a set, FETCH_LIMIT_S a fetch, one at a time, FETCH_GAP_S between two:
 *          callers with invented key ids cannot make us flood the issuer.
 * Thread:  the loop's.
 * Redirects are not followed: the operator named this place and no other.
 */
#ifndef CL_SCHEDULER_KEY_FETCH_H
#define CL_SCHEDULER_KEY_FETCH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/loop.h"
#include "base/util.h"

struct key_fetch;

enum { FETCH_EVERY_S = 300, FETCH_RETRY_S = 15, FETCH_GAP_S = 10, FETCH_LIMIT_S = 10 };

/* A fresh set's text, or why there is none; both live until it returns.  -1: the set is not usable,
 * try again soon. */
typedef int key_fetch_fn(void *arg, const char *text, size_t n, const struct cl_err *err);

struct key_fetch_conf {
    const char *url; /* https://HOST[:PORT]/PATH; http:// on loopback only.  Borrowed. */
    const char *ca;  /* PEM file of whom to believe; "" = the system's */
    key_fetch_fn *fn;
    void *arg;
};

/* Is it an URL at all (and not a file)? */
bool key_fetch_is_url(const char *text);
int key_fetch_new(struct cl_loop *loop, const struct key_fetch_conf *conf,
                  struct key_fetch **ret_fetch, struct cl_err *err) CL_MUST;
/* NULL is a no-op. */
void key_fetch_free(struct key_fetch *f);
/* Somebody showed a key id that we do not know: fetch as soon as the gap allows. */
void key_fetch_soon(struct key_fetch *f);

#endif
