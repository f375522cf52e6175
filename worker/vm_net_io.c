/* worker/vm_net_io.c - see worker/vm_net.h. */
#include "worker/vm_net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/own.h"

enum {
    FD_CONTROL = 3,
    FD_WIRE = 4,
    FDS_END = 5,
    EVENTS_PER_TURN = 32,
    RESOLV_CONF_MAX = 65536,
    LIST_MAX = 512, /* of ranges, of resolvers: characters */
};

struct vm_net {
    struct cl_loop *loop; /* borrowed */
    struct vm_net_events events;
    void *arg;
    int control; /* owned */
    struct cl_fd_watch watch;
    struct cl_child child;
    struct cl_timer patience; /* since vm_net_finish() */
    pid_t pid;                /* 0 = gone */
    bool finishing;
    struct cl_err why; /* why we ended it ourselves */
};

/* --- what the operator says ------------------------------------------------------------------ */

uint32_t vm_net_read_servers(const char *text, uint32_t out[static NET_SERVERS_MAX])
{
    uint32_t n = 0;
    while (*text && n < NET_SERVERS_MAX) {
        char word[INET_ADDRSTRLEN];
        struct in_addr in;
        size_t line = strcspn(text, "\n");
        if (line > 0 && sscanf(text, "nameserver%*1[ \t]%15s", word) == 1 &&
            inet_pton(AF_INET, word, &in) == 1)
            out[n++] = ntohl(in.s_addr);
        text += line + (text[line] == '\n');
    }
    return n;
}

static int read_host_servers(struct vm_net_settings *s, struct cl_err *err)
{
    struct cl_buf text;
    struct cl_err missing = {0};
    cl_buf_init(&text, RESOLV_CONF_MAX);
    int rc = cl_file_read(AT_FDCWD, "/etc/resolv.conf", &text, &missing);
    if (rc == 0 && (rc = cl_buf_append(&text, "", 1, err)) == 0)
        s->n_servers = vm_net_read_servers((const char *)text.data, s->servers);
    else if (missing.code == CL_E_NOTFOUND) /* a host without names: its guests have none either */
        rc = 0;
    else if (missing.code)
        rc = cl_fail(err, missing.code, 0, "net-dns: %.200s", missing.text);
    cl_buf_fini(&text);
    return rc;
}

/* Never cut: half a range is another one. */
static int copy_list(const char *option, const char *list, char out[static LIST_MAX],
                     struct cl_err *err)
{
    int n = snprintf(out, LIST_MAX, "%s", list);
    return n < 0 || n >= LIST_MAX
               ? cl_fail(err, CL_E_INVALID, 0, "%s: more than %d characters", option, LIST_MAX - 1)
               : 0;
}

static int read_servers(struct vm_net_settings *s, const char *list, struct cl_err *err)
{
    char words[LIST_MAX];
    if (copy_list("net-dns", list, words, err) < 0)
        return -1;
    char *rest = words;
    for (char *word; (word = strsep(&rest, ", ")) != NULL;) {
        struct net_range one;
        if (!*word)
            continue;
        if (net_range_parse(word, &one, err) < 0 || one.first != one.last)
            return cl_fail(err, CL_E_INVALID, 0, "net-dns: '%s' is no IPv4 address", word);
        if (s->n_servers == NET_SERVERS_MAX)
            return cl_fail(err, CL_E_INVALID, 0, "net-dns: more than %d resolvers",
                           NET_SERVERS_MAX);
        s->servers[s->n_servers++] = one.first;
    }
    return 0;
}

int vm_net_settings_read(struct vm_net_settings *s, const char *private_ranges, const char *servers,
                         struct cl_err *err)
{
    char words[LIST_MAX];
    if (copy_list("net-private", private_ranges, words, err) < 0)
        return -1;
    char *rest = words;
    for (char *word; (word = strsep(&rest, ", ")) != NULL;) {
        if (!*word)
            continue;
        if (s->n_private == NET_RANGES_MAX)
            return cl_fail(err, CL_E_INVALID, 0, "net-private: more than %d ranges",
                           NET_RANGES_MAX);
        if (net_range_parse(word, &s->private_ranges[s->n_private], err) < 0)
            return cl_wrap(err, "net-private");
        s->n_private++;
    }
    return servers[0] ? read_servers(s, servers, err) : read_host_servers(s, err);
}

/* --- what it says ----------------------------------------------------------------------------- */

static void give_up(struct vm_net *n, const struct cl_err *why)
{
    if (n->why.code == CL_OK)
        n->why = *why;
    cl_fd_watch_set(&n->watch, false);
    if (n->pid > 0)
        (void)kill(n->pid, SIGKILL);
}

