/* worker/file_watch_io.c - see worker/file_watch.h. */
#include "worker/file_watch.h"

#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "proto/guest_frame.h"
#include "worker/file_info.h"

struct file_watch {
    struct unit *unit;           /* borrowed */
    struct guest_stream *stream; /* until on_close */
    struct file_watch_events on;
    void *arg;
    bool lost, over;
};

struct told {
    Cloche__V1__FileChange message;
    struct file_info info;
};

static void finish(struct file_watch *w, const struct cl_err *why)
{
    if (w->over)
        return;
    w->over = true;
    w->on.on_end(w->arg, why);
}

static void tell(struct file_watch *w, Cloche__V1__FileServiceWatchResponse *m)
{
    m->lost |= w->lost;
    w->lost = !w->on.on_changes(w->arg, m);
}

static void take_changes(struct file_watch *w, const Cloche__V1__GuestFileResult *r)
{
    Cloche__V1__FileServiceWatchResponse m = CLOCHE__V1__FILE_SERVICE_WATCH_RESPONSE__INIT;
    struct told *told = cl_zalloc_array(r->n_changes + 1, sizeof *told);
    m.changes = cl_zalloc_array(r->n_changes + 1, sizeof *m.changes);
    m.lost = r->lost;
    if (!told || !m.changes) {
        w->lost = true;
    } else {
        for (size_t i = 0; i < r->n_changes; i++) {
            const Cloche__V1__GuestChange *c = r->changes[i];
            cloche__v1__file_change__init(&told[i].message);
            told[i].message.kind = (Cloche__V1__FileChangeKind)c->kind; /* the same numbers */
            told[i].message.path = c->path;
            if (c->entry) {
                file_info_fill(&told[i].info, c->entry);
                told[i].message.info = &told[i].info.message;
            }
            m.changes[m.n_changes++] = &told[i].message;
        }
        tell(w, &m);
    }
    cl_free(told);
    cl_free(m.changes);
}

static void fail(struct file_watch *w, const Cloche__V1__GuestFileResult *r)
{
    struct cl_err why = {0};
    if (r->error_number == EOPNOTSUPP)
        (void)cl_fail(&why, CL_E_UNIMPL, 0,
                      "the template's agent cannot watch folders: build the template again");
    else if (r->error_number == ENOSPC)
        (void)cl_fail(&why, CL_E_TOOBIG, 0,
                      "more folders than can be watched (8192): watch one below it, or not what is "
                      "below it");
    else if (r->error_number == 0)
        (void)cl_fail(&why, CL_E_PEER, 0, "the guest ended the watch");
    else
        (void)cl_fail(&why, cl_code_from_errno(r->error_number), 0, "%.200s", r->error);
    finish(w, &why);
}

static void on_frame(void *arg, const Cloche__V1__GuestFrame *frame)
{
    struct file_watch *w = arg;
    if (w->over || frame->body_case != CLOCHE__V1__GUEST_FRAME__BODY_FILE_RESULT)
        return;
    if (frame->file_result->more)
        take_changes(w, frame->file_result);
    else
        fail(w, frame->file_result);
}

static void on_room(void *arg)
{
    (void)arg; /* it is told nothing */
}

static void on_close(void *arg, const struct cl_err *why)
{
    struct file_watch *w = arg;
    struct cl_err gone = {0};
    w->stream = NULL;
    (void)cl_fail(&gone, CL_E_UNAVAILABLE, 0, "%s", why ? why->text : "the sandbox went away");
    finish(w, &gone);
}

int file_watch_start(struct unit *u, const Cloche__V1__RelayWatch *what,
                     const struct file_watch_events *events, void *arg,
                     struct file_watch **ret_watch, struct cl_err *err)
{
    static const struct guest_stream_events guest_events = {on_frame, on_room, on_close};
    if (unit_check_runs(u, err) < 0)
        return -1;
    if (u->n_watches == UNIT_WATCHES_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "%d folders of this sandbox are watched already",
                       UNIT_WATCHES_MAX);
    struct file_watch *w = cl_zalloc(sizeof *w);
    if (!w)
        return cl_fail(err, CL_E_NOMEM, 0, "watch");
    *w = (struct file_watch){.unit = u, .on = *events, .arg = arg};
    Cloche__V1__GuestFileOp op = CLOCHE__V1__GUEST_FILE_OP__INIT;
    op.kind = CLOCHE__V1__GUEST_FILE_KIND__GUEST_FILE_KIND_WATCH;
    op.path = what->path;
    op.recursive = what->recursive;
    op.with_entries = what->with_info;
    op.user = strcmp(what->user, "root") == 0 ? CLOCHE__V1__GUEST_USER__GUEST_USER_ROOT
                                              : CLOCHE__V1__GUEST_USER__GUEST_USER_USER;
    GUEST_FRAME(frame, 0, FILE_OP, file_op, &op);
    if (guest_open(machine_guest(u->machine), &frame, &guest_events, w, &w->stream, err) < 0) {
        cl_free(w);
        return -1;
    }
    u->n_watches++;
    unit_touch(u); /* once; from now on it may be idle */
    *ret_watch = w;
    return 0;
}

void file_watch_go_on(struct file_watch *w)
{
    Cloche__V1__FileServiceWatchResponse m = CLOCHE__V1__FILE_SERVICE_WATCH_RESPONSE__INIT;
    if (w->lost && !w->over)
        tell(w, &m);
}

void file_watch_free(struct file_watch *w)
{
    if (!w)
        return;
    w->over = true;
    if (w->stream)
        guest_stream_forget(w->stream, "the client left");
    CL_ASSERT(w->unit->n_watches > 0);
    w->unit->n_watches--;
    cl_free(w);
}
