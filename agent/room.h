/* agent/room.h - the processes of one exec or code context: namespaces, cgroup, end.
 *
 *   opened --launch--> lives --its init ends, or kill--> reaped --bury--> gone
 *
 * Owns:    the init by pidfd, its control socket, the cgroup, the temporary folder.
 * Borrows: the cgroups and the user namespace, for the agent's life.
 * Thread:  the agent's only one; nothing here blocks.
 */
#ifndef CL_AGENT_ROOM_H
#define CL_AGENT_ROOM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/cgroup.h"
#include "agent/exec_env.h"
#include "agent/exec_init.h"
#include "agent/sensor.h"

/* What every room needs from the agent. */
struct room_world {
    const struct cgroups *groups;
    const struct people *people;
    int userns_fd;
    struct sensor *sensor;
};

struct room {
    uint64_t id;        /* names the cgroup */
    pid_t pid;          /* of its init, at the end of the sweeper; 0 once reaped */
    int pidfd;          /* -1 once reaped */
    int ctl;            /* reports in, signals out */
    int cgroup_fd;      /* -1 once removed */
    uint64_t cgroup_id; /* as the kernel's own programs know it */
    const struct room_world *world;
    const struct person *who;
    bool starved; /* by room_starve() */
    char tmpdir[EXEC_TMPDIR_LEN];
};

/* Name the room and make its cgroup; ids are never used twice at one time. */
int room_open(struct room *room, const struct room_world *world, uint64_t id,
              const struct person *who, struct cl_err *err) CL_MUST;
/* Start its init and the command.  stdio, frames (-1 = none) stay the caller's.  A command that
 * cannot be run is no failure here: it is reported. */
struct room_start {
    const struct exec_env *env;
    const struct tier *tier;
    int stdio[3];
    int frames; /* becomes fd 3 of the command; -1 = none */
    bool is_pty;
};
int room_launch(struct room *room, const struct room_start *start, struct cl_err *err) CL_MUST;

/* Signal the command's process group, or the command alone. */
void room_signal(const struct room *room, int signo);
void room_signal_command(const struct room *room, int signo);
/* Kill everything in it. */
void room_kill(const struct room *room);
/* The same, because memory is so full that nobody gets on; told as what the OOM killer does. */
void room_starve(struct room *room);
/* That of the two whose programs hold more memory; NULL is none. */
struct room *room_larger(struct room *a, struct room *b);
/* Either of them killed in it. */
bool room_had_oom(const struct room *room);
/* True once its init is reaped; everything in it is dead then. */
bool room_reap(struct room *room);
/* The next report of its init, if one waits. */
bool room_next_report(const struct room *room, struct exec_report *ret_report);
/* After the reaping: remove the cgroup, then the temporary folder.  True when all is gone. */
bool room_bury(struct room *room);
/* Close what is held; a room that was launched must be gone. */
void room_fini(struct room *room);

/* A pipe with one end for the command; its ends belong to the user, so that /dev/stdout can be
 * opened again. */
int room_pipe(const struct person *who, bool to_child, int *ret_ours, int *ret_theirs,
              struct cl_err *err) CL_MUST;

#endif
