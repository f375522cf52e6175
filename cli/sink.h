/* cli/sink.h - stdout or stderr as the place where a job's output goes, without ever blocking the
 * loop: what a slow reader does not take waits here, and the caller stops the stream meanwhile.
 *
 * Owns:    what waits (at most SINK_MAX: the service sends a window at a time, so more means that
 *          the caller forgot to pause).
 * Borrows: the fd, which stays in blocking mode because others may share it.
 * Thread:  its loop's.
 */
#ifndef CL_CLI_SINK_H
#define CL_CLI_SINK_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/loop.h"
#include "base/util.h"

enum { SINK_MAX = 16 * 1024 * 1024 };

/* Everything was taken. */
typedef void sink_fn(void *arg);

struct sink {
    int fd;
    bool plain;  /* a file: never makes us wait */
    bool broken; /* the reader is gone; output is dropped */
    struct cl_buf waiting;
    struct cl_fd_watch watch;
    sink_fn *drained;
    void *arg;
};

int sink_init(struct sink *s, struct cl_loop *loop, int fd, sink_fn *drained, void *arg,
              struct cl_err *err) CL_MUST;
void sink_fini(struct sink *s);
/* Write or keep. */
int sink_write(struct sink *s, const void *data, size_t n, struct cl_err *err) CL_MUST;
bool sink_is_empty(const struct sink *s);

#endif
