/* cli/follow_priv.h - the parts of one follow: see cli/follow.h. */
#ifndef CL_CLI_FOLLOW_PRIV_H
#define CL_CLI_FOLLOW_PRIV_H

#include "cli/follow.h"
#include "cli/sink.h"
#include "cli/tty.h"
#include "cloche/v1/exec.pb-c.h"

struct follow;

/* Our stdin on its way to the process. */
struct feed {
    struct follow *f;
    struct rpc_call *call; /* the channel's; NULL when not open */
    struct cl_fd_watch watch;
    bool watching; /* the fd can be watched; otherwise it is a file and is read at once */
    bool began, eof, over;
    bool named; /* the first message, with the ids, was sent */
    uint64_t sent;
};

struct follow {
    struct client *client;
    const struct follow_spec *spec;
    struct rpc_call *call; /* the channel's; NULL between streams */
    struct follow_result *out;
    uint64_t offset[2];
    struct sink sinks[2];
    struct feed feed;
    struct tty tty;
    struct cl_timer retry, patience, hint;
    bool accepted, started, finished, failed, pipe_gone;
    struct cl_err err;
};

/* follow_calls.c: the requests, by kind. */
int follow_open(struct follow *f, const struct rpc_client_events *events,
                struct cl_err *err) CL_MUST;
/* Ask for the end of the process; the outcome is told on stderr when it fails. */
void follow_cancel(struct follow *f, int signo);
void follow_resize(struct follow *f);

/* feed_io.c */
void feed_start(struct feed *feed, struct follow *f);
/* The stream was re-attached: a terminal's stdin goes on. */
void feed_again(struct feed *feed);
void feed_stop(struct feed *feed);

/* follow_io.c: give up with this error. */
void follow_fail(struct follow *f, const struct cl_err *err);

#endif
