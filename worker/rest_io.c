/* worker/rest_io.c - see worker/rest.h.
 *
 * The file: pieces, one after the other: a struct head, so many bytes of ciphertext, and the tag.
 */
#include "worker/rest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/own.h"

enum { TAG_BYTES = 16, NONCE_BYTES = 12, SEALS = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK };

/* Authenticated with its bytes. */
struct head {
    uint64_t number; /* of the piece: 0, 1, ... */
    uint64_t at;     /* in its memfd */
    uint32_t bytes;  /* 1 to REST_PIECE */
    uint32_t part;   /* enum part */
};
_Static_assert(sizeof(struct head) == 24, "no padding: it is written as it is");

enum part { PART_MEMORY, PART_STATE, PARTS };

enum job { JOB_NONE = 0, JOB_STORE, JOB_LOAD };

struct rest {
    struct vm_rest files;
    uint64_t most;
    uint64_t sizes[PARTS]; /* of the memfds, once stored */
    int file;              /* owned: -1 until it is stored */
    char *name;            /* owned: of the file; NULL = it has none */
    bool is_left;          /* the name stays */
    uint64_t file_bytes, pieces;
    uint8_t key[REST_KEY];
    EVP_CIPHER_CTX *cipher; /* owned */
    enum job job;           /* under way */
    struct cl_timer turn;
    rest_done_fn *done;
    void *arg;
    int out;             /* owned: the file to be, while it is stored */
    uint64_t at, number; /* in the file; of the next piece */
    unsigned part;       /* being stored ... */
    uint64_t from;       /* ... from here on */
    struct pieces *buf;  /* owned: while a job is under way */
};

struct pieces {
    uint8_t plain[REST_PIECE], sealed[sizeof(struct head) + REST_PIECE + TAG_BYTES];
};

static int *fd_of(struct rest *r, unsigned part)
{
    return part == PART_MEMORY ? &r->files.memory : &r->files.state;
}

static void close_files(struct vm_rest *files)
{
    cl_closep(&files->memory);
    cl_closep(&files->state);
}

/* --- the cipher ---------------------------------------------------------------------------------
 */

/* A key seals one rest, once, so a piece's number is a nonce of its own. */
static void nonce_of(const struct head *head, uint8_t nonce[static NONCE_BYTES])
{
    memset(nonce, 0, NONCE_BYTES);
    memcpy(nonce, &head->number, sizeof head->number);
}

static bool seal(struct rest *r, const struct head *head)
{
    uint8_t nonce[NONCE_BYTES], *text = r->buf->sealed + sizeof *head;
    int n = 0;
    nonce_of(head, nonce);
    memcpy(r->buf->sealed, head, sizeof *head);
    return EVP_EncryptInit_ex(r->cipher, EVP_aes_256_gcm(), NULL, r->key, nonce) == 1 &&
           EVP_EncryptUpdate(r->cipher, NULL, &n, r->buf->sealed, sizeof *head) == 1 &&
           EVP_EncryptUpdate(r->cipher, text, &n, r->buf->plain, (int)head->bytes) == 1 &&
           EVP_EncryptFinal_ex(r->cipher, text + n, &n) == 1 &&
           EVP_CIPHER_CTX_ctrl(r->cipher, EVP_CTRL_GCM_GET_TAG, TAG_BYTES, text + head->bytes) == 1;
}

static bool unseal(struct rest *r, const struct head *head)
{
    uint8_t nonce[NONCE_BYTES], *text = r->buf->sealed + sizeof *head;
    int n = 0;
    nonce_of(head, nonce);
    return EVP_DecryptInit_ex(r->cipher, EVP_aes_256_gcm(), NULL, r->key, nonce) == 1 &&
           EVP_DecryptUpdate(r->cipher, NULL, &n, r->buf->sealed, sizeof *head) == 1 &&
           EVP_DecryptUpdate(r->cipher, r->buf->plain, &n, text, (int)head->bytes) == 1 &&
           EVP_CIPHER_CTX_ctrl(r->cipher, EVP_CTRL_GCM_SET_TAG, TAG_BYTES, text + head->bytes) ==
               1 &&
           EVP_DecryptFinal_ex(r->cipher, r->buf->plain + n, &n) == 1;
}

