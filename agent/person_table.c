/* agent/person_table.c - the users that code can run as.  Pure; the steps into them are person.c.
 */
#include <stddef.h>

#include "agent/person.h"

#define SYSTEM_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static const struct person user = {
    .name = "user",
    .home = "/home/user",
    .path = "/home/user/.local/bin:" SYSTEM_PATH, /* where pip install --user puts programs */
    .id = AGENT_USER_ID,
};
static const struct person root = {.name = "root", .home = "/root", .path = SYSTEM_PATH, .id = 0};

const struct person *person_find(Cloche__V1__GuestUser who)
{
    switch (who) {
    case CLOCHE__V1__GUEST_USER__GUEST_USER_UNSPECIFIED:
    case CLOCHE__V1__GUEST_USER__GUEST_USER_USER:
        return &user;
    case CLOCHE__V1__GUEST_USER__GUEST_USER_ROOT:
        return &root;
    case _CLOCHE__V1__GUEST_USER_IS_INT_SIZE:
        break;
    }
    return NULL;
}
