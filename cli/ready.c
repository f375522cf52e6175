/* cli/ready.c - see cli/ready.h. */
#include "cli/ready.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/supervisor.h"
#include "cloche/v1/template.pb-c.h"
#include "proto/copy.h"
#include "rpc/proto/health.pb-c.h"

#define READY_MAX_NS (180 * CL_NS_PER_S)
#define ASK_NS (5 * CL_NS_PER_S)

enum { STEP_US = 100 * 1000 };

static void add_word(char list[static READY_TEXT], const char *word)
{
    size_t n = strlen(list);
    (void)snprintf(list + n, READY_TEXT - n, "%s%s", n ? " " : "", word);
}

static int ask_health(struct client *c, uint64_t patience_ns, bool *ret_serving, struct cl_err *err)
{
    static const struct client_method check = {
        "/grpc.health.v1.Health/Check", &grpc__health__v1__health_check_response__descriptor};
    Grpc__Health__V1__HealthCheckRequest req = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    ProtobufCMessage *msg = NULL;
    if (client_unary(c, &check, &req.base, patience_ns, &msg, err) < 0)
        return -1;
    *ret_serving = ((const Grpc__Health__V1__HealthCheckResponse *)msg)->status ==
                   GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING;
    pb_free(msg);
    return 0;
}

int readiness_ask(struct client *c, uint64_t patience_ns, struct readiness *ret, struct cl_err *err)
{
    static const struct client_method list =
        CLIENT_METHOD("TemplateService", "List", template_service_list_response);
    Cloche__V1__TemplateServiceListRequest req = CLOCHE__V1__TEMPLATE_SERVICE_LIST_REQUEST__INIT;
    struct readiness r = {0};
    ProtobufCMessage *msg = NULL;
    if (ask_health(c, patience_ns, &r.serving, err) < 0 ||
        client_unary(c, &list, &req.base, patience_ns, &msg, err) < 0)
        return -1;
    const Cloche__V1__TemplateServiceListResponse *m =
        (const Cloche__V1__TemplateServiceListResponse *)msg;
    for (size_t i = 0; i < m->n_templates; i++) {
        const Cloche__V1__Template *t = m->templates[i];
        r.worker = r.worker || t->workers > 0;
        r.warm += t->warm;
        if (!r.driver[0])
            (void)snprintf(r.driver, sizeof r.driver, "%s", t->driver);
        add_word(t->warm > 0 ? r.ready : r.pending, t->name);
    }
    pb_free(msg);
    *ret = r;
    return 0;
}

static void say_once(char last[static READY_TEXT], const char *text)
{
    if (strcmp(last, text) != 0)
        cli_say("%s", text);
    (void)snprintf(last, READY_TEXT, "%s", text);
}

/* One look: a fresh connection each time, so that a scheduler that is not up yet costs nothing. */
static bool look(const struct cli_opts *o, struct readiness *ret, struct cl_err *err)
{
    CL_AUTO(client_freep) struct client *c = NULL;
    return client_open(o, &c, err) == 0 && readiness_ask(c, ASK_NS, ret, err) == 0;
}

int readiness_wait(const struct cli_opts *o, const struct plan *p, struct cl_err *err)
{
    char built[READY_TEXT], last[READY_TEXT] = "", text[READY_TEXT * 2];
    uint64_t end = cl_now_ns() + READY_MAX_NS;
    struct readiness r = {0};
    plan_list_built(p, built, sizeof built);
    for (;;) {
        struct cl_err why = {0};
        bool asked = look(o, &r, &why);
        if (asked && r.serving && !built[0])
            break;
        if (asked && r.serving && (r.ready[0] || (o->warm == 0 && r.worker))) {
            cli_say("ready: %s on %s%s%s", r.ready, r.driver,
                    r.pending[0] ? "; being prepared: " : "", r.pending);
            return 0;
        }
        (void)snprintf(text, sizeof text,
                       asked && r.worker ? "preparing templates: %.200s"
                       : asked           ? "waiting for the worker to prepare: %.200s"
                                         : "waiting for the scheduler (%.200s)",
                       asked ? built : why.text);
        text[strcspn(text, "\n")] = '\0';
        text[READY_TEXT - 1] = '\0';
        if (cl_now_ns() > end - READY_MAX_NS + 2 * CL_NS_PER_S)
            say_once(last, text);
        if (!supervisor_is_running(p->paths.run))
            return cl_fail(err, CL_E_UNAVAILABLE, 0, "the supervisor has ended\nsee %s/log",
                           p->paths.state);
        if (cl_now_ns() > end && !asked)
            return cl_fail(err, CL_E_DEADLINE, 0, "not ready after 180 s: %.250s\nsee %s/log",
                           why.text, p->paths.state);
        if (cl_now_ns() > end) { /* a slow host: it may yet be */
            cli_say("after 180 s still %s\n  see %s/log", text, p->paths.state);
            return 0;
        }
        (void)usleep(STEP_US);
    }
    cli_say("no template is built yet in %s\n  remedy: cloche template build python",
            p->template_dir);
    return 0;
}
