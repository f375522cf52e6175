/* worker/template_watch.h - which templates are kept warm, as they are built and built again.
 *
 *   every 5 s: each name of the list whose `current` leads elsewhere than when it was last tried
 *
 * So a template that comes while the worker runs is taken, one that is built again takes the place
 * of what is warm, one that is no good is tried once, until it is built again, and one whose
 * `current` is gone is no template any more.
 *
 * While it watches, the folder itself is locked, shared: whoever takes builds away (cli/prune.c)
 * knows by that that a worker runs which has locked those that it needs, also for what rests.
 *
 * Owns:    its timer, its memory of what was tried, and that lock.
 * Limits:  TEMPLATE_WATCH_MAX names at one time; whoever writes the folder could else have a worker
 * read without end. Thread:  the worker loop; a look is a readlink(2) a name and, for "images", a
 * readdir(3).
 */
#ifndef CL_WORKER_TEMPLATE_WATCH_H
#define CL_WORKER_TEMPLATE_WATCH_H

#include "base/loop.h"
#include "worker/template.h"

enum { TEMPLATE_WATCH_MAX = 64 };

/* Keep it from now on; NOTFOUND: it is not built, and will be tried again. */
typedef int template_keep_fn(void *arg, const char *name, struct cl_err *err);
/* Nothing begins with it any more. */
typedef void template_forget_fn(void *arg, const char *name);

struct template_watch_options {
    const char *dir; /* borrowed */
    /* Borrowed: separated by commas; "images" is each one that is made of a container image or came
     * from a store, which have a file `source` beside their manifest (images/build.sh, store.sh).
     */
    const char *names;
    template_keep_fn *keep;
    template_forget_fn *forget;
    void *arg;
};

struct template_watch;

/* Looks at once; what rests must have its templates by then. */
int template_watch_new(const struct template_watch_options *options, struct cl_loop *loop,
                       struct template_watch **ret_watch, struct cl_err *err) CL_MUST;
/* NULL is a no-op. */
void template_watch_free(struct template_watch *watch);

#endif
