/* What comes of a sandbox from another worker: any pieces in any order; no byte of a file is taken
 * twice or beyond its length, no file that was not asked for, and an end only when all is there.
 *
 * A byte says which of the files are here already; then come pieces: two bytes of length, little
 * endian, and so many of a MovePiece. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "proto/unpack.h"
#include "tests/fuzz/bytes.h"
#include "worker/move.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct world {
    struct move move;
    unsigned here;                /* bits, by number of the file */
    uint64_t end[MOVE_FILES_MAX]; /* all that was taken of it is before that */
    uint64_t sum[MOVE_FILES_MAX]; /* bytes taken */
    unsigned begun[MOVE_FILES_MAX];
    struct cl_arena *arena; /* of the record */
} w;

static size_t number_of(const struct move_file *f)
{
    CL_ASSERT(f >= w.move.files.list && f < w.move.files.list + w.move.files.n);
    return (size_t)(f - w.move.files.list);
}

/* What becomes the name of a file lies in the folder, and is no other sandbox's. */
static void check_name(const Cloche__V1__KeptSandbox *m, const struct move_file *f)
{
    size_t n = strlen(m->assign->unit_id);
    CL_ASSERT(f->name[0] != '.' && !strchr(f->name, '/') && f->bytes <= INT64_MAX);
    CL_ASSERT(f->is_memory ? cl_id_is(f->name, "ram")
                           : strncmp(f->name, m->assign->unit_id, n) == 0 && f->name[n] == '.');
    CL_ASSERT(move_find(&w.move.files, f->name) == f); /* no other is called so */
}

static bool use_record(const Cloche__V1__MovePiece *piece)
{
    const Cloche__V1__KeptSandbox *m;
    if (kept_parse(piece->record.data, piece->record.len, w.arena, &m, NULL) < 0 ||
        move_files_of(m, &w.move.files, NULL) < 0)
        return false;
    for (size_t i = 0; i < w.move.files.n; i++) {
        check_name(m, &w.move.files.list[i]);
        if (!(w.here >> i % 8 & 1))
            w.move.files.list[i].state = MOVE_FILE_MISSING;
    }
    move_ask(&w.move);
    return true;
}

static void use_file(const Cloche__V1__MoveFile *m)
{
    size_t i = number_of(w.move.current);
    CL_ASSERT(strcmp(w.move.current->name, m->name) == 0 && w.move.current->bytes == m->bytes);
    CL_ASSERT(!(w.here >> i % 8 & 1) && w.begun[i]++ == 0);
}

static void use_data(const Cloche__V1__MoveData *m)
{
    const struct move_file *f = w.move.current;
    size_t i = number_of(f);
    CL_ASSERT(w.begun[i] == 1 && m->offset >= w.end[i] && m->data.len > 0);
    CL_ASSERT(m->data.len <= f->bytes && m->offset <= f->bytes - m->data.len);
    w.end[i] = m->offset + m->data.len;
    w.sum[i] += m->data.len;
}

static void use_end(void)
{
    for (size_t i = 0; i < w.move.files.n; i++) {
        const struct move_file *f = &w.move.files.list[i];
        CL_ASSERT(w.begun[i] == !(w.here >> i % 8 & 1));
        CL_ASSERT(!w.begun[i] || f->is_sparse || w.sum[i] == f->bytes);
    }
}

static bool use(const Cloche__V1__MovePiece *piece)
{
    struct cl_err err = {0};
    if (move_take(&w.move, piece, &err) < 0) {
        CL_ASSERT(err.code == CL_E_PEER && err.text[0]);
        return false;
    }
    switch ((int)piece->what_case) {
    case CLOCHE__V1__MOVE_PIECE__WHAT_RECORD:
        return use_record(piece);
    case CLOCHE__V1__MOVE_PIECE__WHAT_FILE:
        use_file(piece->file);
        return true;
    case CLOCHE__V1__MOVE_PIECE__WHAT_DATA:
        use_data(piece->data);
        return true;
    default:
        use_end();
        return true;
    }
}

static bool use_next(struct fuzz_in *in)
{
    const ProtobufCMessage *m;
    struct cl_arena *arena;
    size_t n = fuzz_get(in, 2);
    n = CL_MIN(n, in->left);
    if (in->left == 0 || cl_arena_new(4 * KEPT_MAX, &arena, NULL) < 0)
        return false;
    bool goes_on =
        pb_unpack(&cloche__v1__move_piece__descriptor, in->data, n, arena, &m, NULL) == 0 &&
        use((const Cloche__V1__MovePiece *)m);
    cl_arena_free(arena);
    in->data += n;
    in->left -= n;
    return goes_on;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    memset(w.end, 0, sizeof w.end);
    memset(w.sum, 0, sizeof w.sum);
    memset(w.begun, 0, sizeof w.begun);
    if (cl_arena_new(4 * KEPT_MAX, &w.arena, NULL) < 0)
        return 0;
    move_init(&w.move);
    w.here = fuzz_get(&in, 1);
    while (use_next(&in))
        ;
    cl_arena_free(w.arena);
    return 0;
}
