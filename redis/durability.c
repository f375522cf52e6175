/* redis/durability.c - does the server keep what it acknowledges?  See redis/client.h. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "redis/client.h"

enum { VERSION_MIN_MAJOR = 7 }; /* functions */

enum rdb_durability rdb_durability_parse(const char *word, bool *ret_ok)
{
    *ret_ok = true;
    if (strcmp(word, "always") == 0)
        return RDB_DUR_ALWAYS;
    if (strcmp(word, "everysec") == 0)
        return RDB_DUR_EVERYSEC;
    *ret_ok = strcmp(word, "none") == 0;
    return RDB_DUR_NONE;
}

const char *rdb_durability_name(enum rdb_durability d)
{
    switch (d) {
    case RDB_DUR_NONE:
        return "none";
    case RDB_DUR_EVERYSEC:
        return "everysec";
    case RDB_DUR_ALWAYS:
        return "always";
    }
    return "?";
}

static void complain(char *text, size_t size, const char *setting, const char *is, const char *want)
{
    size_t n = strlen(text);
    (void)snprintf(text + n, size - n, "%s%s is '%s', want '%s'", n ? "; " : "", setting, is, want);
}

int rdb_check_durability(const struct rdb_facts *facts, enum rdb_durability want,
                         struct cl_err *err)
{
    char text[256] = "";
    if (strtol(facts->version, NULL, 10) < VERSION_MIN_MAJOR)
        complain(text, sizeof text, "redis_version", facts->version, "7.0 or newer");
    if (strcmp(facts->maxmemory_policy, "noeviction") != 0)
        complain(text, sizeof text, "maxmemory-policy", facts->maxmemory_policy, "noeviction");
    if (want >= RDB_DUR_EVERYSEC && strcmp(facts->appendonly, "yes") != 0)
        complain(text, sizeof text, "appendonly", facts->appendonly, "yes");
    if (want == RDB_DUR_ALWAYS && strcmp(facts->appendfsync, "always") != 0)
        complain(text, sizeof text, "appendfsync", facts->appendfsync, "always");
    if (want == RDB_DUR_EVERYSEC && strcmp(facts->appendfsync, "no") == 0)
        complain(text, sizeof text, "appendfsync", facts->appendfsync, "everysec");
    if (want >= RDB_DUR_EVERYSEC && strcmp(facts->no_fsync_on_rewrite, "no") != 0)
        complain(text, sizeof text, "no-appendfsync-on-rewrite", facts->no_fsync_on_rewrite, "no");
    if (text[0])
        return cl_fail(err, CL_E_STATE, 0, "the redis server is weaker than durability '%s': %s",
                       rdb_durability_name(want), text);
    return 0;
}

/* --- asking --------------------------------------------------------------------------------- */

struct ask {
    struct rdb *rdb; /* borrowed: answers this before it dies */
    struct rdb_facts facts;
    rdb_facts_fn *fn;
    void *arg;
};

static void finish_ask(struct ask *ask, const struct cl_err *err)
{
    ask->fn(err ? NULL : &ask->facts, err, ask->arg);
    cl_free(ask);
}

static void copy_fact(struct rdb_facts *f, const char *name, const char *value)
{
    struct {
        const char *name;
        char *to;
        size_t size;
    } rows[] = {
        {"appendonly", f->appendonly, sizeof f->appendonly},
        {"appendfsync", f->appendfsync, sizeof f->appendfsync},
        {"no-appendfsync-on-rewrite", f->no_fsync_on_rewrite, sizeof f->no_fsync_on_rewrite},
        {"maxmemory", f->maxmemory, sizeof f->maxmemory},
        {"maxmemory-policy", f->maxmemory_policy, sizeof f->maxmemory_policy},
    };
    for (size_t i = 0; i < CL_COUNT(rows); i++) {
        if (strcmp(name, rows[i].name) == 0)
            (void)snprintf(rows[i].to, rows[i].size, "%s", value);
    }
}

static void on_config(const struct redisReply *reply, const struct cl_err *err, void *arg)
{
    struct ask *ask = arg;
    if (reply && reply->type == REDIS_REPLY_ARRAY) {
        for (size_t i = 0; i + 1 < reply->elements; i += 2) {
            if (reply->element[i]->str && reply->element[i + 1]->str)
                copy_fact(&ask->facts, reply->element[i]->str, reply->element[i + 1]->str);
        }
    }
    finish_ask(ask, err);
}

static void on_info(const struct redisReply *reply, const struct cl_err *err, void *arg)
{
    struct ask *ask = arg;
    static const char *argv[] = {"CONFIG",
                                 "GET",
                                 "appendonly",
                                 "appendfsync",
                                 "no-appendfsync-on-rewrite",
                                 "maxmemory",
                                 "maxmemory-policy"};
    if (!reply) {
        finish_ask(ask, err);
        return;
    }
    const char *at = reply->str ? strstr(reply->str, "redis_version:") : NULL;
    if (at)
        (void)sscanf(at, "redis_version:%31[0-9a-zA-Z.-]", ask->facts.version);
    struct cl_err failed = {0};
    if (rdb_call(ask->rdb, (int)CL_COUNT(argv), argv, NULL, on_config, ask, &failed) < 0)
        finish_ask(ask, &failed);
}

int rdb_ask_facts(struct rdb *rdb, rdb_facts_fn *fn, void *arg, struct cl_err *err)
{
    static const char *argv[] = {"INFO", "server"};
    struct ask *ask = cl_zalloc(sizeof *ask);
    if (!ask)
        return cl_fail(err, CL_E_NOMEM, 0, "ask redis");
    *ask = (struct ask){.rdb = rdb, .fn = fn, .arg = arg};
    if (rdb_call(rdb, (int)CL_COUNT(argv), argv, NULL, on_info, ask, err) < 0) {
        cl_free(ask);
        return -1;
    }
    return 0;
}
