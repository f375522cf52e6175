/* cli/tty.h - the terminal of whoever sits here: raw mode, size.
 *
 * Owns:    the saved settings; tty_restore() puts them back and is harmless when nothing was
 * changed. Thread:  the only one.
 */
#ifndef CL_CLI_TTY_H
#define CL_CLI_TTY_H

#include <stdbool.h>
#include <stdint.h>
#include <termios.h>

#include "base/err.h"
#include "base/util.h"

struct tty {
    struct termios saved;
    bool is_raw;
};

/* Make stdin raw; a stdin that is no terminal stays as it is. */
int tty_raw(struct tty *t, struct cl_err *err) CL_MUST;
void tty_restore(struct tty *t);
/* 24 x 80 where it cannot be asked. */
void tty_size(uint32_t *ret_rows, uint32_t *ret_columns);
/* Is fd 0 closed or /dev/null, so that there is nothing to forward? */
bool tty_stdin_is_null(void);

/* Pipes, sockets and terminals can make us wait, and epoll takes them; files and the like cannot.
 */
bool tty_can_wait(int fd);

#endif
