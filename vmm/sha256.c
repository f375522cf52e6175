/* vmm/sha256.c - see vmm/sha256.h.  § are those of FIPS 180-4. */
#include "vmm/sha256.h"

#include <string.h>

#include "base/util.h"

/* §4.2.2: fractions of the cube roots of the first 64 primes. */
static const uint32_t k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void sha256_init(struct sha256 *s)
{
    /* §5.3.3: fractions of the square roots of the first 8 primes. */
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memset(s, 0, sizeof *s);
    memcpy(s->h, start, sizeof start);
}

static uint32_t rotate(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static uint32_t big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* §6.2.2, step 1. */
static void schedule(const uint8_t *block, uint32_t w[static 64])
{
    for (unsigned t = 0; t < 16; t++)
        w[t] = big_endian(block + 4 * (size_t)t);
    for (unsigned t = 16; t < 64; t++) {
        uint32_t a = w[t - 15], b = w[t - 2];
        uint32_t s0 = rotate(a, 7) ^ rotate(a, 18) ^ a >> 3;
        uint32_t s1 = rotate(b, 17) ^ rotate(b, 19) ^ b >> 10;
        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
}

/* §6.2.2, steps 2 to 4.  v holds a to h, and begins a word earlier in each round: what the standard
 * moves stays where it is. */
static void compress(struct sha256 *s)
{
#define V(i) v[((i)-t) % 8]
    uint32_t w[64], v[8];
    schedule(s->block, w);
    memcpy(v, s->h, sizeof v);
    for (unsigned t = 0; t < 64; t++) {
        uint32_t a = V(0), b = V(1), c = V(2), e = V(4), f = V(5), g = V(6);
        uint32_t s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
        uint32_t t1 = V(7) + s1 + ((e & f) ^ (~e & g)) + k[t] + w[t];
        uint32_t s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
        V(3) += t1;
        V(7) = t1 + s0 + ((a & b) ^ (a & c) ^ (b & c));
    }
#undef V
    for (unsigned i = 0; i < CL_COUNT(v); i++)
        s->h[i] += v[i];
}

void sha256_add(struct sha256 *s, const void *data, size_t n)
{
    const uint8_t *from = data;
    while (n > 0) {
        size_t at = s->bytes % SHA256_BLOCK;
        size_t part = CL_MIN(n, SHA256_BLOCK - at);
        memcpy(s->block + at, from, part);
        s->bytes += part;
        from += part;
        n -= part;
        if (s->bytes % SHA256_BLOCK == 0)
            compress(s);
    }
}

/* §5.1.1: a one, zeroes, and the length in bits. */
void sha256_end(struct sha256 *s, uint8_t ret_digest[static SHA256_BYTES])
{
    static const uint8_t one = 0x80, zero = 0;
    uint64_t bits = s->bytes * 8;
    uint8_t length[8];
    for (unsigned i = 0; i < sizeof length; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    sha256_add(s, &one, 1);
    while (s->bytes % SHA256_BLOCK != SHA256_BLOCK - sizeof length)
        sha256_add(s, &zero, 1);
    sha256_add(s, length, sizeof length);
    for (unsigned i = 0; i < SHA256_BYTES; i++)
        ret_digest[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}
