/* worker/take_io.c - see worker/take.h. */
#include "worker/take.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/own.h"
#include "observability/log.h"
#include "proto/copy.h"
#include "worker/disk.h"
#include "worker/kept.h"
#include "worker/move.h"
#include "worker/unit_priv.h"

struct take {
    struct cl_list link; /* of units->takes */
    struct units *units;
    Cloche__V1__Assign *assign; /* owned: what it is here, in the scheduler's words */
    struct move move;
    struct cl_arena *arena;                /* owned: of the record */
    const Cloche__V1__KeptSandbox *record; /* NULL until it came */
    struct template *template;             /* owned reference: what it is to be made of */
    int fd;                                /* owned: of the file under way */
    uint64_t left_bytes;                   /* of units->taking_bytes */
    struct unit *unit;                     /* once it is taken */
    struct unit_waiter wake;
    bool waits; /* for another, which brings the memory of its template */
    bool moved;
    Cloche__V1__MoveMissing missing; /* said of it */
    char *names[MOVE_FILES_MAX];
};

/* --- may it be here -----------------------------------------------------------------------------
 */

static int check_newest(const struct take *t, struct cl_err *err)
{
    const struct unit *old = units_find(t->units, t->assign->unit_id);
    if (old && unit_is_live(old) && !old->is_given)
        return cl_fail(err, CL_E_STATE, 0, "the sandbox is on this worker already");
    if (old && unit_is_live(old))
        return cl_fail(err, CL_E_UNAVAILABLE, 0,
                       "the sandbox has just left this worker; try again in a moment");
    if (old && old->assign->fence >= t->assign->fence)
        return cl_fail(err, CL_E_STATE, 0, "a newer fence of this unit was seen here");
    return 0;
}

static int check(const struct take *t, struct cl_err *err)
{
    const struct units *us = t->units;
    if (!us->record_dir[0])
        return cl_fail(err, CL_E_UNAVAILABLE, 0,
                       "this worker keeps no paused sandboxes: start it with --paused-keys");
    if (us->stopping)
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "this worker is shutting down");
    return check_newest(t, err) < 0 ? -1 : units_check_paused(us, err);
}

static int check_others(const struct units *us, const char *unit_id, struct cl_err *err)
{
    if (us->n_takes >= UNITS_TAKES_MAX)
        return cl_fail(err, CL_E_UNAVAILABLE, 0,
                       "%d sandboxes are on their way to this worker; try again in a moment",
                       UNITS_TAKES_MAX);
    for (const struct cl_list *l = us->takes.next; l != &us->takes; l = l->next) {
        const struct take *other = (const struct take *)(const void *)l; /* link comes first */
        if (strcmp(other->assign->unit_id, unit_id) == 0)
            return cl_fail(err, CL_E_UNAVAILABLE, 0,
                           "the sandbox is on its way to this worker already");
    }
    return 0;
}
_Static_assert(offsetof(struct take, link) == 0, "check_others() relies on it");

/* Two that write one file would spoil it, and once is enough. */
static bool is_on_its_way(const struct take *t, const char *name)
{
    CL_LIST_FOREACH (node, &t->units->takes) {
        struct take *other = CL_LIST_ENTRY(node, struct take, link);
        const struct move_file *f = other == t ? NULL : move_find(&other->move.files, name);
        if (f && f->state != MOVE_FILE_HERE)
            return true;
    }
    return false;
}

/* One of them is over: that file is here, or will not come. */
static void wake_others(struct units *us)
{
    CL_LIST_FOREACH (node, &us->takes) {
        struct take *t = CL_LIST_ENTRY(node, struct take, link);
        if (t->waits)
            t->wake.fn(t->wake.arg);
    }
}

/* All disks full at once must leave the reserve untouched; what is promised to others, with what
 * other takes have still to write, is theirs. */
