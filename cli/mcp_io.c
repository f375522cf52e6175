/* cli/mcp_io.c - `cloche mcp`: an MCP server on stdin and stdout, one JSON-RPC message a line, for
 * the client that started us.
 *
 *   OPEN --end of stdin--> ENDING (answers are awaited for LINGER_S) --> CLOSING (the sandbox of
 *   this process is ended) --> gone
 *
 * Owns:    the MCP server, the lines in flight.
 * Thread:  the only one.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/client.h"
#include "cli/reach.h"
#include "cli/sink.h"
#include "cli/tty.h"
#include "mcp/server.h"

enum {
    READ_PIECE = 64 * 1024,
    LINGER_S =
        10, /* after the end of stdin, for answers; a client that died would leave us for ever */
    PIECES_PER_TURN = 16,
};

#define TICK_NS (50 * CL_NS_PER_MS)
#define FILE_NS CL_NS_PER_MS /* a file is always readable: it is read from a timer */

struct stdio {
    struct client *client;  /* owned */
    struct mcp_server *mcp; /* owned */
    struct cl_fd_watch in;
    struct cl_timer tick; /* reads a file; later looks whether all is answered */
    struct sink out;
    struct cl_buf line; /* what has come of the next message */
    uint64_t ended_ns;  /* when stdin ended; 0 = not yet */
    bool skipping;      /* the line was too long: its rest is dropped */
    bool closing, watched;
    char ports_domain[REACH_DOMAIN]; /* "" = no gateway is known */
};

/* One message in flight. */
struct line {
    struct stdio *io;
    char *text; /* owned: until the reply */
};

/* --- out ----------------------------------------------------------------------------------------
 */

static void write_message(struct stdio *io, const json_t *message)
{
    char *text = json_dumps(message, JSON_COMPACT);
    size_t n = text ? strlen(text) : 0;
    struct cl_err err = {0};
    if (text) {
        text[n] = '\n'; /* where its NUL was */
        if (sink_write(&io->out, text, n + 1, &err) < 0)
            cli_say("%s", err.text);
    }
    free(text);
}

static void on_reply(void *arg, const struct mcp_reply *reply)
{
    struct line *l = arg;
    if (reply->body)
        write_message(l->io, reply->body);
    cl_free(l->text);
    cl_free(l);
}

static void on_notify(void *arg, const json_t *message)
{
    const struct line *l = arg;
    write_message(l->io, message);
}

/* --- in -----------------------------------------------------------------------------------------
 */

static void take_line(struct stdio *io, const char *text, size_t n)
{
    static const struct mcp_transport transport = {on_reply, on_notify};
    struct mcp_call *call;
    struct cl_err err = {0};
    struct line *l = cl_zalloc(sizeof *l);
    if (n == 0 || !l) {
        cl_free(l);
        return;
    }
    *l = (struct line){io, cl_strndup(text, n)};
    struct mcp_incoming in = {.text = l->text, .n = n};
    if (!l->text || mcp_call_new(io->mcp, &in, &transport, l, &call, &err) < 0) {
        cli_say("a message was dropped: %s", err.text);
        cl_free(l->text);
        cl_free(l);
        return;
    }
    mcp_call_run(call);
}

static void take_bytes(struct stdio *io, const char *data, size_t n)
{
    while (n > 0) {
        const char *end = memchr(data, '\n', n);
        size_t part = end ? (size_t)(end - data) : n;
        if (!io->skipping && cl_buf_append(&io->line, data, part, NULL) < 0) {
            cli_say("a message of more than %d bytes was dropped", MCP_JSON_MAX);
            io->skipping = true;
        }
        if (end && !io->skipping)
            take_line(io, (const char *)io->line.data, io->line.len);
        if (end || io->skipping)
            cl_buf_clear(&io->line);
        io->skipping = io->skipping && !end;
        part += end != NULL;
        data += part;
        n -= part;
    }
}

static void on_end(struct stdio *io)
{
    if (io->watched)
        cl_fd_watch_set(&io->in, false);
    io->ended_ns = cl_now_ns();
    mcp_server_drain(io->mcp);
    cl_timer_every(&io->tick, TICK_NS);
}

/* false when there is nothing more now. */
static bool read_piece(struct stdio *io)
{
    char data[READ_PIECE];
    ssize_t n = read(STDIN_FILENO, data, sizeof data);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return false;
    if (n <= 0) {
        on_end(io);
        return false;
    }
    take_bytes(io, data, (size_t)n);
    return true;
}

static void on_readable(int fd, int what, void *arg)
{
    (void)fd, (void)what;
    (void)read_piece(arg);
}

/* --- the end ------------------------------------------------------------------------------------
 */

