/* worker/move.c - see worker/move.h. */
#include "worker/move.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/id.h"

/* --- what there is ------------------------------------------------------------------------------
 */

static int add(struct move_files *files, struct move_file file, struct cl_err *err)
{
    if (file.bytes > INT64_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "a record whose '%s' has %" PRIu64 " bytes", file.name,
                       file.bytes);
    CL_ASSERT(files->n < CL_COUNT(files->list)); /* kept_parse() has bounds */
    files->list[files->n++] = file;
    return 0;
}

static int add_own(struct move_files *files, const char *unit_id, const char *end, uint64_t bytes,
                   struct cl_err *err)
{
    struct move_file file = {.bytes = bytes, .is_sparse = strcmp(end, "disk") == 0};
    int n = snprintf(file.name, sizeof file.name, "%s.%s", unit_id, end);
    CL_ASSERT(n > 0 && (size_t)n < sizeof file.name);
    return add(files, file, err);
}

static int add_output(struct move_files *files, const char *unit_id, const Cloche__V1__KeptExec *e,
                      struct cl_err *err)
{
    static const char *const ends[SPOOL_STREAMS] = {"out", "err"};
    for (size_t i = 0; i < SPOOL_STREAMS; i++) {
        char end[CL_ID_MAX + 4];
        (void)snprintf(end, sizeof end, "%s.%s", e->start->exec_id, ends[i]);
        if (add_own(files, unit_id, end, e->output->streams[i]->kept, err) < 0)
            return -1;
    }
    return 0;
}

/* A name as worker/template_file.h gives it: of any other kind it could be another sandbox's. */
static int add_memory(struct move_files *files, const Cloche__V1__SealedFile *m, struct cl_err *err)
{
    struct move_file file = {.bytes = m->bytes, .is_memory = true};
    if (!cl_id_is(m->name, "ram"))
        return cl_fail(err, CL_E_INVALID, 0, "a record whose template's memory is no 'ram_...'");
    (void)snprintf(file.name, sizeof file.name, "%s", m->name);
    return add(files, file, err);
}

int move_files_of(const Cloche__V1__KeptSandbox *m, struct move_files *ret_files,
                  struct cl_err *err)
{
    const char *unit_id = m->assign->unit_id;
    ret_files->n = 0;
    if (add_memory(ret_files, m->template_->memory, err) < 0 ||
        add_own(ret_files, unit_id, "image", m->image->bytes, err) < 0 ||
        (m->disk_bytes > 0 && add_own(ret_files, unit_id, "disk", m->disk_bytes, err) < 0))
        return -1;
    for (size_t i = 0; i < m->n_execs; i++) {
        if (add_output(ret_files, unit_id, m->execs[i], err) < 0)
            return -1;
    }
    return 0;
}

struct move_file *move_find(struct move_files *files, const char *name)
{
    for (size_t i = 0; i < files->n; i++) {
        if (strcmp(files->list[i].name, name) == 0)
            return &files->list[i];
    }
    return NULL;
}

/* --- what may come ------------------------------------------------------------------------------
 */

void move_init(struct move *mv)
{
    mv->state = MOVE_NEW;
    mv->files.n = 0;
    mv->current = NULL;
}

void move_ask(struct move *mv)
{
    CL_ASSERT(mv->state == MOVE_ASKING);
    mv->state = MOVE_FILES;
}

static int out_of_turn(const char *what, struct cl_err *err)
{
    return cl_fail(err, CL_E_PEER, 0, "%s of a sandbox came out of turn", what);
}

static int take_record(struct move *mv, struct cl_err *err)
{
    if (mv->state != MOVE_NEW)
        return out_of_turn("the record", err);
    mv->state = MOVE_ASKING;
    return 0;
}

/* The one under way, if there is one, has all its bytes. */
static int check_whole(const struct move *mv, struct cl_err *err)
{
    const struct move_file *f = mv->current;
    if (!f || f->is_sparse || f->at == f->bytes)
        return 0;
    return cl_fail(err, CL_E_PEER, 0, "'%s' ends after %" PRIu64 " of %" PRIu64 " bytes", f->name,
                   f->at, f->bytes);
}

static int take_file(struct move *mv, const Cloche__V1__MoveFile *m, struct cl_err *err)
{
    if (mv->state != MOVE_FILES)
        return out_of_turn("a file", err);
    if (check_whole(mv, err) < 0)
        return -1;
    struct move_file *f = move_find(&mv->files, m->name);
    if (!f || f->state != MOVE_FILE_MISSING)
        return cl_fail(err, CL_E_PEER, 0, "a file '%.*s' that was not asked for, or came before",
                       MOVE_NAME_MAX, m->name);
    if (m->bytes != f->bytes)
        return cl_fail(err, CL_E_PEER, 0,
                       "'%s' of %" PRIu64 " bytes, where its record says %" PRIu64, f->name,
                       m->bytes, f->bytes);
    f->state = MOVE_FILE_BEGUN;
    mv->current = f;
    return 0;
}

static int take_data(struct move *mv, const Cloche__V1__MoveData *m, struct cl_err *err)
{
    struct move_file *f = mv->current;
    size_t n = m->data.len;
    if (mv->state != MOVE_FILES || !f)
        return out_of_turn("bytes", err);
    if (n == 0 || n > MOVE_DATA_MAX)
        return cl_fail(err, CL_E_PEER, 0, "a piece of '%s' with %zu bytes, where 1 to %d are taken",
                       f->name, n, MOVE_DATA_MAX);
    if (m->offset < f->at || (m->offset > f->at && !f->is_sparse))
        return cl_fail(err, CL_E_PEER, 0,
                       "bytes from %" PRIu64 " of '%s', where those from %" PRIu64 " are next",
                       m->offset, f->name, f->at);
    if (m->offset > f->bytes || n > f->bytes - m->offset)
        return cl_fail(err, CL_E_PEER, 0, "%zu bytes from %" PRIu64 " of '%s', which has %" PRIu64,
                       n, m->offset, f->name, f->bytes);
    f->at = m->offset + n;
    return 0;
}

static int take_end(struct move *mv, struct cl_err *err)
{
    if (mv->state != MOVE_FILES)
        return out_of_turn("the end", err);
    if (check_whole(mv, err) < 0)
        return -1;
    for (size_t i = 0; i < mv->files.n; i++) {
        if (mv->files.list[i].state == MOVE_FILE_MISSING)
            return cl_fail(err, CL_E_PEER, 0, "the end of a sandbox came before its '%s'",
                           mv->files.list[i].name);
    }
    mv->state = MOVE_DONE;
    return 0;
}

int move_take(struct move *mv, const Cloche__V1__MovePiece *piece, struct cl_err *err)
{
    switch ((int)piece->what_case) {
    case CLOCHE__V1__MOVE_PIECE__WHAT_RECORD:
        return take_record(mv, err);
    case CLOCHE__V1__MOVE_PIECE__WHAT_FILE:
        return take_file(mv, piece->file, err);
    case CLOCHE__V1__MOVE_PIECE__WHAT_DATA:
        return take_data(mv, piece->data, err);
    case CLOCHE__V1__MOVE_PIECE__WHAT_END:
        return take_end(mv, err);
    default: /* of a newer worker's move */
        return cl_fail(err, CL_E_PEER, 0, "a piece of a sandbox that this worker does not know");
    }
}
