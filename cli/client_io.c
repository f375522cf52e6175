/* cli/client_io.c - see cli/client.h. */
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/client.h"
#include "cli/paths.h"
#include "observability/traceparent.h"
#include "proto/copy.h"
#include "rpc/targets.h"
#include "rpc/tls.h"

enum { KEY_TEXT = 256 };

struct client {
    struct cl_loop *loop;        /* owned */
    struct rpc_channel *channel; /* owned */
    SSL_CTX *tls;                /* owned; NULL = plaintext */
    char endpoint[TARGETS_TEXT]; /* one, or a list */
    bool was_up;
};

struct client_stream {
    struct client *client;
    struct rpc_call *call; /* the channel's; NULL once it ended */
    client_message_fn *fn;
    void *arg;
    bool ended, failed, stopped;
    struct cl_err status; /* valid when failed */
};

/* --- finding the endpoint and the key ----------------------------------------------------------
 */

static int find_endpoint(const struct cli_paths *p, char out[static TARGETS_TEXT],
                         struct cl_err *err)
{
    const char *given = getenv("CLOCHE_ENDPOINT");
    if (given && given[0]) {
        if (strlen(given) >= TARGETS_TEXT)
            return cl_fail(err, CL_E_INVALID, 0, "CLOCHE_ENDPOINT is longer than %d bytes",
                           TARGETS_TEXT - 1);
        (void)snprintf(out, TARGETS_TEXT, "%s", given);
        return 0;
    }
    char socket_path[PATH_TEXT];
    if (path_check_run(p->run, err) < 0)
        return -1;
    path_join(socket_path, p->run, "api.sock");
    if (access(socket_path, F_OK) < 0)
        return cl_fail(
            err, CL_E_UNAVAILABLE, 0,
            "Cloche is not running here (no %s)\nstart it with `cloche up`, or set CLOCHE_ENDPOINT",
            socket_path);
    (void)snprintf(out, TARGETS_TEXT, "unix:%s", socket_path);
    return 0;
}

static int find_key(const struct cli_paths *p, char out[static KEY_TEXT], struct cl_err *err)
{
    const char *key = getenv("CLOCHE_API_KEY"), *file = getenv("CLOCHE_KEY_FILE");
    char own[PATH_TEXT];
    struct cl_err why = {0};
    if (key && key[0]) {
        (void)snprintf(out, KEY_TEXT, "%s", key);
        return 0;
    }
    path_join(own, p->state, "admin.key");
    if (file && file[0])
        (void)snprintf(own, sizeof own, "%s", file);
    if (path_read_line(own, out, KEY_TEXT, &why) < 0)
        return cl_fail(err, CL_E_UNAUTH, 0,
                       "no API key: %.250s\nset CLOCHE_API_KEY or CLOCHE_KEY_FILE", why.text);
    return 0;
}

/* An API key must not go in plaintext to one host because another one is this. */
static int check_alike(const char *endpoint, struct target_kinds *ret, struct cl_err *err)
{
    if (target_kinds_read(endpoint, ret, err) < 0)
        return cl_wrap(err, "CLOCHE_ENDPOINT");
    if (ret->n_remote > 0 && ret->n_unix + ret->n_loopback > 0)
        return cl_fail(err, CL_E_INVALID, 0,
                       "CLOCHE_ENDPOINT: '%.128s' is on another host and others are on this one: "
                       "some with TLS and some without are not mixed\n"
                       "name this host as the other ones reach it, too, or only addresses on it",
                       ret->remote);
    return 0;
}

/* TLS when CLOCHE_CA names a CA, or off loopback unless CLOCHE_INSECURE=1; never on a unix
 * socket. */
static int find_tls(const struct cli_paths *p, const char *endpoint, SSL_CTX **ret_tls,
                    struct cl_err *err)
{
    const char *ca = getenv("CLOCHE_CA"), *plain = getenv("CLOCHE_INSECURE");
    char own[PATH_TEXT];
    struct target_kinds kinds;
    path_join(own, p->state, "tls/ca.pem");
    if (check_alike(endpoint, &kinds, err) < 0)
        return -1;
    if (kinds.n_loopback + kinds.n_remote == 0 || (!(ca && ca[0]) && kinds.n_remote == 0) ||
        (plain && strcmp(plain, "1") == 0))
        return 0;
    if (ca && ca[0])
        (void)snprintf(own, sizeof own, "%s", ca);
    struct tls_files files = {.ca = own};
    struct cl_err why = {0};
    if (tls_client_new(&files, ret_tls, &why) < 0)
        return cl_fail(
            err, CL_E_INVALID, 0,
            "%.200s\nset CLOCHE_CA to the CA file that `cloche status` names on the server",
            why.text);
    return 0;
}