/* --- storing ------------------------------------------------------------------------------------
 */

/* Where the next piece of a memfd is: what it has, not its holes.  1, or 0 behind the last one. */
static int next_piece(const struct rest *r, int fd, struct head *ret_head, struct cl_err *err)
{
    off_t from = lseek(fd, (off_t)r->from, SEEK_DATA);
    if (from < 0)
        return errno == ENXIO ? 0 : cl_fail(err, CL_E_SYS, errno, "look for what a VM has");
    off_t to = lseek(fd, from, SEEK_HOLE);
    if (to < 0)
        return cl_fail(err, CL_E_SYS, errno, "look for what a VM has");
    *ret_head = (struct head){.number = r->number,
                              .at = (uint64_t)from,
                              .bytes = (uint32_t)CL_MIN(to - from, (off_t)REST_PIECE),
                              .part = r->part};
    return 1;
}

static bool is_zero(const uint8_t *bytes, size_t n)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, n - 1) == 0;
}

/* Not one of zeros only: what is made anew has zeros there. */
static int store_piece(struct rest *r, int fd, const struct head *head, struct cl_err *err)
{
    size_t n = sizeof *head + head->bytes + TAG_BYTES;
    ssize_t got = pread(fd, r->buf->plain, head->bytes, (off_t)head->at);
    if (got != (ssize_t)head->bytes)
        return cl_fail(err, CL_E_SYS, got < 0 ? errno : EIO, "read what a VM has");
    r->from = head->at + head->bytes;
    if (is_zero(r->buf->plain, head->bytes))
        return 0;
    if (r->at + n > r->most)
        return cl_fail(err, CL_E_GUEST, 0, "a VM left more than %" PRIu64 " bytes", r->most);
    if (!seal(r, head))
        return cl_fail(err, CL_E_NOMEM, 0, "AES-256-GCM");
    ssize_t put = pwrite(r->out, r->buf->sealed, n, (off_t)r->at);
    if (put != (ssize_t)n)
        return cl_fail(err, CL_E_SYS, put < 0 ? errno : ENOSPC, "write a VM to the disk");
    r->at += n;
    r->number++;
    return 0;
}

/* 1 when it is all stored. */
static int store_turn(struct rest *r, struct cl_err *err)
{
    uint64_t end_ns = cl_now_ns() + REST_TURN_NS;
    struct head head = {0};
    do {
        int fd = *fd_of(r, r->part);
        int rc = next_piece(r, fd, &head, err);
        if (rc < 0 || (rc > 0 && store_piece(r, fd, &head, err) < 0))
            return -1;
        if (rc == 0 && ++r->part == PARTS)
            return 1;
        r->from = rc == 0 ? 0 : r->from;
    } while (cl_now_ns() < end_ns);
    return 0;
}

static void finish_store(struct rest *r, bool good)
{
    if (good) {
        r->file = cl_steal_fd(&r->out);
        r->file_bytes = r->at;
        r->pieces = r->number;
        close_files(&r->files);
    }
    cl_closep(&r->out);
}

/* --- loading ------------------------------------------------------------------------------------
 */

static int damaged(struct cl_err *err)
{
    return cl_fail(err, CL_E_DATALOSS, 0,
                   "what a VM left on the disk is not what was stored there");
}

static int read_exactly(struct rest *r, void *to, size_t n, uint64_t at, struct cl_err *err)
{
    ssize_t got = pread(r->file, to, n, (off_t)at);
    if (got < 0)
        return cl_fail(err, CL_E_SYS, errno, "read a VM from the disk");
    return (size_t)got == n ? 0 : damaged(err);
}

