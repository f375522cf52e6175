/* agent/card.h - the guest's network card: its one address, its route, and who answers for names.
 *
 * There is a card only in VMs that may be given network; what it reaches is decided on the host
 * (net/README.md), not here.  All of it is the same in every VM, so that it can be in a snapshot.
 *
 * Owns:    nothing.
 * Thread:  start-up only, in the new root, before user code.
 */
#ifndef CL_AGENT_CARD_H
#define CL_AGENT_CARD_H

#include "agent/cmdline.h"

/* Waits for the card, sets it up, and writes /etc/resolv.conf.  Without `args` nothing is done:
 * there is no card.  NOTFOUND when it does not come. */
int card_up(const struct card_args *args, struct cl_err *err) CL_MUST;

#endif
