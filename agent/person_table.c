/* agent/person_table.c - the users that code can run as.  Pure; the steps into them are person.c.
 */
#include <stddef.h>
#include <stdio.h>

#include "agent/person.h"

#define SYSTEM_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

int people_init(struct people *people, const struct image_conf *image, struct cl_err *err)
{
    const char *path = image_conf_getenv(image, "PATH");
    people->image = *image;
    people->root = (struct person){
        .name = "root",
        .home = "/root",
        .cwd = image->cwd ? image->cwd : "/root",
        .path = path && path[0] ? path : SYSTEM_PATH,
    };
    people->user = (struct person){
        .name = image->name ? image->name : "user",
        .home = image->home ? image->home : "/home/user",
        .path = people->user_path,
        .id = AGENT_USER_ID,
    };
    people->user.cwd = image->cwd ? image->cwd : people->user.home;
    /* Where pip install --user puts programs. */
    int n = snprintf(people->user_path, sizeof people->user_path, "%s/.local/bin:%s",
                     people->user.home, people->root.path);
    return n < 0 || (size_t)n >= sizeof people->user_path
               ? cl_fail(err, CL_E_TOOBIG, 0, "image: its PATH has more than %d bytes",
                         PEOPLE_PATH_MAX)
               : 0;
}

const struct person *person_find(const struct people *people, Cloche__V1__GuestUser who)
{
    switch (who) {
    case CLOCHE__V1__GUEST_USER__GUEST_USER_UNSPECIFIED:
    case CLOCHE__V1__GUEST_USER__GUEST_USER_USER:
        return &people->user;
    case CLOCHE__V1__GUEST_USER__GUEST_USER_ROOT:
        return &people->root;
    case _CLOCHE__V1__GUEST_USER_IS_INT_SIZE:
        break;
    }
    return NULL;
}
