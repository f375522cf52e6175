/* rpc/server_io.c - listeners, connections, the method table and the drain; see rpc/server.h.
 *
 * Thread:  its loop's.
 */
#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <openssl/ssl.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/own.h"
#include "rpc/server_priv.h"

enum { PATH_ROOM = 256 };

#define TICK_NS (2 * CL_NS_PER_S)
#define DRAIN_TOLD_NS (300 * CL_NS_PER_MS) /* whoever had not heard of it has sent his calls */
#define DRAIN_TICK_NS (100 * CL_NS_PER_MS)
#define ACCEPT_PAUSE_NS (100 * CL_NS_PER_MS) /* after EMFILE and the like */

struct listener {
    struct rpc_server *server;  /* borrowed: its owner */
    struct evconnlistener *evl; /* owned, with the fd */
    SSL_CTX *tls;               /* a reference of its own; NULL = h2c */
    int tag;
    bool is_prepared; /* bound, and listens once rpc_server_open() was called */
};

/* --- connections
 * ------------------------------------------------------------------------------------ */

static void on_tick(void *arg)
{
    struct rpc_server *server = arg;
    uint64_t now = cl_now_ns();
    CL_LIST_FOREACH (it, &server->conns)
        conn_tick(CL_LIST_ENTRY(it, struct rpc_conn, link), now);
    server_check_drained(server);
}

void server_conn_gone(struct rpc_conn *conn, const struct cl_err *why)
{
    (void)why;
    struct rpc_server *server = conn->owner;
    server->n_conns--;
    if (server->n_conns == 0)
        cl_timer_stop(&server->tick);
    server_check_drained(server);
}

static void on_accept(struct evconnlistener *evl, evutil_socket_t fd, struct sockaddr *sa, int n,
                      void *arg)
{
    (void)evl, (void)sa, (void)n;
    struct listener *l = arg;
    struct rpc_server *server = l->server;
    SSL *ssl = NULL;
    if (server->n_conns >= RPC_CONNECTIONS_MAX || (l->tls && !(ssl = SSL_new(l->tls)))) {
        (void)close(fd);
        return;
    }
    struct conn_spec spec = {.loop = server->loop,
                             .work = server->work,
                             .role = &server_role,
                             .owner = server,
                             .fd = fd,
                             .ssl = ssl,
                             .listener = l->tag};
    struct rpc_conn *conn;
    if (conn_new(&spec, &conn, NULL) < 0)
        return;
    cl_list_push(&server->conns, &conn->link);
    if (server->n_conns++ == 0)
        cl_timer_every(&server->tick, TICK_NS);
}

static void set_accepting(struct rpc_server *server, bool on)
{
    for (size_t i = 0; i < server->n_listeners; i++)
        (void)(on ? evconnlistener_enable(server->listeners[i]->evl)
                  : evconnlistener_disable(server->listeners[i]->evl));
}

static void on_accept_again(void *arg)
{
    set_accepting(arg, true);
}

/* Out of fds or memory: the waiting connection would wake us for ever, so look away a while. */
static void on_accept_error(struct evconnlistener *evl, void *arg)
{
    (void)evl;
    struct listener *l = arg;
    set_accepting(l->server, false);
    cl_timer_start(&l->server->accept_later, ACCEPT_PAUSE_NS);
}

static int add_listener(struct rpc_server *server, int fd, const struct listener *what,
                        unsigned more_flags, struct cl_err *err)
{
    unsigned flags = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | more_flags;
    struct listener *l = cl_zalloc(sizeof *l);
    if (!l || server->n_listeners == SERVER_LISTENERS_MAX) {
        cl_free(l);
        (void)close(fd);
        return cl_fail(err, l ? CL_E_TOOBIG : CL_E_NOMEM, 0, "listener");
    }
    *l = *what;
    l->evl = evconnlistener_new(cl_loop_base(server->loop), on_accept, l, flags, 0, fd);
    if (!l->evl) {
        cl_free(l);
        (void)close(fd);
        return cl_fail(err, CL_E_NOMEM, 0, "listener");
    }
    if (l->tls)
        (void)SSL_CTX_up_ref(l->tls);
    evconnlistener_set_error_cb(l->evl, on_accept_error);
    server->listeners[server->n_listeners++] = l;
    return 0;
}

