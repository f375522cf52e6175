/* redis/books.c - calls of the books: building, sending, sending again, and the set-up of each
 * connection.  See redis/books.h. */
#include "redis/books.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "redis/books_priv.h"

enum {
    CALLS_DEFAULT = 8192, /* without it a slow Redis would make us hold any number of requests */
    CALL_BYTES_MAX = BOOKS_SPEC_MAX + 65536,
    TICK_MS = 100,
};

struct books {
    struct cl_loop *loop;   /* borrowed */
    struct rdb *rdb;        /* owned */
    struct books_conf conf; /* without target and password_file */
    char target[128];
    struct rdb_facts facts;
    bool have_facts;
    bool loaded;            /* the library was sent on this connection */
    bool recheck;           /* the server lost its library: look at the next tick */
    struct cl_list sent;    /* owned calls on the wire */
    struct cl_list waiting; /* owned calls to be sent when Redis is back, oldest first */
    size_t n_calls;
    char group[BOOKS_NAME];
    uint64_t epoch; /* of our term; 0 = none yet */
    struct cl_timer tick;
    struct cl_grave grave;
    bool closing;
};

/* --- replies -------------------------------------------------------------------------------- */

static const redisReply *element(const redisReply *r, size_t i)
{
    return r->type == REDIS_REPLY_ARRAY && i < r->elements ? r->element[i] : NULL;
}

int64_t reply_int(const redisReply *r, size_t i)
{
    const redisReply *e = element(r, i);
    return e && e->type == REDIS_REPLY_INTEGER ? (int64_t)e->integer : 0;
}

uint64_t reply_num(const redisReply *r, size_t i)
{
    int64_t v = reply_int(r, i);
    return v > 0 ? (uint64_t)v : 0;
}

const char *reply_str(const redisReply *r, size_t i, size_t *ret_n)
{
    const redisReply *e = element(r, i);
    bool is = e && e->type == REDIS_REPLY_STRING;
    *ret_n = is ? e->len : 0;
    return is ? e->str : "";
}

void reply_copy(const redisReply *r, size_t i, char *out, size_t out_n)
{
    size_t n;
    const char *s = reply_str(r, i, &n);
    n = CL_MIN(n, out_n - 1);
    memcpy(out, s, n);
    out[n] = '\0';
}

/* --- building ------------------------------------------------------------------------------- */

static void add_raw(struct books_call *call, const void *p, size_t n)
{
    if (!call->broken && cl_buf_append(&call->cmd, p, n, &call->why) < 0)
        call->broken = true;
}

void call_bytes(struct books_call *call, const void *p, size_t n)
{
    char head[32];
    int len = snprintf(head, sizeof head, "$%zu\r\n", n);
    add_raw(call, head, (size_t)len);
    if (n > 0)
        add_raw(call, p, n);
    add_raw(call, "\r\n", 2);
}

void call_str(struct books_call *call, const char *s)
{
    call_bytes(call, s, strlen(s));
}

void call_num(struct books_call *call, uint64_t v)
{
    char text[24];
    int len = snprintf(text, sizeof text, "%" PRIu64, v);
    call_bytes(call, text, (size_t)len);
}

void call_refuse(struct books_call *call, const char *field)
{
    if (call->broken)
        return;
    call->broken = true;
    (void)cl_fail(&call->why, CL_E_INVALID, 0, "books: bad %s", field);
    (void)snprintf(call->why.subject, sizeof call->why.subject, "%s", field);
}

struct books_call *call_begin(struct books *books, const char *name, enum call_mode mode,
                              const char *tenant, size_t n_args, struct cl_err *err)
{
    if (books->closing || (mode == CALL_NOW && !books_is_ready(books))) {
        (void)cl_fail(err, CL_E_UNAVAILABLE, 0, "the books (redis at %s) are not reachable",
                      books->target);
        return NULL;
    }
    if (books->n_calls >= books->conf.max_calls) {
        (void)cl_fail(err, CL_E_UNAVAILABLE, 0, "%zu calls to the books are open", books->n_calls);
        return NULL;
    }
    struct books_call *call = cl_zalloc(sizeof *call);
    if (!call) {
        (void)cl_fail(err, CL_E_NOMEM, 0, "call to the books");
        return NULL;
    }
    call->books = books;
    call->mode = mode;
    cl_list_init(&call->link);
    cl_buf_init(&call->cmd, CALL_BYTES_MAX);
    char head[160];
    int n = snprintf(head, sizeof head, "*%zu\r\n$5\r\nFCALL\r\n", n_args + (tenant ? 5u : 4u));
    add_raw(call, head, (size_t)n);
    n = snprintf(head, sizeof head, "cloche_%s", name);
    call_bytes(call, head, (size_t)n);
    call_num(call, tenant ? 1 : 0);
    if (tenant) {
        (void)snprintf(call->tenant, sizeof call->tenant, "%s", tenant);
        if (!cl_name_is_valid(tenant))
            call_refuse(call, "tenant");
        n = snprintf(head, sizeof head, "{%s}", call->tenant);
        call_bytes(call, head, (size_t)n);
    }
    return call;
}

