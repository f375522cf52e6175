/* audit/writer/options.c - see audit/writer/options.h. */
#include "audit/writer/options.h"

#define ROW(key_, type_, def_, min_, max_, reload_, help_) \
    { \
        "audit", #key_, type_, offsetof(struct options, key_), def_, min_, max_, reload_, help_ \
    }
const struct cl_conf_row option_rows[] = {
    ROW(dir, CL_CONF_STRING, "/var/lib/cloche/audit", 0, 0, false, "folder of the streams"),
    ROW(socket, CL_CONF_STRING, "/run/cloche/audit.sock", 0, 0, false,
        "unix socket of the producers"),
    ROW(key, CL_CONF_STRING, "/var/lib/cloche/audit.key", 0, 0, false,
        "Ed25519 key (PEM); made when missing, public part in <key>.pub"),
    ROW(host, CL_CONF_STRING, "local", 0, 0, false, "name of the host stream"),
    ROW(allowed_uids, CL_CONF_STRING, "", 0, 0, false,
        "uids of producers besides the own one, as in 0,1000"),
    ROW(rotate, CL_CONF_BYTES, "64MiB", 65536, 1 << 30, false,
        "a new file of a stream once one is this large"),
    ROW(disk_reserve, CL_CONF_BYTES, "256MiB", 0, 0, true, "refuse records while less is free"),
    ROW(checkpoint, CL_CONF_DURATION, "1s", 1000000, 3600000000000, false,
        "sign and fsync what is new this often"),
    ROW(idle_checkpoint, CL_CONF_DURATION, "1h", 1000000000, 86400000000000, false,
        "sign the host stream at least this often"),
    ROW(metrics, CL_CONF_STRING, "", 0, 0, false, "HOST:PORT of /metrics (loopback)"),
    {"audit", "log-level", CL_CONF_STRING, offsetof(struct options, log_level), "info", 0, 0, true,
     "debug, info, warn or error"},
    ROW(seccomp, CL_CONF_BOOL, "yes", 0, 0, false, "confine the process"),
};
const size_t option_rows_nr = CL_COUNT(option_rows);
