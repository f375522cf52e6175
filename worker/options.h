/* worker/options.h - the configuration of cloche-worker, one row an option. */
#ifndef CL_WORKER_OPTIONS_H
#define CL_WORKER_OPTIONS_H

#include "base/conf.h"

struct worker_options {
    char scheduler[CL_CONF_STR], tls_ca[CL_CONF_STR], tls_cert[CL_CONF_STR], tls_key[CL_CONF_STR];
    char state_dir[CL_CONF_STR], paused_keys[CL_CONF_STR], template_dir[CL_CONF_STR],
        template_key[CL_CONF_STR], snapshot_cache[CL_CONF_STR];
    char templates[CL_CONF_STR], driver[CL_CONF_STR], qemu[CL_CONF_STR], guard[CL_CONF_STR];
    char vmm[CL_CONF_STR], net[CL_CONF_STR], net_private[CL_CONF_STR], net_dns[CL_CONF_STR];
    char instance[CL_CONF_STR], metrics[CL_CONF_STR], log_level[CL_CONF_STR];
    bool insecure_listen, guest_events, network, pause_on_stop, older_monitors;
    uint64_t warm, slots, vcpus, memory, vm_uid_base, vm_gid, disk_reserve, output_keep,
        clock_every, guest_events_burst, guest_events_rate;
};

extern const struct cl_conf_row worker_conf_rows[];
extern const size_t worker_conf_count;

#endif
