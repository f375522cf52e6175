/* observability/daemon.h - what every daemon's main() does: options, --help, --check-config, log,
 * signals.
 *
 * Owns:    a copy of the command line, to read the configuration again.
 * Thread:  start-up; the functions of a life run on its loop.
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

/* What a running daemon does when it is told something by a signal. */
struct daemon_life {
    struct cl_loop *loop; /* borrowed, as long as it runs */
    void *arg;            /* borrowed likewise: of the functions */
    /* SIGTERM, SIGINT: finish what is under way and call done(loop), which ends the loop; NULL =
     * end it at once.  A second such signal ends it at once too. */
    void (*stop)(void *arg, void (*done)(void *loop), void *loop);
    /* SIGHUP, when the configuration was read again (rows marked reload): take over what was copied
     * from the options, and the files that they name (certificates).  On an error go on as before;
     * it is logged.  NULL = nothing to do. */
    int (*reload)(void *arg, struct cl_err *err);
};

/* Its sockets are there now: a service manager is told that it is up (base/notify.h). */
int daemon_take_signals(const struct daemon_life *life, struct cl_err *err) CL_MUST;

#endif
