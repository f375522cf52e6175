/* gateway/options.h - configuration of cloche-gateway.
 *
 * Owns:    nothing.
 * Thread:  start-up.
 */
#ifndef CL_GATEWAY_OPTIONS_H
#define CL_GATEWAY_OPTIONS_H

#include "base/conf.h"

struct gateway_options {
    char listen[CL_CONF_STR], tls_cert[CL_CONF_STR], tls_key[CL_CONF_STR];
    bool insecure_listen;
    char hosts[CL_CONF_STR], origins[CL_CONF_STR], ports_domain[CL_CONF_STR];
    char scheduler[CL_CONF_STR], scheduler_ca[CL_CONF_STR];
    char resource[CL_CONF_STR], authorization_servers[CL_CONF_STR];
    char secret_file[CL_CONF_STR];
    char template_name[CL_CONF_STR], build_net[CL_CONF_STR];
    uint64_t ttl, drain;
    bool aliases, e2b, web, seccomp;
    char metrics[CL_CONF_STR], log_level[CL_CONF_STR];
};

extern const struct cl_conf_row gateway_conf_rows[];
extern const size_t gateway_conf_count;
/* The domain of the option `ports-domain`, or its default, with a port if it has one; "" = none. */
void gateway_ports_domain(const struct gateway_options *o, char domain[static CL_CONF_STR]);
/* Rules between options. */
int gateway_options_check(const struct gateway_options *o, struct cl_err *err) CL_MUST;

#endif
