/* audit/writer/store.c - see audit/writer/store.h. */
#include "audit/writer/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/files.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"

enum { PRODUCERS = 16 /* of one stream, newest kept: enough for every one that may send again */ };

struct seen {
    char source[AUDIT_SOURCE];
    uint64_t epoch, n;
};

struct stream {
    struct cl_list dirty; /* linked while something is not written or not signed */
    struct audit_chain chain;
    struct cl_buf out; /* owned: appended, not written */
    unsigned number;   /* of the file */
    uint64_t size;     /* of the file */
    int fd;            /* owned; -1 while not needed */
    uint64_t signed_seq;
    struct seen seen[PRODUCERS];
    size_t next_seen;
};

struct store {
    char dir[AUDIT_PATH - AUDIT_STREAM - 16];
    uint64_t rotate_bytes;
    const struct audit_private_key *key; /* borrowed */
    uint64_t epoch;
    struct cl_map *streams; /* owned, and its values; by stream name */
    struct stream *host;    /* one of them */
    struct cl_list dirty;
    struct cl_buf fields; /* owned scratch */
    uint64_t head_seq;
    char head[AUDIT_HASH_TEXT];
};

/* --- streams -------------------------------------------------------------------------------- */

static void note_seen(struct stream *st, const char *source, uint64_t epoch, uint64_t n)
{
    for (size_t i = 0; i < PRODUCERS; i++) {
        struct seen *s = &st->seen[i];
        if (s->epoch == epoch && strcmp(s->source, source) == 0) {
            s->n = CL_MAX(s->n, n);
            return;
        }
    }
    struct seen *s = &st->seen[st->next_seen++ % PRODUCERS];
    (void)snprintf(s->source, sizeof s->source, "%s", source);
    s->epoch = epoch;
    s->n = n;
}

static bool was_seen(const struct stream *st, const char *source, uint64_t epoch, uint64_t n)
{
    for (size_t i = 0; i < PRODUCERS; i++) {
        const struct seen *s = &st->seen[i];
        if (s->epoch == epoch && strcmp(s->source, source) == 0)
            return n <= s->n;
    }
    return false;
}

static void stream_free(struct stream *st)
{
    cl_closep(&st->fd);
    cl_buf_fini(&st->out);
    cl_list_unlink(&st->dirty);
    cl_free(st);
}

static void mark(struct store *store, struct stream *st)
{
    if (cl_list_empty(&st->dirty))
        cl_list_push(&store->dirty, &st->dirty);
}

static int stream_new(struct store *store, const char *name, struct stream **ret,
                      struct cl_err *err)
{
    struct stream *st = cl_zalloc(sizeof *st);
    if (!st)
        return cl_fail(err, CL_E_NOMEM, 0, "audit stream '%s'", name);
    cl_list_init(&st->dirty);
    audit_chain_init(&st->chain, name);
    cl_buf_init(&st->out, STORE_BUFFER_MAX);
    st->fd = -1;
    st->number = 1;
    if (cl_map_put(store->streams, name, st, err) < 0) {
        stream_free(st);
        return -1;
    }
    *ret = st;
    return 0;
}

/* --- own records ---------------------------------------------------------------------------- */

static int append_own(struct store *store, struct stream *st, enum audit_event ev,
                      const struct audit_field *fields, size_t n, struct cl_err *err)
{
    struct audit_record r = {.assurance = AUDIT_H0};
    cl_buf_clear(&store->fields);
    if (audit_fields_format(&store->fields, ev, fields, n, err) < 0)
        return -1;
    r.fields = (const char *)store->fields.data;
    r.fields_n = store->fields.len;
    (void)snprintf(r.event, sizeof r.event, "%s", audit_event_name(ev));
    (void)snprintf(r.source, sizeof r.source, "audit");
    cl_rfc3339(cl_wall_ns(), r.ts);
    if (audit_chain_append(&st->chain, &r, &st->out, err) < 0)
        return -1;
    mark(store, st);
    return 0;
}

static int append_open(struct store *store, struct stream *st, struct cl_err *err)
{
    struct audit_field f[] = {AUDIT_STR("alg", "ed25519"), AUDIT_NUM("epoch", store->epoch),
                              AUDIT_STR("key", audit_private_key_id(store->key))};
    return append_own(store, st, AUDIT_STREAM_OPEN, f, CL_COUNT(f), err);
}

