/* audit/writer/server.h - the writer's loop: producers' connections, acks, checkpoints, reserve.
 *
 * Owns:    the listener and the connections.
 * Borrows: the store, until server_free().
 * Limit:   PRODUCERS_MAX connections; a peer whose uid is not allowed is dropped at once.
 * Thread:  its loop.
 */
#ifndef CL_AUDIT_WRITER_SERVER_H
#define CL_AUDIT_WRITER_SERVER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "audit/uids.h"
#include "audit/writer/store.h"
#include "base/err.h"
#include "base/loop.h"
#include "base/own.h"
#include "base/util.h"
#include "observability/metrics.h"

struct server;

enum { PRODUCERS_MAX = 64 };

struct server_conf {
    const char *socket;
    const char *dir;               /* where the reserve is measured; must outlive the server */
    struct metrics *metrics;       /* borrowed; NULL = nothing is counted */
    const uint64_t *reserve_bytes; /* borrowed: refuse below this much free disk; may change */
    uint64_t checkpoint_ns;
    uint64_t idle_checkpoint_ns;
    struct audit_uids producers;
};

int server_new(struct cl_loop *loop, const struct server_conf *conf, struct store *store,
               struct server **ret_server, struct cl_err *err) CL_MUST;
void server_free(struct server *server);
CL_DEFINE_AUTO(struct server, server_free)

#endif
