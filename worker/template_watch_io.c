/* worker/template_watch_io.c - see worker/template_watch.h. */
#include "worker/template_watch.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/own.h"
#include "observability/log.h"

enum { LOOK_EVERY_S = 5, LIST_MAX = 4096 };

struct tried {
    char name[TEMPLATE_NAME_MAX];
    char build[TEMPLATE_BUILD]; /* "" = none yet */
    enum cl_code said;          /* why it is not kept; CL_OK = it is */
};

struct template_watch {
    struct template_watch_options o;
    struct cl_timer timer;
    int lock_fd; /* of the folder; -1 = it is not there yet, or just being looked through */
    struct tried tried[TEMPLATE_WATCH_MAX];
    size_t n;
};

/* NULL: there are too many. */
static struct tried *find(struct template_watch *w, const char *name)
{
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->tried[i].name, name) == 0)
            return &w->tried[i];
    if (w->n == TEMPLATE_WATCH_MAX)
        return NULL;
    struct tried *t = &w->tried[w->n++];
    (void)snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}

static void look_at(struct template_watch *w, const char *name)
{
    struct cl_err err = {0};
    char build[TEMPLATE_BUILD];
    struct tried *t = cl_name_is_valid(name) ? find(w, name) : NULL;
    template_current(w->o.dir, name, build);
    if (!t || (build[0] && strcmp(build, t->build) == 0))
        return;
    int rc = w->o.keep(w->o.arg, name, &err);
    if (rc < 0 && err.code != t->said && err.code == CL_E_NOTFOUND)
        log_event(LOG_TEMPLATE_ABSENT, "template=%s text='%s'", name, err.text);
    else if (rc < 0 && err.code != t->said)
        log_event(LOG_TEMPLATE_BAD, "template=%s text='%s'", name, err.text);
    t->said = err.code;
    if (err.code != CL_E_NOTFOUND && err.code != CL_E_TOOBIG) /* there may be room later */
        memcpy(t->build, build, sizeof t->build);
}

static void look_for_gone(struct template_watch *w)
{
    char build[TEMPLATE_BUILD];
    for (size_t i = w->n; i-- > 0;) {
        struct tried *t = &w->tried[i];
        template_current(w->o.dir, t->name, build);
        if (build[0] || !t->build[0])
            continue;
        log_event(LOG_TEMPLATE_GONE, "template=%s", t->name);
        w->o.forget(w->o.arg, t->name);
        *t = w->tried[--w->n];
    }
}

static void look_at_images(struct template_watch *w)
{
    char path[PATH_MAX];
    DIR *dir = opendir(w->o.dir);
    for (const struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        int n = snprintf(path, sizeof path, "%s/%s/current/source", w->o.dir, e->d_name);
        if (n > 0 && (size_t)n < sizeof path && access(path, F_OK) == 0)
            look_at(w, e->d_name);
    }
    if (dir)
        (void)closedir(dir);
}

static void look(void *arg)
{
    struct template_watch *w = arg;
    char names[LIST_MAX];
    if (w->lock_fd < 0 && cl_lock_folder(w->o.dir, false, &w->lock_fd, NULL) < 0)
        w->lock_fd = -1; /* the next look tries again */
    look_for_gone(w);
    (void)snprintf(names, sizeof names, "%s", w->o.names);
    char *rest = names;
    for (char *name; (name = strsep(&rest, ", ")) != NULL;) {
        if (strcmp(name, "images") == 0)
            look_at_images(w);
        else if (*name)
            look_at(w, name);
    }
    cl_timer_start(&w->timer, LOOK_EVERY_S * CL_NS_PER_S);
}

int template_watch_new(const struct template_watch_options *options, struct cl_loop *loop,
                       struct template_watch **ret_watch, struct cl_err *err)
{
    struct template_watch *w = cl_zalloc(sizeof *w);
    if (!w)
        return cl_fail(err, CL_E_NOMEM, 0, "the templates to keep");
    w->o = *options;
    w->lock_fd = -1;
    if (cl_timer_init(&w->timer, loop, look, w, err) < 0) {
        cl_free(w);
        return -1;
    }
    look(w);
    *ret_watch = w;
    return 0;
}

void template_watch_free(struct template_watch *w)
{
    if (!w)
        return;
    cl_timer_fini(&w->timer);
    cl_closep(&w->lock_fd);
    cl_free(w);
}
