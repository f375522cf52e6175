/* scheduler/bootstrap.c - see scheduler/bootstrap.h. */
#include "scheduler/bootstrap.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "observability/log.h"

enum { PEPPER = 32 };

int pepper_load(const char *path, uint8_t out[static 32], struct cl_err *err)
{
    struct cl_buf text;
    struct cl_err missing = {0};
    cl_buf_init(&text, PEPPER + 1);
    int rc = cl_file_read(AT_FDCWD, path, &text, &missing);
    if (rc < 0 && missing.code == CL_E_NOTFOUND) {
        cl_random(out, PEPPER);
        rc = cl_file_write(path, out, PEPPER, 0600, err);
    } else if (rc < 0 || text.len != PEPPER) {
        rc = cl_fail(err, CL_E_INVALID, 0,
                     "'%s' must hold %d bytes (%s); without the right one every key is refused",
                     path, PEPPER, missing.text);
    } else {
        memcpy(out, text.data, PEPPER);
    }
    cl_buf_fini(&text);
    return rc;
}

int key_make(struct sched *s, const char *tenant, const char *note, uint64_t ttl_ns,
             struct books_key *ret_row, char ret_text[static API_KEY_TEXT], struct cl_err *err)
{
    struct api_key key;
    struct books_key row = {.scopes = ret_row->scopes, .created_ms = cl_wall_ns() / CL_NS_PER_MS};
    api_key_new(&key);
    int rc = api_key_mac(&key, s->pepper, sizeof s->pepper, row.mac, err);
    if (rc == 0) {
        (void)snprintf(row.id, sizeof row.id, "%s", key.id);
        (void)snprintf(row.tenant, sizeof row.tenant, "%s", tenant);
        (void)snprintf(row.subject, sizeof row.subject, "key/%s", key.id);
        (void)snprintf(row.note, sizeof row.note, "%s", note);
        row.expires_ms = ttl_ns ? row.created_ms + ttl_ns / CL_NS_PER_MS : 0;
        api_key_format(&key, ret_text);
        *ret_row = row;
    }
    api_key_wipe(&key);
    return rc;
}

int tenant_write(struct sched *s, const char *name, const struct tenant_limits *limits,
                 const char *guest_separation, books_put_fn *fn, void *arg, struct cl_err *err)
{
    uint8_t blob[LIMITS_PACKED_MAX + 32];
    size_t n = limits_pack(limits, blob);
    const char *word = guest_separation[0] ? guest_separation : "isolated";
    blob[n++] = '|';
    memcpy(blob + n, word, strlen(word));
    n += strlen(word);
    struct books_tenant t = {.blob = blob, .blob_n = n};
    (void)snprintf(t.name, sizeof t.name, "%s", name);
    t.limits = (struct books_limits){
        .dim = {limits->vcpu_milli, limits->mem_mib, limits->sandboxes, limits->cpu_ms,
                limits->egress_bytes, limits->disk_mib},
        .period_ms = limits->period_ms,
        .rate_interval_us = limits->rate_interval_us,
        .rate_burst = limits->rate_burst,
        .queue_max = limits->queue_max,
    };
    return books_tenant_put(s->books, &t, fn, arg, err);
}

/* --- the first tenant and key -------------------------------------------------------------------
 */

struct first {
    struct sched *s;
    struct books_key row;
    char text[API_KEY_TEXT];
};

static void done(struct first *f, const struct cl_err *err)
{
    if (err)
        log_event(LOG_FATAL, "text='bootstrap: %s'", err->text);
    explicit_bzero(f->text, sizeof f->text);
    cl_free(f);
}

static void on_key(const struct cl_err *err, void *arg)
{
    struct first *f = arg;
    struct cl_err bad = {0};
    char line[API_KEY_TEXT + 1];
    if (err) {
        done(f, err);
        return;
    }
    int n = snprintf(line, sizeof line, "%s\n", f->text);
    int rc = cl_file_write(f->s->o->bootstrap_key_file, line, (size_t)n, 0600, &bad);
    explicit_bzero(line, sizeof line);
    done(f, rc < 0 ? &bad : NULL);
}

static void on_tenant(bool created, const struct cl_err *err, void *arg)
{
    (void)created;
    struct first *f = arg;
    struct cl_err bad = {0};
    if (err) {
        done(f, err);
        return;
    }
    f->row.scopes = SCOPE_ALL;
    if (key_make(f->s, "local", "made by `cloche up`", 0, &f->row, f->text, &bad) < 0 ||
        books_key_put(f->s->books, &f->row, on_key, f, &bad) < 0)
        done(f, &bad);
}

void bootstrap(struct sched *s)
{
    struct cl_err err = {0};
    struct tenant_limits limits;
    if (!s->o->bootstrap_key_file[0] || access(s->o->bootstrap_key_file, F_OK) == 0)
        return;
    struct first *f = cl_zalloc(sizeof *f);
    if (!f)
        return;
    f->s = s;
    limits_default(&limits);
    limits.network = 1;
    if (tenant_write(s, "local", &limits, "shared-ok", on_tenant, f, &err) < 0)
        done(f, &err);
}
