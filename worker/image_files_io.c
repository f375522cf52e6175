#include "worker/image_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <openssl/evp.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/own.h"

enum {
    STEP = 64 * 1024,
    TURN_NS = 1000 * 1000, /* then the loop gets its turn */
};

/* What differs when a file's content does, whoever changes it. */
struct version {
    struct timespec changed;
    off_t bytes;
};

struct known {
    struct cl_list link;
    char sha256[IMAGE_FILES_HEX];
    int fd; /* owned */
    struct version version;
};

struct image_check {
    struct cl_list link;
    struct image_files *files; /* borrowed */
    struct image_check_spec spec;
    size_t i; /* of the file that is read */
    off_t at;
    EVP_MD_CTX *digest;     /* of what was read of it; NULL = nothing yet */
    struct version version; /* when reading it began */
};

struct image_files {
    struct cl_list known; /* of struct known, the one wanted last in front */
    size_t n_known;
    struct cl_list checks; /* of struct image_check, oldest first */
    struct cl_timer turn;
    uint8_t *step;
};

/* --- what is known ------------------------------------------------------------------------------
 */

static void forget(struct image_files *files, struct known *k)
{
    cl_list_unlink(&k->link);
    files->n_known--;
    cl_closep(&k->fd);
    cl_free(k);
}

/* Of one that cannot be told, it is none's. */
static struct version version_of(int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || st.st_nlink == 0)
        return (struct version){.bytes = -1};
    return (struct version){st.st_ctim, st.st_size};
}

static bool is_good(const struct known *k)
{
    struct version now = version_of(k->fd);
    return now.bytes >= 0 && now.bytes == k->version.bytes &&
           now.changed.tv_sec == k->version.changed.tv_sec &&
           now.changed.tv_nsec == k->version.changed.tv_nsec;
}

/* Those that were deleted or changed. */
static void forget_bad(struct image_files *files)
{
    CL_LIST_FOREACH (node, &files->known) {
        struct known *k = CL_LIST_ENTRY(node, struct known, link);
        if (!is_good(k))
            forget(files, k);
    }
}

static struct known *find(struct image_files *files, const char *sha256)
{
    forget_bad(files);
    CL_LIST_FOREACH (node, &files->known) {
        struct known *k = CL_LIST_ENTRY(node, struct known, link);
        if (strcmp(k->sha256, sha256) == 0)
            return k;
    }
    return NULL;
}

int image_files_find(struct image_files *files, const char *sha256)
{
    struct known *k = find(files, sha256);
    if (!k)
        return -1;
    cl_list_unlink(&k->link);
    cl_list_push_front(&files->known, &k->link);
    return fcntl(k->fd, F_DUPFD_CLOEXEC, 3);
}

/* Without room for it, it is read again another time. */
static void remember(struct image_files *files, const struct image_file *file,
                     struct version version)
{
    if (find(files, file->sha256))
        return;
    struct known *k = cl_zalloc(sizeof *k);
    int fd = k ? fcntl(file->fd, F_DUPFD_CLOEXEC, 3) : -1;
    if (fd < 0) {
        cl_free(k);
        return;
    }
    k->fd = fd;
    k->version = version;
    (void)snprintf(k->sha256, sizeof k->sha256, "%s", file->sha256);
    cl_list_push_front(&files->known, &k->link);
    if (++files->n_known > IMAGE_FILES_MAX)
        forget(files, CL_LIST_ENTRY(files->known.prev, struct known, link));
}

/* --- reading ------------------------------------------------------------------------------------
 */

static EVP_MD_CTX *begin_digest(struct cl_err *err)
{
    EVP_MD_CTX *digest = EVP_MD_CTX_new();
    if (digest && EVP_DigestInit_ex(digest, EVP_sha256(), NULL) == 1)
        return digest;
    EVP_MD_CTX_free(digest);
    (void)cl_fail(err, CL_E_NOMEM, 0, "digest");
    return NULL;
}

/* The next step of it: 1, or 0 behind the last. */
static int read_step(EVP_MD_CTX *digest, const struct image_file *file, off_t *at, uint8_t *step,
                     struct cl_err *err)
{
    ssize_t n = pread(file->fd, step, STEP, *at);
    if (n < 0 || (n > 0 && EVP_DigestUpdate(digest, step, (size_t)n) != 1))
        return cl_fail(err, CL_E_SYS, errno, "'%s': read", file->name);
    *at += n;
    return n > 0;
}

static int compare(EVP_MD_CTX *digest, const struct image_file *file, struct cl_err *err)
{
    uint8_t have[32];
    char hex[IMAGE_FILES_HEX];
    if (EVP_DigestFinal_ex(digest, have, NULL) != 1)
        return cl_fail(err, CL_E_NOMEM, 0, "digest");
    cl_hex(have, sizeof have, hex);
    if (strcmp(hex, file->sha256) != 0)
        return cl_fail(err, CL_E_DATALOSS, 0,
                       "'%s' is not the file that the manifest names (its digest differs): delete "
                       "the image and build it again with `cloche template build`",
                       file->name);
    return 0;
}

