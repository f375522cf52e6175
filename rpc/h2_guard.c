/* rpc/h2_guard.c - see rpc/h2_guard.h. */
#include "rpc/h2_guard.h"

#include <string.h>

#include "base/clock.h"
#include "base/util.h"

enum {
    RESET_BURST = 1000, /* cancelled requests: each costs us a call's set-up */
    RESET_PER_S = 100,
    CONTROL_BURST = 500, /* SETTINGS, PRIORITY, empty DATA, broken frames: work for nothing */
    CONTROL_PER_S = 50,
    NGHTTP2_RESET_BURST = 10000, /* nghttp2's own limiter, behind ours */
    NGHTTP2_RESET_PER_S = 1000,
    CONTINUATIONS_MAX = 8,
    OUTBOUND_ACK_MAX = 500,
    PING_STRIKES_MAX = 2,
};

/* Pings of the peer closer than this are strikes.  Our own clients ask a silent server 3 s after
 * its last word, so never sooner than 3 s after their last PING came (rpc/channel_io.c). */
#define PEER_PING_NS (2 * CL_NS_PER_S)

void h2_guard_set_options(nghttp2_option *option)
{
    nghttp2_option_set_stream_reset_rate_limit(option, NGHTTP2_RESET_BURST, NGHTTP2_RESET_PER_S);
    nghttp2_option_set_max_continuations(option, CONTINUATIONS_MAX);
    nghttp2_option_set_max_outbound_ack(option, OUTBOUND_ACK_MAX);
}

static bool take(struct h2_budget *b, uint32_t burst, uint32_t per_s)
{
    uint64_t now = cl_now_ns();
    uint64_t back = (now - b->at_ns) / (CL_NS_PER_S / per_s);
    if (b->at_ns == 0 || back >= b->used)
        *b = (struct h2_budget){.at_ns = now};
    else if (back > 0)
        *b = (struct h2_budget){b->at_ns + back * (CL_NS_PER_S / per_s), b->used - (uint32_t)back};
    b->used++;
    return b->used <= burst;
}

const char *h2_guard_bad_frame(struct h2_guard *g)
{
    return take(&g->controls, CONTROL_BURST, CONTROL_PER_S) ? NULL : "too_many_control_frames";
}

static const char *on_ping(struct h2_guard *g)
{
    if (!g->is_server)
        return h2_guard_bad_frame(g);
    uint64_t now = cl_now_ns();
    if (g->peer_ping_ns != 0 && now - g->peer_ping_ns < PEER_PING_NS)
        g->ping_strikes++;
    g->peer_ping_ns = now;
    return g->ping_strikes > PING_STRIKES_MAX ? "too_many_pings" : NULL;
}

const char *h2_guard_frame(struct h2_guard *g, const nghttp2_frame *frame)
{
    switch (frame->hd.type) {
    case NGHTTP2_DATA:
        if (frame->hd.length > 0 || (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
            return NULL;
        return h2_guard_bad_frame(g);
    case NGHTTP2_RST_STREAM:
        return take(&g->resets, RESET_BURST, RESET_PER_S) ? NULL : "too_many_resets";
    case NGHTTP2_PING:
        return (frame->hd.flags & NGHTTP2_FLAG_ACK) ? NULL : on_ping(g);
    case NGHTTP2_SETTINGS:
    case NGHTTP2_PRIORITY:
        return h2_guard_bad_frame(g);
    default:
        return NULL;
    }
}

void h2_guard_forgive_pings(struct h2_guard *g)
{
    g->ping_strikes = 0;
    g->peer_ping_ns = 0;
}

uint32_t h2_guard_error_of(int nghttp2_error)
{
    bool flood =
        nghttp2_error == NGHTTP2_ERR_FLOODED || nghttp2_error == NGHTTP2_ERR_TOO_MANY_CONTINUATIONS;
    return flood ? NGHTTP2_ENHANCE_YOUR_CALM : NGHTTP2_PROTOCOL_ERROR;
}

static void put_u32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v >> 24);
    p[1] = (uint8_t)(v >> 16);
    p[2] = (uint8_t)(v >> 8);
    p[3] = (uint8_t)v;
}

size_t h2_goaway(uint8_t frame[static H2_GOAWAY_MAX], int32_t last_stream_id, uint32_t h2_error,
                 const char *text)
{
    size_t n = CL_MIN(strlen(text), (size_t)H2_GOAWAY_TEXT);
    memset(frame, 0, 9);
    frame[2] = (uint8_t)(8 + n);
    frame[3] = NGHTTP2_GOAWAY;
    put_u32(frame + 9, (uint32_t)last_stream_id);
    put_u32(frame + 13, h2_error);
    memcpy(frame + 17, text, n);
    return 17 + n;
}
