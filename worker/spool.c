/* worker/spool.c - see worker/spool.h.
 *
 * The digests are OpenSSL's of the lower level: those of EVP cannot be written down and gone on
 * with, and to read all output again would cost a start some seconds for each GiB.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "worker/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/own.h"

enum { BLOCK = 16, STEP = 16384 };

struct lane {
    int fd;     /* owned */
    char *name; /* owned: the path of its file; NULL = it has none */
    SHA256_CTX digest;
    struct spool_total total;
};

struct spool {
    struct lane lanes[SPOOL_STREAMS];
    uint64_t cap;
    uint8_t key[SPOOL_KEY];
    bool closed;
    bool nameless; /* for good: a file can be named only once */
    bool is_left;
    struct cl_list waiters;
};

static struct spool *new_spool(uint64_t cap_bytes, struct cl_err *err)
{
    struct spool *s = cl_zalloc(sizeof *s);
    if (!s) {
        (void)cl_fail(err, CL_E_NOMEM, 0, "spool");
        return NULL;
    }
    s->cap = cap_bytes;
    cl_list_init(&s->waiters);
    for (int i = 0; i < SPOOL_STREAMS; i++) {
        s->lanes[i].fd = -1;
        CL_ASSERT(SHA256_Init(&s->lanes[i].digest) == 1);
    }
    return s;
}

int spool_new(const char *dir, uint64_t cap_bytes, struct spool **ret_spool, struct cl_err *err)
{
    struct spool *s = new_spool(cap_bytes, err);
    if (!s)
        return -1;
    cl_random(s->key, sizeof s->key);
    for (int i = 0; i < SPOOL_STREAMS; i++) {
        if (cl_file_nameable(dir, &s->lanes[i].fd, err) < 0) {
            spool_free(s);
            return cl_wrap(err, "spool");
        }
    }
    *ret_spool = s;
    return 0;
}

void spool_unname(struct spool *spool)
{
    for (int i = 0; i < SPOOL_STREAMS; i++) {
        if (spool->lanes[i].name && !spool->is_left)
            cl_file_unname(spool->lanes[i].fd, spool->lanes[i].name);
        cl_free(spool->lanes[i].name);
        spool->lanes[i].name = NULL;
    }
    spool->nameless = true;
}

void spool_free(struct spool *spool)
{
    if (!spool)
        return;
    CL_ASSERT(cl_list_empty(&spool->waiters));
    spool_unname(spool);
    for (int i = 0; i < SPOOL_STREAMS; i++)
        cl_closep(&spool->lanes[i].fd);
    OPENSSL_cleanse(spool->key, sizeof spool->key);
    cl_free(spool);
}

/* CTR mode: the same call encrypts and decrypts, and any offset can be the first. */
static bool spool_cipher(const struct spool *s, int lane, uint64_t offset, const uint8_t *in,
                         uint8_t *out, size_t n)
{
    uint8_t iv[BLOCK] = {(uint8_t)lane}, skip[BLOCK] = {0};
    uint64_t block = offset / BLOCK;
    for (int i = 0; i < 8; i++)
        iv[BLOCK - 1 - i] = (uint8_t)(block >> (8 * i));
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    int done = 0, skipped = (int)(offset % BLOCK);
    bool good = ctx && EVP_EncryptInit_ex(ctx, EVP_aes_256_ctr(), NULL, s->key, iv) == 1 &&
                EVP_EncryptUpdate(ctx, skip, &done, skip, skipped) == 1 &&
                EVP_EncryptUpdate(ctx, out, &done, in, (int)n) == 1;
    EVP_CIPHER_CTX_free(ctx);
    return good;
}

/* Keep what fits; returns how much. */
static size_t keep(struct spool *s, int lane, const uint8_t *data, size_t n)
{
    struct lane *l = &s->lanes[lane];
    uint64_t used = spool_size(s);
    size_t fits = (size_t)CL_MIN((uint64_t)n, s->cap > used ? s->cap - used : 0);
    /* Once something was dropped the kept bytes end there: a hole would shift every offset. */
    if (l->total.kept != l->total.bytes)
        fits = 0;
    uint8_t step[STEP];
    for (size_t done = 0; done < fits;) {
        size_t k = CL_MIN(fits - done, sizeof step);
        if (!spool_cipher(s, lane, l->total.kept, data + done, step, k))
            return done;
        ssize_t w = pwrite(l->fd, step, k, (off_t)l->total.kept);
        if (w <= 0)
            return done;
        l->total.kept += (uint64_t)w;
        done += (size_t)w;
    }
    return fits;
}

