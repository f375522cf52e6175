/* rpc/one_key.c - see rpc/one_key.h. */
#include "rpc/one_key.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/id.h"

enum { SHA256_BYTES = 32, WORD_BYTES = (RPC_WORD - 1) / 2 };

int rpc_nth_key(const char *key, uint64_t n, char out[static RPC_KEY], struct cl_err *err)
{
    char tail[24] = "";
    if (!key)
        key = "";
    if (key[0] && n > 1)
        (void)snprintf(tail, sizeof tail, ".%" PRIu64, n);
    if (strlen(key) + strlen(tail) >= RPC_KEY)
        return cl_fail(err, CL_E_INVALID, 0, "the idempotency key: at most %zu bytes",
                       RPC_KEY - 1 - strlen(tail));
    (void)snprintf(out, RPC_KEY, "%s%s", key, tail);
    return 0;
}

void rpc_word(const char *key, char out[static RPC_WORD])
{
    uint8_t bytes[SHA256_BYTES];
    if (key && key[0])
        CL_ASSERT(EVP_Digest(key, strlen(key), bytes, NULL, EVP_sha256(), NULL) == 1);
    else
        cl_random(bytes, WORD_BYTES);
    cl_hex(bytes, WORD_BYTES, out);
}
