/* trail/reader/service.h - AuditService as cloche-audit-reader serves it to schedulers of its host,
 * which have judged the caller and filled in the stream.
 *
 * Each call reads a piece of the log a turn and then lets the others on, so a long one holds none
 * of them up for longer than that.
 *
 * Owns:    what its calls have under way.
 * Borrows: loop, uids and rules, until service_free().
 * Limit:   SERVICE_CALLS calls; more answer QUEUE.
 * Thread:  its loop's; blocks on the disk for WALK_STEP bytes at a time.
 */
#ifndef CL_TRAIL_READER_SERVICE_H
#define CL_TRAIL_READER_SERVICE_H

#include "audit/uids.h"
#include "base/err.h"
#include "base/loop.h"
#include "base/own.h"
#include "base/util.h"
#include "rpc/server.h"
#include "trail/rules_file.h"

enum {
    SERVICE_CALLS = 64,
    SERVICE_STREAMS = 512, /* read together; each takes 64 KiB */
    SERVICE_TREE_RECORDS = 50000,
    SERVICE_TREE_BYTES = 3 * 1024 * 1024, /* of its JSON */
    SERVICE_FINDINGS = 1000,
};

struct service;
struct service_conf {
    struct cl_loop *loop;
    const char *dir;               /* borrowed */
    const char *public_key;        /* borrowed: file, PEM; "" = audit.key.pub of the folder */
    const struct audit_uids *uids; /* who may call */
    struct rules_file *rules;      /* borrowed: detections of the operator's own */
};
int service_new(const struct service_conf *conf, struct service **ret_service,
                struct cl_err *err) CL_MUST;
/* Once the server of its methods is gone.  NULL is a no-op. */
void service_free(struct service *s);
CL_DEFINE_AUTO(struct service, service_free)

extern const struct rpc_method service_methods[];
extern const size_t service_methods_n;

#endif