/* What a head says is used once its piece is authentic, but for its length, which is bounded. */
static int load_piece(struct rest *r, struct cl_err *err)
{
    struct head head;
    if (read_exactly(r, &head, sizeof head, r->at, err) < 0)
        return -1;
    if (head.number != r->number || head.bytes == 0 || head.bytes > REST_PIECE)
        return damaged(err);
    size_t n = sizeof head + head.bytes + TAG_BYTES;
    if (read_exactly(r, r->buf->sealed, n, r->at, err) < 0)
        return -1;
    memcpy(r->buf->sealed, &head, sizeof head); /* what was checked is what is authenticated */
    if (!unseal(r, &head) || head.part >= PARTS || head.at > r->sizes[head.part] ||
        head.bytes > r->sizes[head.part] - head.at)
        return damaged(err);
    ssize_t put = pwrite(*fd_of(r, head.part), r->buf->plain, head.bytes, (off_t)head.at);
    if (put != (ssize_t)head.bytes)
        return cl_fail(err, CL_E_SYS, put < 0 ? errno : ENOSPC, "write a VM's memory");
    r->at += n;
    r->number++;
    return 0;
}

static int load_turn(struct rest *r, struct cl_err *err)
{
    uint64_t end_ns = cl_now_ns() + REST_TURN_NS;
    do {
        if (r->number == r->pieces && r->at != r->file_bytes)
            return damaged(err);
        if (r->number == r->pieces)
            return rest_seal(r, err) < 0 ? -1 : 1;
        if (load_piece(r, err) < 0)
            return -1;
    } while (cl_now_ns() < end_ns);
    return 0;
}

/* --- turns --------------------------------------------------------------------------------------
 */

static void end_job(struct rest *r)
{
    r->job = JOB_NONE;
    if (r->buf)
        OPENSSL_cleanse(r->buf->plain, sizeof r->buf->plain);
    cl_free(r->buf);
    r->buf = NULL;
}

static void on_turn(void *arg)
{
    struct rest *r = arg;
    struct cl_err err = {0};
    bool stores = r->job == JOB_STORE;
    int rc = stores ? store_turn(r, &err) : load_turn(r, &err);
    if (rc == 0) {
        cl_timer_start(&r->turn, 0);
        return;
    }
    end_job(r);
    if (stores)
        finish_store(r, rc > 0);
    else if (rc < 0)
        close_files(&r->files);
    r->done(r->arg, rc < 0 ? &err : NULL); /* may free it */
}

static int begin(struct rest *r, enum job job, rest_done_fn *done, void *arg, struct cl_err *err)
{
    CL_ASSERT(r->job == JOB_NONE);
    r->buf = cl_zalloc(sizeof *r->buf);
    if (!r->buf)
        return cl_fail(err, CL_E_NOMEM, 0, "buffers for a VM at rest");
    r->job = job;
    r->done = done;
    r->arg = arg;
    r->at = r->number = r->from = 0;
    r->part = 0;
    cl_timer_start(&r->turn, 0);
    return 0;
}

/* --- life ---------------------------------------------------------------------------------------
 */

