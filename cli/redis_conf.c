/* cli/redis_conf.c - the private Redis: one unix socket, nothing acknowledged that is not on disk.
 *
 * Owns:    nothing.
 * Pure.  The choices are those of docs/durability: every write is synced before its answer, a log
 * that was cut by a crash is read up to the cut, and no key is ever evicted.
 */
#include <string.h>

#include "base/buf.h"
#include "cli/plan.h"

static const char fixed[] = "# written by `cloche up`; changes are lost at the next one\n"
                            "daemonize no\n"
                            "supervised no\n"
                            "port 0\n"
                            "unixsocketperm 770\n"
                            "protected-mode yes\n"
                            "databases 1\n"
                            "appendonly yes\n"
                            "appendfsync always\n"
                            "no-appendfsync-on-rewrite no\n"
                            "aof-load-truncated yes\n"
                            "save \"\"\n"
                            "maxmemory-policy noeviction\n"
                            "logfile \"\"\n"
                            "loglevel notice\n"
                            "crash-memcheck-enabled no\n"
                            "enable-debug-command no\n";

/* A path inside double quotes: redis.conf knows backslash escapes there. */
static int put_quoted(struct cl_buf *out, const char *key, const char *path, struct cl_err *err)
{
    if (strpbrk(path, "\"\\\n\r"))
        return cl_fail(err, CL_E_INVALID, 0,
                       "the path '%s' holds a quote, backslash or newline\nchoose another folder",
                       path);
    return cl_buf_printf(out, err, "%s \"%s\"\n", key, path);
}

int redis_conf_format(struct cl_buf *out, const char *dir, const char *socket, struct cl_err *err)
{
    if (cl_buf_append(out, fixed, sizeof fixed - 1, err) < 0 ||
        put_quoted(out, "dir", dir, err) < 0)
        return -1;
    return put_quoted(out, "unixsocket", socket, err);
}
