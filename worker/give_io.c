/* worker/give_io.c - see worker/give.h. */
#include "worker/give.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/own.h"
#include "observability/log.h"
#include "worker/kept.h"
#include "worker/move.h"

enum give_state {
    GIVE_RECORD = 1, /* to be sent */
    GIVE_WAITING,    /* for `missing` */
    GIVE_FILES,
    GIVE_ENDED, /* all is sent */
    GIVE_MOVED,
};

struct give {
    struct unit *unit;
    enum give_state state;
    struct cl_buf record;
    unsigned n_records; /* as many as were written of it when that one was read */
    struct move_files files;
    size_t next;                  /* file to be sent after this one */
    const struct move_file *file; /* under way; NULL = none */
    int fd;                       /* owned: of that */
    uint64_t at, sent;            /* in it; of all */
    Cloche__V1__MoveFile head;
    Cloche__V1__MoveData data;
    uint8_t bytes[MOVE_DATA];
};

/* --- its record ---------------------------------------------------------------------------------
 */

static int check(const struct unit *u, const Cloche__V1__RelayGive *what, struct cl_err *err)
{
    if (strcmp(u->assign->lease_id, what->lease_id) != 0 || u->assign->fence != what->fence)
        return cl_fail(err, CL_E_STATE, 0, "the sandbox is held by another lease here");
    if (u->is_moving || unit_is_tentative(u))
        return cl_fail(err, CL_E_UNAVAILABLE, 0,
                       "the sandbox is being moved already; try again in a moment");
    if (!unit_is_paused(u))
        return cl_fail(err, CL_E_STATE, 0, "the sandbox is not paused; pause it first");
    if (!u->is_kept)
        return cl_fail(err, CL_E_UNAVAILABLE, 0,
                       "this worker holds what the sandbox is in its own memory only (it was "
                       "started with --paused-keys none, or has no room): resume it here");
    return 0;
}

/* As the next worker would read it. */
static int read_record(struct give *g, struct cl_err *err)
{
    char path[PATH_MAX];
    struct cl_arena *arena;
    const Cloche__V1__KeptSandbox *m;
    const struct units *us = g->unit->units;
    (void)snprintf(path, sizeof path, "%s/%s", us->record_dir, g->unit->assign->unit_id);
    if (cl_file_read(AT_FDCWD, path, &g->record, err) < 0 ||
        cl_arena_new(4 * KEPT_MAX, &arena, err) < 0)
        return -1;
    int rc = kept_parse(g->record.data, g->record.len, arena, &m, err);
    if (rc == 0)
        rc = move_files_of(m, &g->files, err);
    cl_arena_free(arena);
    return rc;
}

int give_new(struct unit *u, const Cloche__V1__RelayGive *what, struct give **ret_give,
             struct cl_err *err)
{
    if (check(u, what, err) < 0)
        return -1;
    struct give *g = cl_zalloc(sizeof *g);
    if (!g)
        return cl_fail(err, CL_E_NOMEM, 0, "a move");
    g->unit = u;
    g->state = GIVE_RECORD;
    g->n_records = u->n_records;
    g->fd = -1;
    cl_buf_init(&g->record, KEPT_MAX);
    u->is_moving = true;
    if (read_record(g, err) < 0) {
        give_free(g);
        return -1;
    }
    *ret_give = g;
    return 0;
}

void give_free(struct give *give)
{
    if (!give)
        return;
    give->unit->is_moving = false;
    cl_closep(&give->fd);
    if (give->record.data)
        OPENSSL_cleanse(give->record.data, give->record.len);
    cl_buf_fini(&give->record);
    cl_free(give);
}

/* --- what it is told ----------------------------------------------------------------------------
 */

static int take_missing(struct give *g, const Cloche__V1__MoveMissing *m, struct cl_err *err)
{
    if (g->state != GIVE_WAITING)
        return cl_fail(err, CL_E_PEER, 0, "files of a sandbox were asked for out of turn");
    for (size_t i = 0; i < m->n_names; i++) {
        struct move_file *f = move_find(&g->files, m->names[i]);
        if (!f)
            return cl_fail(err, CL_E_PEER, 0, "a file '%.*s' that is not the sandbox's",
                           MOVE_NAME_MAX, m->names[i]);
        f->state = MOVE_FILE_MISSING;
    }
    g->state = GIVE_FILES;
    return 0;
}

/* It may have ended, or been left to the next worker, at any time.  Its worker may hear from its
 * lease that it was moved before it is told here. */
static int check_rests(const struct give *g, struct cl_err *err)
{
    if (unit_is_paused(g->unit) ? g->unit->is_kept : g->unit->is_given && g->state >= GIVE_ENDED)
        return 0;
    if (g->unit->is_given)
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "the sandbox is another worker's by now");
    return g->unit->is_left
               ? cl_fail(err, CL_E_UNAVAILABLE, 0, "its worker was shut down")
               : cl_fail(err, CL_E_STATE, 0, "the sandbox ended: %.200s", g->unit->message);
}

