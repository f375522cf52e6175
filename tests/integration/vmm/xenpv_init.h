/* tests/integration/vmm/xenpv_init.h - the parts of that program to each other. */
#ifndef CL_TESTS_XENPV_INIT_H
#define CL_TESTS_XENPV_INIT_H

#include <stdbool.h>
#include <sys/types.h>

/* One line. */
void check(bool good, const char *what);
bool has_failed(void); /* one of them, here or before this process was forked */
/* Its wait status; -1 when there is no such child. */
int wait_for(pid_t child);

/* xenpv_smp.c: how many there are, ... */
unsigned processors(void);
/* ... this process and its children on one of them from now on, or on any, ... */
bool run_on(unsigned cpu);
void run_anywhere(void);
/* ... all of them at work, and each but the first switched off and on. */
void several_processors(void);
void off_and_on(void);

/* xenpv_sensor.c: the agent's sensor sees a program start. */
void what_user_code_does(void);

/* xenpv_attacks.c, of user code without rights: what it may try in any guest, ... */
void what_may_be_tried(void);
/* ... and what it must not get away with in an isolated one. */
void attacks(void);

#endif