/* --- life --------------------------------------------------------------------------------------
 */

static void on_state(void *arg, const struct cl_err *err)
{
    struct client *c = arg;
    c->was_up = c->was_up || !err;
}

/* The trace that we were started in (OpenTelemetry: context by the environment). */
static int take_trace(struct client *c, struct cl_err *err)
{
    char trace[TRACEPARENT_TEXT];
    if (!traceparent_read(getenv("TRACEPARENT"), trace))
        return 0;
    return rpc_channel_set_metadata(c->channel, "traceparent", trace, err);
}

static int open_channel(struct client *c, const char *key, struct cl_err *err)
{
    char bearer[KEY_TEXT + 16];
    if (cl_loop_new(&c->loop, err) < 0 ||
        rpc_channel_new(c->loop, c->endpoint, c->tls, &c->channel, err) < 0)
        return -1;
    rpc_channel_on_state(c->channel, on_state, c);
    if (take_trace(c, err) < 0)
        return -1;
    if (!key[0])
        return 0;
    (void)snprintf(bearer, sizeof bearer, "Bearer %s", key);
    int rc = rpc_channel_set_metadata(c->channel, "authorization", bearer, err);
    OPENSSL_cleanse(bearer, sizeof bearer);
    return rc;
}

int client_open(const struct cli_opts *o, struct client **ret_client, struct cl_err *err)
{
    struct cli_paths p;
    char key[KEY_TEXT] = ""; /* none: what is called has a credential of its own */
    CL_AUTO(client_freep) struct client *c = cl_zalloc(sizeof *c);
    if (!c)
        return cl_fail(err, CL_E_NOMEM, 0, "client");
    if (paths_resolve(o, &p, err) < 0 || find_endpoint(&p, c->endpoint, err) < 0 ||
        (!o->keyless && find_key(&p, key, err) < 0))
        return -1;
    int rc = find_tls(&p, c->endpoint, &c->tls, err);
    if (rc == 0)
        rc = open_channel(c, key, err);
    OPENSSL_cleanse(key, sizeof key);
    if (rc == 0)
        *ret_client = CL_STEAL(&c);
    return rc;
}

void client_free(struct client *c)
{
    if (!c)
        return;
    rpc_channel_free(c->channel);
    cl_loop_free(c->loop);
    SSL_CTX_free(c->tls);
    cl_free(c);
}

struct cl_loop *client_loop(struct client *c)
{
    return c->loop;
}

struct rpc_channel *client_channel(struct client *c)
{
    return c->channel;
}

bool client_was_up(const struct client *c)
{
    return c->was_up;
}

/* --- streams ------------------------------------------------------------------------------------
 */

static void stream_message(struct rpc_call *call, const ProtobufCMessage *msg, void *arg)
{
    struct client_stream *s = arg;
    if (s->stopped || s->fn(s->arg, msg, &s->status) == 0)
        return;
    s->stopped = s->failed = true;
    rpc_call_cancel(call);
}

static void stream_drain(struct rpc_call *call, void *arg)
{
    (void)call;
    struct client_stream *s = arg;
    cl_loop_stop(s->client->loop);
}

static void stream_end(struct rpc_call *call, const struct cl_err *status, void *arg)
{
    (void)call;
    struct client_stream *s = arg;
    s->ended = true;
    s->call = NULL;
    if (status && !s->stopped) {
        s->failed = true;
        s->status = *status;
    }
    cl_loop_stop(s->client->loop);
}

static int stream_open(struct client *c, const struct client_method *m, uint64_t deadline_ns,
                       struct client_stream *s, struct cl_err *err)
{
    static const struct rpc_client_events events = {stream_message, stream_drain, stream_end};
    struct rpc_call_spec spec = {
        .path = m->path, .out = m->out, .deadline_ns = deadline_ns, .fail_fast = true};
    s->client = c;
    return rpc_channel_call(c->channel, &spec, &events, s, &s->call, err);
}

