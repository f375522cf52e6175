/* cli/mirror.c - `cloche audit mirror`: a copy of the audit log elsewhere, checked as it comes.
 *
 * What it has read it never believes again: see trail/mirror.h.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "audit/verify.h"
#include "base/mem.h"
#include "cli/output.h"
#include "cli/records.h"
#include "trail/mirror.h"

enum { RETRY_S = 1, RETRY_MAX_S = 30 };

struct mirroring {
    const struct cli_opts *o;
    struct mirror *m; /* owned */
    bool is_told;     /* that all is there */
    bool is_away;     /* the service, as was said */
    unsigned retry_s;
};

static json_t *state_json(const struct mirror_state *s)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:s}", "stream", s->stream, "records",
                     (json_int_t)s->records, "taken", (json_int_t)s->taken, "checkpoints",
                     (json_int_t)s->checkpoints, "not_yet_signed", (json_int_t)s->waiting, "head",
                     s->head);
}

static int tell(const struct mirroring *w, struct cl_err *err)
{
    json_t *streams = json_array();
    for (size_t i = 0; i < mirror_count(w->m); i++) {
        struct mirror_state s = mirror_state(w->m, i);
        (void)json_array_append_new(streams, state_json(&s));
        if (!w->o->json)
            (void)printf("%s: %" PRIu64 " records, %" PRIu64 " of them new\n", s.stream, s.records,
                         s.taken);
    }
    json_t *all = json_pack("{s:s, s:o}", "key", mirror_key_id(w->m), "streams", streams);
    if (w->o->json)
        (void)json_dumpf(all, stdout, JSON_COMPACT);
    else
        (void)printf("all of it continues what was copied, and is signed with key %s",
                     mirror_key_id(w->m));
    (void)putchar('\n');
    json_decref(all);
    return fflush(stdout) == 0 ? 0 : cl_fail(err, CL_E_SYS, 0, "stdout");
}

/* All that was written by now is there. */
static int settle(void *arg, struct cl_err *err)
{
    struct mirroring *w = arg;
    if (mirror_settle(w->m, err) < 0 || (!w->is_told && tell(w, err) < 0))
        return -1;
    if (w->is_away)
        cli_say("the log is there again");
    w->is_told = true;
    w->is_away = false;
    w->retry_s = RETRY_S;
    return 0;
}

static int take(void *arg, const struct audit_record *r, const char *line, size_t n,
                struct cl_err *err)
{
    struct mirroring *w = arg;
    return mirror_take(w->m, r, line, n, err);
}

/* One reading, from where the copy ends. */
static int read_once(struct mirroring *w, const struct cli_opts *o, struct cl_err *err)
{
    CL_AUTO(records_closep) struct records *rs = NULL;
    CL_AUTO(cl_freep) char *pem = NULL;
    const struct walk_place *places;
    size_t n;
    if (records_open(o, RECORDS_ALL, &rs, err) < 0 || records_key(rs, &pem, err) < 0 ||
        mirror_begin(w->m, pem, &places, &n, err) < 0)
        return -1;
    records_from(rs, places, n);
    if (o->follow)
        return records_follow(rs, take, settle, w, err);
    return records_read(rs, take, w, err) < 0 ? -1 : settle(w, err);
}

/* The service may be restarted, or be busy, and the copy goes on where it was. */
static bool may_pass(const struct mirroring *w, const struct cl_err *err)
{
    return w->o->follow && (cl_err_info(err->code)->retry || err->code == CL_E_DEADLINE);
}

static int follow(struct mirroring *w, const struct cli_opts *o, struct cl_err *err)
{
    for (;;) {
        *err = (struct cl_err){0};
        if (read_once(w, o, err) == 0 && !o->follow)
            return 0;
        if (err->code == CL_OK)
            (void)cl_fail(err, CL_E_UNAVAILABLE, 0, "its reader left");
        if (!may_pass(w, err))
            return -1;
        if (!w->is_away)
            cli_say("the log cannot be read now: %.*s; trying again", (int)strcspn(err->text, "\n"),
                    err->text);
        w->is_away = true;
        (void)sleep(w->retry_s);
        w->retry_s = CL_MIN(w->retry_s * 2, (unsigned)RETRY_MAX_S);
    }
}

static int cmd_mirror(const struct cli_opts *o, const struct args *a)
{
    struct cl_err err = {0};
    struct cli_opts own = *o;
    struct mirroring w = {.o = o, .retry_s = RETRY_S};
    char stream[AUDIT_STREAM];
    own.all = true;
    if (o->tenant && !o->stream) {
        (void)snprintf(stream, sizeof stream, "tenant/%s", o->tenant);
        own.stream = stream;
    }
    int rc = mirror_open(&(struct mirror_conf){.dir = a->pos[0], .stream = own.stream}, &w.m, &err);
    if (rc == 0)
        rc = follow(&w, &own, &err);
    mirror_close(w.m);
    if (rc == 0)
        return AUDIT_OK;
    return cli_report_as(&err, err.code == CL_E_DATALOSS ? (int)AUDIT_BAD : EXIT_USAGE);
}

static const struct arg_opt mirror_opts[] = {
    OPT_JSON,
    {"follow", 'f', ARG_FLAG, OPT(follow), NULL, "go on with what is written, also over restarts"},
    {"tenant", 0, ARG_STRING, OPT(tenant), "NAME", "only this tenant's stream"},
    {"stream", 0, ARG_STRING, OPT(stream), "host/local", "only this stream"},
    {"dir", 0, ARG_STRING, OPT(dir), "DIR", "copy from this audit folder, not from the service"},
    {"key", 0, ARG_STRING, OPT(public_key), "FILE",
     "the log's public key, by another way (default: what the log says)"},
    OPT_DIRS};

const struct cli_command mirror_commands[] = {
    {"audit mirror", "[-f] [OPTIONS] FOLDER",
     "a copy of the audit log elsewhere, checked as it comes",
     "Each record must continue the copy's chain, each checkpoint be signed, and what was copied "
     "before\n"
     "must still be in the log: so it is seen when the log is changed or cut later, also by who "
     "has "
     "its\n"
     "key.  Run again it goes on where the copy ends.  A key of scope `audit` copies its tenant's "
     "stream,\n"
     "an administrator's all.  `audit query`, `tree`, `findings` and `verify --copy` read the copy "
     "(--dir).\n"
     "Exit code 1 when the log is not what was copied, 2 when it could not be read.\n\n"
     "  cloche audit mirror ~/acme-log\n"
     "  cloche audit mirror -f /mnt/elsewhere/log\n",
     SPEC(mirror_opts, 1, 1), cmd_mirror, false},
};
const size_t mirror_commands_n = CL_COUNT(mirror_commands);
