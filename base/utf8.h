/* base/utf8.h - strict UTF-8 (RFC 3629): no surrogates, no overlong forms, nothing past U+10FFFF.
 */
#ifndef CL_BASE_UTF8_H
#define CL_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Is all of s[0..n) valid?  NUL is a valid character here; refuse it where it must not be. */
bool cl_utf8_is_valid(const char *s, size_t n);
/* The longest prefix of s[0..n), at most max bytes, that does not cut a character. */
size_t cl_utf8_clip(const char *s, size_t n, size_t max);

#endif