/* One event; false when there is none (any more). */
static bool receive(struct vm_net *n)
{
    struct net_event event;
    struct cl_err err = {0};
    ssize_t got = recv(n->control, &event, sizeof event, MSG_DONTWAIT | MSG_TRUNC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (got <= 0) { /* its end is told by the child's watch */
        cl_fd_watch_set(&n->watch, false);
        return false;
    }
    if (net_event_check(&event, (size_t)got, &err) < 0) {
        give_up(n, &err);
        return false;
    }
    n->events.on_event(n->arg, &event);
    return true;
}

static void on_control(int fd, int what, void *arg)
{
    (void)fd, (void)what;
    struct vm_net *n = arg;
    for (int i = 0; i < EVENTS_PER_TURN && receive(n); i++)
        continue;
}

static void on_child_end(pid_t pid, int status, void *arg)
{
    (void)pid;
    struct vm_net *n = arg;
    struct cl_err why = {0};
    n->pid = 0;
    cl_timer_stop(&n->patience);
    while (n->why.code == CL_OK && receive(n)) /* what it said before its end */
        continue;
    cl_fd_watch_set(&n->watch, false);
    if (n->why.code)
        why = n->why;
    else if (WIFSIGNALED(status))
        (void)cl_fail(&why, CL_E_GUEST, 0, "cloche-net died by signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status) != 0)
        (void)cl_fail(&why, CL_E_GUEST, 0,
                      "cloche-net ended with status %d; its words are in the "
                      "worker's log",
                      WEXITSTATUS(status));
    else
        (void)cl_fail(&why, CL_E_CANCELLED, 0, "its network has ended");
    n->events.on_end(n->arg, &why);
}

static void on_impatient(void *arg)
{
    struct vm_net *n = arg;
    struct cl_err why = {0};
    (void)cl_fail(&why, CL_E_GUEST, 0, "cloche-net did not end in time");
    give_up(n, &why);
}

/* --- start -------------------------------------------------------------------------------------
 */

/* Both above the fixed numbers first, so that no dup2 overwrites a source. */
static int file_actions(int *control, int *wire, posix_spawn_file_actions_t *a, struct cl_err *err)
{
    int *const fds[] = {control, wire};
    for (size_t i = 0; i < CL_COUNT(fds); i++) {
        int high = fcntl(*fds[i], F_DUPFD_CLOEXEC, FDS_END + 1);
        if (high < 0)
            return cl_fail(err, CL_E_SYS, errno, "move an fd");
        (void)close(*fds[i]);
        *fds[i] = high;
    }
    int rc = posix_spawn_file_actions_addopen(a, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (rc == 0)
        rc = posix_spawn_file_actions_addopen(a, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(a, *control, FD_CONTROL);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(a, *wire, FD_WIRE);
    if (rc == 0)
        rc = posix_spawn_file_actions_addclosefrom_np(a, FDS_END);
    return rc == 0 ? 0 : cl_fail(err, CL_E_SYS, rc, "prepare cloche-net's fds");
}

static int spawn(struct vm_net *n, const struct vm_net_spec *spec, int *control, int *wire,
                 struct cl_err *err)
{
    char control_arg[16], wire_arg[16], uid[16], gid[16];
    (void)snprintf(control_arg, sizeof control_arg, "%d", FD_CONTROL);
    (void)snprintf(wire_arg, sizeof wire_arg, "%d", FD_WIRE);
    (void)snprintf(uid, sizeof uid, "%u", spec->uid ? spec->uid : getuid());
    (void)snprintf(gid, sizeof gid, "%u", spec->uid ? spec->settings->gid : getgid());
    char *argv[] = {
        (char *)(uintptr_t)spec->settings->binary, control_arg, wire_arg, uid, gid, NULL};
    char *env[] = {NULL};
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return cl_fail(err, CL_E_NOMEM, 0, "spawn");
    int rc = file_actions(control, wire, &actions, err);
    int spawned = rc == 0 ? posix_spawn(&n->pid, argv[0], &actions, NULL, argv, env) : 0;
    (void)posix_spawn_file_actions_destroy(&actions);
    if (spawned != 0) {
        n->pid = 0;
        rc = cl_fail(err, CL_E_SYS, spawned, "start '%s'", argv[0]);
    }
    return rc < 0 ? -1 : cl_child_watch(&n->child, n->loop, n->pid, on_child_end, n, err);
}

static int start(struct vm_net *n, const struct vm_net_spec *spec, int *wire, struct cl_err *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return cl_fail(err, CL_E_SYS, errno, "socketpair");
    n->control = pair[0];
    CL_AUTO(cl_closep) int far = pair[1];
    if (fcntl(n->control, F_SETFL, O_NONBLOCK) < 0 ||
        send(n->control, spec->grant, sizeof *spec->grant, MSG_NOSIGNAL) !=
            (ssize_t)sizeof *spec->grant)
        return cl_fail(err, CL_E_SYS, errno, "send the grant");
    if (cl_timer_init(&n->patience, n->loop, on_impatient, n, err) < 0 ||
        cl_fd_watch_init(&n->watch, n->loop, n->control, CL_READ, on_control, n, err) < 0 ||
        spawn(n, spec, &far, wire, err) < 0)
        return -1;
    return cgroup_join(spec->cgroup, n->pid, err);
}

int vm_net_start(struct cl_loop *loop, const struct vm_net_spec *spec,
                 const struct vm_net_events *events, void *arg, struct vm_net **ret_net,
                 struct cl_err *err)
{
    CL_AUTO(cl_closep) int wire = spec->wire;
    struct vm_net *n = cl_zalloc(sizeof *n);
    if (!n)
        return cl_fail(err, CL_E_NOMEM, 0, "network");
    *n = (struct vm_net){
        .loop = loop, .events = *events, .arg = arg, .control = -1, .child = {.pidfd = -1}};
    if (start(n, spec, &wire, err) < 0) {
        vm_net_free(n);
        return -1;
    }
    *ret_net = n;
    return 0;
}

void vm_net_finish(struct vm_net *n)
{
    if (n->finishing)
        return;
    n->finishing = true;
    (void)shutdown(n->control, SHUT_WR);
    cl_timer_start(&n->patience, VM_NET_PATIENCE_MS * CL_NS_PER_MS);
}

void vm_net_free(struct vm_net *n)
{
    if (!n)
        return;
    if (n->pid > 0 && kill(n->pid, SIGKILL) == 0)
        (void)waitpid(n->pid, NULL, 0);
    cl_child_fini(&n->child);
    cl_timer_fini(&n->patience);
    cl_fd_watch_fini(&n->watch);
    cl_closep(&n->control);
    cl_free(n);
}
