/* e2b/ask_priv.h - the gRPC calls that one request has open.
 *
 * Owns:    each ask; it lives until its rpc_call has ended, which may be after its request.
 * Thread:  the server's loop.
 */
#ifndef CL_E2B_ASK_PRIV_H
#define CL_E2B_ASK_PRIV_H

#include "e2b/call_priv.h"

/* Forget and cancel all of them: no callback of theirs runs any more. */
void e2b_asks_drop(struct e2b_call *c);

#endif
