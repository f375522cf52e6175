/* trail/reader/options.h - the options of cloche-audit-reader: one row each. */
#ifndef CL_TRAIL_READER_OPTIONS_H
#define CL_TRAIL_READER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/conf.h"

struct options {
    char dir[CL_CONF_STR], public_key[CL_CONF_STR], socket[CL_CONF_STR], allowed_uids[CL_CONF_STR],
        rules[CL_CONF_STR], log_level[CL_CONF_STR];
    bool seccomp;
};

extern const struct cl_conf_row option_rows[];
extern const size_t option_rows_nr;

#endif
