/* scheduler/relays.h - the scheduler's end of a relay: bytes between a client and a worker.
 *
 * Owns:    a relay, until relay_drop(); the worker's call.
 * Limit:   SCHED_RELAYS_MAX; what one may queue is its call's (rpc/).
 * Thread:  the loop's.  on_end comes once, and is the last event.
 */
#ifndef CL_SCHEDULER_RELAYS_H
#define CL_SCHEDULER_RELAYS_H

#include "scheduler/sched_priv.h"

struct relay;
struct relay_events {
    void (*on_message)(void *arg, const Cloche__V1__RelayRequest *m);
    void (*on_drain)(void *arg); /* room towards the worker again */
    /* Over; why NULL = in order.  Once.  A worker's refusal ends it at once, without waiting for
     * what the worker has not read. */
    void (*on_end)(void *arg, const struct cl_err *why);
};
int relay_open(struct worker *w, Cloche__V1__OpenRelay *what, const struct relay_events *events,
               void *arg, struct relay **ret_relay, struct cl_err *err) CL_MUST;
/* A worker left: relays that it did not dial yet end soon. */
void relays_worker_left(struct sched *s, const char *worker_id);
/* No more events; the worker's call is ended. */
void relay_drop(struct relay *r);
void relay_pause(struct relay *r, bool paused);
int relay_send(struct relay *r, const void *data, size_t n, bool eof, struct cl_err *err) CL_MUST;
int relay_send_message(struct relay *r, const Cloche__V1__RelayResponse *m,
                       struct cl_err *err) CL_MUST;
bool relay_is_full(const struct relay *r);
extern const struct rpc_method relay_methods[];
extern const size_t relay_methods_count;

#endif
