/* cli/spec.h - the message of a command, a job or a sandbox, from the options.
 *
 * Owns:    the small messages that the big one points to; strings stay borrowed from argv.
 * Thread:  any.
 * Pure but for reading TERM and the terminal's size.
 */
#ifndef CL_CLI_SPEC_H
#define CL_CLI_SPEC_H

#include "base/own.h"
#include "cli/cli.h"
#include "cli/values.h"
#include "cloche/v1/job.pb-c.h"

enum { SPEC_NET_RULES = 32, SPEC_NET_TEXT = 8192 };

struct spec {
    Cloche__V1__JobSpec job;
    Cloche__V1__Command command;
    Cloche__V1__Resources resources;
    Cloche__V1__NetworkGrant grant;
    char *allow[SPEC_NET_RULES], net_text[SPEC_NET_TEXT];
    Cloche__V1__Pty pty;
    Cloche__V1__EnvVar env[ARGS_LIST], *env_list[ARGS_LIST];
    Cloche__V1__Label labels[ARGS_LIST], *label_list[ARGS_LIST];
    char env_names[ARGS_LIST][VALUE_NAME], label_keys[ARGS_LIST][VALUE_NAME];
};

/* What it begins with: *ret_template is NULL when that is a snapshot.  INVALID unless it is one of
 * both. */
int spec_template(const struct cli_opts *o, const struct args *a, const char **ret_template,
                  struct cl_err *err) CL_MUST;
/* template may be NULL (exec).  INVALID names the option. */
int spec_new(const struct cli_opts *o, const char *template, const struct args *a,
             struct spec **ret_spec, struct cl_err *err) CL_MUST;
void spec_free(struct spec *s);
CL_DEFINE_AUTO(struct spec, spec_free)

#endif