/* --- answering ------------------------------------------------------------------------------ */

static void call_free(struct books_call *call)
{
    cl_list_unlink(&call->link);
    cl_buf_fini(&call->cmd);
    cl_free(call);
}

static void call_end(struct books_call *call, const redisReply *reply, const struct cl_err *err)
{
    cl_list_unlink(&call->link);
    call->books->n_calls--;
    call->answer(call, reply, err);
    call_free(call);
}

void answer_done(struct books_call *call, const redisReply *reply, const struct cl_err *err)
{
    (void)reply;
    call->fn.done(err, call->arg);
}

static void set_subject(struct cl_err *err, const redisReply *r, size_t i)
{
    reply_copy(r, i, err->subject, sizeof err->subject);
}

/* Turn a refusal of the library into an error; false for OK and REPLAY. */
static bool refusal(const redisReply *r, const struct books_call *call, struct cl_err *err)
{
    char word[CL_ERR_SUBJECT];
    const char *tenant = call->tenant;
    reply_copy(r, 1, word, sizeof word);
    switch (r->type == REDIS_REPLY_ARRAY && r->elements > 0 ? reply_int(r, 0) : -1) {
    case LUA_OK:
    case LUA_REPLAY:
        return false;
    case LUA_QUOTA:
        (void)cl_fail(err, CL_E_QUOTA, 0, "tenant '%s' is over its quota of %s", tenant, word);
        set_subject(err, r, 1);
        err->retry_ms = reply_num(r, 2);
        break;
    case LUA_RATE:
        err->retry_ms = reply_num(r, 1);
        (void)cl_fail(err, CL_E_RATE, 0, "tenant '%s' is over its rate limit", tenant);
        err->retry_ms = reply_num(r, 1);
        break;
    case LUA_QUEUE:
        (void)cl_fail(err, CL_E_QUEUE, 0, "the queue of %s is full",
                      strcmp(word, "global") == 0 ? "the service" : "the tenant");
        set_subject(err, r, 1);
        err->retry_ms = 1000;
        break;
    case LUA_NOTFOUND:
        (void)cl_fail(err, CL_E_NOTFOUND, 0, "the books do not know it");
        break;
    case LUA_EXISTS:
        (void)cl_fail(err, CL_E_EXISTS, 0, "the books hold another one under this name or key");
        break;
    case LUA_STATE:
        (void)cl_fail(err, CL_E_STATE, 0, "it is in state %d", (int)reply_int(r, 1));
        break;
    case LUA_CANCEL:
        (void)cl_fail(err, CL_E_CANCELLED, 0, "cancellation was asked for");
        break;
    case LUA_INVALID:
        (void)cl_fail(err, CL_E_INVALID, 0, "the books refuse the arguments");
        break;
    case LUA_DEPOSED:
        (void)cl_fail(err, CL_E_UNAVAILABLE, 0, "another scheduler leads now; ask again");
        if (call->books->conf.on_deposed)
            call->books->conf.on_deposed(call->books->conf.arg);
        break;
    case LUA_UNAUTH:
        (void)cl_fail(err, CL_E_UNAUTH, 0, "unknown, used or expired token");
        break;
    default:
        (void)cl_fail(err, CL_E_PEER, 0, "the books gave an answer of an unknown form");
        break;
    }
    return true;
}

/* Error replies that a repetition may cure: the server starts, or lost its library. */
static bool is_passing(struct books *books, const struct cl_err *err)
{
    if (strstr(err->text, "Function not found"))
        books->recheck = true;
    return err->code == CL_E_UNAVAILABLE || books->recheck || strstr(err->text, "LOADING");
}

/* What the server's own error means to our callers. */
static void translate(const struct cl_err *from, struct cl_err *to)
{
    *to = *from;
    if (strstr(from->text, "CLNEWER"))
        (void)cl_fail(to, CL_E_STATE, 0, "%.200s: written by a newer release; upgrade this one",
                      from->text);
    else if (strstr(from->text, "CLINVALID"))
        (void)cl_fail(to, CL_E_INVALID, 0, "%.200s", from->text);
    else if (strstr(from->text, "OOM ") || strstr(from->text, "MISCONF") ||
             strstr(from->text, "READONLY"))
        (void)cl_fail(to, CL_E_UNAVAILABLE, 0, "%.200s", from->text);
}

