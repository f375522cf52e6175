/* tests/integration/vmm/xenpv_init.h - the parts of that program to each other. */
#ifndef CL_TESTS_XENPV_INIT_H
#define CL_TESTS_XENPV_INIT_H

#include <stdbool.h>
#include <sys/types.h>

/* One line. */
void check(bool good, const char *what);
/* Its wait status; -1 when there is no such child. */
int wait_for(pid_t child);

/* xenpv_attacks.c, of user code without rights: what it may try in any guest, ... */
void what_may_be_tried(void);
/* ... and what it must not get away with in an isolated one. */
void attacks(void);

#endif