int image_files_check(struct image_files *files, const struct image_file *file, struct cl_err *err)
{
    uint8_t *step = cl_zalloc(STEP);
    EVP_MD_CTX *digest = begin_digest(err);
    struct version version = version_of(file->fd);
    off_t at = 0;
    int rc = step && digest ? 1 : cl_fail(err, CL_E_NOMEM, 0, "digest");
    while (rc > 0)
        rc = read_step(digest, file, &at, step, err);
    if (rc == 0)
        rc = compare(digest, file, err);
    EVP_MD_CTX_free(digest);
    cl_free(step);
    if (rc == 0 && files)
        remember(files, file, version);
    return rc;
}

/* --- by turns -----------------------------------------------------------------------------------
 */

static void end_check(struct image_check *c)
{
    cl_list_unlink(&c->link);
    EVP_MD_CTX_free(c->digest);
    cl_free(c);
}

/* Another check knows this one by now: the file is that one. */
static bool take_known(struct image_check *c, const struct image_file *file)
{
    CL_AUTO(cl_closep) int known = image_files_find(c->files, file->sha256);
    return known >= 0 && dup3(known, file->fd, O_CLOEXEC) == file->fd;
}

static int begin_file(struct image_check *c, const struct image_file *file, struct cl_err *err)
{
    c->at = 0;
    c->version = version_of(file->fd);
    c->digest = begin_digest(err);
    return c->digest ? 1 : -1;
}

static int end_file(struct image_check *c, const struct image_file *file, struct cl_err *err)
{
    if (compare(c->digest, file, err) < 0)
        return -1;
    EVP_MD_CTX_free(c->digest);
    c->digest = NULL;
    remember(c->files, file, c->version);
    c->i++;
    return 1;
}

/* Some of the file that it is at: 1, or 0 when all of them are what they should be. */
static int go_on(struct image_check *c, struct cl_err *err)
{
    if (c->i == c->spec.n)
        return 0;
    const struct image_file *file = &c->spec.files[c->i];
    if (!c->digest && take_known(c, file)) {
        c->i++;
        return 1;
    }
    if (!c->digest)
        return begin_file(c, file, err);
    int rc = read_step(c->digest, file, &c->at, c->files->step, err);
    return rc == 0 ? end_file(c, file, err) : rc;
}

static void on_turn(void *arg)
{
    struct image_files *files = arg;
    if (cl_list_empty(&files->checks))
        return;
    struct image_check *c = CL_LIST_ENTRY(files->checks.next, struct image_check, link);
    struct cl_err err = {0};
    int rc;
    uint64_t end_ns = cl_now_ns() + TURN_NS;
    while ((rc = go_on(c, &err)) > 0 && cl_now_ns() < end_ns)
        continue;
    cl_timer_start(&files->turn, 0);
    if (rc > 0)
        return;
    struct image_check_spec spec = c->spec;
    end_check(c);
    spec.done(spec.arg, rc < 0 ? &err : NULL);
}

int image_check_start(struct image_files *files, const struct image_check_spec *spec,
                      struct image_check **ret_check, struct cl_err *err)
{
    CL_ASSERT(spec->n <= IMAGE_CHECK_MAX);
    struct image_check *c = cl_zalloc(sizeof *c);
    if (!c)
        return cl_fail(err, CL_E_NOMEM, 0, "the check of an image");
    c->files = files;
    c->spec = *spec;
    cl_list_push(&files->checks, &c->link);
    cl_timer_start(&files->turn, 0);
    *ret_check = c;
    return 0;
}

void image_check_cancel(struct image_check *check)
{
    if (check)
        end_check(check);
}

/* --- life ---------------------------------------------------------------------------------------
 */

int image_files_new(struct cl_loop *loop, struct image_files **ret_files, struct cl_err *err)
{
    struct image_files *files = cl_zalloc(sizeof *files);
    uint8_t *step = cl_zalloc(STEP);
    if (!files || !step) {
        cl_free(files);
        cl_free(step);
        return cl_fail(err, CL_E_NOMEM, 0, "files of images");
    }
    files->step = step;
    cl_list_init(&files->known);
    cl_list_init(&files->checks);
    if (cl_timer_init(&files->turn, loop, on_turn, files, err) < 0) {
        image_files_free(files);
        return -1;
    }
    *ret_files = files;
    return 0;
}

void image_files_free(struct image_files *files)
{
    if (!files)
        return;
    CL_ASSERT(cl_list_empty(&files->checks));
    CL_LIST_FOREACH (node, &files->known)
        forget(files, CL_LIST_ENTRY(node, struct known, link));
    cl_timer_fini(&files->turn);
    cl_free(files->step);
    cl_free(files);
}
