/* rpc/h2_guard.h - what a peer of an HTTP/2 session may make us do for nothing: resets, pings,
 * settings, broken frames.  One for each connection, whatever is spoken on top.
 *
 * Owns:    nothing.
 * Thread:  its connection's; reads the clock.
 * Source:  RFC 9113 section 10.5; the limits answer CVE-2019-9511..9518, CVE-2023-44487 and
 *          CVE-2024-28182.
 */
#ifndef CL_RPC_H2_GUARD_H
#define CL_RPC_H2_GUARD_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    H2_GOAWAY_TEXT = 64,
    H2_GOAWAY_MAX = 9 + 8 + H2_GOAWAY_TEXT,
};

/* A bucket of tokens: what a peer may do `burst` times at once and `per_s` times a second. */
struct h2_budget {
    uint64_t at_ns;
    uint32_t used;
};

struct h2_guard {
    bool is_server;
    uint64_t peer_ping_ns; /* last PING of the peer */
    unsigned ping_strikes;
    struct h2_budget resets, controls;
};

/* nghttp2's own limits: resets, CONTINUATION frames of a header block, answers that wait. */
void h2_guard_set_options(nghttp2_option *option);
/* A frame came, or one that was refused.  NULL = go on; else the peer must go, with
 * ENHANCE_YOUR_CALM and this text (static). */
const char *h2_guard_frame(struct h2_guard *g, const nghttp2_frame *frame);
const char *h2_guard_bad_frame(struct h2_guard *g);
/* Something was sent: a peer may ping to measure it. */
void h2_guard_forgive_pings(struct h2_guard *g);
/* With what to answer when nghttp2_session_mem_recv() fails. */
uint32_t h2_guard_error_of(int nghttp2_error);

/* A GOAWAY frame, written by hand: the session may be past saying anything.  Returns its length;
 * it belongs to a frame boundary of the output. */
size_t h2_goaway(uint8_t frame[static H2_GOAWAY_MAX], int32_t last_stream_id, uint32_t h2_error,
                 const char *text);

#endif
