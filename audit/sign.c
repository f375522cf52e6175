/* audit/sign.c - see audit/sign.h. */
#include "audit/sign.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/id.h"
#include "base/mem.h"

enum { RAW_KEY = 32, SIG = 64, MESSAGE_MAX = 512 };

struct audit_private_key {
    EVP_PKEY *pkey; /* owned */
    char id[AUDIT_KEY_ID];
};
struct audit_public_key {
    EVP_PKEY *pkey; /* owned */
    char id[AUDIT_KEY_ID];
};

static int key_id(EVP_PKEY *pkey, char out[static AUDIT_KEY_ID], struct cl_err *err)
{
    uint8_t raw[RAW_KEY], sum[32];
    size_t n = sizeof raw;
    unsigned len = 0;
    if (EVP_PKEY_id(pkey) != EVP_PKEY_ED25519 || EVP_PKEY_get_raw_public_key(pkey, raw, &n) != 1 ||
        EVP_Digest(raw, n, sum, &len, EVP_sha256(), NULL) != 1)
        return cl_fail(err, CL_E_INVALID, 0, "not an Ed25519 key");
    cl_hex(sum, (AUDIT_KEY_ID - 1) / 2, out);
    return 0;
}

static int write_pem(const char *path, EVP_PKEY *pkey, bool private_part, struct cl_err *err)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *text = NULL;
    int rc = -1;
    bool ok = bio && (private_part ? PEM_write_bio_PrivateKey(bio, pkey, NULL, NULL, 0, NULL, NULL)
                                   : PEM_write_bio_PUBKEY(bio, pkey)) == 1;
    long n = ok ? BIO_get_mem_data(bio, &text) : 0;
    if (n <= 0)
        (void)cl_fail(err, CL_E_NOMEM, 0, "encode the key for '%s'", path);
    else
        rc = cl_file_write(path, text, (size_t)n, private_part ? 0400 : 0444, err);
    BIO_free(bio);
    return rc;
}

static int make_key(const char *path, struct cl_err *err)
{
    char pub[CL_ERR_TEXT];
    (void)snprintf(pub, sizeof pub, "%s.pub", path);
    EVP_PKEY *pkey = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    if (!pkey)
        return cl_fail(err, CL_E_NOMEM, 0, "make an Ed25519 key");
    int rc = write_pem(pub, pkey, false, err);
    if (rc == 0)
        rc = write_pem(path, pkey, true, err);
    EVP_PKEY_free(pkey);
    return rc;
}

static int parse_pem(const void *text, size_t n, bool private_part, EVP_PKEY **ret,
                     struct cl_err *err)
{
    BIO *bio = BIO_new_mem_buf(text, (int)n);
    *ret = !bio           ? NULL
           : private_part ? PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL)
                          : PEM_read_bio_PUBKEY(bio, NULL, NULL, NULL);
    BIO_free(bio);
    return *ret ? 0
                : cl_fail(err, CL_E_INVALID, 0, "no %s key in PEM",
                          private_part ? "private" : "public");
}

static int read_pem(const char *path, bool private_part, EVP_PKEY **ret, struct cl_err *err)
{
    struct cl_buf buf;
    cl_buf_init(&buf, AUDIT_PEM_MAX);
    int rc = cl_file_read(AT_FDCWD, path, &buf, err);
    if (rc == 0) {
        rc = parse_pem(buf.data, buf.len, private_part, ret, err);
        explicit_bzero(buf.data, buf.len);
    }
    cl_buf_fini(&buf);
    return rc;
}

int audit_private_key_open(const char *path, struct audit_private_key **ret_key, struct cl_err *err)
{
    if (access(path, F_OK) < 0 && errno == ENOENT && make_key(path, err) < 0)
        return -1;
    CL_AUTO(audit_private_key_freep) struct audit_private_key *key = cl_zalloc(sizeof *key);
    if (!key)
        return cl_fail(err, CL_E_NOMEM, 0, "audit key");
    if (read_pem(path, true, &key->pkey, err) < 0 || key_id(key->pkey, key->id, err) < 0)
        return cl_wrap(err, "audit key '%s'", path);
    *ret_key = CL_STEAL(&key);
    return 0;
}

void audit_private_key_free(struct audit_private_key *key)
{
    if (!key)
        return;
    EVP_PKEY_free(key->pkey);
    cl_free(key);
}

const char *audit_private_key_id(const struct audit_private_key *key)
{
    return key->id;
}

int audit_public_key_open(const char *path, struct audit_public_key **ret_key, struct cl_err *err)
{
    CL_AUTO(audit_public_key_freep) struct audit_public_key *key = cl_zalloc(sizeof *key);
    if (!key)
        return cl_fail(err, CL_E_NOMEM, 0, "audit key");
    if (read_pem(path, false, &key->pkey, err) < 0 || key_id(key->pkey, key->id, err) < 0)
        return cl_wrap(err, "audit public key '%s'", path);
    *ret_key = CL_STEAL(&key);
    return 0;
}

