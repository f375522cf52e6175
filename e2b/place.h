/* e2b/place.h - how commands run in sandboxes of a template that a tenant built: as whom, where,
 * and with which environment, as its USER, WORKDIR and ENV said.
 *
 * It is kept in labels of the template's snapshot, which its sandboxes and their forks get, too:
 * whoever sees one of them knows it without asking anybody.
 *
 *   e2b-template   the template's name
 *   e2b-user       "root"; without it, "user"
 *   e2b-cwd        without it, the user's home
 *   e2b-env-a ...  an object {NAME: value} in ASCII, cut into pieces as long as a label's value
 *
 * Owns:    nothing.
 * Thread:  any.  Pure.
 */
#ifndef CL_E2B_PLACE_H
#define CL_E2B_PLACE_H

#include <jansson.h>

#include "base/err.h"
#include "base/util.h"
#include "cloche/v1/common.pb-c.h"

enum {
    E2B_PLACE_TEXT = 257, /* a label's value, and NUL */
    E2B_PLACE_ENV_LABELS = 12,
    E2B_PLACE_ENV = 12 * 256 + 1,
    E2B_PLACE_LABELS = 3 + E2B_PLACE_ENV_LABELS,
    E2B_PLACE_KEY = 16,
};
#define E2B_LABEL_TEMPLATE "e2b-template"

struct e2b_place {
    char template_[E2B_PLACE_TEXT];                 /* "" = it is none of a built template */
    char user[E2B_PLACE_TEXT], cwd[E2B_PLACE_TEXT]; /* "" = the default */
    char env[E2B_PLACE_ENV];                        /* JSON; "" = none */
};

/* Set the environment; TOOBIG when that is more than the labels hold. */
int e2b_place_set_env(struct e2b_place *place, const json_t *env, struct cl_err *err) CL_MUST;

/* Points into itself: it must stay where it is. */
struct e2b_place_labels {
    Cloche__V1__Label labels[E2B_PLACE_LABELS], *list[E2B_PLACE_LABELS];
    char keys[E2B_PLACE_ENV_LABELS][E2B_PLACE_KEY], pieces[E2B_PLACE_ENV_LABELS][E2B_PLACE_TEXT];
    size_t n;
};
/* `place` is borrowed by them. */
void e2b_place_write(const struct e2b_place *place, struct e2b_place_labels *ret);
/* What others may have set by hand is taken as far as it fits. */
void e2b_place_read(Cloche__V1__Label *const *labels, size_t n, struct e2b_place *ret);
/* Is it one of these labels? */
bool e2b_place_has(const char *key);

#endif
