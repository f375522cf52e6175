/* net/frame.h - one Ethernet frame: what it says, checked, and the answers that refuse one.
 *
 * A guest's frame is a fault unless each length in it agrees with the others, each checksum is
 * right and it comes from the guest's own addresses: what is told of a frame is then what leaves.
 * IPv4 options and fragments are faults too: nothing behind this looks at them.
 *
 * Owns:    nothing.
 * Thread:  any.
 * Pure: no I/O, no clock, no memory of its own.
 */
#ifndef CL_NET_FRAME_H
#define CL_NET_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/control.h"

enum {
    NET_FRAME_BYTES_MAX = NET_LINK_MTU + 14, /* with an Ethernet header */
    NET_FRAME_PAYLOAD_MAX = 512, /* of a datagram that is built here (RFC 1035 §2.3.4) */
    NET_FRAME_BUILT_MAX = 14 + 20 + 8 + NET_FRAME_PAYLOAD_MAX,
};

enum net_frame_kind {
    NET_FRAME_ARP = 1,
    NET_FRAME_TCP,
    NET_FRAME_UDP,
    NET_FRAME_OTHER, /* IPv4 with another protocol; to the guest, also a fragment */
};

enum net_frame_fault {
    NET_FRAME_FINE = 0,
    NET_FRAME_SHORT,
    NET_FRAME_MAC,
    NET_FRAME_TYPE,
    NET_FRAME_BAD_ARP,
    NET_FRAME_OPTIONS,
    NET_FRAME_LENGTH,
    NET_FRAME_FRAGMENT,
    NET_FRAME_ADDRESS,
    NET_FRAME_CHECKSUM,
    NET_FRAME_BAD_TCP,
    NET_FRAME_BAD_UDP,
    NET_FRAME_FAULTS_END,
};

enum { NET_TCP_FIN = 1, NET_TCP_SYN = 2, NET_TCP_RST = 4, NET_TCP_ACK = 16 };

/* Numbers in host byte order. */
struct net_frame {
    enum net_frame_kind kind;
    uint8_t protocol; /* the IANA's; of ARP 0 */
    uint8_t flags;    /* of TCP: NET_TCP_... */
    uint16_t bytes;   /* of the IPv4 packet: the frame ends 14 bytes later; of ARP 0 */
    uint32_t from, to;
    uint16_t from_port, to_port; /* of TCP and UDP */
    uint32_t seq, ack;           /* of TCP */
    uint16_t payload_at;         /* of TCP and UDP: where in the frame it begins */
    uint16_t payload_bytes;
};

/* Static text. */
const char *net_frame_fault_text(enum net_frame_fault fault);

/* *ret_frame is written when the frame is FINE, else not. */
enum net_frame_fault net_frame_from_guest(const uint8_t *bytes, size_t n,
                                          struct net_frame *ret_frame) CL_MUST;
/* A frame that the stack made: its checksums are not looked at. */
enum net_frame_fault net_frame_to_guest(const uint8_t *bytes, size_t n,
                                        struct net_frame *ret_frame) CL_MUST;

/* The reset that answers a TCP frame of the guest (RFC 9293 §3.10.7.1).  Returns its bytes, 0 when
 * there is none: a reset is not answered. */
size_t net_frame_build_reset(const struct net_frame *to, uint8_t out[static NET_FRAME_BUILT_MAX]);
/* The guest's own reset of the connection that its frame is of, for the stack; `bytes` is the
 * frame. Returns its bytes. */
size_t net_frame_build_hang_up(const uint8_t *bytes, const struct net_frame *from,
                               uint8_t out[static NET_FRAME_BUILT_MAX]);
/* "Communication administratively prohibited" (RFC 1812 §5.2.7.1), about this frame of the guest's,
 * whose bytes are at `bytes`. */
size_t net_frame_build_prohibited(const uint8_t *bytes, const struct net_frame *to,
                                  uint8_t out[static NET_FRAME_BUILT_MAX]);
/* The answer to a datagram of the guest; n <= NET_FRAME_PAYLOAD_MAX. */
size_t net_frame_build_datagram(const struct net_frame *to, const uint8_t *payload, size_t n,
                                uint8_t out[static NET_FRAME_BUILT_MAX]);

#endif
