/* worker/session.h - the worker's control stream with its scheduler.
 *
 * Dials, says Hello, takes assignments, renews leases, reports ends until they are acknowledged.
 * Bulk data goes over relays (worker/relay.h), each a call of its own.
 *
 * Owns:    the channel and the session call.  Borrows the units and the pool.
 * Thread:  the worker loop.
 */
#ifndef CL_WORKER_SESSION_H
#define CL_WORKER_SESSION_H

#include <openssl/types.h>

#include "rpc/channel.h"
#include "worker/unit.h"
#include "worker/vm_state.h"

enum { SESSION_LOST_MAX = 4096 }; /* leases of an earlier worker, until they are acknowledged */

struct session;

struct session_options {
    bool is_shared; /* it has no isolated guests */
    struct cl_loop *loop;
    const char *target; /* of the scheduler's worker listener */
    SSL_CTX *tls;       /* NULL on a unix socket */
    const char *worker_id, *driver;
    struct units *units;
    struct pool *pool;
    uint64_t capacity_vcpu_milli, capacity_memory_mib;
    uint32_t slots;
    const char *state_dir; /* closed while its disk has less than disk_reserve free */
    uint64_t disk_reserve;
};

int session_new(const struct session_options *options, struct session **ret_session,
                struct cl_err *err) CL_MUST;
void session_free(struct session *s);
/* A VM that an earlier worker left, with its lease, and why it cannot go on: report it. */
int session_report_lost(struct session *s, const struct vm_state *lost, const char *why,
                        struct cl_err *err) CL_MUST;
/* For reloads: the next connections use tls, which must outlive the session or the next call. */
void session_set_tls(struct session *s, SSL_CTX *tls);
void session_set_disk_reserve(struct session *s, uint64_t bytes);
/* Take no more work (drain). */
void session_close_for_work(struct session *s, const char *why);
/* Tell the scheduler at once how the units are; not while there is none. */
void session_renew_now(struct session *s);
/* The scheduler has answered all that it was told of them, or is gone. */
bool session_is_renewed(const struct session *s);
/* The unit events to give to the units; arg is the session. */
extern const struct unit_events session_unit_events;
/* The pool changed. */
void session_pool_changed(void *session);

#endif
