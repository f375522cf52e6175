/* audit/sign.h - Ed25519 keys of checkpoints.
 *
 * Owns:    the key material (wiped when freed).
 * Thread:  any one at a time.
 * A checkpoint signs "cloche-audit-checkpoint-v1\n<stream>\n<seq>\n<head>\n<key
 * id>\n<epoch>\n<ts>\n", where seq and head are those of the record before it.
 */
#ifndef CL_AUDIT_SIGN_H
#define CL_AUDIT_SIGN_H

#include <stddef.h>
#include <stdint.h>

#include "audit/record.h"
#include "base/err.h"
#include "base/own.h"
#include "base/util.h"

enum { AUDIT_SIG_HEX = 128, AUDIT_SIG_TEXT = 129, AUDIT_KEY_ID = 17, AUDIT_PEM_MAX = 4096 };

struct audit_private_key;
struct audit_public_key;

/* Read the private key (PEM); if the file is not there, make one (mode 0400) and write the public
 * one beside it as <path>.pub (0444). */
int audit_private_key_open(const char *path, struct audit_private_key **ret_key,
                           struct cl_err *err) CL_MUST;
void audit_private_key_free(struct audit_private_key *key);
CL_DEFINE_AUTO(struct audit_private_key, audit_private_key_free)
/* First 16 hex digits of SHA-256 of the raw public key. */
const char *audit_private_key_id(const struct audit_private_key *key);

int audit_public_key_open(const char *path, struct audit_public_key **ret_key,
                          struct cl_err *err) CL_MUST;
/* A PEM text that stands in memory: anybody's. */
int audit_public_key_parse(const char *pem, size_t n, struct audit_public_key **ret_key,
                           struct cl_err *err) CL_MUST;
void audit_public_key_free(struct audit_public_key *key);
CL_DEFINE_AUTO(struct audit_public_key, audit_public_key_free)
const char *audit_public_key_id(const struct audit_public_key *key);

/* Fill *r as the next checkpoint of the chain; its fields go into `fields`. */
int audit_checkpoint_make(const struct audit_private_key *key, uint64_t epoch, uint64_t wall_ns,
                          const struct audit_chain *chain, struct cl_buf *fields,
                          struct audit_record *ret, struct cl_err *err) CL_MUST;
/* Is *r a valid checkpoint?  INVALID with the reason.  Its prev and seq are those of the chain. */
int audit_checkpoint_check(const struct audit_public_key *key, const struct audit_record *r,
                           struct cl_err *err) CL_MUST;

#endif
