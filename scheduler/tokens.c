/* scheduler/tokens.c - see scheduler/tokens.h. */
#include "scheduler/tokens.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "observability/log.h"
#include "scheduler/key_fetch.h"

struct tokens {
    const struct sched_options *o;
    struct jwt_rules rules;
    struct jwks *keys;       /* NULL until the first set is there */
    struct key_fetch *fetch; /* NULL = the keys are a file */
    struct timespec changed; /* of the file that `keys` was read from, or that was refused */
    struct cl_timer look;
};

static int take_keys(struct tokens *t, const char *text, size_t n, struct cl_err *err)
{
    struct jwks *fresh;
    if (jwks_parse(text, n, &fresh, err) < 0)
        return cl_wrap(err, "'%.200s'", t->o->token_keys);
    jwks_free(t->keys);
    t->keys = fresh;
    log_event(LOG_TOKEN_KEYS, "from='%s' keys=%zu", t->o->token_keys, jwks_count(fresh));
    return 0;
}

/* --- a file --------------------------------------------------------------------------------- */

static int read_keys(struct tokens *t, struct cl_err *err)
{
    struct cl_buf text;
    struct stat st;
    if (stat(t->o->token_keys, &st) == 0)
        t->changed = st.st_mtim;
    cl_buf_init(&text, JWKS_MAX);
    int rc = cl_file_read(AT_FDCWD, t->o->token_keys, &text, err);
    if (rc == 0)
        rc = take_keys(t, (const char *)text.data, text.len, err);
    cl_buf_fini(&text);
    return rc;
}

static void on_look(void *arg)
{
    struct tokens *t = arg;
    struct cl_err err = {0};
    struct stat st;
    bool same = stat(t->o->token_keys, &st) == 0 && st.st_mtim.tv_sec == t->changed.tv_sec &&
                st.st_mtim.tv_nsec == t->changed.tv_nsec;
    if (!same && read_keys(t, &err) < 0)
        log_event(LOG_CONFIG_REFUSED, "text='%s'", err.text);
    cl_timer_start(&t->look, TOKENS_LOOK_S * CL_NS_PER_S);
}

/* --- a place on the network ----------------------------------------------------------------- */

static int on_fetched(void *arg, const char *text, size_t n, const struct cl_err *err)
{
    struct tokens *t = arg;
    struct cl_err bad = {0};
    if (!err && take_keys(t, text, n, &bad) == 0)
        return 0;
    log_event(LOG_CONFIG_REFUSED, "text='%s'", err ? err->text : bad.text);
    return -1;
}

/* --- life ----------------------------------------------------------------------------------- */

static int open_keys(struct tokens *t, struct cl_loop *loop, struct cl_err *err)
{
    struct key_fetch_conf conf = {
        .url = t->o->token_keys, .ca = t->o->token_keys_ca, .fn = on_fetched, .arg = t};
    if (key_fetch_is_url(t->o->token_keys))
        return key_fetch_new(loop, &conf, &t->fetch, err);
    cl_timer_start(&t->look, TOKENS_LOOK_S * CL_NS_PER_S);
    return read_keys(t, err);
}

int tokens_new(struct cl_loop *loop, const struct sched_options *o, struct tokens **ret_tokens,
               struct cl_err *err)
{
    *ret_tokens = NULL;
    if (!o->token_issuer[0])
        return 0;
    struct tokens *t = cl_zalloc(sizeof *t);
    if (!t)
        return cl_fail(err, CL_E_NOMEM, 0, "tokens");
    t->o = o;
    t->rules = (struct jwt_rules){.issuer = o->token_issuer,
                                  .audience = o->token_audience,
                                  .tenant_claim = o->token_tenant_claim,
                                  .skew_s = o->token_skew / CL_NS_PER_S};
    if (cl_timer_init(&t->look, loop, on_look, t, err) < 0 ||
        jwt_scope_map_parse(o->token_scopes, &t->rules, err) < 0 || open_keys(t, loop, err) < 0) {
        tokens_free(t);
        return -1;
    }
    *ret_tokens = t;
    return 0;
}

void tokens_free(struct tokens *t)
{
    if (!t)
        return;
    cl_timer_fini(&t->look);
    key_fetch_free(t->fetch);
    jwks_free(t->keys);
    cl_free(t);
}

int tokens_verify(const struct tokens *t, const char *token, struct principal *ret,
                  struct cl_err *err)
{
    if (!t->keys)
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "the issuer's keys are not there yet");
    if (jwt_verify(t->keys, &t->rules, token, cl_wall_ns() / CL_NS_PER_S, ret, err) == 0)
        return 0;
    if (t->fetch && strcmp(err->subject, "kid") == 0)
        key_fetch_soon(t->fetch);
    return -1;
}
