/* worker/state_mac.c - see worker/state_mac.h. */
#include "worker/state_mac.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/own.h"

/* The snapshot key (with its NUL) and the state in one buffer; the caller frees it. */
static int read_all(const struct template *t, uint8_t **ret_text, size_t *ret_n, struct cl_err *err)
{
    struct stat st;
    if (fstat(t->state_fd, &st) < 0)
        return cl_fail(err, CL_E_SYS, errno, "state of a snapshot");
    if (st.st_size <= 0 || st.st_size > STATE_MAC_MAX)
        return cl_fail(err, CL_E_GUEST, 0, "a state of %lld bytes, at most %d",
                       (long long)st.st_size, STATE_MAC_MAX);
    size_t n = (size_t)st.st_size;
    CL_AUTO(cl_freep) uint8_t *text = cl_zalloc(TEMPLATE_HEX + n);
    if (!text)
        return cl_fail(err, CL_E_NOMEM, 0, "state of a snapshot");
    memcpy(text, t->snapshot_key, TEMPLATE_HEX);
    if (pread(t->state_fd, text + TEMPLATE_HEX, n, 0) != (ssize_t)n)
        return cl_fail(err, CL_E_SYS, errno, "read the state of a snapshot");
    *ret_text = CL_STEAL(&text);
    *ret_n = TEMPLATE_HEX + n;
    return 0;
}

static int compute(const struct state_mac_key *key, const struct template *t,
                   uint8_t mac[static TEMPLATE_MAC], struct cl_err *err)
{
    CL_AUTO(cl_freep) uint8_t *text = NULL;
    size_t n = 0;
    if (read_all(t, &text, &n, err) < 0)
        return -1;
    if (!HMAC(EVP_sha256(), key->bytes, sizeof key->bytes, text, n, mac, NULL))
        return cl_fail(err, CL_E_NOMEM, 0, "HMAC");
    return 0;
}

int state_mac_make(const struct state_mac_key *key, struct template *t, struct cl_err *err)
{
    return compute(key, t, t->state_mac, err);
}

int state_mac_check(const struct state_mac_key *key, const struct template *t, struct cl_err *err)
{
    uint8_t mac[TEMPLATE_MAC];
    if (compute(key, t, mac, err) < 0)
        return -1;
    if (CRYPTO_memcmp(mac, t->state_mac, sizeof mac) != 0)
        return cl_fail(err, CL_E_DATALOSS, 0,
                       "the snapshot of template '%s' is not the one that was made here",
                       t->m.name);
    return 0;
}
