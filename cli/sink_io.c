/* cli/sink_io.c - see cli/sink.h. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/sink.h"
#include "cli/tty.h"

static void on_writable(int fd, int what, void *arg);

int sink_init(struct sink *s, struct cl_loop *loop, int fd, sink_fn *drained, void *arg,
              struct cl_err *err)
{
    struct stat st;
    *s = (struct sink){.fd = fd, .drained = drained, .arg = arg};
    cl_buf_init(&s->waiting, SINK_MAX);
    s->broken = fstat(fd, &st) < 0;
    s->plain = s->broken || !tty_can_wait(fd);
    if (s->plain)
        return 0;
    if (cl_fd_watch_init(&s->watch, loop, fd, CL_WRITE, on_writable, s, err) < 0)
        return -1;
    cl_fd_watch_set(&s->watch, false);
    return 0;
}

void sink_fini(struct sink *s)
{
    cl_fd_watch_fini(&s->watch);
    cl_buf_fini(&s->waiting);
}

bool sink_is_empty(const struct sink *s)
{
    return s->waiting.len == 0;
}

/* How much the fd takes now.  A pipe that polls writable takes PIPE_BUF without blocking. */
static size_t write_some(struct sink *s, const uint8_t *data, size_t n, struct cl_err *err)
{
    size_t done = 0;
    while (done < n && !s->broken) {
        struct pollfd p = {.fd = s->fd, .events = POLLOUT};
        if (!s->plain && poll(&p, 1, 0) <= 0)
            break;
        ssize_t k =
            write(s->fd, data + done, s->plain ? n - done : CL_MIN(n - done, (size_t)PIPE_BUF));
        if (k < 0 && (errno == EINTR || errno == EAGAIN)) {
            if (errno == EAGAIN)
                break;
            continue;
        }
        if (k < 0) {
            s->broken = true;
            (void)cl_fail(err, CL_E_SYS, errno, "write output");
            break;
        }
        done += (size_t)k;
    }
    return s->broken ? n : done;
}

static void on_writable(int fd, int what, void *arg)
{
    (void)fd, (void)what;
    struct sink *s = arg;
    cl_buf_consume(&s->waiting, write_some(s, s->waiting.data, s->waiting.len, NULL));
    if (s->waiting.len > 0)
        return;
    cl_fd_watch_set(&s->watch, false);
    s->drained(s->arg);
}

int sink_write(struct sink *s, const void *data, size_t n, struct cl_err *err)
{
    bool was_broken = s->broken;
    size_t done = s->waiting.len == 0 ? write_some(s, data, n, err) : 0;
    if (s->broken)
        return was_broken ? 0 : -1;
    if (done == n)
        return 0;
    cl_fd_watch_set(&s->watch, true);
    return cl_buf_append(&s->waiting, (const uint8_t *)data + done, n - done, err);
}
