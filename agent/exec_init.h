/* agent/exec_init.h - the inside of one exec: process 1 of its PID namespace, and the command.
 *
 *   agent --clone3--> init (pid 1, agent's rights) --vfork--> command (pid 2, user's rights)
 *
 * init passes signals on, reaps, reports over `ctl`, and ends with the command: the kernel then
 * kills whatever the command left behind.  User code cannot signal, trace or see beyond it.
 * Everything here runs in the child; nothing returns.
 */
#ifndef CL_AGENT_EXEC_INIT_H
#define CL_AGENT_EXEC_INIT_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/person.h"
#include "agent/tiers.h"

/* init -> agent, one SEQPACKET message each. */
enum exec_report_kind { EXEC_REPORT_STARTED = 1, EXEC_REPORT_FAILED, EXEC_REPORT_EXITED };
/* Where a start failed; the texts stand in exec.c. */
enum exec_step {
    EXEC_STEP_NAMESPACES = 1,
    EXEC_STEP_FORK,
    EXEC_STEP_TERMINAL,
    EXEC_STEP_PERSON,
    EXEC_STEP_CWD,
    EXEC_STEP_FILTER,
    EXEC_STEP_COMMAND
};
struct exec_report {
    uint32_t kind;
    int32_t a; /* STARTED: pid; FAILED: step; EXITED: wait status */
    int32_t b; /* FAILED: errno */
    int32_t pad;
    uint64_t cpu_ns, peak_bytes; /* EXITED: of the reaped children */
};

struct exec_plan {
    int ctl; /* reports out, signal numbers (int32_t) in; a negative one is for the command alone */
    int stdio[3]; /* what becomes 0, 1, 2 */
    int frames;   /* what becomes 3; -1 = nothing */
    bool is_pty;  /* 0 becomes the controlling terminal */
    int userns_fd;
    const struct person *who;
    const struct tier *tier;
    char **argv, **envp;
    const char *cwd, *tmpdir;
};

_Noreturn void exec_init_run(const struct exec_plan *plan);

#endif
