/* scheduler/ca.h - the fleet's certificate authority: sign one worker's certificate request.
 *
 * Owns:    nothing; reads the CA's files at each use.
 * Thread:  the scheduler's loop; an enrolment is rare and takes a few milliseconds.
 * Only the public key of a request is believed: subject, SAN, usage and life are ours (RFC 5280).
 */
#ifndef CL_SCHEDULER_CA_H
#define CL_SCHEDULER_CA_H

#include "base/buf.h"
#include "base/err.h"
#include "base/util.h"

enum { CA_PEM_MAX = 16384, CA_DAYS = 90 };

struct ca_files {
    const char *cert, *key; /* PEM */
};

/* Sign the key of `csr` for worker `id`; appends the certificate and the CA's, each as PEM. */
int ca_sign(const struct ca_files *files, const char *csr, const char *id, struct cl_buf *ret_cert,
            struct cl_buf *ret_ca, struct cl_err *err) CL_MUST;

/* SHA-256 of the public key that a request proves; INVALID as above. */
int ca_request_digest(const char *csr, uint8_t ret_digest[static 32], struct cl_err *err) CL_MUST;

#endif