static int make_files(struct rest *r, struct cl_err *err)
{
    r->files.memory = memfd_create("rest-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    r->files.state = memfd_create("rest-state", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (r->files.memory >= 0 && r->files.state >= 0)
        return 0;
    int sys = errno;
    close_files(&r->files);
    return cl_fail(err, CL_E_SYS, sys, "memfd for a VM at rest");
}

/* Without files; NULL and why. */
static struct rest *rest_alloc(struct cl_loop *loop, uint64_t most, struct cl_err *err)
{
    struct rest *r = cl_zalloc(sizeof *r);
    if (!r) {
        (void)cl_fail(err, CL_E_NOMEM, 0, "a VM at rest");
        return NULL;
    }
    r->file = r->out = r->files.memory = r->files.state = -1;
    r->most = most;
    r->cipher = EVP_CIPHER_CTX_new();
    if (!r->cipher)
        (void)cl_fail(err, CL_E_NOMEM, 0, "cipher");
    if (r->cipher && cl_timer_init(&r->turn, loop, on_turn, r, err) == 0)
        return r;
    rest_free(r);
    return NULL;
}

int rest_new(struct cl_loop *loop, uint64_t most, struct rest **ret_rest, struct cl_err *err)
{
    struct rest *r = rest_alloc(loop, most, err);
    if (!r)
        return -1;
    if (make_files(r, err) < 0) {
        rest_free(r);
        return -1;
    }
    *ret_rest = r;
    return 0;
}

/* In the place of an empty one. */
static int take_file(int *file, int fd, struct cl_err *err)
{
    cl_closep(file);
    *file = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    return *file >= 0 ? 0 : cl_fail(err, CL_E_SYS, errno, "what a VM has");
}

int rest_new_of(struct cl_loop *loop, const struct vm_rest *files, uint64_t most,
                struct rest **ret_rest, struct cl_err *err)
{
    struct rest *r;
    if (rest_new(loop, most, &r, err) < 0)
        return -1;
    if (take_file(&r->files.memory, files->memory, err) < 0 ||
        (files->state >= 0 && take_file(&r->files.state, files->state, err) < 0)) {
        rest_free(r);
        return -1;
    }
    *ret_rest = r;
    return 0;
}

void rest_free(struct rest *r)
{
    if (!r)
        return;
    cl_timer_fini(&r->turn);
    end_job(r);
    close_files(&r->files);
    if (r->name && !r->is_left)
        cl_file_unname(r->file, r->name); /* else the next worker's sweep does it */
    cl_closep(&r->file);
    cl_closep(&r->out);
    cl_free(r->name);
    EVP_CIPHER_CTX_free(r->cipher);
    OPENSSL_cleanse(r->key, sizeof r->key);
    cl_free(r);
}

const struct vm_rest *rest_files(const struct rest *r)
{
    return &r->files;
}

int rest_seal(struct rest *r, struct cl_err *err)
{
    for (unsigned part = 0; part < PARTS; part++) {
        if (fcntl(*fd_of(r, part), F_ADD_SEALS, SEALS) < 0)
            return cl_fail(err, CL_E_SYS, errno, "seal what a VM left");
    }
    return 0;
}

int rest_store(struct rest *r, const char *dir, rest_done_fn *done, void *arg, struct cl_err *err)
{
    CL_ASSERT(r->file < 0 && r->out < 0);
    for (unsigned part = 0; part < PARTS; part++) {
        struct stat st;
        if (fstat(*fd_of(r, part), &st) < 0)
            return cl_fail(err, CL_E_SYS, errno, "what a VM left");
        r->sizes[part] = (uint64_t)st.st_size;
    }
    if (cl_file_nameable(dir, &r->out, err) < 0)
        return cl_wrap(err, "a VM at rest");
    cl_random(r->key, sizeof r->key);
    if (begin(r, JOB_STORE, done, arg, err) < 0) {
        cl_closep(&r->out);
        return -1;
    }
    return 0;
}

int rest_load(struct rest *r, rest_done_fn *done, void *arg, struct cl_err *err)
{
    CL_ASSERT(r->file >= 0 && r->files.memory < 0);
    int rc = make_files(r, err);
    for (unsigned part = 0; rc == 0 && part < PARTS; part++) {
        if (ftruncate(*fd_of(r, part), (off_t)r->sizes[part]) < 0)
            rc = cl_fail(err, CL_E_SYS, errno, "memory for what a VM left");
    }
    if (rc == 0)
        rc = begin(r, JOB_LOAD, done, arg, err);
    if (rc < 0)
        close_files(&r->files);
    return rc;
}

int rest_share(const struct rest *r, struct cl_loop *loop, struct rest **ret_rest,
               struct cl_err *err)
{
    CL_ASSERT(r->file >= 0);
    struct rest *other = rest_alloc(loop, r->most, err);
    if (!other)
        return -1;
    other->file_bytes = r->file_bytes;
    other->pieces = r->pieces;
    memcpy(other->sizes, r->sizes, sizeof other->sizes);
    memcpy(other->key, r->key, sizeof other->key);
    other->file = fcntl(r->file, F_DUPFD_CLOEXEC, 3);
    if (other->file < 0) {
        int sys = errno;
        rest_free(other);
        return cl_fail(err, CL_E_SYS, sys, "what a VM left on the disk");
    }
    *ret_rest = other;
    return 0;
}

/* With a place of its own in the file: whoever reads the other one does not notice. */
static int open_again(int fd, struct cl_err *err)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, O_RDONLY | O_CLOEXEC);
    return again >= 0 ? again : cl_fail(err, CL_E_SYS, errno, "open what a VM left again");
}

