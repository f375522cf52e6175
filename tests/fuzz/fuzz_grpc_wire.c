/* tests/fuzz/fuzz_grpc_wire.c - every reader of rpc/ that sees a peer's bytes, but HTTP/2 itself.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "rpc/call.h"
#include "rpc/details.h"
#include "rpc/grpc_wire.h"
#include "rpc/gzip.h"
#include "rpc/metadata.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void read_metadata(const uint8_t *data, size_t n)
{
    struct metadata md;
    struct metadata_pair pair = {"key-bin", (const char *)data, 7, n};
    metadata_init(&md);
    for (int i = 0; i < 3; i++)
        (void)!metadata_add_received(&md, pair, NULL);
    size_t at = 0, pairs = 0;
    while (metadata_next(&md, &at, &pair))
        pairs++;
    if (pairs != md.pairs || md.size > RPC_METADATA_MAX)
        abort();
    metadata_remove(&md, "key-bin");
    if (md.pairs != 0)
        abort();
    metadata_fini(&md);
}

static void read_details(const uint8_t *data, size_t n)
{
    struct cl_err back, again;
    struct cl_buf buf;
    details_decode(8, "text", data, n, &back);
    cl_buf_init(&buf, 8192);
    int rc = details_encode(&back, &buf, NULL);
    details_decode(8, "text", buf.data, buf.len, &again);
    if ((rc < 0 || again.code != back.code || again.retry_ms != back.retry_ms) &&
        !cl_test_alloc_failed())
        abort();
    cl_buf_fini(&buf);
}

static void read_gzip(const uint8_t *data, size_t n)
{
    struct cl_buf out;
    cl_buf_init(&out, 4096);
    (void)!gzip_inflate(data, n, &out, NULL);
    if (out.len > 4096)
        abort();
    cl_buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct gw_prefix prefix;
    uint64_t ns;
    size_t out_n;
    char *text = malloc(n + 1);
    uint8_t *raw = malloc(n / 4 * 3 + 3);
    if (!text || !raw)
        abort();
    if (n >= GW_PREFIX)
        (void)!gw_prefix_read(data, &prefix, NULL);
    (void)!gw_timeout_read(data, n, &ns);
    if (gw_percent_decode(data, n, text, n + 1) > n)
        abort();
    if (gw_base64_decode(data, n, raw, &out_n) && out_n > n / 4 * 3 + 3)
        abort();
    (void)gw_is_grpc_content_type(data, n);
    (void)gw_list_has(data, n, "gzip");
    (void)gw_status_read(data, n);
    free(text);
    free(raw);
    read_metadata(data, n);
    read_details(data, n);
    read_gzip(data, n);
    return 0;
}