int give_told(struct give *g, const Cloche__V1__RelayResponse *m, struct cl_err *err)
{
    if (check_rests(g, err) < 0)
        return -1;
    if (m->missing)
        return take_missing(g, m->missing, err);
    if (!m->moved)
        return 0;
    if (g->state != GIVE_ENDED)
        return cl_fail(err, CL_E_PEER, 0, "a sandbox was moved before all of it was sent");
    g->state = GIVE_MOVED;
    log_event(LOG_UNIT_GIVEN, "unit=%s lease=%s bytes=%llu", g->unit->assign->unit_id,
              g->unit->assign->lease_id, (unsigned long long)g->sent);
    if (!g->unit->is_given)
        unit_give_away(g->unit);
    return 0;
}

bool give_is_over(const struct give *g)
{
    return g->state == GIVE_MOVED && g->unit->state == UNIT_KEPT;
}

/* --- what it says -------------------------------------------------------------------------------
 */

static int open_file(struct give *g, const struct move_file *f, struct cl_err *err)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", g->unit->units->past->host->kept_dir, f->name);
    g->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (g->fd < 0)
        return cl_fail(err, CL_E_SYS, errno, "open '%s'", path);
    g->file = f;
    g->at = 0;
    return 0;
}

/* From g->at on; 0 = it has nothing more. */
static int find_data(struct give *g, size_t *ret_n, struct cl_err *err)
{
    const struct move_file *f = g->file;
    uint64_t end = f->bytes;
    if (f->is_sparse) {
        off_t from = lseek(g->fd, (off_t)g->at, SEEK_DATA);
        off_t to = from < 0 ? -1 : lseek(g->fd, from, SEEK_HOLE);
        if (to < 0 && errno == ENXIO)
            from = to = (off_t)f->bytes;
        if (to < 0)
            return cl_fail(err, CL_E_SYS, errno, "look for what '%s' has", f->name);
        g->at = CL_MIN((uint64_t)from, end);
        end = CL_MIN((uint64_t)to, end);
    }
    *ret_n = (size_t)CL_MIN(end - g->at, (uint64_t)MOVE_DATA);
    return *ret_n > 0;
}

/* 1, or 0 at the end of the file. */
static int next_data(struct give *g, Cloche__V1__MovePiece *ret_piece, struct cl_err *err)
{
    size_t n = 0;
    int rc = find_data(g, &n, err);
    if (rc <= 0)
        return rc;
    ssize_t got = pread(g->fd, g->bytes, n, (off_t)g->at);
    if (got < 0)
        return cl_fail(err, CL_E_SYS, errno, "read '%s'", g->file->name);
    if ((size_t)got != n)
        return cl_fail(err, CL_E_DATALOSS, 0, "'%s' is shorter than the sandbox's record says",
                       g->file->name);
    cloche__v1__move_data__init(&g->data);
    g->data.offset = g->at;
    g->data.data.data = g->bytes;
    g->data.data.len = n;
    g->at += n;
    g->sent += n;
    ret_piece->what_case = CLOCHE__V1__MOVE_PIECE__WHAT_DATA;
    ret_piece->data = &g->data;
    return 1;
}

/* 1, or 0 behind the last. */
static int next_file(struct give *g, Cloche__V1__MovePiece *ret_piece, struct cl_err *err)
{
    while (g->next < g->files.n && g->files.list[g->next].state != MOVE_FILE_MISSING)
        g->next++;
    if (g->next == g->files.n)
        return 0;
    const struct move_file *f = &g->files.list[g->next++];
    if (open_file(g, f, err) < 0)
        return -1;
    cloche__v1__move_file__init(&g->head);
    g->head.name = (char *)(uintptr_t)f->name;
    g->head.bytes = f->bytes;
    ret_piece->what_case = CLOCHE__V1__MOVE_PIECE__WHAT_FILE;
    ret_piece->file = &g->head;
    return 1;
}

static int next_of_files(struct give *g, Cloche__V1__MovePiece *ret_piece, struct cl_err *err)
{
    int rc = g->file ? next_data(g, ret_piece, err) : 0;
    if (rc != 0)
        return rc;
    g->file = NULL;
    cl_closep(&g->fd);
    rc = next_file(g, ret_piece, err);
    if (rc != 0)
        return rc;
    if (g->n_records != g->unit->n_records) /* what the other has would be forgotten there */
        return cl_fail(err, CL_E_UNAVAILABLE, 0,
                       "the sandbox is otherwise than when its move began; try again");
    g->state = GIVE_ENDED;
    ret_piece->what_case = CLOCHE__V1__MOVE_PIECE__WHAT_END;
    ret_piece->end = true;
    return 1;
}

int give_next(struct give *g, Cloche__V1__MovePiece *ret_piece, struct cl_err *err)
{
    if (check_rests(g, err) < 0)
        return -1;
    cloche__v1__move_piece__init(ret_piece);
    if (g->state == GIVE_FILES)
        return next_of_files(g, ret_piece, err);
    if (g->state != GIVE_RECORD)
        return 0;
    g->state = GIVE_WAITING;
    ret_piece->what_case = CLOCHE__V1__MOVE_PIECE__WHAT_RECORD;
    ret_piece->record.data = g->record.data;
    ret_piece->record.len = g->record.len;
    return 1;
}
