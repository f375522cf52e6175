/* worker/move.h - a kept sandbox on its way to another worker: which files it consists of, and what
 * may come next of them.
 *
 *   NEW ─ record ─► ASKING ─ move_ask() ─► FILES ─ file, data ..., file, data ..., end ─► DONE
 *
 * The bytes come from another worker by way of a scheduler.  Whoever they are from, no more of them
 * is taken than the record says, into no file but those that it names, and no byte of these twice.
 *
 * Owns:    nothing.
 * Thread:  any.
 * Pure: no I/O, no clock.
 */
#ifndef CL_WORKER_MOVE_H
#define CL_WORKER_MOVE_H

#include "cloche/v1/kept.pb-c.h"
#include "cloche/v1/worker.pb-c.h"
#include "worker/kept.h"
#include "worker/spool.h"

enum {
    MOVE_DATA = 64 * 1024,             /* of a piece that is sent */
    MOVE_DATA_MAX = 1024 * 1024,       /* ... and that is taken: one message more that is held */
    MOVE_NAME_MAX = 2 * CL_ID_MAX + 8, /* UNIT.EXEC.out */
    MOVE_FILES_MAX = 3 + SPOOL_STREAMS * KEPT_EXECS_MAX,
};

enum move_file_state {
    MOVE_FILE_HERE = 0, /* not asked for */
    MOVE_FILE_MISSING,
    MOVE_FILE_BEGUN, /* the others of those that have begun are whole */
};

struct move_file {
    char name[MOVE_NAME_MAX];
    uint64_t bytes;
    uint64_t at;    /* all before it is there */
    bool is_sparse; /* its holes are left out */
    bool is_memory; /* its template's, which others may have as well */
    enum move_file_state state;
};

/* All files of a record. */
struct move_files {
    struct move_file list[MOVE_FILES_MAX];
    size_t n;
};

/* Of one that kept_parse() took.  INVALID when they would not be its own. */
int move_files_of(const Cloche__V1__KeptSandbox *m, struct move_files *ret_files,
                  struct cl_err *err) CL_MUST;
/* NULL = it has none of that name. */
struct move_file *move_find(struct move_files *files, const char *name);

enum move_state { MOVE_NEW = 0, MOVE_ASKING, MOVE_FILES, MOVE_DONE };

/* The taker's side. */
struct move {
    enum move_state state;
    struct move_files files;
    struct move_file *current; /* began last; NULL = none has */
};

void move_init(struct move *mv);
/* The pieces after the record may come: those of the files that are MOVE_FILE_MISSING. */
void move_ask(struct move *mv);
/* One piece came; data is for `current`.  PEER when it must not, and then no other may. */
int move_take(struct move *mv, const Cloche__V1__MovePiece *piece, struct cl_err *err) CL_MUST;

#endif
