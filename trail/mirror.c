/* trail/mirror.c - see trail/mirror.h.
 *
 * A copy of a stream is opened with what its folder has; a reading's first record of it must be the
 * one it ends with (it is MET).  What comes then waits for the checkpoint that signs it, and is put
 * behind the copy's end with it.  The host's stream names records of the tenants', and waits until
 * the copy has these: a copy of all streams verifies at any time.
 */
#include "trail/mirror.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "audit/files.h"
#include "audit/sign.h"
#include "base/fs.h"
#include "base/mem.h"

#define EVIDENCE "\nkeep the log and the copy: together they are the evidence"

struct copy {
    struct audit_stream_check kept; /* of what is in the file */
    struct audit_stream_check told; /* the same, and what waits */
    struct cl_buf waiting;          /* lines that no checkpoint signs yet */
    unsigned file;                  /* the last one; 0 = none */
    int fd;                         /* owned; of it, once something is written */
    size_t size;
    uint64_t had;     /* records when it was opened */
    uint64_t claimed; /* a record that the host's stream, as told, says there is */
    bool is_met, is_dirty;
};

enum { DIR_MAX = AUDIT_PATH - AUDIT_STREAM - 32 }; /* its files have names behind it */

struct mirror {
    char dir[DIR_MAX], stream[AUDIT_STREAM];
    size_t file_max;
    int lock;                     /* owned */
    struct audit_public_key *key; /* owned */
    struct copy **copies;         /* owned, each one */
    size_t n, cap;
    struct walk_place *places; /* owned */
};

static const char *name(const struct copy *c)
{
    return c->kept.chain.stream;
}

static uint64_t last_seq(const struct copy *c)
{
    return c->kept.chain.next_seq - 1;
}

/* --- what is there ------------------------------------------------------------------------------
 */

static int lock_folder(struct mirror *m, struct cl_err *err)
{
    char path[AUDIT_PATH];
    (void)snprintf(path, sizeof path, "%s/audit.key", m->dir);
    if (access(path, F_OK) == 0)
        return cl_fail(err, CL_E_INVALID, 0,
                       "'%s' is a log's own folder\nname another one for the copy", m->dir);
    if (cl_mkdir_p(m->dir, 0700, err) < 0)
        return -1;
    (void)snprintf(path, sizeof path, "%s/mirror.lock", m->dir);
    m->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (m->lock < 0)
        return cl_fail(err, CL_E_SYS, errno, "open '%s'", path);
    return flock(m->lock, LOCK_EX | LOCK_NB) == 0
               ? 0
               : cl_fail(err, CL_E_STATE, 0, "another mirror writes to '%s'", m->dir);
}

static void key_path(const struct mirror *m, char out[static AUDIT_PATH])
{
    (void)snprintf(out, AUDIT_PATH, "%s/audit.key.pub", m->dir);
}

static int open_key(struct mirror *m, struct cl_err *err)
{
    char path[AUDIT_PATH];
    key_path(m, path);
    return access(path, F_OK) < 0 && errno == ENOENT ? 0
                                                     : audit_public_key_open(path, &m->key, err);
}

static struct copy *add_copy(struct mirror *m, const char *stream, struct cl_err *err)
{
    struct copy *c = NULL;
    if (m->n >= MIRROR_STREAMS)
        (void)cl_fail(err, CL_E_TOOBIG, 0,
                      "more than %d streams\nname one: tenant/NAME or host/NAME", MIRROR_STREAMS);
    else if (cl_grow(&m->copies, &m->cap, m->n + 1, MIRROR_STREAMS, sizeof *m->copies, err) == 0 &&
             !(c = cl_zalloc(sizeof *c)))
        (void)cl_fail(err, CL_E_NOMEM, 0, "stream");
    if (!c)
        return NULL;
    audit_stream_check_init(&c->kept, stream, m->key);
    c->told = c->kept;
    cl_buf_init(&c->waiting, MIRROR_WAITING);
    c->fd = -1;
    m->copies[m->n++] = c;
    return c;
}

/* A file of the copy: as it was left, but for a line that was not finished at the end of the last.
 */
static int check_file(struct copy *c, const char *path, bool is_last, struct cl_err *err)
{
    struct cl_err why = {0};
    const char *data;
    if (audit_file_map(path, &data, &c->size, err) < 0)
        return -1;
    enum audit_verdict v = audit_stream_check_feed(&c->kept, data, c->size, is_last, &why);
    audit_file_unmap(data, c->size);
    if (v == AUDIT_TORN) {
        c->size = c->kept.bad_offset;
        return truncate(path, (off_t)c->size) == 0
                   ? 0
                   : cl_fail(err, CL_E_SYS, errno, "cut '%s'", path);
    }
    return v == AUDIT_OK
               ? 0
               : cl_fail(err, CL_E_DATALOSS, 0, "the copy was changed: %s, byte %" PRIu64 ": %s",
                         path, c->kept.bad_offset, why.text);
}