static void on_closed(void *arg)
{
    struct stdio *io = arg;
    cl_loop_stop(client_loop(io->client));
}

static void on_tick(void *arg)
{
    struct stdio *io = arg;
    if (!io->ended_ns) {
        for (int i = 0; i < PIECES_PER_TURN && read_piece(io); i++)
            continue;
        return;
    }
    bool late = cl_now_ns() - io->ended_ns > LINGER_S * CL_NS_PER_S;
    if (io->closing || ((mcp_server_calls(io->mcp) > 0 || !sink_is_empty(&io->out)) && !late))
        return;
    io->closing = true;
    cl_timer_stop(&io->tick);
    mcp_server_close_stdio(io->mcp, on_closed, io);
}

static void on_signal(int signo, void *arg)
{
    (void)signo;
    struct stdio *io = arg;
    if (!io->ended_ns)
        on_end(io);
    io->ended_ns = 1; /* nothing is awaited any more */
}

static void on_drained(void *arg)
{
    (void)arg; /* on_tick() looks */
}

/* --- life ---------------------------------------------------------------------------------------
 */

static int open_server(struct stdio *io, const struct cli_opts *o, struct cl_err *err)
{
    struct mcp_server_conf conf = {.loop = client_loop(io->client),
                                   .channel = client_channel(io->client),
                                   .template_name = o->template_name ? o->template_name : "python",
                                   .ttl_ns = o->ttl ? o->ttl : 900 * CL_NS_PER_S,
                                   .aliases = o->aliases,
                                   .ports_domain = io->ports_domain};
    if (reach_domain(o, io->ports_domain, NULL) < 0)
        io->ports_domain[0] = '\0';             /* port_url says so to who asks */
    cl_random(conf.secret, sizeof conf.secret); /* names live as long as this process */
    return mcp_server_new(&conf, &io->mcp, err);
}

static int open_stdio(struct stdio *io, struct cl_err *err)
{
    struct cl_loop *loop = client_loop(io->client);
    cl_buf_init(&io->line, MCP_JSON_MAX);
    if (cl_timer_init(&io->tick, loop, on_tick, io, err) < 0 ||
        sink_init(&io->out, loop, STDOUT_FILENO, on_drained, io, err) < 0 ||
        cl_loop_on_signal(loop, SIGTERM, on_signal, io, err) < 0 ||
        cl_loop_on_signal(loop, SIGINT, on_signal, io, err) < 0)
        return -1;
    io->watched = tty_can_wait(STDIN_FILENO);
    if (io->watched)
        return cl_fd_watch_init(&io->in, loop, STDIN_FILENO, CL_READ, on_readable, io, err);
    cl_timer_every(&io->tick, FILE_NS);
    return 0;
}

static void close_stdio(struct stdio *io)
{
    mcp_server_free(io->mcp);
    if (io->watched)
        cl_fd_watch_fini(&io->in);
    cl_timer_fini(&io->tick);
    sink_fini(&io->out);
    cl_buf_fini(&io->line);
    client_free(io->client);
}

static int cmd_mcp(const struct cli_opts *o, const struct args *a)
{
    (void)a;
    struct cl_err err = {0};
    struct stdio io = {0};
    if (client_open(o, &io.client, &err) < 0)
        return cli_report(&err);
    (void)signal(SIGPIPE, SIG_IGN);
    int rc = open_server(&io, o, &err);
    if (rc == 0)
        rc = open_stdio(&io, &err);
    if (rc == 0)
        cl_loop_run(client_loop(io.client));
    close_stdio(&io);
    return rc < 0 ? cli_report(&err) : EXIT_OK;
}

static const struct arg_opt mcp_opts[] = {
    {"template", 0, ARG_STRING, OPT(template_name), "NAME",
     "template of the sandbox that is made (default python)"},
    {"ttl", 0, ARG_DURATION, OPT(ttl), "15m", "it ends after this long without a call"},
    {"aliases", 0, ARG_FLAG, OPT(aliases), NULL,
     "also tools by the names of ForeverVM and Microsandbox; run_code answers as E2B's"},
    OPT_DIRS};

const struct cli_command mcp_commands[] = {
    {"mcp", "[OPTIONS]", "serve MCP on stdin and stdout, for an agent's client",
     "What an MCP client needs in its configuration:\n"
     "  {\"mcpServers\": {\"cloche\": {\"command\": \"cloche\", \"args\": [\"mcp\"]}}}\n"
     "One sandbox is made when it is first needed, and ended with this process.\n"
     "Over HTTP: `cloche status` shows the gateway's address.\n",
     SPEC(mcp_opts, 0, 0), cmd_mcp, false},
};
const size_t mcp_commands_n = CL_COUNT(mcp_commands);
