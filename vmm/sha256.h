/* vmm/sha256.h - SHA-256 for the digest of a host's tables.
 *
 * Of its own because the monitor links no cryptographic library: whatever it links is within reach
 * of a guest that has broken it.  Not for secrets; MACs over states are the worker's.
 *
 * Pure.  Reference: FIPS 180-4.
 */
#ifndef CL_VMM_SHA256_H
#define CL_VMM_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_BLOCK = 64 };

struct sha256 {
    uint32_t h[8];
    uint64_t bytes;
    uint8_t block[SHA256_BLOCK];
};

void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *data, size_t n);
void sha256_end(struct sha256 *s, uint8_t ret_digest[static SHA256_BYTES]);

#endif