void spool_wake(struct spool *spool)
{
    CL_LIST_FOREACH (node, &spool->waiters) {
        struct spool_waiter *w = CL_LIST_ENTRY(node, struct spool_waiter, link);
        w->fn(w->arg);
    }
}

void spool_append(struct spool *spool, enum spool_stream stream, const void *data, size_t n)
{
    struct lane *l = &spool->lanes[stream];
    if (spool->closed || n == 0)
        return;
    CL_ASSERT(SHA256_Update(&l->digest, data, n) == 1);
    (void)keep(spool, (int)stream, data, n);
    l->total.bytes += n;
    spool_wake(spool);
}

void spool_close(struct spool *spool)
{
    if (spool->closed)
        return;
    spool->closed = true;
    for (int i = 0; i < SPOOL_STREAMS; i++)
        CL_ASSERT(SHA256_Final(spool->lanes[i].total.sha256, &spool->lanes[i].digest) == 1);
    spool_wake(spool);
}

bool spool_is_closed(const struct spool *spool)
{
    return spool->closed;
}

void spool_total(const struct spool *spool, enum spool_stream stream, struct spool_total *ret_total)
{
    *ret_total = spool->lanes[stream].total;
}

int spool_read(const struct spool *spool, enum spool_stream stream, uint64_t offset, void *data,
               size_t n, size_t *ret_n, struct cl_err *err)
{
    const struct lane *l = &spool->lanes[stream];
    *ret_n = 0;
    if (offset > l->total.bytes)
        return cl_fail(err, CL_E_INVALID, 0, "offset %llu is past the %llu bytes written",
                       (unsigned long long)offset, (unsigned long long)l->total.bytes);
    if (offset >= l->total.kept)
        return 0;
    size_t want = (size_t)CL_MIN((uint64_t)n, l->total.kept - offset);
    ssize_t got = pread(l->fd, data, want, (off_t)offset);
    if (got <= 0 || !spool_cipher(spool, (int)stream, offset, data, data, (size_t)got))
        return cl_fail(err, CL_E_DATALOSS, errno, "stored output from byte %llu on cannot be read",
                       (unsigned long long)offset);
    *ret_n = (size_t)got;
    return 0;
}

uint64_t spool_size(const struct spool *spool)
{
    return spool->lanes[SPOOL_STDOUT].total.kept + spool->lanes[SPOOL_STDERR].total.kept;
}

/* --- that outlives its process ------------------------------------------------------------------
 */

static int path_of(const char *path, int lane, char ret_path[static PATH_MAX], struct cl_err *err)
{
    static const char *const ends[SPOOL_STREAMS] = {"out", "err"};
    int n = snprintf(ret_path, PATH_MAX, "%s.%s", path, ends[lane]);
    return n > 0 && n < PATH_MAX ? 0 : cl_fail(err, CL_E_TOOBIG, 0, "the name of a folder");
}

static int name_lane(struct lane *l, const char *path, struct cl_err *err)
{
    (void)unlink(path); /* of one that nobody knows any more */
    if (cl_file_name(l->fd, path, err) < 0)
        return -1;
    l->name = cl_strdup(path);
    if (l->name)
        return 0;
    (void)unlink(path);
    return cl_fail(err, CL_E_NOMEM, 0, "a name");
}

int spool_name(struct spool *spool, const char *path, struct cl_err *err)
{
    char full[PATH_MAX];
    if (spool->nameless)
        return cl_fail(err, CL_E_STATE, 0, "its output could not be given a name");
    for (int i = 0; i < SPOOL_STREAMS; i++) {
        struct lane *l = &spool->lanes[i];
        if (!l->name && (path_of(path, i, full, err) < 0 || name_lane(l, full, err) < 0)) {
            spool_unname(spool);
            return -1;
        }
    }
    return 0;
}

size_t spool_digest_size(uint64_t bytes, bool closed)
{
    return SPOOL_SHA256 + (closed ? 0 : (size_t)(bytes % SHA256_CBLOCK));
}
_Static_assert(SPOOL_DIGEST_MAX == SPOOL_SHA256 + SHA256_CBLOCK - 1, "words and a block less one");

