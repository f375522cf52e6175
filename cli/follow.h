/* cli/follow.h - stay with a running process until it ends: its output here, our stdin there,
 * Ctrl-C, the terminal's size, and a new stream when the old one breaks.
 *
 *   CALLING --message--> STREAMING --result--> ENDED (once stdout took everything)
 *      ^                     | UNAVAILABLE
 *      |  timer              v
 *      +------------------ BROKEN --60 s--> ENDED with UNAVAILABLE
 *
 * Owns:    for the time of the call: the streams, the terminal's settings.
 * Thread:  the only one.
 */
#ifndef CL_CLI_FOLLOW_H
#define CL_CLI_FOLLOW_H

#include "base/id.h"
#include "cli/capture.h"
#include "cli/client.h"
#include "cloche/v1/job.pb-c.h"

enum follow_kind {
    FOLLOW_RUN,   /* submit and follow a job */
    FOLLOW_WATCH, /* look at a job */
    FOLLOW_EXEC,  /* an exec of a sandbox */
};

struct follow_spec {
    enum follow_kind kind;
    const Cloche__V1__RunRequest *run; /* RUN; its idempotency key makes a repetition safe */
    const char *job_id;                /* WATCH */
    const char *sandbox_id, *exec_id;  /* EXEC */
    bool no_follow;                    /* end when what is there was shown */
    bool forward_stdin;
    bool tty;                /* raw terminal and its size */
    bool in_charge;          /* Ctrl-C ends the process, not only this program */
    struct capture *capture; /* borrowed; NULL = output goes to stdout and stderr */
};

struct follow_result {
    int exit_code;
    int interrupted;    /* the signal that we got, or 0 */
    char id[CL_ID_MAX]; /* job or exec */
    uint32_t attempt;
    char worker[64], driver[16];
    Cloche__V1__ExecResult *result; /* owned: pb_free(); NULL when it did not come to an end */
};

/* -1: Cloche failed or refused.  Otherwise *ret is filled, also when we left early. */
int follow(struct client *c, const struct follow_spec *spec, struct follow_result *ret,
           struct cl_err *err) CL_MUST;

#endif