static int open_copy(const char *stream, void *arg, struct cl_err *err)
{
    struct mirror *m = arg;
    unsigned first, last;
    if (m->stream[0] && strcmp(m->stream, stream) != 0)
        return 0;
    if (audit_file_range(m->dir, stream, &first, &last, err) < 0)
        return -1;
    if (!m->key)
        return cl_fail(err, CL_E_DATALOSS, 0, "the copy in '%s' has lost its audit.key.pub",
                       m->dir);
    struct copy *c = add_copy(m, stream, err);
    if (!c)
        return -1;
    for (unsigned i = 1; i <= last; i++) {
        char path[AUDIT_PATH];
        audit_file_path(m->dir, stream, i, path);
        if (check_file(c, path, i == last, err) < 0)
            return -1;
    }
    c->file = last;
    c->had = c->kept.records;
    return 0;
}

int mirror_open(const struct mirror_conf *conf, struct mirror **ret_mirror, struct cl_err *err)
{
    CL_AUTO(mirror_closep) struct mirror *m = cl_zalloc(sizeof *m);
    if (!m)
        return cl_fail(err, CL_E_NOMEM, 0, "mirror");
    m->lock = -1;
    m->file_max = conf->file_max ? conf->file_max : MIRROR_FILE;
    if (strlen(conf->dir) >= DIR_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "the folder's name is longer than %d bytes",
                       DIR_MAX - 1);
    (void)snprintf(m->dir, sizeof m->dir, "%s", conf->dir);
    (void)snprintf(m->stream, sizeof m->stream, "%s", conf->stream ? conf->stream : "");
    if (lock_folder(m, err) < 0 || open_key(m, err) < 0 ||
        audit_each_stream(m->dir, "host", open_copy, m, err) < 0 ||
        audit_each_stream(m->dir, "tenant", open_copy, m, err) < 0)
        return -1;
    *ret_mirror = CL_STEAL(&m);
    return 0;
}

void mirror_close(struct mirror *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n; i++) {
        cl_closep(&m->copies[i]->fd);
        cl_buf_fini(&m->copies[i]->waiting);
        cl_free(m->copies[i]);
    }
    cl_free(m->copies);
    cl_free(m->places);
    audit_public_key_free(m->key);
    cl_closep(&m->lock);
    cl_free(m);
}

/* --- what comes ---------------------------------------------------------------------------------
 */

/* The log's key is the one that the copy began with. */
static int check_key(struct mirror *m, const char *pem, struct cl_err *err)
{
    CL_AUTO(audit_public_key_freep) struct audit_public_key *key = NULL;
    char path[AUDIT_PATH];
    size_t n = strlen(pem);
    if (audit_public_key_parse(pem, n, &key, err) < 0)
        return cl_wrap(err, "the log's key");
    if (!m->key) {
        key_path(m, path);
        m->key = CL_STEAL(&key);
        return cl_file_write(path, pem, n, 0444, err);
    }
    return strcmp(audit_public_key_id(key), audit_public_key_id(m->key)) == 0
               ? 0
               : cl_fail(err, CL_E_DATALOSS, 0,
                         "the log is signed with key %s, the copy began with %s: it was replaced, "
                         "or is another one (each host has its own)" EVIDENCE,
                         audit_public_key_id(key), audit_public_key_id(m->key));
}

int mirror_begin(struct mirror *m, const char *pem, const struct walk_place **ret_places,
                 size_t *ret_n, struct cl_err *err)
{
    if (check_key(m, pem, err) < 0)
        return -1;
    cl_free(m->places);
    m->places = cl_zalloc_array(m->n + 1, sizeof *m->places);
    if (!m->places)
        return cl_fail(err, CL_E_NOMEM, 0, "places");
    *ret_n = 0;
    for (size_t i = 0; i < m->n; i++) {
        struct copy *c = m->copies[i];
        c->told = c->kept;
        cl_buf_clear(&c->waiting);
        c->claimed = 0;
        c->is_met = last_seq(c) == 0;
        if (!c->is_met)
            m->places[(*ret_n)++] = (struct walk_place){name(c), last_seq(c)};
    }
    *ret_places = m->places;
    return 0;
}

static struct copy *find_copy(const struct mirror *m, const char *stream)
{
    for (size_t i = 0; i < m->n; i++)
        if (strcmp(name(m->copies[i]), stream) == 0)
            return m->copies[i];
    return NULL;
}

static struct copy *new_copy(struct mirror *m, const char *stream, struct cl_err *err)
{
    if (!audit_stream_is_valid(stream) || (m->stream[0] && strcmp(m->stream, stream) != 0)) {
        (void)cl_fail(err, CL_E_PEER, 0, "a record of the stream '%s', which was not asked for",
                      stream);
        return NULL;
    }
    struct copy *c = add_copy(m, stream, err);
    if (c)
        c->is_met = true;
    return c;
}

/* The record that the copy ends with, once more. */
static int meet(struct copy *c, const struct audit_record *r, struct cl_err *err)
{
    if (r->seq != last_seq(c))
        return cl_fail(err, CL_E_DATALOSS, 0,
                       "%s: the log goes on with record %" PRIu64 " and lacks %" PRIu64
                       ", which the copy has" EVIDENCE,
                       name(c), r->seq, last_seq(c));
    if (strcmp(r->hash, c->kept.chain.head) != 0)
        return cl_fail(err, CL_E_DATALOSS, 0,
                       "%s: record %" PRIu64
                       " is not the one that was copied: the log was changed" EVIDENCE,
                       name(c), r->seq);
    c->is_met = true;
    return 0;
}

