/* scheduler/sched_io.c - see scheduler/scheduler.h. */
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/addr.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/own.h"
#include "observability/log.h"
#include "rpc/channel.h"
#include "rpc/tls.h"
#include "scheduler/api.h"
#include "scheduler/bootstrap.h"
#include "scheduler/drain.h"
#include "scheduler/ends.h"
#include "scheduler/fleet.h"
#include "scheduler/lead.h"
#include "scheduler/relays.h"
#include "scheduler/scheduler.h"

enum { REAP_EVERY_MS = 1000, HEALTH_EVERY_MS = 500, STOP_MAX_S = 8, RESIGN_MAX_S = 1 };

struct stopping {
    struct sched *s;
    void (*done)(void *arg);
    void *arg;
    bool resigning; /* the last step */
    struct cl_timer limit;
};

/* --- listeners ----------------------------------------------------------------------------------
 */

/* Bound now, so that an address that is taken is an error of the start; clients are served once
 * this scheduler leads. */
static int prepare(struct sched *s, const char *address, const struct tls_files *files, int tag,
                   struct cl_err *err)
{
    CL_AUTO(cl_closep) int fd = -1;
    SSL_CTX *tls = NULL;
    bool is_unix = strncmp(address, "unix:", 5) == 0;
    if (!address[0])
        return 0;
    /* Whoever reaches the client socket still needs a key; the worker socket checks the uid. */
    if ((is_unix ? cl_unix_bind(address + 5, 0666, &fd, err) : cl_tcp_bind(address, &fd, err)) < 0)
        return -1;
    if (files && files->cert && files->cert[0] && tls_server_new(files, &tls, err) < 0)
        return -1;
    int rc = rpc_server_prepare(s->server, fd, tls, tag, err);
    if (rc == 0)
        (void)cl_steal_fd(&fd);
    SSL_CTX_free(tls); /* the listener holds its own reference */
    return rc;
}

static struct tls_files client_files(const struct sched_options *o)
{
    return (struct tls_files){.cert = o->tls_cert, .key = o->tls_key};
}

static struct tls_files worker_files(const struct sched_options *o)
{
    return (struct tls_files){.cert = o->worker_cert, .key = o->worker_key, .ca = o->worker_ca};
}

static int prepare_listeners(struct sched *s, struct cl_err *err)
{
    const struct sched_options *o = s->o;
    struct tls_files clients = client_files(o), workers = worker_files(o);
    if (prepare(s, o->listen, NULL, LISTENER_CLIENTS, err) < 0 ||
        prepare(s, o->tcp, &clients, LISTENER_CLIENTS, err) < 0 ||
        prepare(s, o->worker_listen, NULL, LISTENER_WORKERS, err) < 0)
        return -1;
    return prepare(s, o->worker_tcp, &workers, LISTENER_WORKERS, err);
}

int sched_reload(struct sched *s, struct cl_err *err)
{
    const struct sched_options *o = s->o;
    struct tls_files clients = client_files(o), workers = worker_files(o);
    SSL_CTX *client_tls = NULL, *worker_tls = NULL;
    int rc = o->tcp[0] && o->tls_cert[0] ? tls_server_new(&clients, &client_tls, err) : 0;
    if (rc == 0 && o->worker_tcp[0])
        rc = tls_server_new(&workers, &worker_tls, err);
    if (rc == 0 && client_tls)
        rpc_server_set_tls(s->server, LISTENER_CLIENTS, client_tls);
    if (rc == 0 && worker_tls)
        rpc_server_set_tls(s->server, LISTENER_WORKERS, worker_tls);
    SSL_CTX_free(client_tls);
    SSL_CTX_free(worker_tls);
    return rc;
}

/* --- health and heads ---------------------------------------------------------------------------
 */

static void on_health(void *arg)
{
    struct sched *s = arg;
    const char *why;
    bool well = books_is_ready(s->books) && s->recovered && audit_is_healthy(s->audit, &why) &&
                !s->stopping;
    rpc_server_set_health(s->server, "", well);
}

static void head_mirrored(const struct cl_err *err, void *arg)
{
    (void)err, (void)arg; /* the next head follows within a second */
}

