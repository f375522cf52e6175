/* cli/up.h - the life of an instance on this host; the rows are in host.c.
 *
 * Owns:    nothing.
 * Thread:  the only one.
 */
#ifndef CL_CLI_UP_H
#define CL_CLI_UP_H

#include "cli/cli.h"

int cmd_up(const struct cli_opts *o, const struct args *a);
int cmd_down(const struct cli_opts *o, const struct args *a);
int cmd_status(const struct cli_opts *o, const struct args *a);

#endif
