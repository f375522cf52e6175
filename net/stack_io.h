/* net/stack_io.h - the guest's TCP and UDP as this host's sockets: libslirp, and nothing of it but
 * that.  No DHCP, no DNS, no way to the loopback, no IPv6, no emulation of old protocols.
 *
 * Owns:    the stack and its sockets.
 * Borrows: what `user` points to, until stack_close().
 * Thread:  the loop.
 * It takes what the filter has passed; frames to the guest go to stack_send_fn, from within a call.
 */
#ifndef CL_NET_STACK_IO_H
#define CL_NET_STACK_IO_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/util.h"

struct stack;

/* `frame` is borrowed until it returns. */
typedef void stack_send_fn(void *user, const uint8_t *frame, size_t n);

int stack_open(stack_send_fn *send, void *user, struct stack **ret_stack,
               struct cl_err *err) CL_MUST;
/* NULL is a no-op. */
void stack_close(struct stack *s);
void stack_input(struct stack *s, const uint8_t *frame, size_t n);
/* What to wait for: at most `max` entries, whose number it returns; *timeout_ms may shrink. */
size_t stack_fill(struct stack *s, struct pollfd *fds, size_t max, uint32_t *timeout_ms) CL_MUST;
/* After poll(2), with the entries of stack_fill(). */
void stack_poll(struct stack *s, const struct pollfd *fds, size_t n, bool failed);

#endif
