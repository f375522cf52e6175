/* worker/exec.h - one process in a guest, as an object: it outlives the streams that follow it.
 *
 * Owns:    its command, its spool, its guest stream until that closes, its result.
 * Borrows: the guest (the unit closes streams before it frees the guest).
 * Thread:  the worker loop.
 */
#ifndef CL_WORKER_EXEC_H
#define CL_WORKER_EXEC_H

#include "base/id.h"
#include "cloche/v1/common.pb-c.h"
#include "cloche/v1/kept.pb-c.h"
#include "worker/guest.h"
#include "worker/spool.h"

enum {
    EXEC_TIMEOUT_GRACE_S = 5, /* after the agent's own limit, the VM goes */
    EXEC_OUTPUT_DEFAULT_MIB = 64,
    EXEC_TIMEOUT_DEFAULT_S = 300,
};

struct exec;

/* The process ended; exec_result() is final.  Runs once. */
typedef void exec_ended_fn(void *arg, struct exec *exec);

struct exec_options {
    struct cl_loop *loop;
    struct guest *guest;
    const char *spool_dir;
    const char *id;
    const Cloche__V1__Command *command; /* copied */
    const char *traceparent; /* W3C trace context, for the process's environment; "" = none */
    exec_ended_fn *on_end;
    void *arg;
};

int exec_start(const struct exec_options *options, struct exec **ret_exec,
               struct cl_err *err) CL_MUST;
/* NULL is a no-op.  The process is not told: end the guest or signal first. */
void exec_free(struct exec *exec);
/* The guest is gone: end with this outcome unless it has ended. */
void exec_abort(struct exec *exec, Cloche__V1__Outcome outcome, Cloche__V1__Reason reason,
                const char *message);

/* Whoever points to it holds it: one that is held is not forgotten. */
void exec_hold(struct exec *exec);
void exec_release(struct exec *exec);
bool exec_is_held(const struct exec *exec);

const char *exec_id(const struct exec *exec);
/* Of its stream in the guest. */
uint64_t exec_guest_stream(const struct exec *exec);
bool exec_is_running(const struct exec *exec);
struct spool *exec_spool(struct exec *exec);
const Cloche__V1__Command *exec_command(const struct exec *exec);
uint64_t exec_started_wall_ns(const struct exec *exec);
/* Borrowed until the exec is freed; complete once it is not running. */
const Cloche__V1__ExecResult *exec_result(const struct exec *exec);

int exec_signal(struct exec *exec, int signo, struct cl_err *err) CL_MUST;
int exec_resize(struct exec *exec, uint32_t rows, uint32_t columns, struct cl_err *err) CL_MUST;

/* False: not now, and what is said then could be lost with this process; on_room follows. */
bool exec_takes_stdin(struct exec *exec);
/* stdin: takes what fits, returns how much; on_room (set once, NULL = nobody) when more fits. */
size_t exec_write_stdin(struct exec *exec, const void *data, size_t n, bool eof);
void exec_set_stdin_room(struct exec *exec, void (*on_room)(void *arg), void *arg);

/* Of a sandbox that is held and outlives the worker.  Its output gets names that begin with `path`,
 * and keeps them. */
int exec_keep_output(struct exec *exec, const char *path, struct cl_err *err) CL_MUST;
/* They are not needed any more. */
void exec_forget_output(struct exec *exec);
/* What another process needs; all but `start`, which is its owner's.  Borrows from the exec. */
struct exec_kept {
    Cloche__V1__KeptExec m;
    Cloche__V1__KeptOutput output;
    Cloche__V1__KeptBytes lanes[SPOOL_STREAMS], *list[SPOOL_STREAMS];
    Cloche__V1__ExecResult result;
    struct spool_kept spool; /* with its key */
};
void exec_get_kept(const struct exec *exec, struct exec_kept *ret_kept);
/* Go on with one of a guest that was taken up (guest_take_up()); `path` as above.  The options'
 * spool_dir and traceparent are not needed. */
int exec_restore(const struct exec_options *options, const Cloche__V1__KeptExec *m,
                 const char *path, struct exec **ret_exec, struct cl_err *err) CL_MUST;
/* The next process has it: nobody hears of its end here, and its output stays. */
void exec_leave(struct exec *exec);
/* Another worker has it, and nothing of its output stays here; who follows it is woken. */
void exec_give_away(struct exec *exec);
/* One of these. */
bool exec_is_left(const struct exec *exec);

#endif
