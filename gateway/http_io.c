/* gateway/http_io.c - the listener and the list of connections; see gateway/http_io.h and
 * gateway/http_priv.h. */
#include "gateway/http_io.h"

#include <errno.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/addr.h"
#include "base/mem.h"
#include "base/own.h"
#include "gateway/http_priv.h"

static void on_accept(struct evconnlistener *listener, int fd, struct sockaddr *sa, int len,
                      void *arg)
{
    (void)listener, (void)sa, (void)len;
    struct http_server *s = arg;
    if (s->n_conns >= HTTP_CONNECTIONS_MAX || http_conn_new(s, fd, NULL) < 0)
        cl_closep(&fd);
}

int http_server_new(const struct http_conf *conf, struct http_server **ret_server,
                    struct cl_err *err)
{
    struct http_server *s = cl_zalloc(sizeof *s);
    if (!s)
        return cl_fail(err, CL_E_NOMEM, 0, "HTTP server");
    s->conf = *conf;
    cl_list_init(&s->conns);
    *ret_server = s;
    return 0;
}

int http_server_listen(struct http_server *s, const char *address, uint16_t *ret_port,
                       struct cl_err *err)
{
    CL_AUTO(cl_closep) int fd = -1;
    if (cl_tcp_listen(address, SOMAXCONN, &fd, err) < 0)
        return -1;
    uint16_t port = cl_tcp_port(fd);
    if (port == 0)
        return cl_fail(err, CL_E_SYS, errno, "listen on '%.64s'", address);
    s->listener = evconnlistener_new(cl_loop_base(s->conf.loop), on_accept, s,
                                     LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
    if (!s->listener)
        return cl_fail(err, CL_E_NOMEM, 0, "listen on '%.64s'", address);
    (void)cl_steal_fd(&fd);
    *ret_port = port;
    return 0;
}

void http_server_set_tls(struct http_server *s, SSL_CTX *tls)
{
    s->conf.tls = tls;
}

static void stop_listening(struct http_server *s)
{
    if (s->listener)
        evconnlistener_free(s->listener);
    s->listener = NULL;
}

void http_server_drain(struct http_server *s)
{
    stop_listening(s);
    s->draining = true;
    CL_LIST_FOREACH (it, &s->conns)
        http_conn_drain(CL_LIST_ENTRY(it, struct http_conn, link));
}

size_t http_server_connections(const struct http_server *s)
{
    return s->n_conns;
}

void http_server_free(struct http_server *s)
{
    if (!s)
        return;
    stop_listening(s);
    CL_LIST_FOREACH (it, &s->conns)
        http_conn_close(CL_LIST_ENTRY(it, struct http_conn, link));
    cl_free(s);
}
