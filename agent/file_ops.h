/* agent/file_ops.h - the file operations themselves, inside a helper process.
 *
 * Bytes go over a pipe, results (a byte, then a packed GuestFileResult) over a SEQPACKET socket.
 * A write is committed when its pipe ended and the agent said so on the socket; otherwise it leaves
 * no trace. Everything here runs with the user's own rights and may block.
 */
#ifndef CL_AGENT_FILE_OPS_H
#define CL_AGENT_FILE_OPS_H

#include <stdbool.h>

#include "cloche/v1/guest.pb-c.h"

enum {
    FILE_RESULT_MAX = 60 * 1024, /* a packed result with its frame stays below GUEST_FRAME_MAX */
    FILE_LIST_DEFAULT = 1000,
    FILE_LIST_MAX = 10000, /* entries of one answer: what the helper must hold */
};

struct file_plan {
    const Cloche__V1__GuestFileOp *op;
    const char *cwd; /* relative paths start here */
    int data;        /* READ: write end, WRITE: read end, else -1 */
    int ctl;
};

/* Send one result; nobody is left to hear of a failure, so that ends the process. */
void file_send_result(const struct file_plan *plan, const Cloche__V1__GuestFileResult *result);

/* Is that the name of a file that a write has not finished? */
bool file_is_temporary(const char *name);

/* helper_fn; arg is a struct file_plan. */
void file_ops_run(void *plan);
/* helper_fn: remove the tree whose path is arg. */
void file_ops_sweep(void *path);

#endif
