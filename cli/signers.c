/* cli/signers.c - see cli/signers.h. */
#include "cli/signers.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/own.h"

static void pkey_freep(EVP_PKEY **k)
{
    EVP_PKEY_free(*k);
}

static void bio_freep(BIO **b)
{
    (void)BIO_free(*b);
}

static int fail_ssl(struct cl_err *err, const char *what)
{
    ERR_clear_error();
    return cl_fail(err, CL_E_SYS, 0, "OpenSSL could not %s\ncheck the disk", what);
}

static int write_key(EVP_PKEY *key, const char *path, struct cl_err *err)
{
    char *data = NULL;
    CL_AUTO(bio_freep) BIO *bio = BIO_new(BIO_s_secmem());
    if (!bio || PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) != 1)
        return fail_ssl(err, "write a signing key");
    long n = BIO_get_mem_data(bio, &data);
    return cl_file_write(path, data, (size_t)n, 0600, err);
}

/* The next public key in the text; NULL: there is none. */
static EVP_PKEY *next_key(BIO *text)
{
    EVP_PKEY *key = PEM_read_bio_PUBKEY(text, NULL, NULL, NULL);
    ERR_clear_error(); /* the end is an error to it */
    return key;
}

static bool has_key(const struct cl_buf *text, const EVP_PKEY *key)
{
    CL_AUTO(bio_freep) BIO *bio = BIO_new_mem_buf(text->data, (int)text->len);
    bool found = false;
    for (EVP_PKEY *one; bio && !found && (one = next_key(bio)) != NULL; EVP_PKEY_free(one))
        found = EVP_PKEY_eq(one, key) == 1;
    return found;
}

static int add_key(struct cl_buf *text, EVP_PKEY *key, struct cl_err *err)
{
    char *data = NULL;
    CL_AUTO(bio_freep) BIO *bio = BIO_new(BIO_s_mem());
    if (!bio || PEM_write_bio_PUBKEY(bio, key) != 1)
        return fail_ssl(err, "write a public key");
    long n = BIO_get_mem_data(bio, &data);
    if (text->len > 0 && text->data[text->len - 1] != '\n' && cl_buf_append(text, "\n", 1, err) < 0)
        return -1;
    return cl_buf_append(text, data, (size_t)n, err);
}

/* Each key of `more` that `pub` has not. */
static int add_keys(const char *pub, const struct cl_buf *more, size_t *ret_n, struct cl_err *err)
{
    struct cl_buf text;
    cl_buf_init(&text, SIGNERS_TEXT);
    int rc = access(pub, F_OK) == 0 ? cl_file_read(AT_FDCWD, pub, &text, err) : 0;
    size_t before = text.len;
    CL_AUTO(bio_freep) BIO *bio = BIO_new_mem_buf(more->data, (int)more->len);
    *ret_n = 0;
    for (EVP_PKEY *one; rc == 0 && bio && (one = next_key(bio)) != NULL; EVP_PKEY_free(one)) {
        ++*ret_n;
        if (!has_key(&text, one))
            rc = add_key(&text, one, err);
    }
    if (rc == 0 && text.len > before)
        rc = cl_file_write(pub, text.data, text.len, 0644, err);
    cl_buf_fini(&text);
    return rc;
}

static EVP_PKEY *read_key(const char *path)
{
    CL_AUTO(cl_fclosep) FILE *f = fopen(path, "re");
    EVP_PKEY *key = f ? PEM_read_PrivateKey(f, NULL, NULL, NULL) : NULL;
    ERR_clear_error();
    return key;
}

int signers_ensure(const char *key_path, const char *pub_path, struct cl_err *err)
{
    CL_AUTO(pkey_freep) EVP_PKEY *key = read_key(key_path);
    if (!key && access(key_path, F_OK) == 0)
        return cl_fail(err, CL_E_INVALID, 0,
                       "'%s' is no readable private key\nmend its rights, or move it away",
                       key_path);
    if (!key) {
        key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
        if (!key)
            return fail_ssl(err, "make a signing key");
        if (write_key(key, key_path, err) < 0)
            return -1;
    }
    struct cl_buf own;
    size_t n;
    cl_buf_init(&own, SIGNERS_TEXT);
    int rc = add_key(&own, key, err);
    if (rc == 0)
        rc = add_keys(pub_path, &own, &n, err);
    cl_buf_fini(&own);
    (void)chmod(pub_path, 0644); /* public: ordinary users check manifests with it */
    return rc;
}

int signers_trust(const char *pub, const char *file, struct cl_err *err)
{
    struct cl_buf text;
    size_t n = 0;
    cl_buf_init(&text, SIGNERS_TEXT);
    int rc = cl_file_read(AT_FDCWD, file, &text, err);
    if (rc == 0 && text.len > 0 && memmem(text.data, text.len, "PRIVATE KEY-----", 16))
        rc = cl_fail(err, CL_E_INVALID, 0,
                     "'%s' is a private key\nwhat others need is the public one, signing.pub; who "
                     "has read this can sign templates",
                     file);
    if (rc == 0)
        rc = add_keys(pub, &text, &n, err);
    if (rc == 0 && n == 0)
        rc = cl_fail(err, CL_E_INVALID, 0,
                     "no public key in '%s'\nit is signing.pub of the folder where the templates "
                     "are built",
                     file);
    cl_buf_fini(&text);
    return rc;
}
