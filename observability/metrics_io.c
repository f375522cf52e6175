/* observability/metrics_io.c - GET /metrics, by libevent's HTTP server; see
 * observability/metrics.h. */
#include <dirent.h>
#include <event2/buffer.h>
#include <event2/http.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/addr.h"
#include "base/mem.h"
#include "base/own.h"
#include "observability/metrics.h"

enum { HEADERS_MAX = 8192, BODY_MAX = 0, TIMEOUT_S = 10, BACKLOG = 16 };

struct metrics_server {
    struct evhttp *http; /* owned */
    struct metrics *m;   /* borrowed */
    void (*refresh)(void *arg);
    void *arg;
};

static void on_metrics(struct evhttp_request *req, void *arg)
{
    struct metrics_server *s = arg;
    struct cl_err err = {0};
    struct cl_buf text;
    if (s->refresh)
        s->refresh(s->arg);
    metrics_read_process(s->m);
    cl_buf_init(&text, METRICS_TEXT_MAX);
    struct evbuffer *body = evbuffer_new();
    if (!body || metrics_render(s->m, &text, &err) < 0 ||
        evbuffer_add(body, text.data, text.len) < 0) {
        evhttp_send_error(req, 503, NULL);
    } else {
        (void)evhttp_add_header(evhttp_request_get_output_headers(req), "Content-Type",
                                "text/plain; version=0.0.4; charset=utf-8");
        evhttp_send_reply(req, HTTP_OK, "OK", body);
    }
    if (body)
        evbuffer_free(body);
    cl_buf_fini(&text);
}

int metrics_serve(struct cl_loop *loop, const char *address, struct metrics *m,
                  void (*refresh)(void *arg), void *arg, struct metrics_server **ret_server,
                  uint16_t *ret_port, struct cl_err *err)
{
    CL_AUTO(cl_closep) int fd = -1;
    if (cl_tcp_listen(address, BACKLOG, &fd, err) < 0)
        return cl_wrap(err, "metrics");
    struct metrics_server *s = cl_zalloc(sizeof *s);
    if (!s)
        return cl_fail(err, CL_E_NOMEM, 0, "metrics server");
    *s = (struct metrics_server){
        .http = evhttp_new(cl_loop_base(loop)), .m = m, .refresh = refresh, .arg = arg};
    struct evhttp_bound_socket *bound = NULL;
    if (s->http) {
        evhttp_set_allowed_methods(s->http, EVHTTP_REQ_GET);
        evhttp_set_max_headers_size(s->http, HEADERS_MAX);
        evhttp_set_max_body_size(s->http, BODY_MAX);
        evhttp_set_timeout(s->http, TIMEOUT_S);
        (void)evhttp_set_cb(s->http, "/metrics", on_metrics, s);
        bound = evhttp_accept_socket_with_handle(s->http, fd);
    }
    if (!bound) {
        metrics_server_free(s);
        return cl_fail(err, CL_E_NOMEM, 0, "serve metrics on '%s'", address);
    }
    (void)cl_steal_fd(&fd);
    *ret_port = cl_tcp_port(evhttp_bound_socket_get_fd(bound));
    *ret_server = s;
    return 0;
}

void metrics_server_free(struct metrics_server *s)
{
    if (!s)
        return;
    if (s->http)
        evhttp_free(s->http);
    cl_free(s);
}

void metrics_read_process(struct metrics *m)
{
    unsigned long long pages = 0;
    uint64_t fds = 0;
    CL_AUTO(cl_fclosep) FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%*u %llu", &pages) == 1)
        metrics_set(m, METRIC_RSS_BYTES, NULL, NULL, pages * (uint64_t)sysconf(_SC_PAGESIZE));
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; d && (e = readdir(d));)
        fds += e->d_name[0] != '.';
    if (d)
        (void)closedir(d);
    metrics_set(m, METRIC_OPEN_FDS, NULL, NULL, fds);
}