static void get_digest(const struct lane *l, uint8_t to[static SPOOL_DIGEST_MAX])
{
    for (size_t i = 0; i < CL_COUNT(l->digest.h); i++)
        for (size_t k = 0; k < 4; k++)
            to[4 * i + k] = (uint8_t)(l->digest.h[i] >> (24 - 8 * k));
    memcpy(to + SPOOL_SHA256, l->digest.data, l->digest.num);
}

static void set_digest(struct lane *l, const uint8_t *from)
{
    SHA256_CTX *c = &l->digest;
    for (size_t i = 0; i < CL_COUNT(c->h); i++) {
        c->h[i] = 0;
        for (size_t k = 0; k < 4; k++)
            c->h[i] = c->h[i] << 8 | from[4 * i + k];
    }
    uint64_t bits = l->total.bytes * 8;
    c->Nl = (SHA_LONG)bits;
    c->Nh = (SHA_LONG)(bits >> 32);
    c->num = (unsigned)(l->total.bytes % SHA256_CBLOCK);
    memcpy(c->data, from + SPOOL_SHA256, c->num);
}

void spool_get_kept(const struct spool *spool, struct spool_kept *ret_kept)
{
    *ret_kept = (struct spool_kept){.cap = spool->cap, .closed = spool->closed};
    memcpy(ret_kept->key, spool->key, sizeof ret_kept->key);
    for (int i = 0; i < SPOOL_STREAMS; i++) {
        const struct lane *l = &spool->lanes[i];
        struct spool_kept_lane *k = &ret_kept->lanes[i];
        k->bytes = l->total.bytes;
        k->kept = l->total.kept;
        k->n_digest = spool_digest_size(k->bytes, spool->closed);
        if (spool->closed)
            memcpy(k->digest, l->total.sha256, SPOOL_SHA256);
        else
            get_digest(l, k->digest);
    }
}

/* A file that is longer has gone on since, and what would be written over that would be written
 * with the same bytes of the key stream. */
static int open_lane(struct lane *l, const char *path, struct cl_err *err)
{
    struct stat st;
    l->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (l->fd < 0)
        return cl_fail(err, CL_E_SYS, errno, "open '%s'", path);
    l->name = cl_strdup(path);
    if (!l->name)
        return cl_fail(err, CL_E_NOMEM, 0, "a name");
    if (fstat(l->fd, &st) < 0)
        return cl_fail(err, CL_E_SYS, errno, "stat '%s'", path);
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != l->total.kept)
        return cl_fail(err, CL_E_DATALOSS, 0, "'%s' has %llu bytes, and had %llu", path,
                       (unsigned long long)st.st_size, (unsigned long long)l->total.kept);
    return 0;
}

static int restore_lane(struct spool *s, int lane, const char *path,
                        const struct spool_kept_lane *k, struct cl_err *err)
{
    char full[PATH_MAX];
    struct lane *l = &s->lanes[lane];
    CL_ASSERT(k->n_digest == spool_digest_size(k->bytes, s->closed));
    l->total.bytes = k->bytes;
    l->total.kept = k->kept;
    if (s->closed)
        memcpy(l->total.sha256, k->digest, SPOOL_SHA256);
    else
        set_digest(l, k->digest);
    return path_of(path, lane, full, err) < 0 ? -1 : open_lane(l, full, err);
}

int spool_restore(const char *path, const struct spool_kept *kept, struct spool **ret_spool,
                  struct cl_err *err)
{
    struct spool *s = new_spool(kept->cap, err);
    if (!s)
        return -1;
    memcpy(s->key, kept->key, sizeof s->key);
    s->closed = kept->closed;
    for (int i = 0; i < SPOOL_STREAMS; i++) {
        if (restore_lane(s, i, path, &kept->lanes[i], err) < 0) {
            spool_free(s); /* with its files: nobody could use them */
            return -1;
        }
    }
    *ret_spool = s;
    return 0;
}

void spool_leave(struct spool *spool)
{
    spool->is_left = true;
}

void spool_wait(struct spool *spool, struct spool_waiter *waiter)
{
    cl_list_push(&spool->waiters, &waiter->link);
}