static int check_room(const struct take *t, uint64_t need, struct cl_err *err)
{
    const struct machine_host *host = t->units->past->host;
    uint64_t left, promised = units_disk_promised(t->units);
    if (cl_disk_free(host->kept_dir, &left, err) < 0)
        return -1;
    if (left >= need && left - need >= host->disk_reserve && /* in this order it cannot wrap */
        left - need - host->disk_reserve >= promised)
        return 0;
    return cl_fail(err, CL_E_QUOTA, 0,
                   "this worker's disk has no room for the sandbox: %llu MiB, where %llu are free, "
                   "%llu promised to others and %llu kept in reserve; free some, or lower "
                   "--disk-reserve",
                   (unsigned long long)(need / CL_MIB), (unsigned long long)(left / CL_MIB),
                   (unsigned long long)(promised / CL_MIB),
                   (unsigned long long)(host->disk_reserve / CL_MIB));
}

/* --- its files ----------------------------------------------------------------------------------
 */

static int path_of(const struct take *t, const char *name, char path[static PATH_MAX],
                   struct cl_err *err)
{
    int n = snprintf(path, PATH_MAX, "%s/%s", t->units->past->host->kept_dir, name);
    return n > 0 && n < PATH_MAX ? 0 : cl_fail(err, CL_E_TOOBIG, 0, "the name of a folder");
}

static void remove_files(struct take *t)
{
    char path[PATH_MAX];
    for (size_t i = 0; i < t->move.files.n; i++) {
        const struct move_file *f = &t->move.files.list[i];
        if (f->state == MOVE_FILE_BEGUN && path_of(t, f->name, path, NULL) == 0)
            (void)unlink(path);
    }
}

/* What has the name is nobody's: no unit here is of that id, and no template has that file. */
static int begin_file(struct take *t, struct cl_err *err)
{
    char path[PATH_MAX];
    const struct move_file *f = t->move.current;
    cl_closep(&t->fd);
    if (path_of(t, f->name, path, err) < 0)
        return -1;
    (void)unlink(path);
    t->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (t->fd < 0)
        return cl_fail(err, CL_E_SYS, errno, "make '%s'", path);
    if (f->is_sparse && ftruncate(t->fd, (off_t)f->bytes) < 0)
        return cl_fail(err, CL_E_SYS, errno, "make '%s'", path);
    return 0;
}

static int write_data(struct take *t, const Cloche__V1__MoveData *m, struct cl_err *err)
{
    ssize_t put = pwrite(t->fd, m->data.data, m->data.len, (off_t)m->offset);
    if (put != (ssize_t)m->data.len)
        return cl_fail(err, CL_E_SYS, put < 0 ? errno : ENOSPC, "write '%s'",
                       t->move.current->name);
    uint64_t n = CL_MIN(t->left_bytes, (uint64_t)put);
    t->left_bytes -= n;
    t->units->taking_bytes -= n;
    return 0;
}

/* --- its record ---------------------------------------------------------------------------------
 */

/* What it is assigned is what it is counted as here. */
static int check_size(const struct take *t, const Cloche__V1__KeptSandbox *m, struct cl_err *err)
{
    static const Cloche__V1__Resources none = {.vcpus = 0};
    const Cloche__V1__Resources *r = t->assign->resources ? t->assign->resources : &none;
    const Cloche__V1__KeptTemplate *has = m->template_;
    uint64_t disk_mib = r->disk_mib ? r->disk_mib : DISK_DEFAULT_MIB;
    if ((!r->memory_mib || has->memory_mib <= r->memory_mib) &&
        (!r->vcpus || has->vcpus <= r->vcpus) && m->scratch_bytes <= disk_mib * CL_MIB &&
        m->disk_bytes <= disk_mib * CL_MIB)
        return 0;
    return cl_fail(err, CL_E_INVALID, 0,
                   "a record of a sandbox that is larger than it was assigned: %u MiB, %u vCPUs "
                   "and %llu MiB of disk, where it has %u, %u and %llu",
                   has->memory_mib, has->vcpus,
                   (unsigned long long)(CL_MAX(m->scratch_bytes, m->disk_bytes) / CL_MIB),
                   r->memory_mib, r->vcpus, (unsigned long long)disk_mib);
}

/* Its record is the other worker's word; whose it is, and what it may reach, is not for that to
 * say. */
