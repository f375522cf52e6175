/* worker/vm_net.h - the network of one VM: its cloche-net (net/control.h), from its claim to its
 * end.
 *
 * Owns:    the process, the control socket; the wire until the process has it.
 * Borrows: the settings and the events' arg.
 * Thread:  the worker loop; callbacks come from it, never from inside a call.
 * Trust:   what it says is taken for the words of user code, whose packets it reads.
 *
 * A VM does not get network without somebody who records it: when its cloche-net ends, so does its
 * VM; when the worker ends, its cloche-net does at once.
 */
#ifndef CL_WORKER_VM_NET_H
#define CL_WORKER_VM_NET_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/loop.h"
#include "net/control.h"
#include "worker/cgroup.h"

/* Of this worker, for every VM. */
struct vm_net_settings {
    const char *binary; /* borrowed: path of cloche-net; "" = no VM gets network */
    gid_t gid;          /* of its processes, where they get the uid of their VM */
    struct net_range private_ranges[NET_RANGES_MAX];
    uint32_t n_private;
    uint32_t servers[NET_SERVERS_MAX]; /* resolvers */
    uint32_t n_servers;
};

struct vm_net_events {
    void (*on_event)(void *arg, const struct net_event *event); /* checked (net_event_check) */
    /* The process is gone and has said all it had to say.  The last event. */
    void (*on_end)(void *arg, const struct cl_err *why);
};

struct vm_net_spec {
    const struct vm_net_settings *settings;
    int wire;                      /* taken over, also when it fails */
    uid_t uid;                     /* 0 = the worker's own */
    const struct cgroup *cgroup;   /* that it joins; borrowed during the call */
    const struct net_grant *grant; /* borrowed during the call */
};

struct vm_net;

/* Ranges ("10.1.0.0/16,192.168.7.9") and resolvers ("" = those of /etc/resolv.conf) as an operator
 * writes them.  INVALID names the one that is none. */
int vm_net_settings_read(struct vm_net_settings *settings, const char *private_ranges,
                         const char *servers, struct cl_err *err) CL_MUST;
/* The resolvers of a resolv.conf(5), IPv4 only (pure). */
uint32_t vm_net_read_servers(const char *text, uint32_t out[static NET_SERVERS_MAX]);

int vm_net_start(struct cl_loop *loop, const struct vm_net_spec *spec,
                 const struct vm_net_events *events, void *arg, struct vm_net **ret_net,
                 struct cl_err *err) CL_MUST;
/* Say what is left, and end; on_end follows, after VM_NET_PATIENCE_MS at the latest. */
void vm_net_finish(struct vm_net *net);
/* After on_end, or instead of it; NULL is a no-op.  A process that still runs is killed. */
void vm_net_free(struct vm_net *net);

enum { VM_NET_PATIENCE_MS = 5000 };

#endif