static void on_reply(const struct redisReply *reply, const struct cl_err *err, void *arg)
{
    struct books_call *call = arg;
    struct books *books = call->books;
    call->sent = false;
    struct cl_err refused = {0};
    if (reply) {
        bool no = refusal(reply, call, &refused);
        call_end(call, no ? NULL : reply, no ? &refused : NULL);
        return;
    }
    if (is_passing(books, err) && cl_now_ns() < call->deadline_ns && !books->closing) {
        cl_list_unlink(&call->link);
        cl_list_push(&books->waiting, &call->link);
        return;
    }
    translate(err, &refused);
    call_end(call, NULL, &refused);
}

static int transmit(struct books_call *call, struct cl_err *err)
{
    struct books *books = call->books;
    if (rdb_send(books->rdb, (const char *)call->cmd.data, call->cmd.len, on_reply, call, err) < 0)
        return -1;
    call->sent = true;
    cl_list_unlink(&call->link);
    cl_list_push(&books->sent, &call->link);
    return 0;
}

int call_go(struct books_call *call, call_answer_fn *answer, struct cl_err *err)
{
    struct books *books = call->books;
    struct cl_err why = {0};
    char term[BOOKS_NAME + 24];
    (void)snprintf(term, sizeof term, "%s %" PRIu64, books->group, books->epoch);
    call_str(call, term);
    call->answer = answer;
    call->deadline_ns = cl_now_ns() + books->conf.deadline_ns;
    if (call->broken) {
        why = call->why;
    } else if (transmit(call, &why) < 0) {
        if (call->mode == CALL_WAIT && why.code == CL_E_UNAVAILABLE)
            cl_list_push(&books->waiting, &call->link);
    }
    if (cl_list_empty(&call->link)) {
        call_free(call);
        if (err)
            *err = why;
        return -1;
    }
    books->n_calls++;
    return 0;
}

static void ask_version(struct books *books);

static void resend(struct books *books)
{
    while (!cl_list_empty(&books->waiting)) {
        struct books_call *call = CL_LIST_ENTRY(books->waiting.next, struct books_call, link);
        if (transmit(call, NULL) < 0)
            return;
    }
}

static struct books_call *first_late(struct books *books, uint64_t now)
{
    CL_LIST_FOREACH (it, &books->waiting) {
        struct books_call *call = CL_LIST_ENTRY(it, struct books_call, link);
        if (now >= call->deadline_ns)
            return call;
    }
    return NULL;
}

static void on_tick(void *arg)
{
    struct books *books = arg;
    uint64_t now = cl_now_ns();
    struct books_call *call;
    struct cl_err late = {0};
    (void)cl_fail(&late, CL_E_UNAVAILABLE, 0, "outcome unknown: no answer from redis at %s in time",
                  books->target);
    while ((call = first_late(books, now)) != NULL)
        call_end(call, NULL, &late);
    if (books->closing || !books_is_ready(books))
        return;
    if (books->recheck) {
        books->recheck = books->loaded = false;
        ask_version(books);
    }
    resend(books);
}

/* --- the set-up of a connection: facts, library --------------------------------------------- */

static void setup_failed(struct books *books, const struct cl_err *err)
{
    struct cl_err why = *err;
    if (strstr(err->text, "LOADING") || strstr(err->text, "BUSY"))
        why.code = CL_E_UNAVAILABLE; /* it starts: soon again */
    rdb_setup_done(books->rdb, &why);
}

static void on_loaded(const struct redisReply *reply, const struct cl_err *err, void *arg)
{
    struct books *books = arg;
    if (reply)
        ask_version(books);
    else
        setup_failed(books, err);
}

static void load_library(struct books *books)
{
    const char *argv[] = {"FUNCTION", "LOAD", "REPLACE", (const char *)books_lua};
    size_t lens[] = {8, 4, 7, books_lua_n};
    struct cl_err err = {0};
    books->loaded = true;
    if (rdb_call(books->rdb, 4, argv, lens, on_loaded, books, &err) < 0)
        setup_failed(books, &err);
}