/* --- writing -------------------------------------------------------------------------------- */

static int stream_file(struct store *store, struct stream *st, struct cl_err *err)
{
    char path[AUDIT_PATH];
    if (st->size >= store->rotate_bytes && st->size > 0) {
        if (st->fd >= 0 && fdatasync(st->fd) < 0)
            return cl_fail(err, CL_E_SYS, errno, "fdatasync of stream '%s'", st->chain.stream);
        cl_closep(&st->fd);
        st->number++;
        st->size = 0;
    }
    if (st->fd >= 0)
        return 0;
    (void)snprintf(path, sizeof path, "%s/%s", store->dir, st->chain.stream);
    if (st->number == 1 && st->size == 0 && cl_mkdir_p(path, 0750, err) < 0)
        return -1;
    audit_file_path(store->dir, st->chain.stream, st->number, path);
    st->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
    return st->fd < 0 ? cl_fail(err, CL_E_SYS, errno, "open '%s'", path) : 0;
}

static int stream_write(struct store *store, struct stream *st, struct cl_err *err)
{
    if (st->out.len == 0)
        return 0;
    if (stream_file(store, st, err) < 0)
        return -1;
    size_t done = 0;
    while (done < st->out.len) {
        ssize_t n = write(st->fd, st->out.data + done, st->out.len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    int saved = errno;
    if (done < st->out.len) { /* all or nothing: no half line stays */
        if (ftruncate(st->fd, (off_t)st->size) < 0)
            cl_closep(&st->fd);
        return cl_fail(err, CL_E_SYS, saved, "write to stream '%s'", st->chain.stream);
    }
    st->size += done;
    cl_buf_clear(&st->out);
    return 0;
}

int store_flush(struct store *store, struct cl_err *err)
{
    CL_LIST_FOREACH (it, &store->dirty) {
        if (stream_write(store, CL_LIST_ENTRY(it, struct stream, dirty), err) < 0)
            return -1;
    }
    return 0;
}

/* --- append --------------------------------------------------------------------------------- */

static int stream_need(struct store *store, const char *tenant, struct stream **ret,
                       struct cl_err *err)
{
    char name[AUDIT_STREAM];
    if (tenant[0] == '\0') {
        *ret = store->host;
        return 0;
    }
    if (!cl_name_is_valid(tenant))
        return cl_fail(err, CL_E_INVALID, 0, "audit record for tenant '%.63s'", tenant);
    (void)snprintf(name, sizeof name, "tenant/%s", tenant);
    *ret = cl_map_get(store->streams, name);
    if (*ret)
        return 0;
    if (stream_new(store, name, ret, err) < 0)
        return -1;
    return append_open(store, *ret, err);
}

int store_append(struct store *store, const struct store_record *rec, struct cl_err *err)
{
    struct stream *st;
    if (stream_need(store, rec->tenant, &st, err) < 0)
        return -1;
    if (was_seen(st, rec->source, rec->epoch, rec->n))
        return 0;
    struct audit_record r = {.assurance = rec->assurance,
                             .epoch = rec->epoch,
                             .n = rec->n,
                             .fields = rec->fields,
                             .fields_n = rec->fields_n};
    (void)snprintf(r.event, sizeof r.event, "%s", audit_event_name(rec->event));
    (void)snprintf(r.source, sizeof r.source, "%s", rec->source);
    cl_rfc3339(rec->wall_ns, r.ts);
    if (audit_chain_append(&st->chain, &r, &st->out, err) < 0)
        return -1;
    note_seen(st, rec->source, rec->epoch, rec->n);
    mark(store, st);
    return 0;
}

/* --- checkpoints ---------------------------------------------------------------------------- */

static int sign_stream(struct store *store, struct stream *st, struct cl_err *err)
{
    struct audit_record r;
    if (audit_checkpoint_make(store->key, store->epoch, cl_wall_ns(), &st->chain, &store->fields,
                              &r, err) < 0 ||
        audit_chain_append(&st->chain, &r, &st->out, err) < 0 || stream_write(store, st, err) < 0)
        return -1;
    if (fdatasync(st->fd) < 0)
        return cl_fail(err, CL_E_SYS, errno, "fdatasync of stream '%s'", st->chain.stream);
    st->signed_seq = st->chain.next_seq - 1;
    cl_list_unlink(&st->dirty);
    return 0;
}

static int sign_tenant(struct store *store, struct stream *st, struct cl_err *err)
{
    if (sign_stream(store, st, err) < 0)
        return -1;
    cl_closep(&st->fd); /* idle streams hold no descriptor */
    struct audit_field f[] = {AUDIT_STR("hash", st->chain.head), AUDIT_NUM("seq", st->signed_seq),
                              AUDIT_STR("stream", st->chain.stream)};
    return append_own(store, store->host, AUDIT_TENANT_CHECKPOINT, f, CL_COUNT(f), err);
}

int store_checkpoint(struct store *store, bool always, struct cl_err *err)
{
    if (store_flush(store, err) < 0)
        return -1;
    CL_LIST_FOREACH (it, &store->dirty) {
        struct stream *st = CL_LIST_ENTRY(it, struct stream, dirty);
        if (st != store->host && sign_tenant(store, st, err) < 0)
            return -1;
    }
    struct stream *host = store->host;
    if (!always && host->signed_seq == host->chain.next_seq - 1 && host->out.len == 0)
        return 0;
    if (sign_stream(store, host, err) < 0)
        return -1;
    store->head_seq = host->signed_seq;
    memcpy(store->head, host->chain.head, sizeof store->head);
    return 0;
}

void store_head(const struct store *store, uint64_t *ret_seq, const char **ret_hash)
{
    *ret_seq = store->head_seq;
    *ret_hash = store->head;
}

/* --- recovery ------------------------------------------------------------------------------- */

/* Read a file's good records into the stream; *ret_good = bytes of them. */
static int read_records(struct stream *st, const char *data, size_t n, size_t *ret_good,
                        struct cl_err *err)
{
    size_t at = 0;
    bool first =
        st->chain.next_seq == 1 && st->number > 1; /* a later file: its first record tells */
    for (;;) {
        struct audit_record r;
        const char *end = memchr(data + at, '\n', n - at);
        if (!end || audit_record_parse(data + at, (size_t)(end - data) - at, &r, NULL) < 0)
            break;
        if (first) {
            st->chain.next_seq = r.seq;
            memcpy(st->chain.head, r.prev, sizeof st->chain.head);
            first = false;
        }
        if (audit_chain_follow(&st->chain, &r, NULL) < 0)
            break;
        if (r.epoch)
            note_seen(st, r.source, r.epoch, r.n);
        if (strcmp(r.event, audit_event_name(AUDIT_CHECKPOINT)) == 0)
            st->signed_seq = r.seq;
        at = (size_t)(end - data) + 1;
    }
    *ret_good = at;
    /* A torn tail holds no whole record; what does is damage, and evidence. */
    for (size_t pos = at; pos < n;) {
        struct audit_record r;
        const char *end = memchr(data + pos, '\n', n - pos);
        if (!end)
            break;
        if (audit_record_parse(data + pos, (size_t)(end - data) - pos, &r, NULL) == 0)
            return cl_fail(err, CL_E_DATALOSS, 0,
                           "stream '%s' is damaged at byte %zu of file %u, before good records: "
                           "run `cloche audit "
                           "verify`, keep the folder as evidence and move it away",
                           st->chain.stream, at, st->number);
        pos = (size_t)(end - data) + 1;
    }
    return 0;
}

static int cut_tail(struct store *store, struct stream *st, size_t good, size_t n,
                    struct cl_err *err)
{
    char path[AUDIT_PATH];
    audit_file_path(store->dir, st->chain.stream, st->number, path);
    if (truncate(path, (off_t)good) < 0)
        return cl_fail(err, CL_E_SYS, errno, "cut the torn tail of '%s'", path);
    struct audit_field f[] = {AUDIT_NUM("bytes", n - good),
                              AUDIT_NUM("last_seq", st->chain.next_seq - 1)};
    return append_own(store, st, AUDIT_RECOVERED, f, CL_COUNT(f), err);
}

/* Read file `number` of those up to `last`; only the last may have a torn tail. */
static int read_chain(struct store *store, struct stream *st, unsigned number, unsigned last,
                      struct cl_err *err)
{
    char path[AUDIT_PATH];
    const char *data;
    size_t n, good = 0;
    st->number = number;
    audit_file_path(store->dir, st->chain.stream, number, path);
    if (audit_file_map(path, &data, &n, err) < 0)
        return -1;
    int rc = read_records(st, data, n, &good, err);
    audit_file_unmap(data, n);
    st->size = good;
    if (rc == 0 && good < n && number != last)
        rc = cl_fail(err, CL_E_DATALOSS, 0,
                     "'%s' is damaged at byte %zu: run `cloche audit verify`", path, good);
    if (rc == 0 && good < n)
        rc = cut_tail(store, st, good, n, err);
    return rc;
}

/* Whoever reads is in our group (cloche-audit-reader); earlier releases left it out.  What is not
 * ours stays as it is. */
static void let_group_read(const struct store *store, const char *name, unsigned first,
                           unsigned last)
{
    char path[AUDIT_PATH];
    (void)snprintf(path, sizeof path, "%s/%s", store->dir, name);
    (void)chmod(path, 0750);
    *strrchr(path, '/') = '\0'; /* DIR/tenant */
    (void)chmod(path, 0750);
    for (unsigned i = first; first > 0 && i <= last; i++) {
        audit_file_path(store->dir, name, i, path);
        (void)chmod(path, 0640);
    }
}

static int load_stream(const char *name, void *arg, struct cl_err *err)
{
    struct store *store = arg;
    unsigned first, last;
    struct stream *st = cl_map_get(store->streams, name);
    if (audit_file_range(store->dir, name, &first, &last, err) < 0)
        return -1;
    if (!st && stream_new(store, name, &st, err) < 0)
        return -1;
    let_group_read(store, name, first, last);
    /* The file before too: what a producer may send again can lie there. */
    if (last > 1 && read_chain(store, st, last - 1, last, err) < 0)
        return -1;
    if (last > 0 && read_chain(store, st, last, last, err) < 0)
        return -1;
    if (st->chain.next_seq - 1 != st->signed_seq)
        mark(store, st); /* the crash came before its checkpoint */
    return 0;
}

int store_open(const struct store_conf *conf, struct store **ret_store, struct cl_err *err)
{
    CL_AUTO(store_closep) struct store *store = cl_zalloc(sizeof *store);
    char host[AUDIT_STREAM];
    if (!store)
        return cl_fail(err, CL_E_NOMEM, 0, "audit store");
    cl_list_init(&store->dirty);
    cl_buf_init(&store->fields, 2 * AUDIT_FIELDS_MAX);
    if (strlen(conf->dir) >= sizeof store->dir)
        return cl_fail(err, CL_E_INVALID, 0, "the path of the folder '%.64s...' is too long",
                       conf->dir);
    if (!cl_name_is_valid(conf->host))
        return cl_fail(err, CL_E_INVALID, 0,
                       "host: '%.64s' is no name: a small letter, then small letters, digits, '-'",
                       conf->host);
    (void)snprintf(store->dir, sizeof store->dir, "%s", conf->dir);
    (void)snprintf(host, sizeof host, "host/%s", conf->host);
    store->rotate_bytes = conf->rotate_bytes;
    store->key = conf->key;
    store->epoch = cl_wall_ns() / CL_NS_PER_MS;
    if (cl_map_new(AUDIT_STREAMS_MAX, &store->streams, err) < 0 ||
        stream_new(store, host, &store->host, err) < 0 || load_stream(host, store, err) < 0 ||
        audit_each_stream(store->dir, "tenant", load_stream, store, err) < 0)
        return -1;
    if (store->host->chain.next_seq == 1 && append_open(store, store->host, err) < 0)
        return -1;
    if (store_checkpoint(store, true, err) < 0)
        return -1;
    *ret_store = CL_STEAL(&store);
    return 0;
}

void store_close(struct store *store)
{
    if (!store)
        return;
    size_t at = 0;
    const char *name;
    for (struct stream *st;
         store->streams && (st = cl_map_next(store->streams, &at, &name)) != NULL;)
        stream_free(st);
    cl_map_free(store->streams);
    cl_buf_fini(&store->fields);
    cl_free(store);
}
