/* worker/spool.c - see worker/spool.h. */
#include "worker/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/own.h"

enum { KEY_BYTES = 32, BLOCK = 16, STEP = 16384 };

struct lane {
    int fd;             /* owned: unlinked at birth */
    EVP_MD_CTX *digest; /* owned */
    struct spool_total total;
};

struct spool {
    struct lane lanes[SPOOL_STREAMS];
    uint64_t cap;
    uint8_t key[KEY_BYTES];
    bool closed;
    struct cl_list waiters;
};

static int lane_open(struct lane *lane, const char *dir, struct cl_err *err)
{
    if (cl_file_unnamed(dir, &lane->fd, err) < 0)
        return cl_wrap(err, "spool");
    lane->digest = EVP_MD_CTX_new();
    if (!lane->digest || EVP_DigestInit_ex(lane->digest, EVP_sha256(), NULL) != 1)
        return cl_fail(err, CL_E_NOMEM, 0, "spool digest");
    return 0;
}

int spool_new(const char *dir, uint64_t cap_bytes, struct spool **ret_spool, struct cl_err *err)
{
    struct spool *s = cl_zalloc(sizeof *s);
    if (!s)
        return cl_fail(err, CL_E_NOMEM, 0, "spool");
    s->cap = cap_bytes;
    cl_list_init(&s->waiters);
    cl_random(s->key, sizeof s->key);
    s->lanes[0].fd = s->lanes[1].fd = -1;
    for (int i = 0; i < SPOOL_STREAMS; i++) {
        if (lane_open(&s->lanes[i], dir, err) < 0) {
            spool_free(s);
            return -1;
        }
    }
    *ret_spool = s;
    return 0;
}

void spool_free(struct spool *spool)
{
    if (!spool)
        return;
    CL_ASSERT(cl_list_empty(&spool->waiters));
    for (int i = 0; i < SPOOL_STREAMS; i++) {
        cl_closep(&spool->lanes[i].fd);
        EVP_MD_CTX_free(spool->lanes[i].digest);
    }
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

static void tell_waiters(struct spool *s)
{
    CL_LIST_FOREACH (node, &s->waiters) {
        struct spool_waiter *w = CL_LIST_ENTRY(node, struct spool_waiter, link);
        w->fn(w->arg);
    }
}

void spool_append(struct spool *spool, enum spool_stream stream, const void *data, size_t n)
{
    struct lane *l = &spool->lanes[stream];
    if (spool->closed || n == 0)
        return;
    CL_ASSERT(EVP_DigestUpdate(l->digest, data, n) == 1);
    (void)keep(spool, (int)stream, data, n);
    l->total.bytes += n;
    tell_waiters(spool);
}

void spool_close(struct spool *spool)
{
    if (spool->closed)
        return;
    spool->closed = true;
    for (int i = 0; i < SPOOL_STREAMS; i++)
        CL_ASSERT(EVP_DigestFinal_ex(spool->lanes[i].digest, spool->lanes[i].total.sha256, NULL) ==
                  1);
    tell_waiters(spool);
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

void spool_wait(struct spool *spool, struct spool_waiter *waiter)
{
    cl_list_push(&spool->waiters, &waiter->link);
}
