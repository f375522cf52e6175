/* cli/certs.h - certificate requests; what `up` makes is in cli/plan.h. */
#ifndef CL_CLI_CERTS_H
#define CL_CLI_CERTS_H

#include "base/err.h"
#include "base/util.h"

/* A request for `name` by the key in key_path (made, mode 0600, when missing), as PEM text that the
 * caller frees with cl_free(). */
int certs_request(const char *key_path, const char *name, char **ret_csr,
                  struct cl_err *err) CL_MUST;

#endif
