/* worker/digest.h - SHA-256 in hex, of bytes that are in memory.  Pure. */
#ifndef CL_WORKER_DIGEST_H
#define CL_WORKER_DIGEST_H

#include <stddef.h>

enum { DIGEST_HEX = 65 }; /* with its NUL */

void digest_hex(const void *bytes, size_t n, char ret_hex[static DIGEST_HEX]);

#endif
