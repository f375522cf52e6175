/* cli/feed_io.c - stdin to the process: one client stream, filled as fast as its window allows; see
 * cli/follow_priv.h.
 *
 * How much of a broken stream arrived is not known.  A terminal's user sees it and goes on; for a
 * pipe or a file the only honest end is an error.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli/follow_priv.h"

enum { FEED_CHUNK = 32 * 1024 };

static void on_stdin(int fd, int what, void *arg);

static void feed_watch(struct feed *feed, bool on)
{
    if (feed->watching)
        cl_fd_watch_set(&feed->watch, on);
}

static int send_chunk(struct feed *feed, const uint8_t *data, size_t n, struct cl_err *err)
{
    const struct follow_spec *spec = feed->f->spec;
    bool first = !feed->named;
    feed->named = true;
    if (spec->kind == FOLLOW_EXEC) {
        Cloche__V1__ExecServiceWriteStdinRequest m =
            CLOCHE__V1__EXEC_SERVICE_WRITE_STDIN_REQUEST__INIT;
        m.sandbox_id = pb_text(first ? spec->sandbox_id : "");
        m.exec_id = pb_text(first ? spec->exec_id : "");
        m.data = (ProtobufCBinaryData){n, (uint8_t *)(uintptr_t)data};
        m.eof = n == 0;
        return rpc_call_send(feed->call, &m.base, err);
    }
    Cloche__V1__WriteStdinRequest m = CLOCHE__V1__WRITE_STDIN_REQUEST__INIT;
    m.job_id = pb_text(first ? feed->f->out->id : "");
    m.data = (ProtobufCBinaryData){n, (uint8_t *)(uintptr_t)data};
    m.eof = n == 0;
    return rpc_call_send(feed->call, &m.base, err);
}

/* Read once and pass it on; false when there is nothing more to do now. */
static bool feed_step(struct feed *feed)
{
    uint8_t data[FEED_CHUNK];
    if (!feed->call || feed->over || feed->eof)
        return false;
    ssize_t n = read(STDIN_FILENO, data, sizeof data);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return false;
    if (n < 0) { /* EIO: we are in the background of our terminal */
        feed_watch(feed, false);
        return false;
    }
    feed->eof = n == 0;
    feed->sent += (uint64_t)n;
    if (send_chunk(feed, data, (size_t)n, NULL) < 0) {
        feed_stop(feed);
        return false;
    }
    if (feed->eof) {
        feed_watch(feed, false);
        rpc_call_close_send(feed->call);
        return false;
    }
    return !rpc_call_is_full(feed->call);
}

static void feed_pump(struct feed *feed)
{
    if (!feed->watching) {
        while (feed_step(feed))
            continue;
        return;
    }
    (void)feed_step(feed);
    if (feed->call && !feed->eof && rpc_call_is_full(feed->call))
        feed_watch(feed, false);
}

static void on_stdin(int fd, int what, void *arg)
{
    (void)fd, (void)what;
    feed_pump(arg);
}

/* --- the call
 * ------------------------------------------------------------------------------------- */

static void feed_message(struct rpc_call *call, const ProtobufCMessage *msg, void *arg)
{
    (void)call, (void)msg, (void)arg;
}

static void feed_drain(struct rpc_call *call, void *arg)
{
    (void)call;
    struct feed *feed = arg;
    if (feed->over || feed->eof)
        return;
    if (feed->watching)
        feed_watch(feed, true);
    else
        feed_pump(feed);
}

static void feed_end(struct rpc_call *call, const struct cl_err *status, void *arg)
{
    (void)call;
    struct feed *feed = arg;
    feed->call = NULL;
    feed_watch(feed, false);
    if (!status || feed->over)
        feed->over = true;
    else if (status->code == CL_E_UNAVAILABLE && (isatty(STDIN_FILENO) || feed->sent == 0)) {
        feed->began = feed->eof = false; /* feed_again() goes on */
    } else if (status->code == CL_E_UNAVAILABLE) {
        struct cl_err err;
        (void)cl_fail(
            &err, CL_E_DATALOSS, 0,
            "the connection broke while stdin was sent; how much of it arrived is not known\n"
            "run the command again");
        feed->over = true;
        follow_cancel(feed->f, 15);
        follow_fail(feed->f, &err);
    } else { /* the process ended, or closed its stdin: as with a pipe, that is no error of ours */
        feed->over = true;
    }
}

static void feed_open(struct feed *feed)
{
    static const struct rpc_client_events events = {feed_message, feed_drain, feed_end};
    static const struct client_method job =
        CLIENT_METHOD("JobService", "WriteStdin", write_stdin_response);
    static const struct client_method exec =
        CLIENT_METHOD("ExecService", "WriteStdin", exec_service_write_stdin_response);
    const struct client_method *m = feed->f->spec->kind == FOLLOW_EXEC ? &exec : &job;
    struct rpc_call_spec spec = {.path = m->path, .out = m->out};
    struct cl_err err = {0};
    feed->named = false;
    if (rpc_channel_call(client_channel(feed->f->client), &spec, &events, feed, &feed->call, &err) <
        0) {
        follow_fail(feed->f, &err);
        return;
    }
    feed->began = true;
    if (feed->watching)
        feed_watch(feed, true);
    else
        feed_pump(feed);
}

void feed_start(struct feed *feed, struct follow *f)
{
    if (feed->began || feed->over)
        return;
    feed->f = f;
    if (!feed->watching && tty_can_wait(STDIN_FILENO))
        feed->watching = cl_fd_watch_init(&feed->watch, client_loop(f->client), STDIN_FILENO,
                                          CL_READ, on_stdin, feed, NULL) == 0;
    feed_open(feed);
}

void feed_again(struct feed *feed)
{
    if (feed->f && !feed->began && !feed->over)
        feed_open(feed);
}

void feed_stop(struct feed *feed)
{
    feed->over = true;
    feed_watch(feed, false);
    if (feed->call)
        rpc_call_cancel(feed->call);
}