int rest_copy(const struct rest *r, struct cl_loop *loop, struct rest **ret_rest,
              struct cl_err *err)
{
    CL_ASSERT(r->files.memory >= 0 && r->files.state >= 0);
    struct rest *other = rest_alloc(loop, r->most, err);
    if (!other)
        return -1;
    other->files.memory = open_again(r->files.memory, err);
    other->files.state = other->files.memory < 0 ? -1 : open_again(r->files.state, err);
    if (other->files.state < 0) {
        rest_free(other);
        return -1;
    }
    *ret_rest = other;
    return 0;
}

void rest_drop(struct rest *r)
{
    CL_ASSERT(r->job == JOB_NONE && r->file >= 0);
    close_files(&r->files);
}

uint64_t rest_bytes(const struct rest *r)
{
    return r->file_bytes;
}

/* --- for another process ------------------------------------------------------------------------
 */

int rest_name(struct rest *r, const char *path, struct cl_err *err)
{
    CL_ASSERT(r->file >= 0 && !r->name);
    r->name = cl_strdup(path);
    if (!r->name)
        return cl_fail(err, CL_E_NOMEM, 0, "a name");
    (void)unlink(path); /* of one that nobody knows any more */
    if (cl_file_name(r->file, path, err) == 0)
        return 0;
    cl_free(r->name);
    r->name = NULL;
    return -1;
}

bool rest_has_name(const struct rest *r)
{
    return r->name != NULL;
}

void rest_leave(struct rest *r)
{
    r->is_left = true;
}

void rest_own(struct rest *r)
{
    r->is_left = false;
}

void rest_get_ticket(const struct rest *r, struct rest_ticket *ret_ticket)
{
    *ret_ticket = (struct rest_ticket){.bytes = r->file_bytes,
                                       .pieces = r->pieces,
                                       .memory_bytes = r->sizes[PART_MEMORY],
                                       .state_bytes = r->sizes[PART_STATE]};
    memcpy(ret_ticket->key, r->key, sizeof r->key);
}

int rest_open(struct cl_loop *loop, const char *path, const struct rest_ticket *ticket,
              uint64_t most, struct rest **ret_rest, struct cl_err *err)
{
    if (ticket->bytes > most || ticket->memory_bytes > most || ticket->state_bytes > most)
        return cl_fail(err, CL_E_TOOBIG, 0, "a VM that left more than %" PRIu64 " bytes", most);
    struct rest *r = rest_alloc(loop, most, err);
    if (!r)
        return -1;
    r->file_bytes = ticket->bytes;
    r->pieces = ticket->pieces;
    r->sizes[PART_MEMORY] = ticket->memory_bytes;
    r->sizes[PART_STATE] = ticket->state_bytes;
    memcpy(r->key, ticket->key, sizeof r->key);
    r->file = open(path, O_RDONLY | O_CLOEXEC);
    if (r->file < 0)
        (void)cl_fail(err, CL_E_SYS, errno, "open '%s'", path);
    else if (!(r->name = cl_strdup(path)))
        (void)cl_fail(err, CL_E_NOMEM, 0, "a name");
    if (!r->name) {
        rest_free(r);
        return -1;
    }
    *ret_rest = r;
    return 0;
}
