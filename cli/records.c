/* cli/records.c - see cli/records.h. */
#include "cli/records.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "audit/sign.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "cli/client.h"
#include "cli/values.h"
#include "cloche/v1/audit.pb-c.h"
#include "proto/copy.h"
#include "trail/newest.h"

enum { FOLLOW_US = 300 * 1000 };

struct records {
    const struct cli_opts *o;
    char dir[PATH_TEXT];
    struct client *client; /* owned; NULL = from the folder */
    struct walk *walk;     /* owned; of the folder, once begun */
    char stream[AUDIT_STREAM];
    const char *events[1];
    struct walk_filter filter;
    size_t newest;
    uint64_t unreadable; /* was told */
    /* of the call that is under way */
    walk_fn *fn;
    records_round_fn *round;
    void *arg;
};

/* --- where from ---------------------------------------------------------------------------------
 */

int records_dir(const struct cli_opts *o, char out[static PATH_TEXT], struct cl_err *err)
{
    struct cli_paths p;
    if (o->dir) {
        (void)snprintf(out, PATH_TEXT, "%s", o->dir);
        return 0;
    }
    if (paths_resolve(o, &p, err) < 0)
        return -1;
    path_join(out, p.state, "audit");
    return 0;
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value && value[0];
}

static bool asks_service(const struct records *rs)
{
    if (rs->o->dir)
        return false;
    return is_set("CLOCHE_ENDPOINT") || is_set("CLOCHE_API_KEY") || is_set("CLOCHE_KEY_FILE") ||
           access(rs->dir, R_OK | X_OK) < 0;
}

static int take_filter(struct records *rs, struct cl_err *err)
{
    const struct cli_opts *o = rs->o;
    struct walk_filter *f = &rs->filter;
    uint64_t now = cl_wall_ns();
    if ((o->since && value_time(o->since, now, &f->since_ns, err) < 0) ||
        (o->until && value_time(o->until, now, &f->until_ns, err) < 0))
        return -1;
    if (o->tenant || o->stream)
        (void)snprintf(rs->stream, sizeof rs->stream, "%s%s", o->stream ? "" : "tenant/",
                       o->stream ? o->stream : o->tenant);
    rs->events[0] = o->event ? o->event : "*";
    f->stream = rs->stream;
    f->unit = o->unit;
    f->events = rs->events;
    f->n_events = o->event || o->all;
    f->may_come = o->follow;
    return 0;
}

int records_open(const struct cli_opts *o, size_t newest, struct records **ret_records,
                 struct cl_err *err)
{
    if (newest > NEWEST_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "the newest %zu records; at most %d at once", newest,
                       NEWEST_MAX);
    CL_AUTO(records_closep) struct records *rs = cl_zalloc(sizeof *rs);
    if (!rs)
        return cl_fail(err, CL_E_NOMEM, 0, "records");
    rs->o = o;
    rs->newest = newest;
    if (records_dir(o, rs->dir, err) < 0 || take_filter(rs, err) < 0)
        return -1;
    if (asks_service(rs) && client_open(o, &rs->client, err) < 0)
        return cl_wrap(err, "'%.200s' cannot be read here, and the service cannot be asked",
                       rs->dir);
    *ret_records = CL_STEAL(&rs);
    return 0;
}

void records_close(struct records *rs)
{
    if (!rs)
        return;
    walk_free(rs->walk);
    client_free(rs->client);
    cl_free(rs);
}

void records_since(struct records *rs, uint64_t ns)
{
    rs->filter.since_ns = ns;
}

void records_from(struct records *rs, const struct walk_place *places, size_t n)
{
    rs->filter.from = places;
    rs->filter.n_from = n;
}

static int file_key(const struct records *rs, char **ret_pem, struct cl_err *err)
{
    CL_AUTO(cl_buf_fini) struct cl_buf pem;
    char path[PATH_TEXT];
    cl_buf_init(&pem, AUDIT_PEM_MAX);
    path_join(path, rs->dir, "audit.key.pub");
    if (cl_file_read(AT_FDCWD, rs->o->public_key ? rs->o->public_key : path, &pem, err) < 0)
        return -1;
    *ret_pem = cl_strndup((const char *)pem.data, pem.len);
    return *ret_pem ? 0 : cl_fail(err, CL_E_NOMEM, 0, "key");
}

int records_key(struct records *rs, char **ret_pem, struct cl_err *err)
{
    static const struct client_method method =
        CLIENT_METHOD("AuditService", "PublicKey", audit_service_public_key_response);
    Cloche__V1__AuditServicePublicKeyRequest m = CLOCHE__V1__AUDIT_SERVICE_PUBLIC_KEY_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    if (!rs->client || rs->o->public_key)
        return file_key(rs, ret_pem, err);
    if (client_unary(rs->client, &method, &m.base, 0, &reply, err) < 0)
        return -1;
    *ret_pem = cl_strdup(((const Cloche__V1__AuditServicePublicKeyResponse *)reply)->pem);
    pb_free(reply);
    return *ret_pem ? 0 : cl_fail(err, CL_E_NOMEM, 0, "key");
}

