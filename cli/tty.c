/* cli/tty.c - see cli/tty.h. */
#include "cli/tty.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

int tty_raw(struct tty *t, struct cl_err *err)
{
    if (!isatty(STDIN_FILENO))
        return 0;
    struct termios raw;
    if (tcgetattr(STDIN_FILENO, &raw) < 0)
        return cl_fail(err, CL_E_SYS, errno, "read the terminal's settings");
    t->saved = raw;
    cfmakeraw(&raw);
    if (tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) < 0)
        return cl_fail(err, CL_E_SYS, errno, "make the terminal raw");
    t->is_raw = true;
    return 0;
}

void tty_restore(struct tty *t)
{
    if (t->is_raw)
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &t->saved);
    t->is_raw = false;
}

void tty_size(uint32_t *ret_rows, uint32_t *ret_columns)
{
    struct winsize ws = {0};
    for (int fd = 0; fd <= 2 && ws.ws_row == 0; fd++)
        if (ioctl(fd, TIOCGWINSZ, &ws) < 0)
            ws.ws_row = 0;
    *ret_rows = ws.ws_row ? ws.ws_row : 24;
    *ret_columns = ws.ws_col ? ws.ws_col : 80;
}

bool tty_stdin_is_null(void)
{
    struct stat st;
    if (fstat(STDIN_FILENO, &st) < 0)
        return true;
    return S_ISCHR(st.st_mode) &&
           st.st_rdev == makedev(1, 3); /* Documentation/admin-guide/devices.txt */
}

bool tty_can_wait(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode) || isatty(fd));
}
