/* scheduler/key_fetch_io.c - see scheduler/key_fetch.h. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "policy/jwks.h"
#include "rpc/http_client.h"
#include "scheduler/key_fetch.h"

enum { HTTP_OK = 200 };

struct key_fetch {
    struct key_fetch_conf conf;
    struct http_client *http; /* owned */
    struct cl_timer next;
    uint64_t begun_ns; /* the newest fetch; 0 = none yet */
};

bool key_fetch_is_url(const char *text)
{
    return strstr(text, "://") != NULL;
}

/* --- one fetch ------------------------------------------------------------------------------ */

static void schedule(struct key_fetch *f, uint64_t seconds)
{
    cl_timer_start(&f->next, seconds * CL_NS_PER_S);
}

static void answer(struct key_fetch *f, const char *text, size_t n, const struct cl_err *err)
{
    int rc = f->conf.fn(f->conf.arg, text, n, err);
    schedule(f, err || rc < 0 ? FETCH_RETRY_S : FETCH_EVERY_S);
}

static void on_said(void *arg, const struct http_said *said, const struct cl_err *err)
{
    struct key_fetch *f = arg;
    struct cl_err bad = {0};
    if (said && said->status != HTTP_OK) {
        (void)cl_fail(&bad, CL_E_UNAVAILABLE, 0, "'%.200s' answered with status %d", f->conf.url,
                      said->status);
        err = &bad;
    }
    answer(f, err ? NULL : said->body, err ? 0 : said->n, err);
}

static void on_next(void *arg)
{
    static const struct http_header accept = {"Accept",
                                              "application/json, application/jwk-set+json"};
    static const struct http_ask ask = {
        .headers = &accept, .n_headers = 1, .answer_max = JWKS_MAX, .limit_s = FETCH_LIMIT_S};
    struct key_fetch *f = arg;
    struct cl_err err = {0};
    if (http_client_is_busy(f->http)) {
        schedule(f, 1);
        return;
    }
    f->begun_ns = cl_now_ns();
    if (http_client_ask(f->http, &ask, on_said, f, &err) < 0)
        answer(f, NULL, 0, &err);
}

void key_fetch_soon(struct key_fetch *f)
{
    uint64_t now = cl_now_ns(), ready = f->begun_ns + FETCH_GAP_S * CL_NS_PER_S;
    if (!http_client_is_busy(f->http))
        cl_timer_start(&f->next, ready > now ? ready - now : 0);
}

/* --- life ----------------------------------------------------------------------------------- */

int key_fetch_new(struct cl_loop *loop, const struct key_fetch_conf *conf,
                  struct key_fetch **ret_fetch, struct cl_err *err)
{
    const struct http_client_conf place = {.url = conf->url, .ca = conf->ca, .only_loopback = true};
    struct key_fetch *f = cl_zalloc(sizeof *f);
    if (!f)
        return cl_fail(err, CL_E_NOMEM, 0, "key fetch");
    f->conf = *conf;
    if (cl_timer_init(&f->next, loop, on_next, f, err) < 0 ||
        http_client_new(loop, &place, &f->http, err) < 0) {
        key_fetch_free(f);
        return -1;
    }
    schedule(f, 0);
    *ret_fetch = f;
    return 0;
}

void key_fetch_free(struct key_fetch *f)
{
    if (!f)
        return;
    cl_timer_fini(&f->next);
    http_client_free(f->http);
    cl_free(f);
}
