/* e2b/multipart.h - the files of a form that was uploaded.
 *
 * Owns:    nothing: parts point into the body.
 * Thread:  any.  Pure; the bytes are a stranger's.
 * Source:  RFC 7578, RFC 2046 section 5.1.
 */
#ifndef CL_E2B_MULTIPART_H
#define CL_E2B_MULTIPART_H

#include <stddef.h>

#include "base/err.h"
#include "base/util.h"

enum { MULTIPART_NAME_MAX = 4096, MULTIPART_PARTS_MAX = 1000 };

struct multipart {
    const char *body;
    size_t n, at;
    char delimiter[80]; /* CRLF "--" boundary */
    size_t delimiter_n;
    unsigned parts;
};

struct multipart_part {
    char filename[MULTIPART_NAME_MAX]; /* "" = none */
    const char *data;
    size_t n;
};

/* content_type: "multipart/form-data; boundary=..."; the body is borrowed. */
int multipart_begin(struct multipart *m, const char *content_type, const char *body, size_t n,
                    struct cl_err *err) CL_MUST;
/* 1: a part; 0: that was the last; -1: malformed. */
int multipart_next(struct multipart *m, struct multipart_part *ret_part,
                   struct cl_err *err) CL_MUST;

#endif