int audit_public_key_parse(const char *pem, size_t n, struct audit_public_key **ret_key,
                           struct cl_err *err)
{
    if (n > AUDIT_PEM_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "a key of %zu bytes", n);
    CL_AUTO(audit_public_key_freep) struct audit_public_key *key = cl_zalloc(sizeof *key);
    if (!key)
        return cl_fail(err, CL_E_NOMEM, 0, "audit key");
    if (parse_pem(pem, n, false, &key->pkey, err) < 0 || key_id(key->pkey, key->id, err) < 0)
        return -1;
    *ret_key = CL_STEAL(&key);
    return 0;
}

void audit_public_key_free(struct audit_public_key *key)
{
    if (!key)
        return;
    EVP_PKEY_free(key->pkey);
    cl_free(key);
}

const char *audit_public_key_id(const struct audit_public_key *key)
{
    return key->id;
}

/* --- checkpoints ---------------------------------------------------------------------------- */

struct claim {
    const char *stream, *head, *key, *ts;
    uint64_t seq, epoch;
};

static size_t claim_text(char out[static MESSAGE_MAX], const struct claim *c)
{
    int n = snprintf(out, MESSAGE_MAX,
                     "cloche-audit-checkpoint-v1\n%s\n%" PRIu64 "\n%s\n%s\n%" PRIu64 "\n%s\n",
                     c->stream, c->seq, c->head, c->key, c->epoch, c->ts);
    CL_ASSERT(n > 0 && n < MESSAGE_MAX);
    return (size_t)n;
}

int audit_checkpoint_make(const struct audit_private_key *key, uint64_t epoch, uint64_t wall_ns,
                          const struct audit_chain *chain, struct cl_buf *fields,
                          struct audit_record *ret, struct cl_err *err)
{
    char message[MESSAGE_MAX], hex[AUDIT_SIG_TEXT];
    uint8_t sig[SIG];
    size_t sig_n = sizeof sig;
    struct audit_record r = {.assurance = AUDIT_H0};
    cl_rfc3339(wall_ns, r.ts);
    (void)snprintf(r.source, sizeof r.source, "audit");
    (void)snprintf(r.event, sizeof r.event, "%s", audit_event_name(AUDIT_CHECKPOINT));
    struct claim c = {chain->stream, chain->head, key->id, r.ts, chain->next_seq - 1, epoch};
    size_t n = claim_text(message, &c);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx && EVP_DigestSignInit(ctx, NULL, NULL, NULL, key->pkey) == 1 &&
              EVP_DigestSign(ctx, sig, &sig_n, (const uint8_t *)message, n) == 1 && sig_n == SIG;
    EVP_MD_CTX_free(ctx);
    if (!ok)
        return cl_fail(err, CL_E_NOMEM, 0, "sign a checkpoint");
    cl_hex(sig, sizeof sig, hex);
    struct audit_field f[] = {AUDIT_STR("alg", "ed25519"), AUDIT_NUM("epoch", epoch),
                              AUDIT_STR("key", key->id), AUDIT_STR("sig", hex)};
    cl_buf_clear(fields);
    if (audit_fields_format(fields, AUDIT_CHECKPOINT, f, CL_COUNT(f), err) < 0)
        return -1;
    r.fields = (const char *)fields->data;
    r.fields_n = fields->len;
    *ret = r;
    return 0;
}

int audit_checkpoint_check(const struct audit_public_key *key, const struct audit_record *r,
                           struct cl_err *err)
{
    char message[MESSAGE_MAX], alg[16], id[AUDIT_KEY_ID], hex[AUDIT_SIG_TEXT];
    uint8_t sig[SIG];
    uint64_t epoch = 0;
    if (!audit_field_str(r->fields, r->fields_n, "alg", alg, sizeof alg) ||
        !audit_field_str(r->fields, r->fields_n, "key", id, sizeof id) ||
        !audit_field_str(r->fields, r->fields_n, "sig", hex, sizeof hex) ||
        !audit_field_num(r->fields, r->fields_n, "epoch", &epoch) ||
        !cl_unhex(hex, strlen(hex), sig, SIG))
        return cl_fail(err, CL_E_INVALID, 0, "a checkpoint without its fields");
    if (strcmp(alg, "ed25519") != 0 || strcmp(id, key->id) != 0)
        return cl_fail(err, CL_E_INVALID, 0, "a checkpoint of key %s (%s), the public key is %s",
                       id, alg, key->id);
    struct claim c = {r->stream, r->prev, id, r->ts, r->seq - 1, epoch};
    size_t n = claim_text(message, &c);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx && EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, key->pkey) == 1 &&
              EVP_DigestVerify(ctx, sig, SIG, (const uint8_t *)message, n) == 1;
    EVP_MD_CTX_free(ctx);
    return ok ? 0 : cl_fail(err, CL_E_INVALID, 0, "a checkpoint whose signature is wrong");
}
