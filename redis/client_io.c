/* redis/client_io.c - see redis/client.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "redis/client.h"

enum {
    IN_FLIGHT_DEFAULT = 4096, /* without it a slow server would make us hold any number */
    PASSWORD_MAX = 1024,
    BACKOFF_MIN_MS = 20,
    BACKOFF_MAX_MS = 2000,
    REFUSED_RETRY_MS = 5000,
    TICK_MS = 100,
};

struct cmd {
    struct cl_list link;
    rdb_reply_fn *fn;
    void *arg; /* borrowed: the caller's, until fn ran */
    uint64_t sent_ns;
};

struct rdb {
    struct cl_loop *loop; /* borrowed: must outlive this */
    char *target;         /* owned */
    char *password_file;  /* owned; NULL = none */
    uint64_t timeout_ns;
    size_t max_in_flight;
    rdb_state_fn *on_state;
    rdb_setup_fn *on_setup;
    void *arg;

    enum rdb_state state;
    struct bufferevent *bev; /* owned; NULL when down */
    redisReader *reader;     /* owned; NULL when down */
    bool up;                 /* the socket is connected */
    bool reading;            /* in the reply loop: the reader must not go away */
    bool drop;               /* drop the connection when the reply loop ends */
    bool closing;
    struct cl_list cmds; /* in flight, oldest first; owned */
    size_t in_flight;
    uint64_t connecting_ns;
    uint64_t backoff_ms;
    struct cl_timer retry;
    struct cl_timer tick;
    struct cl_err why; /* of the drop that is under way */
    struct cl_grave grave;
};

static void drop_connection(struct rdb *rdb, enum rdb_state to, uint64_t retry_ms);

enum rdb_state rdb_state(const struct rdb *rdb)
{
    return rdb->state;
}

size_t rdb_in_flight(const struct rdb *rdb)
{
    return rdb->in_flight;
}

static void set_state(struct rdb *rdb, enum rdb_state state, const struct cl_err *why)
{
    if (rdb->state == state && state != RDB_REFUSED)
        return;
    rdb->state = state;
    if (rdb->on_state && !rdb->closing)
        rdb->on_state(state, why, rdb->arg);
}

/* --- addresses ------------------------------------------------------------------------------ */

static int parse_target(const char *target, struct sockaddr_storage *ss, socklen_t *len,
                        struct cl_err *err)
{
    memset(ss, 0, sizeof *ss);
    if (strncmp(target, "unix:", 5) == 0) {
        struct sockaddr_un *un = (struct sockaddr_un *)ss;
        size_t n = strlen(target + 5);
        if (n == 0 || n >= sizeof un->sun_path)
            return cl_fail(err, CL_E_INVALID, 0,
                           "redis target '%s': the path must have 1 to %zu bytes", target,
                           sizeof un->sun_path - 1);
        un->sun_family = AF_UNIX;
        memcpy(un->sun_path, target + 5, n);
        *len = (socklen_t)sizeof *un;
        return 0;
    }
    int size = (int)sizeof *ss;
    if (evutil_parse_sockaddr_port(target, (struct sockaddr *)ss, &size) < 0)
        return cl_fail(
            err, CL_E_INVALID, 0,
            "redis target '%s': want unix:/path or address:port (names are not resolved)", target);
    *len = (socklen_t)size;
    return 0;
}

/* --- connect -------------------------------------------------------------------------------- */

static void fail_with(struct rdb *rdb, enum cl_code code, const char *what)
{
    (void)cl_fail(&rdb->why, code, 0, "redis at %s: %s", rdb->target, what);
}

static void lose(struct rdb *rdb, const char *what)
{
    fail_with(rdb, CL_E_UNAVAILABLE, what);
    uint64_t wait = rdb->backoff_ms;
    rdb->backoff_ms = CL_MIN(rdb->backoff_ms * 2, (uint64_t)BACKOFF_MAX_MS);
    uint16_t jitter;
    cl_random(&jitter, sizeof jitter);
    drop_connection(rdb, RDB_DOWN, wait + jitter % (wait / 2 + 1));
}

static void run_setup(struct rdb *rdb)
{
    if (rdb->on_setup)
        rdb->on_setup(rdb, rdb->arg);
    else
        rdb_setup_done(rdb, NULL);
}