int rpc_server_listen(struct rpc_server *server, int fd, SSL_CTX *tls, int tag, struct cl_err *err)
{
    const struct listener what = {.server = server, .tls = tls, .tag = tag};
    return add_listener(server, fd, &what, 0, err);
}

int rpc_server_prepare(struct rpc_server *server, int fd, SSL_CTX *tls, int tag, struct cl_err *err)
{
    const struct listener what = {.server = server, .tls = tls, .tag = tag, .is_prepared = true};
    return add_listener(server, fd, &what, LEV_OPT_DISABLED, err);
}

int rpc_server_open(struct rpc_server *server, struct cl_err *err)
{
    for (size_t i = 0; i < server->n_listeners; i++) {
        struct listener *l = server->listeners[i];
        if (!l->is_prepared)
            continue;
        l->is_prepared = false;
        if (listen(evconnlistener_get_fd(l->evl), RPC_BACKLOG) < 0 ||
            evconnlistener_enable(l->evl) < 0)
            return cl_fail(err, CL_E_SYS, errno, "listen");
    }
    return 0;
}

void rpc_server_set_tls(struct rpc_server *server, int tag, SSL_CTX *tls)
{
    for (size_t i = 0; i < server->n_listeners; i++) {
        struct listener *l = server->listeners[i];
        if (l->tag != tag || !l->tls)
            continue;
        (void)SSL_CTX_up_ref(tls);
        SSL_CTX_free(l->tls);
        l->tls = tls;
    }
}

static void close_listeners(struct rpc_server *server)
{
    cl_timer_stop(&server->accept_later);
    while (server->n_listeners > 0) {
        struct listener *l = server->listeners[--server->n_listeners];
        evconnlistener_free(l->evl);
        SSL_CTX_free(l->tls);
        cl_free(l);
    }
}

/* --- methods
 * ---------------------------------------------------------------------------------------- */

const struct method_entry *server_find(const struct rpc_server *server, const char *path, size_t n,
                                       int listener)
{
    char key[PATH_ROOM];
    if (n >= sizeof key || memchr(path, '\0', n))
        return NULL;
    memcpy(key, path, n);
    key[n] = '\0';
    const struct method_entry *e = cl_map_get(server->methods, key);
    while (e && e->listener != -1 && e->listener != listener)
        e = e->next;
    return e;
}

static int add_method(struct rpc_server *server, const struct rpc_method *method, void *service,
                      int listener, struct cl_err *err)
{
    struct method_entry *e = cl_zalloc(sizeof *e);
    if (!e)
        return cl_fail(err, CL_E_NOMEM, 0, "method %s", method->path);
    struct method_entry *first = cl_map_get(server->methods, method->path);
    *e = (struct method_entry){
        .next = first, .method = method, .service = service, .listener = listener};
    if (cl_map_put(server->methods, method->path, e, err) == 0)
        return 0;
    cl_free(e);
    return -1;
}

int rpc_server_add(struct rpc_server *server, const struct rpc_method *methods, size_t n_methods,
                   void *service, int listener, struct cl_err *err)
{
    for (size_t i = 0; i < n_methods; i++)
        if (add_method(server, &methods[i], service, listener, err) < 0)
            return -1;
    return 0;
}

static void free_methods(struct cl_map *map)
{
    const char *key;
    size_t at = 0;
    struct method_entry *e;
    while (map && (e = cl_map_next(map, &at, &key)) != NULL) {
        while (e) {
            struct method_entry *next = e->next;
            cl_free(e);
            e = next;
        }
    }
    cl_map_free(map);
}

/* --- life
 * --------------------------------------------------------------------------------------------- */

static void tell_drained(void *obj)
{
    struct rpc_server *server = obj;
    if (server->drain_done)
        server->drain_done(server->drain_arg);
}

