/* e2b/multipart.h - the files of a form that is being uploaded, out of its bytes as they come.
 *
 *   PREAMBLE --boundary--> LINE --CRLF--> HEAD --blank line--> DATA --boundary--> LINE
 *                           \--"--"--> EPILOGUE
 *
 * Owns:    nothing: pieces of data point into what was fed, or into the struct.
 * Thread:  any.  Pure; the bytes are a stranger's, in any pieces.
 * Source:  RFC 7578, RFC 2046 section 5.1.
 * Limits (and what an attacker gains without each):
 *   MULTIPART_HEAD_MAX   memory, by a head that does not end; a place, by bytes around the form
 *   MULTIPART_PARTS_MAX  a request that writes for ever
 */
#ifndef CL_E2B_MULTIPART_H
#define CL_E2B_MULTIPART_H

#include <stddef.h>

#include "base/err.h"
#include "base/util.h"

enum {
    MULTIPART_NAME_MAX = 4096,
    MULTIPART_PARTS_MAX = 1000,
    MULTIPART_HEAD_MAX = 8192, /* of a part; before the first boundary; behind the last one */
};

enum multipart_state { FORM_PREAMBLE, FORM_LINE, FORM_HEAD, FORM_DATA, FORM_EPILOGUE };

struct multipart {
    char filename[MULTIPART_NAME_MAX]; /* of the part; "" = none */
    const char *data;                  /* of MULTIPART_DATA, until the next call */
    size_t n;

    enum multipart_state state;
    char delimiter[80]; /* CRLF "--" boundary */
    size_t delimiter_n;
    size_t matched; /* so many bytes of a delimiter were the last ones */
    size_t implied; /* of them: no data, whatever follows */
    char head[MULTIPART_HEAD_MAX];
    size_t head_n;
    size_t around; /* bytes of preamble and epilogue */
    unsigned parts;
};

/* content_type: "multipart/form-data; boundary=...". */
int multipart_init(struct multipart *m, const char *content_type, struct cl_err *err) CL_MUST;

enum multipart_step {
    MULTIPART_MORE, /* all bytes were looked at */
    MULTIPART_PART, /* a part begins */
    MULTIPART_DATA, /* some of its data */
    MULTIPART_END,  /* it is complete */
    MULTIPART_BAD,  /* feed no more */
};
/* Take bytes (n > 0), *ret_used of them. */
enum multipart_step multipart_feed(struct multipart *m, const char *in, size_t n, size_t *ret_used,
                                   struct cl_err *err);
/* No more bytes come: was that a whole form? */
int multipart_finish(const struct multipart *m, struct cl_err *err) CL_MUST;

#endif