static void on_auth(const struct redisReply *reply, const struct cl_err *err, void *arg)
{
    struct rdb *rdb = arg;
    if (reply) {
        run_setup(rdb);
        return;
    }
    if (err->code == CL_E_PEER) /* an answer, and it is no */
        rdb_setup_done(rdb, err);
}

static void authenticate(struct rdb *rdb)
{
    if (!rdb->password_file) {
        run_setup(rdb);
        return;
    }
    struct cl_err err = {0};
    struct cl_buf buf;
    cl_buf_init(&buf, PASSWORD_MAX);
    const char *argv[2] = {"AUTH", NULL};
    size_t lens[2] = {4, 0};
    int rc = cl_file_read(AT_FDCWD, rdb->password_file, &buf, &err);
    if (rc == 0) {
        while (buf.len > 0 && (buf.data[buf.len - 1] == '\n' || buf.data[buf.len - 1] == '\r'))
            buf.len--;
        argv[1] = buf.len > 0 ? (const char *)buf.data : "";
        lens[1] = buf.len;
        rc = rdb_call(rdb, 2, argv, lens, on_auth, rdb, &err);
    }
    if (buf.data)
        explicit_bzero(buf.data, buf.len);
    cl_buf_fini(&buf);
    if (rc < 0)
        rdb_setup_done(rdb, &err);
}

