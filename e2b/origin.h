/* e2b/origin.h - what a sandbox begins with: a template, or a snapshot, by the name that a client
 * has for it.
 *
 * "base" and "code-interpreter-v1" are E2B's own templates.  Another name is that of a template of
 * the host's, if one is ready; else of a snapshot, which may be a template that the tenant built.
 *
 * Owns:    see the struct.
 * Thread:  the server's loop.
 */
#ifndef CL_E2B_ORIGIN_H
#define CL_E2B_ORIGIN_H

#include "cloche/v1/snapshot.pb-c.h"
#include "e2b/call_priv.h"
#include "e2b/place.h"

struct e2b_origin {
    char template_[E2B_ID_MAX], snapshot[256]; /* one of them is "" */
    bool has_network;                          /* the snapshot's copies may have one */
    bool is_built;                             /* it is a template that a tenant built */
    struct e2b_place place;
    const char *image; /* borrowed: what is looked for */
};

/* Find out, into *origin, which lives as long as the call, and go on; what is neither goes on as
 * a template, and who makes a sandbox of it hears why not.  May end the call. */
void e2b_origin_find(struct e2b_call *c, const char *name, struct e2b_origin *origin,
                     e2b_run_fn *next);
/* The same of the template that was made of a container image; "" in both: there is none. */
void e2b_origin_find_image(struct e2b_call *c, const char *image, struct e2b_origin *origin,
                           e2b_run_fn *next);

#endif