static void on_audit_head(uint64_t seq, const char *hash, void *arg)
{
    struct sched *s = arg;
    struct books_head head = {.seq = seq};
    s->audit_seq = seq;
    (void)snprintf(s->audit_head, sizeof s->audit_head, "%s", hash);
    (void)gethostname(head.host, sizeof head.host - 1);
    (void)snprintf(head.hash, sizeof head.hash, "%s", hash);
    if (s->books && books_is_ready(s->books) && lead_is_ours(s->lead))
        (void)!books_audit_head_set(s->books, &head, head_mirrored, NULL, NULL);
}

void sched_begin(struct sched *s)
{
    struct cl_err err = {0};
    bootstrap(s);
    if (!s->recovered && units_recover(s, &err) < 0)
        log_event(LOG_REDIS_DOWN, "text='%s'", err.text);
    units_dispatch_soon(s);
}

void sched_serve(struct sched *s)
{
    struct cl_err err = {0};
    if (!s->stopping && rpc_server_open(s->server, &err) < 0)
        sched_fail(s, &err);
}

void sched_fail(struct sched *s, const struct cl_err *why)
{
    s->failed = *why;
    cl_loop_stop(s->loop);
}

static void on_deposed(void *arg)
{
    struct sched *s = arg;
    lead_look(s->lead);
}

static void on_books(enum rdb_state state, const struct cl_err *why, void *arg)
{
    struct sched *s = arg;
    if (state == RDB_CONNECTING)
        return;
    if (state != RDB_READY) {
        log_event(LOG_REDIS_DOWN, "text='%s'", why ? why->text : "");
        return;
    }
    log_event(LOG_REDIS_READY, "durability=%s", s->o->durability);
    lead_look(s->lead);
    if (lead_is_ours(s->lead))
        sched_begin(s);
}

static void on_call_end(void *arg, const struct rpc_call *call, int grpc_status,
                        uint64_t duration_ns)
{
    struct sched *s = arg;
    char code[8];
    (void)snprintf(code, sizeof code, "%d", grpc_status);
    metrics_add(s->metrics, METRIC_RPC_CALLS, rpc_call_path(call), code, 1);
    metrics_observe(s->metrics, METRIC_RPC_SECONDS, rpc_call_path(call), NULL, duration_ns);
    log_event(LOG_CALL, "method=%s status=%d us=%llu", rpc_call_path(call), grpc_status,
              (unsigned long long)(duration_ns / CL_NS_PER_US));
}

/* --- metrics ------------------------------------------------------------------------------------
 */

static void refresh_metrics(void *arg)
{
    struct sched *s = arg;
    const char *why;
    size_t at = 0;
    metrics_set(s->metrics, METRIC_QUEUE_DEPTH, NULL, NULL, fairq_count(s->queue));
    metrics_set(s->metrics, METRIC_UNITS_LIVE, NULL, NULL, cl_map_count(s->units));
    metrics_set(s->metrics, METRIC_LEADS, NULL, NULL, lead_is_ours(s->lead));
    metrics_set(s->metrics, METRIC_BOOKS_READY, NULL, NULL, books_is_ready(s->books));
    metrics_set(s->metrics, METRIC_BOOKS_CALLS, NULL, NULL, books_open_calls(s->books));
    metrics_set(s->metrics, METRIC_AUDIT_HEALTHY, NULL, NULL, audit_is_healthy(s->audit, &why));
    metrics_set(s->metrics, METRIC_AUDIT_WAITING, NULL, NULL, audit_producer_waiting(s->audit));
    metrics_set(s->metrics, METRIC_AUDIT_LOST, NULL, NULL, audit_producer_lost(s->audit));
    metrics_clear(s->metrics, METRIC_WORKERS);
    for (struct worker *w; (w = cl_map_next(s->workers, &at, NULL)) != NULL;)
        metrics_add(s->metrics, METRIC_WORKERS, w->driver, NULL, 1);
}

static int open_metrics(struct sched *s, struct cl_err *err)
{
    uint16_t port;
    if (metrics_new(&s->metrics, err) < 0)
        return -1;
    metrics_set(s->metrics, METRIC_BUILD_INFO, "scheduler", CLOCHE_VERSION, 1);
    return s->o->metrics[0] ? metrics_serve(s->loop, s->o->metrics, s->metrics, refresh_metrics, s,
                                            &s->metrics_server, &port, err)
                            : 0;
}

