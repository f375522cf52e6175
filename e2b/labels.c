/* e2b/labels.c - see e2b/labels.h. */
#include "e2b/labels.h"

#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "e2b/place.h"

static const char plain[] = "abcdefghijklmnopqrstuvwxyz0123456789";

int e2b_label_key(const char *name, char key[static E2B_LABEL_KEY], struct cl_err *err)
{
    size_t at = 2;
    (void)memcpy(key, "m-", 3);
    for (const char *c = name; *c; c++) {
        size_t n = strchr(plain, *c) ? 1 : 3;
        if (at + n >= E2B_LABEL_KEY)
            return cl_fail(err, CL_E_INVALID, 0,
                           "metadata '%.40s': its name is too long (61 letters and digits; each "
                           "other character counts three)",
                           name);
        if (n == 1)
            key[at] = *c;
        else
            (void)snprintf(key + at, E2B_LABEL_KEY - at, "-%02x", (unsigned char)*c);
        at += n;
    }
    key[at] = '\0';
    return at > 2 ? 0 : cl_fail(err, CL_E_INVALID, 0, "metadata without a name");
}

bool e2b_label_name(const char *key, char name[static E2B_LABEL_KEY])
{
    size_t n = 0;
    if (strncmp(key, "m-", 2) != 0 || strlen(key) >= E2B_LABEL_KEY)
        return false;
    for (const char *c = key + 2; *c; c++) {
        if (*c != '-') {
            name[n++] = *c;
            continue;
        }
        if (strlen(c) < 3 || !cl_unhex(c + 1, 2, name + n, 1) || name[n] == '\0')
            return false;
        n++;
        c += 2;
    }
    name[n] = '\0';
    return n > 0;
}

bool e2b_label_goes_on(const char *key)
{
    char name[E2B_LABEL_KEY];
    return strcmp(key, E2B_LABEL_PRIVATE) == 0 || e2b_place_has(key) || e2b_label_name(key, name);
}
