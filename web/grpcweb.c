/* web/grpcweb.c - see web/grpcweb.h. */
#include "web/grpcweb.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/own.h"
#include "rpc/details.h"
#include "rpc/grpc_wire.h"

enum { DETAILS_MAX = 4096, QUAD = 4 };

static int add_line(struct cl_buf *out, const char *name, const char *value, struct cl_err *err)
{
    if (cl_buf_append(out, name, strlen(name), err) < 0 || cl_buf_append(out, ":", 1, err) < 0 ||
        cl_buf_append(out, value, strlen(value), err) < 0)
        return -1;
    return cl_buf_append(out, "\r\n", 2, err);
}

/* An error without its details is one still. */
static int add_details(const struct cl_err *why, struct cl_buf *out, struct cl_err *err)
{
    struct cl_buf packed;
    cl_buf_init(&packed, DETAILS_MAX);
    CL_AUTO(cl_freep)
    char *text =
        details_encode(why, &packed, NULL) == 0 ? cl_zalloc(gw_base64_size(packed.len)) : NULL;
    int rc = 0;
    if (text) {
        (void)gw_base64_encode(packed.data, packed.len, text);
        rc = add_line(out, "grpc-status-details-bin", text, err);
    }
    cl_buf_fini(&packed);
    return rc;
}

int grpcweb_status(const struct cl_err *why, struct cl_buf *out, struct cl_err *err)
{
    char number[16], message[3 * CL_ERR_TEXT + 1];
    (void)snprintf(number, sizeof number, "%d", why ? cl_err_info(why->code)->grpc : 0);
    if (add_line(out, "grpc-status", number, err) < 0 || !why)
        return why ? -1 : 0;
    (void)gw_percent_encode(why->text, message, sizeof message);
    return add_line(out, "grpc-message", message, err) < 0 ? -1 : add_details(why, out, err);
}

int grpcweb_text_read(const char *text, size_t n, struct cl_buf *out, struct cl_err *err)
{
    while (n > 0) {
        const char *padding = memchr(text, '=', n);
        size_t piece = padding ? ((size_t)(padding - text) / QUAD + 1) * QUAD : n, got = 0;
        if (piece > n || piece % QUAD != 0)
            return cl_fail(err, CL_E_INVALID, 0, "the request ends within four letters of base64");
        if (cl_buf_reserve(out, piece / QUAD * 3, err) < 0)
            return -1;
        if (!gw_base64_decode((const uint8_t *)text, piece, out->data + out->len, &got))
            return cl_fail(err, CL_E_INVALID, 0, "the request is not base64");
        out->len += got;
        text += piece;
        n -= piece;
    }
    return 0;
}

int grpcweb_text_write(const void *bytes, size_t n, struct cl_buf *out, struct cl_err *err)
{
    if (cl_buf_reserve(out, gw_base64_size(n) + QUAD, err) < 0)
        return -1;
    char *text = (char *)out->data + out->len;
    size_t written = gw_base64_encode(bytes, n, text);
    while (written % QUAD != 0)
        text[written++] = '=';
    out->len += written;
    return 0;
}
