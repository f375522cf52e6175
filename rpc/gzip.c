/* rpc/gzip.c - see rpc/gzip.h. */
#include "rpc/gzip.h"

#include <string.h>
#include <zlib.h>

#include "base/util.h"

enum {
    WINDOW_GZIP = 31, /* 15 bits of window, gzip wrapping */
    LEVEL = 1,        /* messages are small and the loop must not wait */
    STEP = 64 * 1024, /* output grown at a time */
    MEM_LEVEL = 8,
};

/* zlib wants a mutable pointer although it only reads. */
static Bytef *input_of(const uint8_t *in)
{
    Bytef *p;
    memcpy(&p, &in, sizeof p);
    return p;
}

int gzip_deflate(const uint8_t *in, size_t n, struct cl_buf *out, struct cl_err *err)
{
    z_stream z = {0};
    if (n > UINT32_MAX / 2)
        return cl_fail(err, CL_E_TOOBIG, 0, "compress %zu bytes", n);
    if (deflateInit2(&z, LEVEL, Z_DEFLATED, WINDOW_GZIP, MEM_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK)
        return cl_fail(err, CL_E_NOMEM, 0, "gzip");
    size_t bound = deflateBound(&z, n);
    if (cl_buf_reserve(out, bound, err) < 0) {
        (void)deflateEnd(&z);
        return -1;
    }
    z.next_in = input_of(in);
    z.avail_in = (uInt)n;
    z.next_out = out->data + out->len;
    z.avail_out = (uInt)bound;
    int rc = deflate(&z, Z_FINISH);
    size_t made = z.total_out;
    (void)deflateEnd(&z);
    CL_ASSERT(rc == Z_STREAM_END);
    out->len += made;
    return 0;
}

static int inflate_all(z_stream *z, struct cl_buf *out, struct cl_err *err)
{
    for (;;) {
        size_t room = CL_MIN((size_t)STEP, out->max - out->len);
        if (room == 0) {
            /* Full: legal only when the stream ends here without one more byte. */
            uint8_t extra;
            z->next_out = &extra;
            z->avail_out = 1;
            int rc = inflate(z, Z_NO_FLUSH);
            if (rc == Z_STREAM_END && z->avail_out == 1)
                return 0;
            return cl_fail(err, CL_E_TOOBIG, 0, "message inflates to more than %zu bytes",
                           out->max);
        }
        if (cl_buf_reserve(out, room, err) < 0)
            return -1;
        z->next_out = out->data + out->len;
        z->avail_out = (uInt)room;
        int rc = inflate(z, Z_NO_FLUSH);
        out->len += room - z->avail_out;
        if (rc == Z_STREAM_END)
            return 0;
        if (rc != Z_OK || (z->avail_in == 0 && z->avail_out > 0))
            return cl_fail(err, CL_E_PEER, 0, "message is not valid gzip");
    }
}

int gzip_inflate(const uint8_t *in, size_t n, struct cl_buf *out, struct cl_err *err)
{
    z_stream z = {0};
    if (n > UINT32_MAX / 2)
        return cl_fail(err, CL_E_TOOBIG, 0, "inflate %zu bytes", n);
    z.next_in = input_of(in);
    z.avail_in = (uInt)n;
    if (inflateInit2(&z, WINDOW_GZIP) != Z_OK)
        return cl_fail(err, CL_E_NOMEM, 0, "gunzip");
    int rc = inflate_all(&z, out, err);
    if (rc == 0 && z.avail_in > 0)
        rc = cl_fail(err, CL_E_PEER, 0, "bytes after the end of a gzip message");
    (void)inflateEnd(&z);
    return rc;
}