static void set_assign(struct take *t, const Cloche__V1__KeptSandbox *m)
{
    t->assign->ttl_ns = m->assign->ttl_ns; /* its client may have changed it since */
    ((Cloche__V1__KeptSandbox *)(uintptr_t)m)->assign = t->assign; /* it lies in our arena */
}

static int read_record(struct take *t, const ProtobufCBinaryData *bytes, struct cl_err *err)
{
    const Cloche__V1__KeptSandbox *m;
    if (kept_parse(bytes->data, bytes->len, t->arena, &m, err) < 0)
        return -1;
    if (strcmp(m->assign->unit_id, t->assign->unit_id) != 0)
        return cl_fail(err, CL_E_INVALID, 0, "a record of another sandbox");
    if (m->assign->fence >= t->assign->fence)
        return cl_fail(err, CL_E_STATE, 0, "the sandbox is held by a newer lease where it is");
    if (check_size(t, m, err) < 0)
        return -1;
    set_assign(t, m);
    t->record = m;
    return move_files_of(m, &t->move.files, err);
}

/* Whatever it is for that it could not go on here: another worker may let it. */
static int find_template(struct take *t, struct cl_err *err)
{
    struct cl_err why = {0};
    if (unit_open_template(t->units, t->record, &t->template, &why) < 0)
        return cl_fail(err, CL_E_UNAVAILABLE, 0, "this worker cannot let the sandbox go on: %.300s",
                       why.text);
    if (t->template->driver->is_shared &&
        t->assign->guest_separation != CLOCHE__V1__GUEST_SEPARATION__GUEST_SEPARATION_SHARED)
        return cl_fail(err, CL_E_STATE, 0, "its tenant wants isolated guests by now");
    return 0;
}

static uint64_t room_of(const struct take *t, const struct move_file *f)
{
    return f->is_sparse ? CL_MAX(f->bytes, t->record->scratch_bytes) : f->bytes;
}

static int choose_missing(struct take *t, struct cl_err *err)
{
    uint64_t need = 0;
    cloche__v1__move_missing__init(&t->missing);
    t->missing.names = t->names;
    for (size_t i = 0; i < t->move.files.n; i++) {
        struct move_file *f = &t->move.files.list[i];
        if (f->is_memory && t->template->file)
            continue;
        uint64_t room = room_of(t, f);
        if (room > UINT64_MAX - need)
            return cl_fail(err, CL_E_INVALID, 0, "a record of files that cannot be");
        f->state = MOVE_FILE_MISSING;
        t->names[t->missing.n_names++] = f->name;
        need += room;
    }
    if (check_room(t, need, err) < 0)
        return -1;
    t->left_bytes = need;
    t->units->taking_bytes += need;
    return 0;
}

/* 1: say what is missing; 0: not yet. */
static int begin(struct take *t, Cloche__V1__RelayRequest *ret_answer, struct cl_err *err)
{
    t->waits = is_on_its_way(t, t->record->template_->memory->name);
    if (t->waits)
        return 0;
    if (find_template(t, err) < 0 || choose_missing(t, err) < 0)
        return -1;
    move_ask(&t->move);
    ret_answer->missing = &t->missing;
    return 1;
}

int take_go_on(struct take *t, Cloche__V1__RelayRequest *ret_answer, struct cl_err *err)
{
    cloche__v1__relay_request__init(ret_answer);
    return t->waits ? begin(t, ret_answer, err) : 0;
}

/* --- all is there -------------------------------------------------------------------------------
 */

static void settle_room(struct take *t)
{
    t->units->taking_bytes -= t->left_bytes;
    t->left_bytes = 0;
}

static int make_unit(struct take *t, struct cl_err *err)
{
    struct unit *u;
    cl_closep(&t->fd);
    settle_room(t);
    if (check(t, err) < 0 || unit_restore(t->units, t->record, t->template, &u, err) < 0)
        return -1;
    t->move.files.n = 0; /* they are the unit's */
    u->tentative_ns = UINT64_MAX;
    unit_keep_again(u);
    if (!u->is_kept) {
        unit_give_away(u);
        return cl_fail(err, CL_E_UNAVAILABLE, 0,
                       "this worker cannot write what the sandbox is; its log says why");
    }
    t->unit = u;
    wake_others(t->units);
    return 0;
}