static void set_tcp_options(struct rdb *rdb)
{
    int fd = bufferevent_getfd(rdb->bev);
    int on = 1;
    unsigned timeout_ms = (unsigned)CL_MIN(rdb->timeout_ns / CL_NS_PER_MS, (uint64_t)60000);
    /* They fail on a unix socket, which needs neither. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
}

static void answer_oldest(struct rdb *rdb, const redisReply *reply, const struct cl_err *err)
{
    struct cmd *cmd = CL_LIST_ENTRY(rdb->cmds.next, struct cmd, link);
    cl_list_unlink(&cmd->link);
    rdb->in_flight--;
    rdb_reply_fn *fn = cmd->fn;
    void *arg = cmd->arg;
    cl_free(cmd);
    fn(reply, err, arg);
}

static void take_reply(struct rdb *rdb, redisReply *reply)
{
    if (cl_list_empty(&rdb->cmds)) {
        fail_with(rdb, CL_E_PEER, "a reply to nothing");
        rdb->drop = true;
    } else if (reply->type == REDIS_REPLY_ERROR) {
        struct cl_err err = {0};
        (void)cl_fail(&err, CL_E_PEER, 0, "redis: %.*s", (int)CL_MIN(reply->len, (size_t)300),
                      reply->str);
        answer_oldest(rdb, NULL, &err);
    } else {
        answer_oldest(rdb, reply, NULL);
    }
    freeReplyObject(reply);
}

static void on_readable(struct bufferevent *bev, void *arg)
{
    struct rdb *rdb = arg;
    struct evbuffer *in = bufferevent_get_input(bev);
    size_t n = evbuffer_get_length(in);
    const char *data = (const char *)evbuffer_pullup(in, (ssize_t)n);
    if (n > 0 && (!data || redisReaderFeed(rdb->reader, data, n) != REDIS_OK)) {
        lose(rdb, "out of memory for a reply");
        return;
    }
    (void)evbuffer_drain(in, n);
    rdb->reading = true;
    while (!rdb->drop && !rdb->closing) {
        void *reply = NULL;
        if (redisReaderGetReply(rdb->reader, &reply) != REDIS_OK) {
            fail_with(rdb, CL_E_UNAVAILABLE, "malformed reply");
            rdb->drop = true;
        } else if (reply) {
            take_reply(rdb, reply);
        } else {
            break;
        }
    }
    rdb->reading = false;
    if (rdb->drop && !rdb->closing)
        drop_connection(rdb, rdb->state == RDB_REFUSED ? RDB_REFUSED : RDB_DOWN,
                        rdb->state == RDB_REFUSED ? REFUSED_RETRY_MS : BACKOFF_MIN_MS);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    (void)bev;
    struct rdb *rdb = arg;
    if (what & BEV_EVENT_CONNECTED) {
        rdb->up = true;
        set_tcp_options(rdb);
        authenticate(rdb);
        return;
    }
    lose(rdb, (what & BEV_EVENT_EOF) ? "the server closed the connection" : strerror(errno));
}

static void connect_now(void *arg)
{
    struct rdb *rdb = arg;
    struct sockaddr_storage ss;
    socklen_t len = 0;
    struct cl_err err = {0};
    set_state(rdb, RDB_CONNECTING, NULL);
    if (rdb->closing)
        return;
    rdb->connecting_ns = cl_now_ns();
    rdb->reader = redisReaderCreate();
    rdb->bev = bufferevent_socket_new(cl_loop_base(rdb->loop), -1, BEV_OPT_CLOSE_ON_FREE);
    if (!rdb->reader || !rdb->bev) {
        lose(rdb, "out of memory");
        return;
    }
    bufferevent_setcb(rdb->bev, on_readable, NULL, on_event, rdb);
    (void)bufferevent_enable(rdb->bev, EV_READ | EV_WRITE);
    (void)bufferevent_set_max_single_read(rdb->bev, 256 * 1024);
    if (parse_target(rdb->target, &ss, &len, &err) < 0 ||
        bufferevent_socket_connect(rdb->bev, (struct sockaddr *)&ss, (int)len) < 0)
        lose(rdb, "cannot connect");
    else if (rdb->bev)
        cl_fd_cloexec(bufferevent_getfd(rdb->bev));
}

/* --- the end of a connection ---------------------------------------------------------------- */

static void answer_all(struct rdb *rdb, const struct cl_err *err)
{
    while (!cl_list_empty(&rdb->cmds))
        answer_oldest(rdb, NULL, err);
}

static void drop_connection(struct rdb *rdb, enum rdb_state to, uint64_t retry_ms)
{
    if (rdb->bev)
        bufferevent_free(rdb->bev);
    rdb->bev = NULL;
    if (rdb->reader)
        redisReaderFree(rdb->reader);
    rdb->reader = NULL;
    rdb->up = false;
    rdb->drop = false;
    if (rdb->closing)
        return;
    cl_timer_start(&rdb->retry, retry_ms * CL_NS_PER_MS);
    struct cl_err why = rdb->why;
    set_state(rdb, to, &why);
    struct cl_err unknown = {0};
    (void)cl_fail(&unknown, CL_E_UNAVAILABLE, 0, "outcome unknown: %.300s", why.text);
    answer_all(rdb, &unknown);
}

static void drop_when_safe(struct rdb *rdb, enum rdb_state to, uint64_t retry_ms)
{
    if (rdb->reading) {
        rdb->drop = true;
        if (to == RDB_REFUSED)
            rdb->state = RDB_REFUSED;
        return;
    }
    drop_connection(rdb, to, retry_ms);
}

void rdb_setup_done(struct rdb *rdb, const struct cl_err *why)
{
    if (rdb->closing || rdb->state != RDB_CONNECTING)
        return;
    if (!why) {
        rdb->backoff_ms = BACKOFF_MIN_MS;
        set_state(rdb, RDB_READY, NULL);
        return;
    }
    rdb->why = *why;
    if (why->code == CL_E_UNAVAILABLE)
        drop_when_safe(rdb, RDB_DOWN, BACKOFF_MIN_MS);
    else
        drop_when_safe(rdb, RDB_REFUSED, REFUSED_RETRY_MS);
}

static void on_tick(void *arg)
{
    struct rdb *rdb = arg;
    if (!rdb->bev)
        return;
    uint64_t now = cl_now_ns();
    bool late = rdb->state == RDB_CONNECTING && now - rdb->connecting_ns > rdb->timeout_ns;
    if (!cl_list_empty(&rdb->cmds))
        late |= now - CL_LIST_ENTRY(rdb->cmds.next, struct cmd, link)->sent_ns > rdb->timeout_ns;
    if (late)
        lose(rdb, "no answer in time");
}

/* --- commands ------------------------------------------------------------------------------- */

static int enqueue(struct rdb *rdb, const char *bytes, size_t n, rdb_reply_fn *fn, void *arg,
                   struct cl_err *err)
{
    if (rdb->in_flight >= rdb->max_in_flight)
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "redis: %zu commands in flight", rdb->in_flight);
    struct cmd *cmd = cl_zalloc(sizeof *cmd);
    if (!cmd || bufferevent_write(rdb->bev, bytes, n) < 0) {
        cl_free(cmd);
        return cl_fail(err, CL_E_NOMEM, 0, "redis command of %zu bytes", n);
    }
    cmd->fn = fn;
    cmd->arg = arg;
    cmd->sent_ns = cl_now_ns();
    cl_list_push(&rdb->cmds, &cmd->link);
    rdb->in_flight++;
    return 0;
}