static void on_version(const struct redisReply *reply, const struct cl_err *err, void *arg)
{
    struct books *books = arg;
    struct cl_err why = {0};
    if (!reply && !strstr(err->text, "Function not found")) {
        setup_failed(books, err);
        return;
    }
    uint64_t version = reply ? reply_num(reply, 1) : 0;
    char digest[72] = "";
    if (reply)
        reply_copy(reply, 2, digest, sizeof digest);
    if (version > BOOKS_LIBRARY_VERSION) {
        (void)cl_fail(&why, CL_E_STATE, 0,
                      "the books in redis have version %" PRIu64
                      ", this release knows %d: upgrade it",
                      version, BOOKS_LIBRARY_VERSION);
        setup_failed(books, &why);
    } else if (version == BOOKS_LIBRARY_VERSION && strcmp(digest, books_lua_digest) == 0) {
        rdb_setup_done(books->rdb, NULL);
    } else if (books->loaded) {
        (void)cl_fail(&why, CL_E_STATE, 0, "redis does not keep the library of the books");
        setup_failed(books, &why);
    } else {
        load_library(books);
    }
}

static void ask_version(struct books *books)
{
    static const char *argv[] = {"FCALL", "cloche_version", "0"};
    struct cl_err err = {0};
    if (rdb_call(books->rdb, 3, argv, NULL, on_version, books, &err) < 0)
        setup_failed(books, &err);
}

static void on_facts(const struct rdb_facts *facts, const struct cl_err *err, void *arg)
{
    struct books *books = arg;
    struct cl_err weak = {0};
    if (!facts) {
        setup_failed(books, err);
        return;
    }
    books->facts = *facts;
    books->have_facts = true;
    if (rdb_check_durability(facts, books->conf.durability, &weak) < 0)
        setup_failed(books, &weak);
    else
        ask_version(books);
}

static void on_setup(struct rdb *rdb, void *arg)
{
    struct books *books = arg;
    struct cl_err err = {0};
    books->loaded = false;
    if (rdb_ask_facts(rdb, on_facts, books, &err) < 0)
        setup_failed(books, &err);
}

static void on_state(enum rdb_state state, const struct cl_err *why, void *arg)
{
    struct books *books = arg;
    if (state == RDB_READY)
        resend(books);
    if (books->conf.on_state)
        books->conf.on_state(state, why, books->conf.arg);
}

/* --- life ----------------------------------------------------------------------------------- */

void books_set_epoch(struct books *books, uint64_t epoch)
{
    books->epoch = epoch;
}

bool books_is_ready(const struct books *books)
{
    return rdb_state(books->rdb) == RDB_READY;
}

size_t books_open_calls(const struct books *books)
{
    return books->n_calls;
}

const struct rdb_facts *books_facts(const struct books *books)
{
    return books->have_facts ? &books->facts : NULL;
}

static void destroy(void *obj)
{
    struct books *books = obj;
    CL_ASSERT(books->n_calls == 0);
    cl_timer_fini(&books->tick);
    cl_free(books);
}

void books_free(struct books *books)
{
    if (!books || books->closing)
        return;
    books->closing = true;
    cl_timer_stop(&books->tick);
    rdb_free(books->rdb);
    struct cl_err err = {0};
    (void)cl_fail(&err, CL_E_CANCELLED, 0, "the books are closing");
    while (!cl_list_empty(&books->waiting))
        call_end(CL_LIST_ENTRY(books->waiting.next, struct books_call, link), NULL, &err);
    cl_loop_bury(books->loop, &books->grave, destroy, books);
}

int books_new(struct cl_loop *loop, const struct books_conf *conf, struct books **ret_books,
              struct cl_err *err)
{
    struct books *books = cl_zalloc(sizeof *books);
    if (!books)
        return cl_fail(err, CL_E_NOMEM, 0, "books");
    books->loop = loop;
    books->conf = *conf;
    books->conf.target = books->conf.password_file = books->conf.group = NULL;
    (void)snprintf(books->group, sizeof books->group, "%s", conf->group ? conf->group : "main");
    (void)snprintf(books->target, sizeof books->target, "%s", conf->target);
    books->conf.deadline_ns = conf->deadline_ns ? conf->deadline_ns : 15 * CL_NS_PER_S;
    books->conf.max_calls = conf->max_calls ? conf->max_calls : CALLS_DEFAULT;
    cl_list_init(&books->sent);
    cl_list_init(&books->waiting);
    struct rdb_conf rc = {
        .target = conf->target,
        .password_file = conf->password_file,
        .timeout_ns = conf->timeout_ns,
        .max_in_flight = books->conf.max_calls + 16,
        .on_state = on_state,
        .on_setup = on_setup,
        .arg = books,
    };
    if (cl_timer_init(&books->tick, loop, on_tick, books, err) < 0 ||
        rdb_new(loop, &rc, &books->rdb, err) < 0) {
        cl_timer_fini(&books->tick);
        cl_free(books);
        return -1;
    }
    cl_timer_every(&books->tick, TICK_MS * CL_NS_PER_MS);
    *ret_books = books;
    return 0;
}
