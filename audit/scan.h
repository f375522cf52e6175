/* audit/scan.h - a cursor over canonical JSON: no white space, sorted keys, strings, whole numbers,
 * booleans and lists of strings, nothing else.
 *
 * Owns:    nothing.
 * Thread:  any.
 * Pure; every function returns false at the first byte that does not fit, and never reads past end.
 */
#ifndef CL_AUDIT_SCAN_H
#define CL_AUDIT_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct scan {
    const char *at;  /* borrowed */
    const char *end; /* borrowed */
};

bool scan_lit(struct scan *s, const char *text);
/* 0 or a number without leading zeros that fits 64 bits. */
bool scan_num(struct scan *s, uint64_t *ret);
/* Printable ASCII without '"' and '\' up to the next '"', which is not taken. */
bool scan_word(struct scan *s, char *out, size_t size);
/* A string with its quotes: valid UTF-8, escapes only where they must be. */
bool scan_string(struct scan *s);
/* A flat object. */
bool scan_object(struct scan *s);

#endif
