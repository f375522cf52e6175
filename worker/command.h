/* worker/command.h - the short commands of a scheduler on execs, files and lifetimes.
 *
 * Every command is answered exactly once by `reply`, maybe later (Wait, files).
 * Owns:    a command that waits, until its reply.
 * Thread:  the worker loop.
 */
#ifndef CL_WORKER_COMMAND_H
#define CL_WORKER_COMMAND_H

#include "worker/unit.h"

enum { COMMANDS_MAX = 4096 }; /* that wait; without a bound a client could pile up Waits */

struct command_host {
    void (*reply)(void *arg, Cloche__V1__ExecAnswer *answer);
    /* May a paused sandbox take so many bytes of the disk, and may one more VM of that size run? */
    int (*check_disk)(void *arg, uint64_t bytes, struct cl_err *err);
    int (*check_room)(void *arg, const Cloche__V1__Resources *resources, struct cl_err *err);
    /* Take no new work, or again; to be remembered. */
    int (*drain)(void *arg, bool undo, struct cl_err *err);
};

struct commands {
    struct cl_loop *loop;
    struct units *units;
    struct command_host host;
    void *arg;
    struct cl_list waiting;
    size_t n_waiting;
};

void commands_init(struct commands *c);
/* Answers what waits with UNAVAILABLE. */
void commands_fini(struct commands *c);
void command_run(struct commands *c, const Cloche__V1__ExecCommand *command);

#endif
