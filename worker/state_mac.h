/* worker/state_mac.h - the seal on a snapshot's device state: HMAC-SHA-256 under a key of the
 * worker.
 *
 * A monitor writes the state after its guest ran, so its bytes are as hostile as the guest; the MAC
 * says that they are the bytes of this template's own snapshot and not another's, and have not
 * changed since.  The key never enters a process that faces a guest.
 *
 * Thread: any.
 */
#ifndef CL_WORKER_STATE_MAC_H
#define CL_WORKER_STATE_MAC_H

#include "worker/template.h"

enum {
    STATE_MAC_KEY = 32,
    /* Devices and 8 vCPUs need a tenth; without it a monitor that was taken over makes the worker
     * read (and hash) all memory that it can fill. */
    STATE_MAC_MAX = 1024 * 1024,
};

struct state_mac_key {
    uint8_t bytes[STATE_MAC_KEY];
};

/* Over the template's snapshot key and its whole state file, into t->state_mac. */
int state_mac_make(const struct state_mac_key *key, struct template *t, struct cl_err *err) CL_MUST;
/* DATALOSS unless the state file is what state_mac_make() saw. */
int state_mac_check(const struct state_mac_key *key, const struct template *t,
                    struct cl_err *err) CL_MUST;

#endif
