/* e2b/forks.c - running copies of a sandbox, all of one moment.
 *
 *   Get (its labels) -> the first Fork -> the others, E2B_ASKS_MAX calls at once -> one answer
 *
 * After each Fork comes the link of its ports, where it has one.  The first goes alone, for what it
 * meets may be the answer to the whole request (e2b_fork_ends_all()); all else is told in the list.
 * Who leaves before the answer knows none of the copies: they are ended.
 */
#include <string.h>

#include "base/mem.h"
#include "cloche/v1/port.pb-c.h"
#include "e2b/box_priv.h"
#include "e2b/fork.h"
#include "e2b/labels.h"
#include "proto/copy.h"
#include "rpc/one_key.h"

enum { FORK_S = 120, LABELS_MAX = 32, ID_PREFIX = 4 /* "sbx_", of a link "clp_" */ };

struct forks {
    struct e2b_fork wish;
    size_t asked;
    char moment[RPC_WORD];                 /* "": there is but one */
    ProtobufCMessage *origin;              /* owned: the answer of Get */
    Cloche__V1__Label *labels[LABELS_MAX]; /* origin's */
    size_t n_labels;
    json_t *made; /* owned: the answer, an entry {"sandbox"} or {"error"} of each that has ended */
};

static void forks_free(void *obj)
{
    struct forks *w = obj;
    pb_free(w->origin);
    json_decref(w->made);
    cl_free(w);
}

static const char *id_of(const json_t *box)
{
    return json_string_value(json_object_get(box, "sandboxID"));
}

static void on_left(struct e2b_call *c)
{
    const struct forks *w = c->work;
    size_t i;
    json_t *entry;
    json_array_foreach(w->made, i, entry)
    {
        const char *id = id_of(json_object_get(entry, "sandbox"));
        if (id)
            e2b_box_kill(c, id);
    }
}

/* --- the list -----------------------------------------------------------------------------------
 */

static void add_error(struct forks *w, const struct cl_err *err)
{
    (void)json_array_append_new(w->made,
                                json_pack("{s:{s:i, s:s}}", "error", "code",
                                          cl_err_info(err->code)->http, "message", err->text));
}

static void go_on(struct e2b_call *c);

/* Of which one it is says the link itself. */
static void on_linked(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    const Cloche__V1__CreateLinkResponse *m = (const Cloche__V1__CreateLinkResponse *)reply;
    const struct forks *w = c->work;
    size_t i;
    json_t *entry;
    json_array_foreach(w->made, i, entry)
    {
        json_t *box = json_object_get(entry, "sandbox");
        const char *id = id_of(box);
        if (err || !id || strlen(id) <= ID_PREFIX || strlen(m->link) <= ID_PREFIX)
            continue;
        size_t n = strlen(id + ID_PREFIX);
        if (strncmp(m->link + ID_PREFIX, id + ID_PREFIX, n) == 0 && m->link[ID_PREFIX + n] == '_')
            e2b_box_set_link(c, box, m->link);
    }
    go_on(c);
}

/* One that cannot be told of is ended. */
static void add_box(struct e2b_call *c, const Cloche__V1__Sandbox *m)
{
    struct forks *w = c->work;
    struct cl_err err = {0};
    json_t *box = e2b_box_answer(c, m, "", &err);
    if (!box || json_array_append_new(w->made, json_pack("{s:o}", "sandbox", box)) < 0) {
        if (box)
            (void)cl_fail(&err, CL_E_NOMEM, 0, "sandbox %s", m->id);
        e2b_box_kill(c, m->id);
        add_error(w, &err);
        return;
    }
    if (e2b_box_has_link(c, m))
        (void)!e2b_box_ask_link(c, m->id, on_linked, NULL);
}

/* --- making them --------------------------------------------------------------------------------
 */

static void on_forked(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    struct forks *w = c->work;
    if (err && w->asked == 1 && e2b_fork_ends_all(err->code)) {
        if (err->code == CL_E_NOTFOUND)
            e2b_box_fail_unknown(c);
        else
            e2b_fail(c, err);
        return;
    }
    if (err)
        add_error(w, err);
    else
        add_box(c, ((const Cloche__V1__ForkResponse *)reply)->sandbox);
    go_on(c);
}

static int ask_fork(struct e2b_call *c, struct cl_err *err)
{
    static const struct e2b_method fork = E2B_RPC("SandboxService", "Fork", fork_response);
    Cloche__V1__ForkRequest m = CLOCHE__V1__FORK_REQUEST__INIT;
    struct forks *w = c->work;
    char key[RPC_KEY];
    w->asked++;
    if (rpc_nth_key(c->in.idempotency_key, w->asked, key, err) < 0)
        return -1;
    m.sandbox_id = c->id;
    m.ttl_ns = w->wish.seconds * CL_NS_PER_S;
    m.labels = w->labels;
    m.n_labels = w->n_labels;
    m.idempotency_key = key;
    m.moment = w->moment;
    return e2b_ask_try(c,
                       &(struct e2b_ask){.method = &fork,
                                         .request = &m.base,
                                         .timeout_ns = FORK_S * CL_NS_PER_S,
                                         .on_end = on_forked},
                       NULL, err);
}

/* As many as may be asked at once, until all have been; the answer, when all have ended. */
static void go_on(struct e2b_call *c)
{
    struct forks *w = c->work;
    while (w->asked < w->wish.count && c->n_asks < E2B_ASKS_MAX) {
        struct cl_err err = {0};
        if (ask_fork(c, &err) < 0)
            add_error(w, &err);
    }
    if (c->n_asks == 0)
        e2b_reply(c, 201, json_incref(w->made));
}

static void take_labels(struct forks *w, const Cloche__V1__Sandbox *m)
{
    for (size_t i = 0; i < m->n_labels && w->n_labels < LABELS_MAX; i++) {
        if (e2b_label_goes_on(m->labels[i]->key))
            w->labels[w->n_labels++] = m->labels[i];
    }
}

static void on_origin(struct e2b_call *c, const ProtobufCMessage *reply, const struct cl_err *err)
{
    struct forks *w = c->work;
    struct cl_err bad = {0};
    if (!e2b_box_living(c, reply, err))
        return;
    if (pb_copy(reply, &w->origin, &bad) == 0) {
        take_labels(w, ((const Cloche__V1__SandboxServiceGetResponse *)(void *)w->origin)->sandbox);
        if (ask_fork(c, &bad) == 0)
            return;
    }
    e2b_fail(c, &bad);
}

void e2b_sandbox_fork(struct e2b_call *c)
{
    struct cl_err err = {0};
    struct forks *w = e2b_work_new(c, sizeof *w, forks_free);
    char last[RPC_KEY];
    if (!w)
        return;
    w->made = json_array();
    if (e2b_fork_read(c->body, E2B_LIFE_S, &w->wish, &err) < 0 ||
        rpc_nth_key(c->in.idempotency_key, w->wish.count, last, &err) < 0) {
        e2b_fail(c, &err);
        return;
    }
    if (w->wish.count > 1)
        rpc_word(c->in.idempotency_key, w->moment);
    c->left = on_left;
    e2b_box_get(c, on_origin);
}
