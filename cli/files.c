/* cli/files.c - see cli/files.h. */
#include "cli/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/own.h"
#include "cli/paths.h"
#include "cloche/v1/file.pb-c.h"
#include "proto/copy.h"

enum { CHUNK = 128 * 1024, DEPTH_MAX = 64, COPY_PATH = 4096, LIST_PAGE = 1000, TOKEN_TEXT = 512 };

#define MODE_BITS 07777u

static void digest_freep(EVP_MD_CTX **ctx)
{
    EVP_MD_CTX_free(*ctx);
}

static int join(char out[static COPY_PATH], const char *dir, const char *name, struct cl_err *err)
{
    size_t n = strlen(dir);
    int k = snprintf(out, COPY_PATH, "%s%s%s", dir, n && dir[n - 1] == '/' ? "" : "/", name);
    return k >= 0 && k < COPY_PATH
               ? 0
               : cl_fail(err, CL_E_INVALID, 0, "the path '%.80s/...' is too long", dir);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* An error of this machine's file system, with a remedy that is about it. */
static int fail_local(struct cl_err *err, const char *what, const char *path)
{
    int sys = errno;
    return cl_fail(err, cl_code_from_errno(sys), 0,
                   "%s '%.200s': %s\ncheck the path and its rights", what, path, strerror(sys));
}

static void skip(struct copy *c, const char *path, const char *what)
{
    c->skipped++;
    cli_say("skipping %s '%s'", what, path);
}

/* --- what is there
 * ---------------------------------------------------------------------------------- */

/* 0 and the facts; *ret_found false when there is nothing. */
static int remote_stat(const struct copy *c, const char *path, Cloche__V1__FileType *ret_type,
                       uint32_t *ret_mode, bool *ret_found, struct cl_err *err)
{
    static const struct client_method stat_m = CLIENT_METHOD("FileService", "Stat", stat_response);
    Cloche__V1__StatRequest req = CLOCHE__V1__STAT_REQUEST__INIT;
    struct cl_err why = {0};
    ProtobufCMessage *msg = NULL;
    req.sandbox_id = pb_text(c->sandbox);
    req.path = pb_text(path);
    req.user = pb_text(c->user);
    *ret_found = client_unary(c->client, &stat_m, &req.base, 0, &msg, &why) == 0;
    if (*ret_found) {
        const Cloche__V1__StatResponse *m = (const Cloche__V1__StatResponse *)msg;
        *ret_type = m->file ? m->file->type : CLOCHE__V1__FILE_TYPE__FILE_TYPE_OTHER;
        *ret_mode = m->file ? m->file->mode & MODE_BITS : 0;
        pb_free(msg);
        return 0;
    }
    if (why.code == CL_E_NOTFOUND)
        return 0;
    if (err)
        *err = why;
    return -1;
}

static int remote_mkdir(const struct copy *c, const char *path, uint32_t mode, struct cl_err *err)
{
    static const struct client_method mkdir_m =
        CLIENT_METHOD("FileService", "MakeDir", make_dir_response);
    Cloche__V1__MakeDirRequest req = CLOCHE__V1__MAKE_DIR_REQUEST__INIT;
    struct cl_err why = {0};
    req.sandbox_id = pb_text(c->sandbox);
    req.path = pb_text(path);
    req.mode = mode;
    req.parents = true;
    req.user = pb_text(c->user);
    if (client_do(c->client, &mkdir_m, &req.base, &why) == 0 || why.code == CL_E_EXISTS)
        return 0;
    if (err)
        *err = why;
    return -1;
}

/* --- up
 * ---------------------------------------------------------------------------------------------- */

struct upload {
    uint8_t sha256[SHA256_DIGEST_LENGTH];
    uint64_t bytes;
    bool answered;
};

static int on_written(void *arg, const ProtobufCMessage *msg, struct cl_err *err)
{
    struct upload *u = arg;
    const Cloche__V1__WriteResponse *m = (const Cloche__V1__WriteResponse *)msg;
    if (m->sha256.len != sizeof u->sha256)
        return cl_fail(err, CL_E_PEER, 0, "the answer has no SHA-256");
    memcpy(u->sha256, m->sha256.data, sizeof u->sha256);
    u->bytes = m->bytes;
    u->answered = true;
    return 0;
}

/* Send the whole file; its digest lands in `sum`. */
static int send_file(const struct copy *c, int fd, Cloche__V1__WriteRequest *first,
                     struct client_stream *stream, EVP_MD_CTX *digest, struct cl_err *err)
{
    (void)c;
    uint8_t data[CHUNK];
    for (;;) {
        Cloche__V1__WriteRequest next = CLOCHE__V1__WRITE_REQUEST__INIT;
        Cloche__V1__WriteRequest *m = first ? first : &next;
        ssize_t n = read(fd, data, sizeof data);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return cl_fail(err, CL_E_SYS, errno, "read");
        if (EVP_DigestUpdate(digest, data, (size_t)n) != 1)
            return cl_fail(err, CL_E_SYS, 0, "SHA-256");
        m->data = (ProtobufCBinaryData){(size_t)n, data};
        m->commit = n == 0;
        int rc = client_stream_send(stream, &m->base, err);
        m->data = (ProtobufCBinaryData){0}; /* it points into this frame */
        if (rc < 0 || n == 0)
            return rc;
        first = NULL;
    }
}

static int upload_fd(struct copy *c, int fd, uint32_t mode, const char *remote, struct cl_err *err)
{
    static const struct client_method write_m =
        CLIENT_METHOD("FileService", "Write", write_response);
    struct upload up = {0};
    uint8_t sum[EVP_MAX_MD_SIZE];
    CL_AUTO(digest_freep) EVP_MD_CTX *digest = EVP_MD_CTX_new();
    CL_AUTO(client_stream_freep) struct client_stream *stream = NULL;
    Cloche__V1__WriteRequest first = CLOCHE__V1__WRITE_REQUEST__INIT;
    first.sandbox_id = pb_text(c->sandbox);
    first.path = pb_text(remote);
    first.mode = mode;
    first.user = pb_text(c->user);
    if (!digest || EVP_DigestInit_ex(digest, EVP_sha256(), NULL) != 1)
        return cl_fail(err, CL_E_NOMEM, 0, "SHA-256");
    if (client_stream_open(c->client, &write_m, on_written, &up, &stream, err) < 0 ||
        send_file(c, fd, &first, stream, digest, err) < 0 || client_stream_finish(stream, err) < 0)
        return -1;
    if (EVP_DigestFinal_ex(digest, sum, NULL) != 1 || !up.answered ||
        memcmp(sum, up.sha256, sizeof up.sha256) != 0)
        return cl_fail(err, CL_E_DATALOSS, 0, "what arrived has another SHA-256");
    c->files++;
    c->bytes += up.bytes;
    return 0;
}

static int up_tree(struct copy *c, int dir_fd, const char *shown, const char *remote, int depth,
                   struct cl_err *err);

/* One entry of a folder, or the source itself. */
static int up_entry(struct copy *c, int at, const char *name, const char *remote, int depth,
                    struct cl_err *err)
{
    struct stat st;
    CL_AUTO(cl_closep)
    int fd = openat(at, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | (depth ? O_NOFOLLOW : 0));
    if (fd < 0 && errno == ELOOP && depth) {
        skip(c, name, "the symbolic link");
        return 0;
    }
    if (fd < 0 && depth && (errno == ENXIO || errno == ENODEV)) {
        skip(c, name, "the special file");
        return 0;
    }
    if (fd < 0 || fstat(fd, &st) < 0)
        return fail_local(err, "open", name);
    uint32_t mode = st.st_mode & MODE_BITS;
    if (S_ISREG(st.st_mode))
        return upload_fd(c, fd, mode, remote, err) < 0 ? cl_wrap(err, "%s", name) : 0;
    if (!S_ISDIR(st.st_mode)) {
        skip(c, name, "the special file");
        return 0;
    }
    if (!c->recursive)
        return cl_fail(err, CL_E_INVALID, 0, "'%s' is a folder\nuse cp -r", name);
    if (remote_mkdir(c, remote, mode, err) < 0)
        return cl_wrap(err, "%s", remote);
    return up_tree(c, fd, name, remote, depth + 1, err);
}

static int up_tree(struct copy *c, int dir_fd, const char *shown, const char *remote, int depth,
                   struct cl_err *err)
{
    char to[COPY_PATH];
    int rc = 0;
    if (depth > DEPTH_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "'%s' is nested deeper than %d", shown, DEPTH_MAX);
    int own = fcntl(dir_fd, F_DUPFD_CLOEXEC, 3);
    DIR *dir = own >= 0 ? fdopendir(own) : NULL;
    if (!dir)
        return fail_local(err, "read the folder", shown);
    for (const struct dirent *e; rc == 0 && (e = readdir(dir)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        rc = join(to, remote, e->d_name, err);
        if (rc == 0)
            rc = up_entry(c, dirfd(dir), e->d_name, to, depth, err);
    }
    (void)closedir(dir);
    return rc;
}

int copy_up(struct copy *c, const char *local, const char *remote, struct cl_err *err)
{
    char to[COPY_PATH];
    Cloche__V1__FileType type = CLOCHE__V1__FILE_TYPE__FILE_TYPE_UNSPECIFIED;
    uint32_t mode = 0;
    bool found = false, slashed = remote[0] && remote[strlen(remote) - 1] == '/';
    if (remote_stat(c, remote, &type, &mode, &found, err) < 0)
        return -1;
    bool into = found && type == CLOCHE__V1__FILE_TYPE__FILE_TYPE_DIRECTORY;
    if (slashed && !into)
        return cl_fail(err, CL_E_NOTFOUND, 0, "there is no folder '%s' in the sandbox", remote);
    if (into ? join(to, remote, base_name(local), err) < 0 : join(to, "", remote, err) < 0)
        return -1;
    return up_entry(c, AT_FDCWD, local, into ? to : remote, 0, err);
}

int copy_up_content(struct copy *c, const char *local, const char *remote, struct cl_err *err)
{
    CL_AUTO(cl_closep) int fd = open(local, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail_local(err, "open the folder", local);
    if (strcmp(remote, ".") != 0 && remote_mkdir(c, remote, 0755, err) < 0)
        return cl_wrap(err, "%s", remote);
    return up_tree(c, fd, local, remote, 1, err);
}

/* --- down
 * ---------------------------------------------------------------------------------------------- */

static int on_read(void *arg, const ProtobufCMessage *msg, struct cl_err *err)
{
    const int *fd = arg;
    const Cloche__V1__ReadResponse *m = (const Cloche__V1__ReadResponse *)msg;
    return cl_write_all(*fd, m->data.data, m->data.len, err);
}

/* Into a temporary name beside the target, then renamed: a broken transfer leaves nothing half. */
static int download(struct copy *c, const char *remote, int at, const char *name, uint32_t mode,
                    struct cl_err *err)
{
    static const struct client_method read_m = CLIENT_METHOD("FileService", "Read", read_response);
    char temp[COPY_PATH];
    struct stat st = {0};
    const char *base = base_name(name);
    (void)snprintf(temp, sizeof temp, "%.*s.%.200s.%d.part", (int)(base - name), name, base,
                   (int)getpid());
    CL_AUTO(cl_closep)
    int fd = openat(at, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return fail_local(err, "create", temp);
    CL_AUTO(client_stream_freep) struct client_stream *stream = NULL;
    Cloche__V1__ReadRequest req = CLOCHE__V1__READ_REQUEST__INIT;
    req.sandbox_id = pb_text(c->sandbox);
    req.path = pb_text(remote);
    req.user = pb_text(c->user);
    int rc = client_stream_open(c->client, &read_m, on_read, &fd, &stream, err);
    if (rc == 0)
        rc = client_stream_send(stream, &req.base, err);
    if (rc == 0)
        rc = client_stream_finish(stream, err);
    /* Set-id bits of a guest's file are worth nothing here and could be worth much to it. */
    if (rc == 0 &&
        (fchmod(fd, mode & 0777) < 0 || fstat(fd, &st) < 0 || renameat(at, temp, at, name) < 0))
        rc = fail_local(err, "put in place", name);
    if (rc < 0) {
        (void)unlinkat(at, temp, 0);
        return -1;
    }
    c->files++;
    c->bytes += (uint64_t)st.st_size;
    return 0;
}

static int down_tree(struct copy *c, const char *remote, int at, const char *name, uint32_t mode,
                     int depth, struct cl_err *err);

static bool name_is_plain(const char *name)
{
    return name[0] && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && !strchr(name, '/');
}

static int down_entry(struct copy *c, const char *dir, const Cloche__V1__FileInfo *f, int at,
                      int depth, struct cl_err *err)
{
    char from[COPY_PATH];
    if (!name_is_plain(f->name))
        return cl_fail(err, CL_E_GUEST, 0, "the sandbox lists a file named '%.64s'", f->name);
    if (join(from, dir, f->name, err) < 0)
        return -1;
    if (f->type == CLOCHE__V1__FILE_TYPE__FILE_TYPE_DIRECTORY)
        return down_tree(c, from, at, f->name, f->mode, depth + 1, err);
    if (f->type == CLOCHE__V1__FILE_TYPE__FILE_TYPE_REGULAR)
        return download(c, from, at, f->name, f->mode, err) < 0 ? cl_wrap(err, "%s", from) : 0;
    skip(c, from,
         f->type == CLOCHE__V1__FILE_TYPE__FILE_TYPE_SYMLINK ? "the symbolic link"
                                                             : "the special file");
    return 0;
}

static int down_page(struct copy *c, const char *remote, int dir, int depth,
                     char token[static TOKEN_TEXT], struct cl_err *err)
{
    static const struct client_method list_m =
        CLIENT_METHOD("FileService", "List", file_service_list_response);
    Cloche__V1__FileServiceListRequest req = CLOCHE__V1__FILE_SERVICE_LIST_REQUEST__INIT;
    ProtobufCMessage *msg = NULL;
    req.sandbox_id = pb_text(c->sandbox);
    req.path = pb_text(remote);
    req.user = pb_text(c->user);
    req.page_size = LIST_PAGE;
    req.page_token = token;
    if (client_unary(c->client, &list_m, &req.base, 0, &msg, err) < 0)
        return cl_wrap(err, "%s", remote);
    const Cloche__V1__FileServiceListResponse *m = (const Cloche__V1__FileServiceListResponse *)msg;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < m->n_files; i++)
        rc = down_entry(c, remote, m->files[i], dir, depth, err);
    (void)snprintf(token, TOKEN_TEXT, "%s", m->next_page_token);
    pb_free(msg);
    return rc;
}

static int down_tree(struct copy *c, const char *remote, int at, const char *name, uint32_t mode,
                     int depth, struct cl_err *err)
{
    char token[TOKEN_TEXT] = "";
    if (depth > DEPTH_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "'%s' is nested deeper than %d", remote, DEPTH_MAX);
    if (mkdirat(at, name, 0700) < 0 && errno != EEXIST)
        return fail_local(err, "make the folder", name);
    CL_AUTO(cl_closep)
    int dir = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (depth > 1 ? O_NOFOLLOW : 0));
    if (dir < 0)
        return fail_local(err, "open the folder", name);
    do {
        if (down_page(c, remote, dir, depth, token, err) < 0)
            return -1;
    } while (token[0]);
    (void)fchmod(dir, (mode & 0777) | 0700);
    return 0;
}

int copy_down(struct copy *c, const char *remote, const char *local, struct cl_err *err)
{
    char to[COPY_PATH];
    struct stat st;
    Cloche__V1__FileType type = CLOCHE__V1__FILE_TYPE__FILE_TYPE_UNSPECIFIED;
    uint32_t mode = 0;
    bool found = false, into = stat(local, &st) == 0 && S_ISDIR(st.st_mode);
    const char *base = base_name(remote);
    if (remote_stat(c, remote, &type, &mode, &found, err) < 0)
        return -1;
    if (!found)
        return cl_fail(err, CL_E_NOTFOUND, 0, "there is no '%s' in the sandbox", remote);
    bool nameless = !name_is_plain(base) || base[strlen(base) - 1] == '/';
    if (into && !nameless && join(to, local, base, err) < 0)
        return -1;
    const char *target = into && !nameless ? to : local;
    if (type == CLOCHE__V1__FILE_TYPE__FILE_TYPE_DIRECTORY)
        return c->recursive ? down_tree(c, remote, AT_FDCWD, target, mode, 1, err)
                            : cl_fail(err, CL_E_INVALID, 0, "'%s' is a folder\nuse cp -r", remote);
    if (type != CLOCHE__V1__FILE_TYPE__FILE_TYPE_REGULAR)
        return cl_fail(err, CL_E_INVALID, 0, "'%s' is no regular file", remote);
    return download(c, remote, AT_FDCWD, target, mode, err);
}
