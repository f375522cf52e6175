/* trail/reader/options.c - see trail/reader/options.h. */
#include "trail/reader/options.h"

#define ROW(key_, field_, type_, def_, reload_, help_) \
    { \
        "audit-reader", key_, type_, offsetof(struct options, field_), def_, 0, 0, reload_, help_ \
    }
const struct cl_conf_row option_rows[] = {
    ROW("dir", dir, CL_CONF_STRING, "/var/lib/cloche/audit", false, "folder of the streams"),
    ROW("public-key", public_key, CL_CONF_STRING, "", false,
        "of the log, for who checks it himself (default: DIR/audit.key.pub)"),
    ROW("socket", socket, CL_CONF_STRING, "/run/cloche/reader.sock", false,
        "unix socket of the schedulers of this host"),
    ROW("allowed-uids", allowed_uids, CL_CONF_STRING, "", false,
        "uids of those besides the own one, as in 0,1000"),
    ROW("rules", rules, CL_CONF_STRING, "", false,
        "detections of your own for findings (docs/rules.md); read again when it changes"),
    ROW("log-level", log_level, CL_CONF_STRING, "info", true, "debug, info, warn or error"),
    ROW("seccomp", seccomp, CL_CONF_BOOL, "yes", false, "confine the process"),
};
const size_t option_rows_nr = CL_COUNT(option_rows);
