/* agent/files.c - see agent/files.h. */
#include "agent/files.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/file_ops.h"
#include "agent/helper.h"
#include "agent/pump.h"
#include "base/mem.h"
#include "base/own.h"

enum {
    FILES_TURN_MAX = 4 * GUEST_DATA_MAX,
    FILES_RESULTS_PER_TURN = 4,
};

struct files {
    uint64_t stream;
    Cloche__V1__GuestFileKind kind;
    pid_t pid; /* of the helper; 0 once reaped */
    int pidfd; /* owned; -1 once reaped */
    int ctl;   /* owned; -1 once the last frame was sent or the stream was reset */
    bool committed;
    struct inlet in;   /* WRITE */
    struct outlet out; /* READ */
};

void files_free(struct files *files)
{
    if (!files)
        return;
    inlet_fini(&files->in);
    outlet_fini(&files->out);
    cl_closep(&files->pidfd);
    cl_closep(&files->ctl);
    cl_free(files);
}
CL_DEFINE_AUTO(struct files, files_free)

uint64_t files_stream(const struct files *files)
{
    return files->stream;
}

bool files_is_gone(const struct files *files)
{
    return files->pid == 0 && files->ctl < 0;
}

/* --- start ------------------------------------------------------------------------------------ */

static int make_data_pipe(struct files *files, int *ret_theirs, struct cl_err *err)
{
    bool is_write = files->kind == CLOCHE__V1__GUEST_FILE_KIND__GUEST_FILE_KIND_WRITE;
    int fds[2];
    *ret_theirs = -1;
    if (!is_write && files->kind != CLOCHE__V1__GUEST_FILE_KIND__GUEST_FILE_KIND_READ)
        return 0;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return cl_fail(err, CL_E_SYS, errno, "pipe");
    *ret_theirs = fds[!is_write];
    int ours = fds[is_write];
    if (is_write)
        files->in.fd = ours;
    else
        files->out.fd = ours;
    if (fcntl(ours, F_SETFL, O_NONBLOCK) < 0)
        return cl_fail(err, CL_E_SYS, errno, "prepare a pipe");
    return 0;
}

int files_start(const struct files_world *world, uint64_t stream, const Cloche__V1__GuestFileOp *op,
                struct files **ret_files, struct cl_err *err)
{
    const struct person *who = person_find(world->people, op->user);
    if (!who || !op->path[0])
        return cl_fail(err, CL_E_INVALID, 0, who ? "no path" : "unknown user");
    CL_AUTO(files_freep) struct files *files = cl_zalloc(sizeof *files);
    if (!files)
        return cl_fail(err, CL_E_NOMEM, 0, "file stream");
    *files = (struct files){.stream = stream, .kind = op->kind, .pidfd = -1, .ctl = -1};
    inlet_init(&files->in, -1);
    outlet_init(&files->out, -1, CLOCHE__V1__GUEST_CHANNEL__GUEST_CHANNEL_FILE);

    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return cl_fail(err, CL_E_SYS, errno, "socketpair");
    files->ctl = pair[0];
    CL_AUTO(cl_closep) int ctl = pair[1];
    CL_AUTO(cl_closep) int data = -1;
    if (make_data_pipe(files, &data, err) < 0)
        return -1;
    struct file_plan plan = {.op = op, .cwd = who->cwd, .data = data, .ctl = ctl};
    struct helper_job job = {
        .cgroup_fd = world->groups->files_fd,
        .userns_fd = world->userns_fd,
        .who = who,
        .keep = {data, ctl},
        .fn = file_ops_run,
        .arg = &plan,
    };
    if (helper_spawn(&job, &files->pid, &files->pidfd, err) < 0)
        return -1;
    *ret_files = CL_STEAL(&files);
    return 0;
}

/* --- life ------------------------------------------------------------------------------------- */

int files_data(struct files *files, const Cloche__V1__GuestData *data, struct cl_err *err)
{
    if (files->kind != CLOCHE__V1__GUEST_FILE_KIND__GUEST_FILE_KIND_WRITE)
        return cl_fail(err, CL_E_PEER, 0, "data for a file operation that takes none");
    return inlet_push(&files->in, data->bytes.data, data->bytes.len, data->eof, err);
}

