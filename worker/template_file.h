/* worker/template_file.h - the RAM of a template's snapshot in a file, for the images of paused
 * sandboxes that outlive the worker: they hold what is other than there.
 *
 * Each boot of a template makes another snapshot, so such an image goes with the one that its VM
 * was a clone of.  The file is a rest (worker/rest.h): encrypted, and read as it was written or not
 * at all.
 *
 * Owns:    nothing: the file is the template's.
 * Thread:  the worker loop.
 */
#ifndef CL_WORKER_TEMPLATE_FILE_H
#define CL_WORKER_TEMPLATE_FILE_H

#include "worker/rest.h"
#include "worker/template.h"

/* Who waits for the file, or for what is in it; the caller's storage.  Unlink it to forget it. */
struct template_waiter {
    struct cl_list link;
    rest_done_fn *done; /* once; also inside the call, when it is there already */
    void *arg;
};

/* Write it to a file of `dir`, once for all who ask. */
int template_keep(struct template *t, struct cl_loop *loop, const char *dir,
                  struct template_waiter *w, struct cl_err *err) CL_MUST;
/* From another worker's file; ram_fd is there from template_load() on. */
struct template_file {
    const char *dir, *name;
    struct rest_ticket ticket;
};
int template_open_file(struct template *t, struct cl_loop *loop, const struct template_file *file,
                       struct cl_err *err) CL_MUST;
/* Read the file, once for all who ask. */
int template_load(struct template *t, struct template_waiter *w, struct cl_err *err) CL_MUST;

#endif
