/* scheduler/options.h - the configuration of cloche-scheduler, one row an option. */
#ifndef CL_SCHEDULER_OPTIONS_H
#define CL_SCHEDULER_OPTIONS_H

#include "base/conf.h"

struct sched_options {
    char listen[CL_CONF_STR], tcp[CL_CONF_STR], tls_cert[CL_CONF_STR], tls_key[CL_CONF_STR];
    char worker_listen[CL_CONF_STR], worker_tcp[CL_CONF_STR], worker_ca[CL_CONF_STR];
    char worker_cert[CL_CONF_STR], worker_key[CL_CONF_STR], worker_ca_key[CL_CONF_STR];
    char redis[CL_CONF_STR], redis_password_file[CL_CONF_STR], durability[CL_CONF_STR];
    char audit_socket[CL_CONF_STR], audit_reader[CL_CONF_STR], pepper_file[CL_CONF_STR],
        bootstrap_key_file[CL_CONF_STR], metrics[CL_CONF_STR], log_level[CL_CONF_STR];
    char token_issuer[CL_CONF_STR], token_audience[CL_CONF_STR], token_keys[CL_CONF_STR],
        token_keys_ca[CL_CONF_STR], token_tenant_claim[CL_CONF_STR], token_scopes[CL_CONF_STR];
    char lead_group[CL_CONF_STR];
    uint64_t lead_ttl, lease_ttl, renew_every, self_kill, queue_max, worker_uid, token_skew,
        guest_events_burst, guest_events_rate;
    bool insecure_listen, reflection, seccomp;
};

extern const struct cl_conf_row sched_conf_rows[];
extern const size_t sched_conf_count;

/* Rules between options: renew < self-kill < lease, TLS off loopback. */
int sched_options_check(const struct sched_options *o, struct cl_err *err) CL_MUST;

#endif