static void destroy(void *obj)
{
    struct rpc_server *server = obj;
    close_listeners(server);
    cl_timer_fini(&server->tick);
    cl_timer_fini(&server->accept_later);
    reflection_free(server->reflection);
    health_free(server->health);
    free_methods(server->methods);
    rpc_work_free(server->work);
    cl_free(server);
}

int rpc_server_new(struct cl_loop *loop, struct rpc_server **ret_server, struct cl_err *err)
{
    struct rpc_server *server = cl_zalloc(sizeof *server);
    if (!server)
        return cl_fail(err, CL_E_NOMEM, 0, "RPC server");
    server->loop = loop;
    cl_list_init(&server->conns);
    rpc_work_item_init(&server->drain_item, tell_drained, server);
    if (rpc_work_new(loop, &server->work, err) < 0 ||
        cl_map_new(SERVER_METHODS_MAX, &server->methods, err) < 0 ||
        cl_timer_init(&server->tick, loop, on_tick, server, err) < 0 ||
        cl_timer_init(&server->accept_later, loop, on_accept_again, server, err) < 0 ||
        health_new(server, &server->health, err) < 0) {
        destroy(server);
        return -1;
    }
    *ret_server = server;
    return 0;
}

void rpc_server_free(struct rpc_server *server)
{
    static const struct cl_err why = {.code = CL_E_UNAVAILABLE, .text = "the server stopped"};
    if (!server)
        return;
    server->drain_done = NULL;
    close_listeners(server);
    while (!cl_list_empty(&server->conns))
        conn_close(CL_LIST_ENTRY(server->conns.next, struct rpc_conn, link), &why);
    CL_ASSERT(server->n_conns == 0 && server->n_calls == 0);
    cl_timer_stop(&server->tick);
    rpc_work_del(&server->drain_item);
    cl_loop_bury(server->loop, &server->grave, destroy, server);
}

void rpc_server_observe(struct rpc_server *server, rpc_observe_fn *fn, void *arg)
{
    server->observe = fn;
    server->observe_arg = arg;
}

size_t rpc_server_open_calls(const struct rpc_server *server)
{
    return server->n_calls;
}

void rpc_server_set_health(struct rpc_server *server, const char *service, bool serving)
{
    health_set(server->health, service, serving);
}

int rpc_server_set_reflection(struct rpc_server *server, const void *descriptor_set, size_t n,
                              struct cl_err *err)
{
    if (server->reflection)
        return cl_fail(err, CL_E_STATE, 0, "reflection is set already");
    return reflection_new(server, descriptor_set, n, &server->reflection, err);
}

/* --- drain
 * -------------------------------------------------------------------------------------------- */

/* Of calls that have ended, too, the last bytes are on their way. */
static bool is_flushed(const struct rpc_server *server)
{
    CL_LIST_FOREACH (it, &server->conns) {
        if (conn_has_output(CL_LIST_ENTRY(it, struct rpc_conn, link)))
            return false;
    }
    return true;
}

void server_check_drained(struct rpc_server *server)
{
    bool told = cl_now_ns() - server->drain_ns > DRAIN_TOLD_NS;
    bool done = server->n_conns == 0 ||
                (told && server->n_calls == server->n_lasting && is_flushed(server));
    if (server->drain != DRAIN_RUNNING || !done)
        return;
    server->drain = DRAIN_DONE;
    rpc_work_add(server->work, RPC_WORK_CALL, &server->drain_item);
}

void rpc_server_drain(struct rpc_server *server, void (*done)(void *arg), void *arg)
{
    if (server->drain != DRAIN_NONE)
        return;
    server->drain = DRAIN_RUNNING;
    server->drain_ns = cl_now_ns();
    server->drain_done = done;
    server->drain_arg = arg;
    close_listeners(server);
    health_shut_down(server->health);
    CL_LIST_FOREACH (it, &server->conns)
        conn_drain(CL_LIST_ENTRY(it, struct rpc_conn, link));
    if (server->n_conns > 0)
        cl_timer_every(&server->tick, DRAIN_TICK_NS);
    server_check_drained(server);
}
