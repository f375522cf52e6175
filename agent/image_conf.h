/* agent/image_conf.h - what an image says of how its programs are run: /image of the initramfs.
 *
 * An image that was made of a container image has one (images/container.pl writes it); a template
 * of a recipe has none, which is an empty one.  It is records "key=value", each ended by a NUL:
 *
 *   name=NAME   of the user with the id AGENT_USER_ID
 *   home=PATH   of that user
 *   cwd=PATH    where a command begins that is told no folder; without it, at home
 *   env=NAME=VALUE, any number: what every program starts with, unless the request says otherwise
 *
 * Pure.  Borrows the text.  The image is signed, but who made what is in it is not trusted: every
 * record is checked, and a wrong one is an error, not a guess.
 */
#ifndef CL_AGENT_IMAGE_CONF_H
#define CL_AGENT_IMAGE_CONF_H

#include <stddef.h>

#include "base/err.h"
#include "base/util.h"

enum {
    IMAGE_CONF_MAX = 65536, /* bytes of the file */
    IMAGE_ENV_MAX = 256,
    IMAGE_PATH_MAX = 1024,
    IMAGE_NAME_MAX = 64,
};

struct image_conf {
    const char *name, *home, *cwd;  /* borrowed; NULL = not said */
    const char *env[IMAGE_ENV_MAX]; /* borrowed: "NAME=VALUE", each name once */
    size_t n_env;
};

/* The value of a variable of it, or NULL. */
const char *image_conf_getenv(const struct image_conf *conf, const char *name);
/* INVALID names the record by its number, from 1; TOOBIG: more than the limits above. */
int image_conf_parse(const char *text, size_t n, struct image_conf *ret_conf,
                     struct cl_err *err) CL_MUST;

#endif