static void tell_unreadable(struct records *rs, uint64_t n)
{
    if (n > rs->unreadable)
        cli_say("%llu lines of the log are no records; see `cloche audit verify`",
                (unsigned long long)n);
    rs->unreadable = n;
}

/* --- the folder ---------------------------------------------------------------------------------
 */

static int read_newest(struct records *rs, struct cl_err *err)
{
    CL_AUTO(newest_freep) struct newest *n = NULL;
    int more;
    if (newest_new(rs->dir, &rs->filter, rs->newest, &n, err) < 0)
        return -1;
    do
        more = newest_step(n, WALK_STEP, err);
    while (more > 0);
    if (more < 0 || newest_tell(n, SIZE_MAX, rs->fn, rs->arg, err) < 0)
        return -1;
    rs->walk = newest_take_walk(n);
    return 0;
}

static int read_folder(struct records *rs, struct cl_err *err)
{
    int rc;
    if (!rs->walk && rs->newest)
        rc = read_newest(rs, err);
    else if (!rs->walk && walk_new(rs->dir, &rs->filter, &rs->walk, err) < 0)
        rc = -1;
    else
        rc = walk_all(rs->walk, rs->fn, rs->arg, err);
    if (rs->walk)
        tell_unreadable(rs, walk_unreadable(rs->walk));
    return rc;
}

static int follow_folder(struct records *rs, struct cl_err *err)
{
    while (read_folder(rs, err) == 0) {
        if (rs->round && rs->round(rs->arg, err) < 0)
            return -1;
        (void)usleep(FOLLOW_US);
    }
    return -1;
}

/* --- the service --------------------------------------------------------------------------------
 */

static int on_message(void *arg, const ProtobufCMessage *msg, struct cl_err *err)
{
    struct records *rs = arg;
    const Cloche__V1__AuditServiceQueryResponse *m =
        (const Cloche__V1__AuditServiceQueryResponse *)msg;
    for (size_t i = 0; i < m->n_records; i++) {
        struct audit_record r;
        const char *line = m->records[i];
        size_t n = strlen(line);
        if (audit_record_parse(line, n, &r, err) < 0 || rs->fn(rs->arg, &r, line, n, err) < 0)
            return -1;
    }
    tell_unreadable(rs, m->unreadable);
    return m->caught_up && rs->round ? rs->round(rs->arg, err) : 0;
}

struct places {
    Cloche__V1__AuditPlace *all; /* owned */
    Cloche__V1__AuditPlace **at; /* owned: of each of them */
};

static void places_free(struct places *p)
{
    cl_free(p->all);
    cl_free(p->at);
}

static int make_places(const struct walk_filter *f, struct places *ret, struct cl_err *err)
{
    ret->all = cl_zalloc_array(f->n_from + 1, sizeof *ret->all);
    ret->at = cl_zalloc_array(f->n_from + 1, sizeof *ret->at);
    if (!ret->all || !ret->at)
        return cl_fail(err, CL_E_NOMEM, 0, "places");
    for (size_t i = 0; i < f->n_from; i++) {
        cloche__v1__audit_place__init(&ret->all[i]);
        ret->all[i].stream = pb_text(f->from[i].stream);
        ret->all[i].seq = f->from[i].seq;
        ret->at[i] = &ret->all[i];
    }
    return 0;
}

static int ask_service(struct records *rs, bool follow, struct cl_err *err)
{
    static const struct client_method query =
        CLIENT_METHOD("AuditService", "Query", audit_service_query_response);
    const struct walk_filter *f = &rs->filter;
    CL_AUTO(client_stream_freep) struct client_stream *s = NULL;
    Cloche__V1__AuditServiceQueryRequest m = CLOCHE__V1__AUDIT_SERVICE_QUERY_REQUEST__INIT;
    Cloche__V1__Time since = CLOCHE__V1__TIME__INIT, until = CLOCHE__V1__TIME__INIT;
    char *event = pb_text(rs->events[0]);
    since.unix_ns = f->since_ns;
    until.unix_ns = f->until_ns;
    m.since = &since;
    m.until = &until;
    m.stream = pb_text(rs->stream);
    m.unit = pb_text(f->unit);
    m.events = &event;
    m.n_events = f->n_events;
    m.newest = (uint32_t)rs->newest;
    m.follow = follow;
    CL_AUTO(places_free) struct places places = {0};
    if (make_places(f, &places, err) < 0)
        return -1;
    m.from = places.at;
    m.n_from = f->n_from;
    if (client_stream_open(rs->client, &query, on_message, rs, &s, err) < 0 ||
        client_stream_send(s, &m.base, err) < 0)
        return -1;
    return client_stream_finish(s, err);
}

/* --- both ---------------------------------------------------------------------------------------
 */

int records_read(struct records *rs, walk_fn *fn, void *arg, struct cl_err *err)
{
    rs->fn = fn;
    rs->arg = arg;
    return rs->client ? ask_service(rs, false, err) : read_folder(rs, err);
}

int records_follow(struct records *rs, walk_fn *fn, records_round_fn *round, void *arg,
                   struct cl_err *err)
{
    rs->fn = fn;
    rs->round = round;
    rs->arg = arg;
    return rs->client ? ask_service(rs, true, err) : follow_folder(rs, err);
}
