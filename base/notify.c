/* base/notify.c - see base/notify.h. */
#include "base/notify.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int manager = -1;

void cl_notify_open(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const char *path = getenv("NOTIFY_SOCKET");
    size_t n = path ? strlen(path) : 0;
    if (n < 2 || n >= sizeof at.sun_path || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(at.sun_path, path, n);
    if (path[0] == '@') /* one without a file */
        at.sun_path[0] = '\0';
    (void)unsetenv("NOTIFY_SOCKET");
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&at,
                           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) == 0)
        manager = fd;
    else if (fd >= 0)
        (void)close(fd);
}

void cl_notify(const char *assignment)
{
    if (manager >= 0)
        (void)!send(manager, assignment, strlen(assignment), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void cl_notify_status(const char *fmt, ...)
{
    char text[CL_NOTIFY_TEXT] = "STATUS=";
    size_t n = strlen(text);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text + n, sizeof text - n, fmt, ap);
    va_end(ap);
    text[strcspn(text, "\n")] = '\0';
    cl_notify(text);
}
