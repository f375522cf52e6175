/* cli/collector_io.c - see cli/collector.h. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/collector.h"
#include "cli/otlp.h"
#include "rpc/http_client.h"

enum { ANSWER_MAX = 65536, TURN_MS = 200, TOLD = 200 };

struct collector {
    char url[OTLP_URL];
    struct cl_loop *loop;     /* owned */
    struct http_client *http; /* owned */
    struct otlp_headers given;
    struct http_header headers[OTLP_HEADERS + 1];
    bool is_away;
    /* of the request under way */
    bool is_answered;
    enum otlp_verdict verdict;
    unsigned wait_s;       /* as it asks for; 0 = it does not */
    char why[CL_ERR_TEXT]; /* of a verdict that is bad, or of a part that was not taken */
    size_t rejected;
};

/* --- one request --------------------------------------------------------------------------------
 */

static void on_said(void *arg, const struct http_said *said, const struct cl_err *err)
{
    struct collector *c = arg;
    char body[TOLD + 1], clean[TOLD + 1];
    c->is_answered = true;
    c->wait_s = 0;
    c->rejected = 0;
    if (err) {
        c->verdict = OTLP_AGAIN;
        (void)snprintf(c->why, sizeof c->why, "%s", err->text);
        return;
    }
    c->verdict = otlp_judge(said->status);
    c->wait_s = said->retry_after_s;
    if (c->verdict == OTLP_TAKEN) {
        c->rejected = otlp_rejected(said->body, said->n, c->why);
        return;
    }
    (void)snprintf(body, sizeof body, "%.*s", (int)CL_MIN(said->n, (size_t)TOLD),
                   said->body ? said->body : "");
    cl_text_clean(body, clean, sizeof clean);
    (void)snprintf(c->why, sizeof c->why, "'%.300s' answered with status %d: %s", c->url,
                   said->status, clean);
}

static int ask_once(struct collector *c, const char *body, struct cl_err *err)
{
    const struct http_ask ask = {.body = body,
                                 .n = strlen(body),
                                 .headers = c->headers,
                                 .n_headers = c->given.n + 1,
                                 .answer_max = ANSWER_MAX,
                                 .limit_s = COLLECTOR_LIMIT_S};
    while (http_client_is_busy(c->http))
        cl_loop_turn(c->loop, TURN_MS * CL_NS_PER_MS);
    c->is_answered = false;
    if (http_client_ask(c->http, &ask, on_said, c, err) < 0)
        return -1;
    while (!c->is_answered)
        cl_loop_turn(c->loop, TURN_MS * CL_NS_PER_MS);
    return 0;
}

/* 0: it is settled; 1: again. */
static int settle(struct collector *c, unsigned wait_s, struct cl_err *err)
{
    switch (c->verdict) {
    case OTLP_TAKEN:
        if (c->is_away)
            cli_say("'%.300s' takes spans again", c->url);
        if (c->rejected)
            cli_say("'%.300s' did not take %zu spans: %s", c->url, c->rejected, c->why);
        c->is_away = false;
        return 0;
    case OTLP_BAD:
        cli_say("%s; these spans are left out", c->why);
        return 0;
    case OTLP_REFUSED:
        return cl_fail(err, CL_E_DENIED, 0,
                       "%s\nremedy: look at the address and OTEL_EXPORTER_OTLP_HEADERS; what was "
                       "not taken is sent when this is started again",
                       c->why);
    case OTLP_AGAIN:
        if (!c->is_away)
            cli_say("%s; again, later and later", c->why);
        c->is_away = true;
        (void)sleep(wait_s);
        return 1;
    }
    return 0;
}

int collector_send(struct collector *c, const json_t *request, struct cl_err *err)
{
    char *body = json_dumps(request, JSON_COMPACT);
    if (!body)
        return cl_fail(err, CL_E_NOMEM, 0, "spans");
    int rc = 1;
    for (unsigned wait = 1; rc > 0; wait = CL_MIN(2 * wait, (unsigned)COLLECTOR_AGAIN_MAX_S)) {
        rc = ask_once(c, body, err);
        if (rc == 0)
            rc = settle(c, CL_MAX(wait, c->wait_s), err);
    }
    free(body);
    return rc;
}

/* --- life ---------------------------------------------------------------------------------------
 */

static int take_headers(struct collector *c, struct cl_err *err)
{
    if (otlp_headers(getenv("OTEL_EXPORTER_OTLP_HEADERS"), &c->given, err) < 0)
        return cl_wrap(err, "OTEL_EXPORTER_OTLP_HEADERS");
    c->headers[0] = (struct http_header){"Content-Type", "application/json"};
    for (size_t i = 0; i < c->given.n; i++)
        c->headers[i + 1] = (struct http_header){c->given.at[i].name, c->given.at[i].value};
    return 0;
}

int collector_open(const char *to, struct collector **ret_collector, struct cl_err *err)
{
    const char *ca = getenv("OTEL_EXPORTER_OTLP_CERTIFICATE");
    CL_AUTO(collector_closep) struct collector *c = cl_zalloc(sizeof *c);
    if (!c)
        return cl_fail(err, CL_E_NOMEM, 0, "collector");
    const struct http_client_conf conf = {.url = c->url, .ca = ca ? ca : ""};
    if (otlp_url(to, c->url, err) < 0 || take_headers(c, err) < 0 ||
        cl_loop_new(&c->loop, err) < 0 || http_client_new(c->loop, &conf, &c->http, err) < 0)
        return -1;
    (void)signal(SIGPIPE, SIG_IGN);
    *ret_collector = CL_STEAL(&c);
    return 0;
}

void collector_close(struct collector *c)
{
    if (!c)
        return;
    http_client_free(c->http);
    cl_loop_free(c->loop);
    cl_free(c);
}
