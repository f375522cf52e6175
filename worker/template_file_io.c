/* worker/template_file_io.c - see worker/template_file.h. */
#include "worker/template_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/id.h"

enum { FILE_STATE_MIB = 64 }; /* more than its pieces' heads and tags */

static uint64_t most_of(const struct template *t)
{
    return (t->memory_mib + FILE_STATE_MIB) * CL_MIB;
}

static void tell(struct template *t, const struct cl_err *err)
{
    t->is_filing = false;
    while (!cl_list_empty(&t->file_waiters)) {
        struct template_waiter *w =
            CL_LIST_ENTRY(t->file_waiters.next, struct template_waiter, link);
        cl_list_unlink(&w->link);
        w->done(w->arg, err);
    }
}

static void drop(struct template *t)
{
    rest_free(t->file);
    t->file = NULL;
}

static int path_of(const struct template *t, char path[static PATH_MAX], struct cl_err *err)
{
    int n = snprintf(path, PATH_MAX, "%s/%s", t->file_dir, t->file_name);
    return n > 0 && n < PATH_MAX ? 0 : cl_fail(err, CL_E_TOOBIG, 0, "the name of a folder");
}

/* --- to a file ----------------------------------------------------------------------------------
 */

static void on_stored(void *arg, const struct cl_err *err)
{
    struct template *t = template_ref(arg); /* while they are told */
    struct cl_err why = err ? *err : (struct cl_err){0};
    char path[PATH_MAX];
    if (err || path_of(t, path, &why) < 0 || rest_name(t->file, path, &why) < 0)
        drop(t);
    tell(t, t->file ? NULL : &why);
    template_unref(t);
}

int template_keep(struct template *t, struct cl_loop *loop, const char *dir,
                  struct template_waiter *w, struct cl_err *err)
{
    if (t->is_filing) {
        cl_list_push(&t->file_waiters, &w->link);
        return 0;
    }
    if (t->file) {
        w->done(w->arg, NULL);
        return 0;
    }
    CL_ASSERT(t->sealed);
    char id[CL_ID_MAX];
    cl_id_new("ram", id);
    (void)snprintf(t->file_name, sizeof t->file_name, "%s", id);
    t->file_dir = dir;
    if (rest_new_of(loop, &(struct vm_rest){t->ram_fd, -1}, most_of(t), &t->file, err) < 0)
        return -1;
    if (rest_store(t->file, dir, on_stored, t, err) < 0) {
        drop(t);
        return -1;
    }
    t->is_filing = true;
    cl_list_push(&t->file_waiters, &w->link);
    return 0;
}

/* --- from a file --------------------------------------------------------------------------------
 */

int template_open_file(struct template *t, struct cl_loop *loop, const struct template_file *file,
                       struct cl_err *err)
{
    char path[PATH_MAX];
    (void)snprintf(t->file_name, sizeof t->file_name, "%s", file->name);
    t->file_dir = file->dir;
    if (path_of(t, path, err) < 0 ||
        rest_open(loop, path, &file->ticket, most_of(t), &t->file, err) < 0)
        return -1;
    rest_leave(t->file); /* others may need it; a sweep knows */
    return 0;
}

static void on_loaded(void *arg, const struct cl_err *err)
{
    struct template *t = template_ref(arg);
    struct cl_err why = {0};
    if (!err) {
        t->ram_fd = fcntl(rest_files(t->file)->memory, F_DUPFD_CLOEXEC, 3);
        if (t->ram_fd < 0)
            (void)cl_fail(&why, CL_E_SYS, errno, "memory of a template");
        rest_drop(t->file);
        t->sealed = t->ram_fd >= 0;
    }
    tell(t, err ? err : why.code ? &why : NULL);
    template_unref(t);
}

int template_load(struct template *t, struct template_waiter *w, struct cl_err *err)
{
    if (t->is_filing) {
        cl_list_push(&t->file_waiters, &w->link);
        return 0;
    }
    if (t->ram_fd >= 0) {
        w->done(w->arg, NULL);
        return 0;
    }
    if (rest_load(t->file, on_loaded, t, err) < 0)
        return -1;
    t->is_filing = true;
    cl_list_push(&t->file_waiters, &w->link);
    return 0;
}
