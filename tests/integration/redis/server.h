/* tests/integration/redis/server.h - a redis-server of the test's own: private folder, unix socket.
 *
 * Owns:    the folder and the process; server_stop() kills and removes both.
 * Thread:  the test's.
 */
#ifndef CL_TEST_REDIS_SERVER_H
#define CL_TEST_REDIS_SERVER_H

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"

struct server {
    char dir[64];
    char target[96];
    const char *fsync; /* "always", "everysec" or "" for no append-only file */
    pid_t pid;
};

static inline void server_run(struct server *s)
{
    char sock[96], log[96];
    (void)snprintf(sock, sizeof sock, "%s/redis.sock", s->dir);
    (void)snprintf(log, sizeof log, "%s/redis.log", s->dir);
    s->pid = fork();
    CL_ASSERT(s->pid >= 0);
    if (s->pid > 0)
        return;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", sock, "--dir", s->dir,
           "--logfile", log, "--save", "", "--appendonly", s->fsync[0] ? "yes" : "no",
           "--appendfsync", s->fsync[0] ? s->fsync : "everysec", "--maxmemory-policy", "noeviction",
           (char *)NULL);
    _exit(127);
}

/* False when this machine has no redis-server: the test is skipped. */
static inline bool server_start(struct server *s, const char *fsync)
{
    if (access("/usr/bin/redis-server", X_OK) < 0)
        return false;
    (void)signal(SIGPIPE, SIG_IGN); /* as every program of the project does */
    (void)snprintf(s->dir, sizeof s->dir, "/tmp/cloche-redis-XXXXXX");
    CL_ASSERT(mkdtemp(s->dir) != NULL);
    (void)snprintf(s->target, sizeof s->target, "unix:%s/redis.sock", s->dir);
    s->fsync = fsync;
    server_run(s);
    return true;
}

static inline void server_kill(struct server *s)
{
    (void)kill(s->pid, SIGKILL);
    (void)waitpid(s->pid, NULL, 0);
    char sock[96];
    (void)snprintf(sock, sizeof sock, "%s/redis.sock", s->dir);
    (void)unlink(sock);
}

static inline void server_stop(struct server *s)
{
    server_kill(s);
    struct cl_err err = {0};
    CL_ASSERT(cl_remove_tree(s->dir, &err) == 0);
}

#endif