static int open_file(const struct mirror *m, struct copy *c, size_t n, struct cl_err *err)
{
    char path[AUDIT_PATH];
    if (c->file == 0 || (c->size > 0 && c->size + n > m->file_max)) {
        if (c->fd >= 0 && fsync(c->fd) < 0)
            return cl_fail(err, CL_E_SYS, errno, "fsync of %s", name(c));
        cl_closep(&c->fd);
        c->file++;
        c->size = 0;
    }
    if (c->fd >= 0)
        return 0;
    (void)snprintf(path, sizeof path, "%s/%s", m->dir, name(c));
    if (cl_mkdir_p(path, 0700, err) < 0)
        return -1;
    audit_file_path(m->dir, name(c), c->file, path);
    c->fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return c->fd >= 0 ? 0 : cl_fail(err, CL_E_SYS, errno, "open '%s'", path);
}

/* Of a whole copy: the host's stream says what the tenants' have. */
static int note_claim(struct mirror *m, const struct audit_record *r, struct cl_err *err)
{
    char stream[AUDIT_STREAM];
    uint64_t seq;
    if (m->stream[0] || strcmp(r->event, audit_event_name(AUDIT_TENANT_CHECKPOINT)) != 0 ||
        !audit_field_str(r->fields, r->fields_n, "stream", stream, sizeof stream) ||
        !audit_field_num(r->fields, r->fields_n, "seq", &seq))
        return 0;
    struct copy *c = find_copy(m, stream);
    if (!c && !(c = new_copy(m, stream, err)))
        return -1;
    c->claimed = CL_MAX(c->claimed, seq);
    return 0;
}

static bool lacks_what_is_claimed(const struct mirror *m)
{
    for (size_t i = 0; i < m->n; i++)
        if (last_seq(m->copies[i]) < m->copies[i]->claimed)
            return true;
    return false;
}

/* All that waits, once the last of it signs it. */
static int keep(const struct mirror *m, struct copy *c, struct cl_err *err)
{
    if (c->waiting.len == 0 || c->told.signed_seq != c->told.chain.next_seq - 1 ||
        (strncmp(name(c), "host/", 5) == 0 && lacks_what_is_claimed(m)))
        return 0;
    if (open_file(m, c, c->waiting.len, err) < 0 ||
        cl_write_all(c->fd, c->waiting.data, c->waiting.len, err) < 0)
        return cl_wrap(err, "the copy of %s", name(c));
    c->size += c->waiting.len;
    c->kept = c->told;
    c->is_dirty = true;
    cl_buf_clear(&c->waiting);
    return 0;
}

int mirror_take(void *mirror, const struct audit_record *r, const char *line, size_t n,
                struct cl_err *err)
{
    struct mirror *m = mirror;
    struct cl_err why = {0};
    struct copy *c = find_copy(m, r->stream);
    if (!c && !(c = new_copy(m, r->stream, err)))
        return -1;
    if (!c->is_met)
        return meet(c, r, err);
    if (note_claim(m, r, err) < 0)
        return -1;
    if (audit_stream_check_next(&c->told, r, &why) < 0)
        return cl_fail(err, CL_E_DATALOSS, 0, "%s, record %" PRIu64 ": %s" EVIDENCE, name(c),
                       r->seq, why.text);
    if (cl_buf_append(&c->waiting, line, n, err) < 0 ||
        cl_buf_append(&c->waiting, "\n", 1, err) < 0)
        return cl_wrap(err, "%s: records that nothing signs", name(c));
    return keep(m, c, err);
}

int mirror_settle(struct mirror *m, struct cl_err *err)
{
    for (size_t i = 0; i < m->n; i++) {
        struct copy *c = m->copies[i];
        if (!c->is_met)
            return cl_fail(err, CL_E_DATALOSS, 0,
                           "%s: the log ends before record %" PRIu64
                           ", which the copy has: it was cut, or this key may not read it" EVIDENCE,
                           name(c), last_seq(c));
        if (keep(m, c, err) < 0)
            return -1;
        if (c->is_dirty && fsync(c->fd) < 0)
            return cl_fail(err, CL_E_SYS, errno, "fsync of %s", name(c));
        c->is_dirty = false;
    }
    return 0;
}

/* --- what it has --------------------------------------------------------------------------------
 */

size_t mirror_count(const struct mirror *m)
{
    return m->n;
}

struct mirror_state mirror_state(const struct mirror *m, size_t i)
{
    const struct copy *c = m->copies[i];
    return (struct mirror_state){.stream = name(c),
                                 .records = c->kept.records,
                                 .taken = c->kept.records - c->had,
                                 .checkpoints = c->kept.checkpoints,
                                 .waiting = c->told.records - c->kept.records,
                                 .head = c->kept.chain.head};
}

const char *mirror_key_id(const struct mirror *m)
{
    return m->key ? audit_public_key_id(m->key) : "";
}
