/* agent/pump.h - bytes between one stream of the channel and one fd, under flow control.
 *
 * An inlet carries data frames to an fd (stdin, the contents of a file to write); an outlet
 * carries an fd (stdout, stderr, the contents of a file to read) to data frames.  A socket has one
 * of each, on two fds of it, so that either direction can end by itself. Owns:    its fd and, for
 * an inlet, at most one window of bytes. Thread:  the agent's only one.  All fds are non-blocking.
 */
#ifndef CL_AGENT_PUMP_H
#define CL_AGENT_PUMP_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/chan.h"
#include "agent/gate.h"
#include "base/buf.h"

struct inlet {
    int fd;            /* owned; -1 once closed: what still arrives is dropped */
    bool is_pty;       /* eof is the terminal's end-of-file character, and fd is borrowed */
    bool is_socket;    /* eof shuts its direction down */
    int error;         /* errno of a socket that broke: what came after that was dropped */
    bool eof;          /* the worker has ended it; close when the buffer is empty */
    uint64_t total;    /* bytes accepted */
    uint32_t returned; /* bytes whose credit was not given back yet */
    struct cl_buf buf;
};

struct outlet {
    int fd; /* owned; -1 once it is at its end */
    Cloche__V1__GuestChannel channel;
    bool is_socket;
    int error;      /* errno of a socket that broke: it has ended, and no eof frame tells that */
    uint64_t total; /* bytes sent */
};

void inlet_init(struct inlet *in, int fd);
void inlet_fini(struct inlet *in);
/* Take one frame's bytes; the gate has checked them against the credit. */
int inlet_push(struct inlet *in, const void *data, size_t n, bool eof, struct cl_err *err) CL_MUST;
bool inlet_wants_write(const struct inlet *in);
/* Write what the fd takes, return credit, close at the end. */
int inlet_turn(struct inlet *in, struct gate_stream *stream, struct chan *chan,
               struct cl_err *err) CL_MUST;

void outlet_init(struct outlet *out, int fd, Cloche__V1__GuestChannel channel);
void outlet_fini(struct outlet *out);
bool outlet_wants_read(const struct outlet *out, const struct gate_stream *stream,
                       const struct chan *chan);
/* Read and send at most `max` bytes while there are bytes, credit and room.  *ret_dry is true
 * when the fd has nothing more for now; at its end the eof frame is sent and fd becomes -1. */
int outlet_turn(struct outlet *out, struct gate_stream *stream, struct chan *chan, uint64_t max,
                bool *ret_dry, struct cl_err *err) CL_MUST;
/* Send the eof frame now, whatever the fd still has. */
int outlet_end(struct outlet *out, struct gate_stream *stream, struct chan *chan,
               struct cl_err *err) CL_MUST;

#endif
