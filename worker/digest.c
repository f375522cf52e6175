/* worker/digest.c - see worker/digest.h. */
#include "worker/digest.h"

#include <openssl/evp.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"

void digest_hex(const void *bytes, size_t n, char ret_hex[static DIGEST_HEX])
{
    uint8_t raw[32];
    CL_ASSERT(EVP_Digest(bytes, n, raw, NULL, EVP_sha256(), NULL) == 1);
    cl_hex(raw, sizeof raw, ret_hex);
}
