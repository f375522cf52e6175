/* audit/writer/options.h - the options of cloche-audit: one row each. */
#ifndef CL_AUDIT_WRITER_OPTIONS_H
#define CL_AUDIT_WRITER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/conf.h"

struct options {
    char dir[CL_CONF_STR], socket[CL_CONF_STR], key[CL_CONF_STR], host[CL_CONF_STR],
        allowed_uids[CL_CONF_STR], metrics[CL_CONF_STR], log_level[CL_CONF_STR];
    uint64_t rotate, disk_reserve, checkpoint, idle_checkpoint;
    bool seccomp;
};

extern const struct cl_conf_row option_rows[];
extern const size_t option_rows_nr;

#endif