int rdb_send(struct rdb *rdb, const char *cmd, size_t n, rdb_reply_fn *fn, void *arg,
             struct cl_err *err)
{
    if (rdb->state != RDB_READY || !rdb->bev || rdb->drop || rdb->closing)
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "redis at %s is not connected", rdb->target);
    return enqueue(rdb, cmd, n, fn, arg, err);
}

int rdb_call(struct rdb *rdb, int argc, const char **argv, const size_t *lens, rdb_reply_fn *fn,
             void *arg, struct cl_err *err)
{
    if (!rdb->bev || !rdb->up || rdb->drop || rdb->closing)
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "redis at %s is not connected", rdb->target);
    char *cmd = NULL;
    int n = redisFormatCommandArgv(&cmd, argc, argv, lens);
    if (n < 0)
        return cl_fail(err, CL_E_NOMEM, 0, "redis command");
    int rc = enqueue(rdb, cmd, (size_t)n, fn, arg, err);
    explicit_bzero(cmd, (size_t)n); /* it may hold a password */
    redisFreeCommand(cmd);
    return rc;
}

/* --- life ----------------------------------------------------------------------------------- */

static void destroy(void *obj)
{
    struct rdb *rdb = obj;
    CL_ASSERT(rdb->in_flight == 0);
    cl_timer_fini(&rdb->retry);
    cl_timer_fini(&rdb->tick);
    cl_free(rdb->target);
    cl_free(rdb->password_file);
    if (rdb->bev)
        bufferevent_free(rdb->bev);
    if (rdb->reader)
        redisReaderFree(rdb->reader);
    cl_free(rdb);
}

void rdb_free(struct rdb *rdb)
{
    if (!rdb || rdb->closing)
        return;
    rdb->closing = true;
    cl_timer_stop(&rdb->retry);
    cl_timer_stop(&rdb->tick);
    if (rdb->bev)
        (void)bufferevent_disable(rdb->bev, EV_READ | EV_WRITE);
    struct cl_err err = {0};
    (void)cl_fail(&err, CL_E_CANCELLED, 0, "the redis client is closing");
    answer_all(rdb, &err);
    cl_loop_bury(rdb->loop, &rdb->grave, destroy, rdb);
}

static int copy_conf(struct rdb *rdb, const struct rdb_conf *conf, struct cl_err *err)
{
    struct sockaddr_storage ss;
    socklen_t len;
    if (parse_target(conf->target, &ss, &len, err) < 0)
        return -1;
    rdb->target = cl_strdup(conf->target);
    if (conf->password_file && conf->password_file[0]) {
        rdb->password_file = cl_strdup(conf->password_file);
        if (!rdb->password_file)
            return cl_fail(err, CL_E_NOMEM, 0, "redis client");
    }
    if (!rdb->target)
        return cl_fail(err, CL_E_NOMEM, 0, "redis client");
    rdb->timeout_ns = conf->timeout_ns ? conf->timeout_ns : 5 * CL_NS_PER_S;
    rdb->max_in_flight = conf->max_in_flight ? conf->max_in_flight : IN_FLIGHT_DEFAULT;
    rdb->on_state = conf->on_state;
    rdb->on_setup = conf->on_setup;
    rdb->arg = conf->arg;
    return 0;
}

int rdb_new(struct cl_loop *loop, const struct rdb_conf *conf, struct rdb **ret_rdb,
            struct cl_err *err)
{
    struct rdb *rdb = cl_zalloc(sizeof *rdb);
    if (!rdb)
        return cl_fail(err, CL_E_NOMEM, 0, "redis client");
    rdb->loop = loop;
    rdb->backoff_ms = BACKOFF_MIN_MS;
    cl_list_init(&rdb->cmds);
    if (copy_conf(rdb, conf, err) < 0 ||
        cl_timer_init(&rdb->retry, loop, connect_now, rdb, err) < 0 ||
        cl_timer_init(&rdb->tick, loop, on_tick, rdb, err) < 0) {
        destroy(rdb);
        return -1;
    }
    cl_timer_start(&rdb->retry, 0);
    cl_timer_every(&rdb->tick, TICK_MS * CL_NS_PER_MS);
    *ret_rdb = rdb;
    return 0;
}
