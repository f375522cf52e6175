/* observability/daemon.h - what every daemon's main() does: options, --help, --check-config, log,
 * SIGHUP.
 *
 * Owns:    a copy of the command line, to read the configuration again.
 * Thread:  start-up; on_reload runs on the daemon's loop.
 */
#ifndef CL_OBSERVABILITY_DAEMON_H
#define CL_OBSERVABILITY_DAEMON_H

#include "base/conf.h"
#include "base/loop.h"

struct daemon {
    const char *name;  /* "scheduler": cloche-scheduler, and the process of its log lines */
    const char *brief; /* for --help */
    const struct cl_conf_row *rows;
    size_t n_rows;
    void *values;          /* borrowed: the options */
    size_t size;           /* of them */
    const char *log_level; /* borrowed: the field of the options */
    /* Rules between options; NULL = none. */
    int (*check)(const void *values, struct cl_err *err);
    /* Run until the end. */
    int (*run)(struct cl_err *err);
};

/* The exit code: 0, 1 when it could not run, 2 for a wrong command line. */
int daemon_main(const struct daemon *d, int argc, char **argv);
/* What a daemon does when its options may have changed: what it copied from them, and the files
 * that they name (certificates).  On an error it goes on with what it had. */
typedef int daemon_reload_fn(void *arg, struct cl_err *err);
/* At SIGHUP read the configuration again (rows marked reload), then call fn (NULL = none).  What
 * is wrong is logged with file and line, and changes nothing. */
int daemon_watch_sighup(struct cl_loop *loop, daemon_reload_fn *fn, void *arg,
                        struct cl_err *err) CL_MUST;

#endif
