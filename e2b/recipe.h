/* e2b/recipe.h - what a template is built of: Template.build of the SDKs, read.
 *
 * A recipe has a base, steps, and perhaps a command that is to run when sandboxes begin with it.
 * Each step is done at a place (user, folder, environment), which USER, WORKDIR and ENV change.
 *
 * Owns:    nothing; texts are borrowed from the body.
 * Thread:  any.  Pure.
 * Source:  e2b-dev/E2B, spec/openapi.yml: TemplateBuildRequestV3, TemplateBuildStartV2,
 * TemplateStep; docs.docker.com/reference/dockerfile for what COPY means.
 */
#ifndef CL_E2B_RECIPE_H
#define CL_E2B_RECIPE_H

#include "e2b/place.h"

enum {
    E2B_STEPS_MAX = 256,
    E2B_COMMAND_MAX = 65536, /* bytes of one command */
    E2B_PATH_MAX = 4096,
    E2B_HASH = 64,       /* hexadecimal digits that name an archive */
    E2B_BUILD_NAME = 64, /* of a template: a snapshot's, and NUL */
};

/* --- what is asked for first ------------------------------------------------------------------ */

struct e2b_build_wish {
    const char *name;
    uint32_t vcpus, memory_mib; /* 0 = the base's */
    uint32_t free_mib;          /* of the disk, when all steps are done; 0 = what there is */
};
/* INVALID; UNIMPL: tags. */
int e2b_build_wish_read(const json_t *body, struct e2b_build_wish *ret, struct cl_err *err) CL_MUST;

/* --- the recipe ------------------------------------------------------------------------------- */

struct e2b_recipe {
    const char *base;  /* a template or snapshot by E2B's name for it; NULL = see image */
    const char *image; /* a template that was made of this container image; NULL = see base */
    const char *start, *ready; /* NULL = none */
    const json_t *steps;
    size_t n;
};
/* Everything is looked at: a recipe that is read can fail in its guest only, unless the base has an
 * environment that leaves no room for this one's.  Errors name the step, from 1. */
int e2b_recipe_read(const json_t *body, struct e2b_recipe *ret, struct cl_err *err) CL_MUST;

/* Are these two names of one image?  "python" is docker.io/library/python:latest. */
bool e2b_image_is(const char *a, const char *b);

/* Can an archive be called so? */
bool e2b_is_hash(const char *hash);

enum e2b_step_kind { E2B_RUN, E2B_COPY, E2B_ENV, E2B_WORKDIR, E2B_USER };

struct e2b_step {
    enum e2b_step_kind kind;
    char user[8];          /* RUN: who runs it; WORKDIR: who gets a folder that is not there yet */
    const char *text;      /* RUN: the command; COPY: of the archive, a pattern; else what is set */
    const char *hash;      /* COPY: which archive */
    const char *mode;      /* COPY: as chmod takes it; "" = as it is */
    char owner[72];        /* COPY: as chown takes it */
    char to[E2B_PATH_MAX]; /* COPY, WORKDIR: absolute */
};
/* Step i, done at `place`, which it changes.  INVALID, TOOBIG. */
int e2b_recipe_step(const struct e2b_recipe *r, size_t i, struct e2b_place *place,
                    struct e2b_step *ret, struct cl_err *err) CL_MUST;
/* Which archive step i wants; NULL = none. */
const char *e2b_recipe_archive(const struct e2b_recipe *r, size_t i);
/* A step in a line, for people; cut where it has no room. */
void e2b_step_text(const struct e2b_step *s, char *out, size_t size);

#endif
