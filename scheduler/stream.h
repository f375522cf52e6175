/* scheduler/stream.h - a client's stream that follows the output of a process to its end (Run,
 * Watch, Attach), and the one the other way: bytes of a client for a process or a file.
 *
 * A stream lives as its api_call's state.  Output comes over a relay from the worker; when the
 * worker is away the stream waits and goes on at the same offset; when the output is gone it says
 * which range (DATA_LOSS).
 */
#ifndef CL_SCHEDULER_STREAM_H
#define CL_SCHEDULER_STREAM_H

#include "scheduler/api.h"

enum stream_kind { STREAM_RUN = 1, STREAM_WATCH, STREAM_ATTACH };

struct stream_spec {
    enum stream_kind kind;
    bool cancel_on_leave;
    bool no_follow;
    uint32_t attempt; /* Watch: 0 = the newest */
    uint64_t offsets[2];
    const char *exec_id; /* Attach */
};

/* Follow a unit that has not ended. */
void stream_start(struct api_call *a, struct unit *u, const struct stream_spec *spec);
/* Follow a job that is only in the books. */
void stream_start_ended(struct api_call *a, const char *job_id, const struct stream_spec *spec);
/* For the method's row. */
void stream_drain(struct api_call *a);
void stream_gone(struct api_call *a, const struct cl_err *why);

/* --- uploads ---------------------------------------------------------------------------------- */

/* Handlers that only say what kind of upload the call is; then its messages come. */
void upload_stdin_job(struct api_call *a);
void upload_stdin_exec(struct api_call *a);
void upload_file(struct api_call *a);
/* One message of any of them; the ids and the file's facts count in the first one. */
void upload_bytes(struct api_call *a, const char *unit_id, const char *exec_id, const void *data,
                  size_t n, bool eof);
void upload_file_bytes(struct api_call *a, const Cloche__V1__WriteRequest *m);
void upload_half_close(struct api_call *a);
void upload_gone(struct api_call *a, const struct cl_err *why);

#endif
