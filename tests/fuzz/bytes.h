/* tests/fuzz/bytes.h - fuzz bytes, used up from the front; at their end all is 0. */
#ifndef CL_TESTS_FUZZ_BYTES_H
#define CL_TESTS_FUZZ_BYTES_H

#include <stddef.h>
#include <stdint.h>

/* What is only the guest's: the fuzzer shall not look for ways in it. */
#ifdef __clang__
#define FUZZ_UNSEEN __attribute__((no_sanitize("coverage")))
#else
#define FUZZ_UNSEEN
#endif

struct fuzz_in {
    const uint8_t *data;
    size_t left;
};

FUZZ_UNSEEN static inline uint32_t fuzz_get(struct fuzz_in *in, unsigned bytes)
{
    uint32_t v = 0;
    for (unsigned i = 0; i < bytes && in->left > 0; i++, in->data++, in->left--)
        v |= (uint32_t)*in->data << 8 * i;
    return v;
}

#endif