int client_stream_open(struct client *c, const struct client_method *m, client_message_fn *fn,
                       void *arg, struct client_stream **ret_stream, struct cl_err *err)
{
    CL_AUTO(cl_freep) struct client_stream *s = cl_zalloc(sizeof *s);
    if (!s)
        return cl_fail(err, CL_E_NOMEM, 0, "stream");
    s->fn = fn;
    s->arg = arg;
    if (stream_open(c, m, 0, s, err) < 0)
        return -1;
    *ret_stream = CL_STEAL(&s);
    return 0;
}

static int stream_status(const struct client_stream *s, struct cl_err *err)
{
    if (!s->failed)
        return 0;
    if (err)
        *err = s->status;
    return -1;
}

int client_stream_send(struct client_stream *s, const ProtobufCMessage *msg, struct cl_err *err)
{
    while (s->call && rpc_call_is_full(s->call))
        cl_loop_run(s->client->loop);
    if (s->call)
        return rpc_call_send(s->call, msg, err);
    return s->failed ? stream_status(s, err)
                     : cl_fail(err, CL_E_PEER, 0, "the service ended the transfer before its end");
}

int client_stream_finish(struct client_stream *s, struct cl_err *err)
{
    if (s->call)
        rpc_call_close_send(s->call);
    while (!s->ended)
        cl_loop_run(s->client->loop);
    return stream_status(s, err);
}

void client_stream_free(struct client_stream *s)
{
    if (!s)
        return;
    if (s->call) {
        s->stopped = true;
        rpc_call_cancel(s->call);
        while (!s->ended)
            cl_loop_run(s->client->loop);
    }
    cl_free(s);
}

/* --- unary
 * ---------------------------------------------------------------------------------------- */

static int keep_answer(void *arg, const ProtobufCMessage *msg, struct cl_err *err)
{
    struct client_ask *a = arg;
    if (a->reply)
        return cl_fail(err, CL_E_PEER, 0, "two answers to one call");
    return pb_copy(msg, &a->reply, err);
}

/* Opens and sends; false with a->err. */
static bool begin_ask(struct client *c, const struct client_method *m, uint64_t deadline_ns,
                      struct client_ask *a, struct client_stream *s)
{
    *s = (struct client_stream){.fn = keep_answer, .arg = a};
    if (stream_open(c, m, deadline_ns, s, &a->err) < 0) {
        s->ended = true;
        return false;
    }
    if (client_stream_send(s, a->request, &a->err) < 0) {
        if (s->call)
            rpc_call_cancel(s->call);
        return false;
    }
    if (s->call)
        rpc_call_close_send(s->call);
    return true;
}

static void end_ask(const struct client_method *m, bool began, struct client_ask *a,
                    struct client_stream *s)
{
    int end = client_stream_finish(s, began ? &a->err : NULL);
    if (began && end == 0 && a->reply)
        return;
    pb_free(a->reply);
    a->reply = NULL;
    if (began && end == 0)
        (void)cl_fail(&a->err, CL_E_PEER, 0, "no answer to %s", m->path);
}

void client_unary_all(struct client *c, const struct client_method *m, struct client_ask *asks,
                      size_t n, uint64_t timeout_ns)
{
    struct client_stream streams[CLIENT_AT_ONCE];
    bool began[CLIENT_AT_ONCE];
    for (size_t from = 0; from < n; from += CLIENT_AT_ONCE) {
        size_t some = CL_MIN(n - from, (size_t)CLIENT_AT_ONCE);
        uint64_t deadline =
            cl_now_ns() + (timeout_ns ? timeout_ns : CLIENT_TIMEOUT_S * CL_NS_PER_S);
        for (size_t i = 0; i < some; i++)
            began[i] = begin_ask(c, m, deadline, &asks[from + i], &streams[i]);
        for (size_t i = 0; i < some; i++)
            end_ask(m, began[i], &asks[from + i], &streams[i]);
    }
}

int client_unary(struct client *c, const struct client_method *m, const ProtobufCMessage *request,
                 uint64_t timeout_ns, ProtobufCMessage **ret_reply, struct cl_err *err)
{
    struct client_ask ask = {.request = request};
    client_unary_all(c, m, &ask, 1, timeout_ns);
    if (!ask.reply) {
        *err = ask.err;
        return -1;
    }
    *ret_reply = ask.reply;
    return 0;
}

int client_do(struct client *c, const struct client_method *m, const ProtobufCMessage *request,
              struct cl_err *err)
{
    ProtobufCMessage *reply = NULL;
    if (client_unary(c, m, request, 0, &reply, err) < 0)
        return -1;
    pb_free(reply);
    return 0;
}