static int take_end(struct take *t, Cloche__V1__RelayRequest *ret_answer, struct cl_err *err)
{
    if (make_unit(t, err) < 0)
        return -1;
    ret_answer->taken = true;
    return 1;
}

static int take_moved(struct take *t, struct cl_err *err)
{
    if (!t->unit)
        return cl_fail(err, CL_E_PEER, 0, "a sandbox was moved before all of it was here");
    if (!unit_is_paused(t->unit))
        return cl_fail(err, CL_E_STATE, 0, "the sandbox ended: %.200s", t->unit->message);
    t->moved = true;
    unit_settle(t->unit);
    return 0;
}

/* --- life ---------------------------------------------------------------------------------------
 */

int take_told(struct take *t, const Cloche__V1__RelayResponse *m,
              Cloche__V1__RelayRequest *ret_answer, struct cl_err *err)
{
    const Cloche__V1__MovePiece *piece = m->move;
    cloche__v1__relay_request__init(ret_answer);
    if (m->moved)
        return take_moved(t, err);
    if (!piece)
        return 0;
    if (move_take(&t->move, piece, err) < 0)
        return -1;
    switch ((int)piece->what_case) {
    case CLOCHE__V1__MOVE_PIECE__WHAT_RECORD:
        return read_record(t, &piece->record, err) < 0 ? -1 : begin(t, ret_answer, err);
    case CLOCHE__V1__MOVE_PIECE__WHAT_FILE:
        return begin_file(t, err);
    case CLOCHE__V1__MOVE_PIECE__WHAT_DATA:
        return write_data(t, piece->data, err);
    default:
        return take_end(t, ret_answer, err);
    }
}

struct unit *take_unit(const struct take *t)
{
    return t->unit;
}

bool take_is_over(const struct take *t)
{
    return t->moved;
}

static int check_assign(const Cloche__V1__OpenRelay *what, struct cl_err *err)
{
    const Cloche__V1__Assign *a = what->take->assign;
    return a && kept_is(a) && strcmp(a->unit_id, what->unit_id) == 0 &&
                   cl_id_is(a->lease_id, "lease")
               ? 0
               : cl_fail(err, CL_E_INVALID, 0, "a move of no sandbox, or to no lease");
}

int take_new(struct units *us, const Cloche__V1__OpenRelay *what, const struct unit_waiter *wake,
             struct take **ret_take, struct cl_err *err)
{
    if (check_assign(what, err) < 0 || check_others(us, what->unit_id, err) < 0)
        return -1;
    struct take *t = cl_zalloc(sizeof *t);
    ProtobufCMessage *copy;
    if (!t || pb_copy(&what->take->assign->base, &copy, err) < 0) {
        cl_free(t);
        return cl_fail(err, CL_E_NOMEM, 0, "a move");
    }
    t->units = us;
    t->assign = (Cloche__V1__Assign *)copy;
    t->wake = *wake;
    t->fd = -1;
    move_init(&t->move);
    cl_list_push(&us->takes, &t->link);
    us->n_takes++;
    if (check(t, err) < 0 || cl_arena_new(4 * KEPT_MAX, &t->arena, err) < 0) {
        take_free(t);
        return -1;
    }
    *ret_take = t;
    return 0;
}

void take_free(struct take *t)
{
    if (!t)
        return;
    cl_closep(&t->fd);
    settle_room(t);
    if (!t->unit)
        remove_files(t);
    else if (!t->moved)
        t->unit->tentative_ns = cl_now_ns() + TAKE_SETTLE_S * CL_NS_PER_S;
    template_unref(t->template);
    cl_arena_free(t->arena);
    cl_list_unlink(&t->link);
    t->units->n_takes--;
    wake_others(t->units);
    pb_free(&t->assign->base);
    cl_free(t);
}
