/* tests/fuzz/h2_peer.h - a hostile HTTP/2 client, for the fuzz targets of both servers.
 *
 * Input: records of [type][flags][stream][length, 2 bytes][payload]; each becomes one frame, so
 * that mutation explores what frames do rather than how they are cut.  A type of 0xff sends its
 * payload as it is, 0xfe lets the server work before the next record, 0xfd and 0xfc are the
 * target's.
 */
#ifndef CL_FUZZ_H2_PEER_H
#define CL_FUZZ_H2_PEER_H

#include <errno.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/loop.h"

enum { RECORD_HEAD = 5, RECORD_RAW = 0xff, RECORD_TURN = 0xfe, RECORD_A = 0xfd, RECORD_B = 0xfc };

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/* false when the server has closed the connection. */
static bool read_answers(int fd)
{
    uint8_t answers[4096];
    ssize_t n;
    while ((n = read(fd, answers, sizeof answers)) > 0)
        continue;
    return n < 0 && errno == EAGAIN;
}

/* The same. */
static bool send_all(struct cl_loop *loop, int fd, const void *data, size_t n)
{
    for (const uint8_t *at = data; n > 0;) {
        ssize_t done = send(fd, at, n, MSG_NOSIGNAL);
        if (done < 0 && errno != EAGAIN)
            return false;
        at += CL_MAX(done, 0);
        n -= (size_t)CL_MAX(done, 0);
        if (n > 0) {
            cl_loop_turn(loop, 0);
            (void)read_answers(fd);
        }
    }
    return true;
}

static bool send_frame(struct cl_loop *loop, int fd, const uint8_t *record, size_t n)
{
    const uint8_t head[9] = {0, (uint8_t)(n >> 8), (uint8_t)n, record[0], record[1], 0, 0,
                             0, record[2]};
    return send_all(loop, fd, head, sizeof head) && send_all(loop, fd, record + RECORD_HEAD, n);
}

/* own: what RECORD_A and RECORD_B do; NULL = they are frames. */
static void send_records(struct cl_loop *loop, int fd, const uint8_t *data, size_t n,
                         void (*own)(uint8_t type))
{
    bool up = send_all(loop, fd, preface, sizeof preface - 1);
    while (up && n >= RECORD_HEAD) {
        size_t len = CL_MIN((size_t)data[3] << 8 | data[4], n - RECORD_HEAD);
        if (data[0] == RECORD_RAW)
            up = send_all(loop, fd, data + RECORD_HEAD, len);
        else if (own && (data[0] == RECORD_A || data[0] == RECORD_B))
            own(data[0]);
        else if (data[0] == RECORD_TURN)
            cl_loop_turn(loop, 0);
        else
            up = send_frame(loop, fd, data, len);
        data += RECORD_HEAD + len;
        n -= RECORD_HEAD + len;
    }
}

#endif
