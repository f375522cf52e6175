/* cli/paths.h - where this instance lives: state, sockets, programs, recipes.
 *
 * Owns:    its text, in place.
 * Thread:  any.
 * As root: /var/lib/cloche and /run/cloche; as anybody else $XDG_STATE_HOME/cloche and
 * $XDG_RUNTIME_DIR/cloche.  --state-dir and --run-dir, CLOCHE_STATE_DIR and CLOCHE_RUN_DIR move
 * them, so that several instances can live side by side.
 */
#ifndef CL_CLI_PATHS_H
#define CL_CLI_PATHS_H

#include <stdbool.h>

#include "base/err.h"
#include "base/util.h"
#include "cli/cli.h"

enum { PATH_TEXT = 512 };

struct cli_paths {
    char state[PATH_TEXT], run[PATH_TEXT];
    char bin[PATH_TEXT];   /* folder of this program */
    char share[PATH_TEXT]; /* holds images/; "" when it cannot be found */
    bool is_root;
};

int paths_resolve(const struct cli_opts *o, struct cli_paths *ret, struct cl_err *err) CL_MUST;

/* As it is called from any folder: INVALID when it is too long. */
int path_absolute(char out[static PATH_TEXT], const char *path, struct cl_err *err) CL_MUST;
/* Join into out; a result that is too long is cut, which no existing path survives. */
void path_join(char out[static PATH_TEXT], const char *dir, const char *name);

/* Is the run folder ours or root's?  In /tmp anybody could have made it first, and would get our
 * key. A folder that is missing is no danger. */
int path_check_run(const char *run, struct cl_err *err) CL_MUST;

/* Text of a small file without its last newline. */
int path_read_line(const char *path, char *out, size_t size, struct cl_err *err) CL_MUST;

#endif