/* --- life ---------------------------------------------------------------------------------------
 */

static int open_maps(struct sched *s, struct cl_err *err)
{
    cl_list_init(&s->promises);
    if (cl_map_new(SCHED_TENANTS_MAX, &s->tenants, err) < 0 ||
        cl_map_new(SCHED_UNITS_MAX, &s->units, err) < 0 ||
        cl_map_new(SCHED_UNITS_MAX, &s->leases, err) < 0 ||
        cl_map_new(SCHED_UNITS_MAX, &s->snapshots, err) < 0 ||
        cl_map_new(SCHED_WORKERS_MAX, &s->workers, err) < 0 ||
        cl_map_new(SCHED_RELAYS_MAX, &s->relays, err) < 0 ||
        cl_map_new(SCHED_REQUESTS_MAX, &s->requests, err) < 0 ||
        cl_map_new(SCHED_TENANTS_MAX, &s->keys, err) < 0)
        return -1;
    /* Admission bounds the queue by --queue-max, which may change. */
    return fairq_new(SCHED_TENANTS_MAX, SCHED_UNITS_MAX, &s->queue, err);
}

static int open_secrets(struct sched *s, struct cl_err *err)
{
    static const char purpose[] = "cloche audit argument salt 1";
    uint8_t text[sizeof purpose + sizeof s->pepper];
    if (pepper_load(s->o->pepper_file, s->pepper, err) < 0)
        return -1;
    memcpy(text, purpose, sizeof purpose);
    memcpy(text + sizeof purpose, s->pepper, sizeof s->pepper);
    int ok = EVP_Digest(text, sizeof text, s->salt, NULL, EVP_sha256(), NULL);
    explicit_bzero(text, sizeof text);
    return ok == 1 ? 0 : cl_fail(err, CL_E_SYS, 0, "digest");
}

static int open_links(struct sched *s, struct cl_err *err)
{
    bool known;
    struct audit_producer_conf audit = {
        .socket = s->o->audit_socket, .source = "scheduler", .on_head = on_audit_head, .arg = s};
    struct books_conf books = {.target = s->o->redis,
                               .password_file = s->o->redis_password_file,
                               .durability = rdb_durability_parse(s->o->durability, &known),
                               .group = s->o->lead_group,
                               .on_state = on_books,
                               .on_deposed = on_deposed,
                               .arg = s};
    if (tokens_new(s->loop, s->o, &s->tokens, err) < 0)
        return -1;
    if (!known)
        return cl_fail(err, CL_E_INVALID, 0, "durability '%.32s': always, everysec or none",
                       s->o->durability);
    if (audit_producer_new(s->loop, &audit, &s->audit, err) < 0 || audit_api_open(s, err) < 0)
        return -1;
    return books_new(s->loop, &books, &s->books, err);
}

extern const uint8_t cloche_descriptors[];
extern const size_t cloche_descriptors_size;

static int open_server(struct sched *s, struct cl_err *err)
{
    if (rpc_server_new(s->loop, &s->server, err) < 0 || api_serve(s, err) < 0 ||
        rpc_server_add(s->server, enroll_methods, enroll_methods_count, s, LISTENER_CLIENTS, err) <
            0 ||
        rpc_server_add(s->server, worker_methods, worker_methods_count, s, LISTENER_WORKERS, err) <
            0 ||
        rpc_server_add(s->server, relay_methods, relay_methods_count, s, LISTENER_WORKERS, err) < 0)
        return -1;
    rpc_server_observe(s->server, on_call_end, s);
    if (s->o->reflection &&
        rpc_server_set_reflection(s->server, cloche_descriptors, cloche_descriptors_size, err) < 0)
        return -1;
    rpc_server_set_health(s->server, "", false);
    return prepare_listeners(s, err);
}

