/* audit/redact.h - keep secrets out of the chain.
 *
 * Owns:    nothing.
 * Thread:  any.
 * An argv element whose name looks secret (`--token=x`, `X_TOKEN=...`, the one after `--password`,
 * `Authorization: Bearer x`) becomes "sha256:<hex>", salted by tenant, so equal secrets of one
 * tenant compare equal and those of two tenants do not.
 */
#ifndef CL_AUDIT_REDACT_H
#define CL_AUDIT_REDACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/util.h"

enum { AUDIT_SALT = 32, AUDIT_DIGEST_TEXT = 7 + 64 + 1 };

/* Does this name (of an argument, field or variable) look like that of a secret? */
bool audit_name_is_secret(const char *name, size_t n);
/* "sha256:<hex>" of salt || tenant || 0 || data. */
void audit_digest_salted(const uint8_t salt[static AUDIT_SALT], const char *tenant,
                         const void *data, size_t n, char out[static AUDIT_DIGEST_TEXT]);
/* "sha256:<hex>" of data alone, for code and content. */
void audit_digest(const void *data, size_t n, char out[static AUDIT_DIGEST_TEXT]);
/* Copy argv into the arena with its secrets replaced. */
int audit_redact_argv(struct cl_arena *arena, const uint8_t salt[static AUDIT_SALT],
                      const char *tenant, const char *const *argv, size_t n, const char ***ret_argv,
                      struct cl_err *err) CL_MUST;

#endif
