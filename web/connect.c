/* web/connect.c - see e2b/connect.h. */
#include "web/connect.h"

#include <string.h>

#include "base/mem.h"
#include "base/own.h"
#include "rpc/details.h"
#include "rpc/grpc_wire.h"
#include "rpc/proto/details.pb-c.h"

int connect_next(const char **rest, size_t *n, const char **ret_message, size_t *ret_n,
                 struct cl_err *err)
{
    const uint8_t *b = (const uint8_t *)*rest;
    if (*n < CONNECT_HEAD)
        return cl_fail(err, CL_E_INVALID, 0, "the request is no Connect envelope");
    if (b[0] != 0)
        return cl_fail(err, CL_E_INVALID, 0, "the request is compressed: send it plain");
    uint32_t length = (uint32_t)b[1] << 24 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 8 | b[4];
    if (length > *n - CONNECT_HEAD)
        return cl_fail(err, CL_E_INVALID, 0, "the request ends within a Connect envelope");
    *ret_message = *rest + CONNECT_HEAD;
    *ret_n = length;
    *rest += CONNECT_HEAD + length;
    *n -= CONNECT_HEAD + length;
    return 0;
}

int connect_open(const char *body, size_t n, const char **ret_message, size_t *ret_n,
                 struct cl_err *err)
{
    if (connect_next(&body, &n, ret_message, ret_n, err) < 0)
        return -1;
    return n == 0 ? 0 : cl_fail(err, CL_E_INVALID, 0, "the request is not one Connect envelope");
}

void connect_head(uint8_t head[static CONNECT_HEAD], uint8_t flags, uint32_t n)
{
    head[0] = flags;
    for (int i = 0; i < 4; i++)
        head[1 + i] = (uint8_t)(n >> (24 - 8 * i));
}

/* By gRPC's numbers, whose names are Connect's. */
static const struct {
    const char *name;
    int http;
} codes[] = {
    [1] = {"canceled", 499},
    [2] = {"unknown", 500},
    [3] = {"invalid_argument", 400},
    [4] = {"deadline_exceeded", 504},
    [5] = {"not_found", 404},
    [6] = {"already_exists", 409},
    [7] = {"permission_denied", 403},
    [8] = {"resource_exhausted", 429},
    [9] = {"failed_precondition", 400},
    [10] = {"aborted", 409},
    [11] = {"out_of_range", 400},
    [12] = {"unimplemented", 501},
    [13] = {"internal", 500},
    [14] = {"unavailable", 503},
    [15] = {"data_loss", 500},
    [16] = {"unauthenticated", 401},
};

static size_t number(enum cl_code code)
{
    int grpc = cl_err_info(code)->grpc;
    return grpc > 0 && (size_t)grpc < CL_COUNT(codes) ? (size_t)grpc : 2;
}

const char *connect_code(enum cl_code code)
{
    return codes[number(code)].name;
}

int connect_http(enum cl_code code)
{
    return codes[number(code)].http;
}

/* {"type": "google.rpc.RetryInfo", "value": base64}; without the URL's part of the type. */
static json_t *detail(const Cloche__Rpc__AnyDetail *d)
{
    const char *slash = strrchr(d->type_url, '/');
    CL_AUTO(cl_freep) char *value = cl_zalloc(gw_base64_size(d->value.len));
    if (!value)
        return NULL;
    (void)gw_base64_encode(d->value.data, d->value.len, value);
    return json_pack("{s:s, s:s}", "type", slash ? slash + 1 : d->type_url, "value", value);
}

/* NULL: none, or memory is out: an error without them is one still. */
static json_t *details_of(const struct cl_err *err)
{
    struct cl_buf packed;
    json_t *list = json_array();
    cl_buf_init(&packed, 4096);
    Cloche__Rpc__Status *status = details_encode(err, &packed, NULL) == 0
                                      ? cloche__rpc__status__unpack(NULL, packed.len, packed.data)
                                      : NULL;
    for (size_t i = 0; status && i < status->n_details; i++)
        (void)json_array_append_new(list, detail(status->details[i]));
    if (status)
        cloche__rpc__status__free_unpacked(status, NULL);
    cl_buf_fini(&packed);
    return list;
}

json_t *connect_error(const struct cl_err *err)
{
    return json_pack("{s:s, s:s, s:o*}", "code", connect_code(err->code), "message", err->text,
                     "details", details_of(err));
}
