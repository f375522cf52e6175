/* cli/signers.h - whose templates this host takes.
 *
 *   DIR/signing.key   Ed25519, PEM, 0600: signs what is built here
 *   DIR/signing.pub   public keys, PEM, one after the other, 0644: a template by any of them is
 *                     taken (worker/template.h); its own is one of them
 *
 * Owns:    nothing; files are written atomically.  Limits: SIGNERS_TEXT bytes.  Thread: start-up.
 */
#ifndef CL_CLI_SIGNERS_H
#define CL_CLI_SIGNERS_H

#include "base/err.h"
#include "base/util.h"

enum { SIGNERS_TEXT = 65536 };

/* Make the private key unless it is there, and see to it that its public half is trusted.  INVALID:
 * what is there is no private key. */
int signers_ensure(const char *key, const char *pub, struct cl_err *err) CL_MUST;
/* Trust the public keys in a file, too; what is trusted already stays once.  INVALID: it has none,
 * or is a private key, which nobody should have been given. */
int signers_trust(const char *pub, const char *file, struct cl_err *err) CL_MUST;

#endif