void files_abort(struct files *files)
{
    /* A write sees its pipe end without a commit and takes its temporary file away; the others
     * may be anywhere in a large tree. */
    if (files->kind != CLOCHE__V1__GUEST_FILE_KIND__GUEST_FILE_KIND_WRITE && files->pidfd >= 0)
        (void)syscall(SYS_pidfd_send_signal, files->pidfd, SIGKILL, NULL, 0);
    inlet_fini(&files->in);
    outlet_fini(&files->out);
    cl_closep(&files->ctl);
}

static int send_result(struct files *files, struct gate *gate, struct chan *chan,
                       Cloche__V1__GuestFileResult *result, struct cl_err *err)
{
    GUEST_FRAME(frame, files->stream, FILE_RESULT, file_result, result);
    if (gate_find(gate, files->stream) && chan_send(chan, &frame, err) < 0)
        return -1;
    if (result->more)
        return 0;
    gate_close(gate, files->stream);
    inlet_fini(&files->in);
    outlet_fini(&files->out);
    cl_closep(&files->ctl);
    return 0;
}

static int send_lost(struct files *files, struct gate *gate, struct chan *chan, struct cl_err *err)
{
    static char text[] = "the helper was killed (out of memory?)";
    Cloche__V1__GuestFileResult result;
    cloche__v1__guest_file_result__init(&result);
    result.error_number = EIO;
    result.error = text;
    return send_result(files, gate, chan, &result, err);
}

/* The helper ran the agent's own code, but among user code's files: its words are checked by the
 * protobuf parser like any other's. */
static int take_results(struct files *files, struct gate *gate, struct chan *chan,
                        struct cl_err *err)
{
    static uint8_t packed[FILE_RESULT_MAX];
    for (int i = 0; i < FILES_RESULTS_PER_TURN && files->ctl >= 0; i++) {
        if (!chan_has_room_for_data(chan))
            return 0;
        ssize_t n = recv(files->ctl, packed, sizeof packed, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n < 0 && errno == ECONNRESET)
            continue; /* it ended with our commit unread; its result comes after this, once */
        Cloche__V1__GuestFileResult *result =
            n < 1 ? NULL : cloche__v1__guest_file_result__unpack(NULL, (size_t)n - 1, packed + 1);
        int rc = result ? send_result(files, gate, chan, result, err)
                        : send_lost(files, gate, chan, err);
        if (result)
            cloche__v1__guest_file_result__free_unpacked(result, NULL);
        if (rc < 0)
            return -1;
    }
    return 0;
}

int files_turn(struct files *files, struct gate *gate, struct chan *chan, struct cl_err *err)
{
    struct gate_stream *stream = gate_find(gate, files->stream);
    bool dry;
    (void)helper_reap(&files->pid, &files->pidfd);
    if (files->ctl < 0)
        return 0;
    if (inlet_turn(&files->in, stream, chan, err) < 0 ||
        outlet_turn(&files->out, stream, chan, FILES_TURN_MAX, &dry, err) < 0)
        return -1;
    if (files->in.eof && files->in.fd < 0 && !files->committed) {
        files->committed = true;
        (void)send(files->ctl, "c", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    if (files->out.fd >= 0)
        return 0; /* the data first, then the result */
    return take_results(files, gate, chan, err);
}

void files_wait(const struct files *files, struct gate *gate, const struct chan *chan,
                struct waits *waits)
{
    const struct gate_stream *stream = gate_find(gate, files->stream);
    if (files->pidfd >= 0)
        waits_add(waits, files->pidfd, POLLIN);
    if (inlet_wants_write(&files->in))
        waits_add(waits, files->in.fd, POLLOUT);
    if (outlet_wants_read(&files->out, stream, chan))
        waits_add(waits, files->out.fd, POLLIN);
    if (files->ctl >= 0 && files->out.fd < 0 && chan_has_room_for_data(chan))
        waits_add(waits, files->ctl, POLLIN);
}