int sched_new(struct cl_loop *loop, const struct sched_options *options, struct sched **ret_sched,
              struct cl_err *err)
{
    struct sched *s = cl_zalloc(sizeof *s);
    if (!s)
        return cl_fail(err, CL_E_NOMEM, 0, "scheduler");
    s->o = options;
    s->loop = loop;
    cl_id_new("sch", s->id);
    if (sched_options_check(options, err) < 0 || open_metrics(s, err) < 0 ||
        open_maps(s, err) < 0 || open_secrets(s, err) < 0 ||
        cl_timer_init(&s->kick, loop, on_dispatch, s, err) < 0 ||
        cl_timer_init(&s->reap, loop, on_reap, s, err) < 0 ||
        cl_timer_init(&s->moves, loop, on_drain_look, s, err) < 0 ||
        cl_timer_init(&s->health, loop, on_health, s, err) < 0 || open_server(s, err) < 0 ||
        lead_new(s, &s->lead, err) < 0 || ends_new(s, &s->ends, err) < 0 || open_links(s, err) < 0)
        return -1; /* the process ends: nothing outlives it */
    cl_timer_every(&s->reap, REAP_EVERY_MS * CL_NS_PER_MS);
    cl_timer_every(&s->health, HEALTH_EVERY_MS * CL_NS_PER_MS);
    log_event(LOG_STARTED, "listen=%s tcp=%s workers=%s", options->listen, options->tcp,
              options->worker_listen);
    *ret_sched = s;
    return 0;
}

int sched_check(const struct sched *s, struct cl_err *err)
{
    if (s->failed.code == CL_OK)
        return 0;
    *err = s->failed;
    return -1;
}

static void finish_stop(struct stopping *x)
{
    void (*done)(void *) = x->done;
    void *arg = x->arg;
    x->done = NULL;
    if (done)
        done(arg);
}

static void on_resigned(void *arg)
{
    finish_stop(arg);
}

static void resign(struct stopping *x)
{
    x->resigning = true;
    cl_timer_start(&x->limit, RESIGN_MAX_S * CL_NS_PER_S);
    ends_flush(x->s->ends); /* afterwards the books do not listen */
    lead_resign(x->s->lead, on_resigned, x);
}

static void on_drained(void *arg)
{
    struct stopping *x = arg;
    if (!x->resigning)
        resign(x);
}

static void on_limit(void *arg)
{
    struct stopping *x = arg;
    if (x->resigning)
        finish_stop(x);
    else
        resign(x);
}

void sched_stop(struct sched *s, void (*done)(void *arg), void *arg)
{
    struct cl_err err = {0};
    struct stopping *x =
        cl_zalloc(sizeof *x); /* lives as long as the process, which is about to end */
    s->stopping = true;
    if (!x || cl_timer_init(&x->limit, s->loop, on_limit, x, &err) < 0) {
        done(arg);
        return;
    }
    x->s = s;
    x->done = done;
    x->arg = arg;
    cl_timer_start(&x->limit, STOP_MAX_S * CL_NS_PER_S);
    s->drain = x;
    rpc_server_drain(s->server, on_drained, x);
}

static void free_values(struct cl_map *map)
{
    size_t at = 0;
    for (void *v; map && (v = cl_map_next(map, &at, NULL)) != NULL;)
        cl_free(v);
    cl_map_free(map);
}

void sched_free(struct sched *s)
{
    if (!s)
        return;
    s->stopping = true;
    rpc_server_free(s->server);
    rpc_channel_free(s->reader);
    cl_loop_turn(s->loop, 0);
    books_free(s->books);
    lead_free(s->lead);
    audit_producer_free(s->audit);
    ends_free(s->ends);
    tokens_free(s->tokens);
    metrics_server_free(s->metrics_server);
    metrics_free(s->metrics);
    cl_timer_fini(&s->kick);
    cl_timer_fini(&s->reap);
    cl_timer_fini(&s->moves);
    cl_timer_fini(&s->health);
    struct stopping *x = s->drain;
    if (x)
        cl_timer_fini(&x->limit);
    cl_free(x);
    units_free_all(s);
    fairq_free(s->queue);
    free_values(s->tenants);
    cl_map_free(s->units);
    cl_map_free(s->leases);
    cl_map_free(s->snapshots);
    free_values(s->workers);
    cl_map_free(s->relays);
    free_values(s->requests);
    free_values(s->keys);
    explicit_bzero(s->pepper, sizeof s->pepper);
    cl_free(s);
}
