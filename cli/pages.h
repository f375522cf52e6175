/* cli/pages.h - lists that the service gives page by page.
 *
 * Owns:    nothing; the rows are the caller's.
 * Thread:  the only one.
 */
#ifndef CL_CLI_PAGES_H
#define CL_CLI_PAGES_H

#include <jansson.h>

#include "cli/cli.h"
#include "cli/client.h"
#include "cli/values.h"

/* Ask for the page of this token, append its rows, and put the next token there ("" = the end). */
typedef int page_fn(const struct cli_opts *o, const struct args *a, struct client *client,
                    char token[static VALUE_NAME], json_t *rows, struct cl_err *err);
/* All rows, or those of the pages up to `max` (0 = no bound); NULL after the error was reported,
 * with the exit code. */
json_t *pages_all(const struct cli_opts *o, const struct args *a, page_fn *fn, size_t max,
                  int *ret_code);

#endif
