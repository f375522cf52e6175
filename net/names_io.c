/* net/names_io.c - see net/names_io.h. */
#include "net/names_io.h"

#include <ares.h>
#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <netdb.h>
#include <sys/time.h>

#include "base/mem.h"
#include "base/own.h"
#include "net/control.h"

enum { TIMEOUT_MS = 2000, TRIES = 2 };

struct names {
    ares_channel channel; /* owned */
};

struct question {
    names_found_fn *found;
    void *user; /* borrowed: found's */
};

static enum net_dns_rcode rcode_of(int status)
{
    if (status == ARES_SUCCESS || status == ARES_ENODATA)
        return NET_DNS_NOERROR;
    return status == ARES_ENOTFOUND ? NET_DNS_NXDOMAIN : NET_DNS_SERVFAIL;
}

static void on_answer(void *user, int status, int timeouts, unsigned char *bytes, int n)
{
    CL_AUTO(cl_freep) struct question *q = user;
    struct ares_addrttl records[NET_DNS_RECORDS_MAX];
    struct net_dns_answer found = {0};
    int n_records = NET_DNS_RECORDS_MAX;
    (void)timeouts;
    if (status == ARES_SUCCESS)
        status = ares_parse_a_reply(bytes, n, NULL, records, &n_records);
    found.rcode = rcode_of(status);
    for (int i = 0; status == ARES_SUCCESS && i < n_records; i++)
        found.records[found.n_records++] = (struct net_dns_record){
            ntohl(records[i].ipaddr.s_addr), (uint32_t)CL_MAX(records[i].ttl, 0)};
    q->found(q->user, &found);
}

/* NOSEARCH and NOALIASES: the name as it is, whatever this host's environment says; and no file of
 * this host is read for what is not set here. */
static int open_channel(struct names *names, struct in_addr *servers, size_t n, struct cl_err *err)
{
    char lookups[] = "b", no_file[] = "/dev/null";
    struct ares_options o = {
        .flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES,
        .timeout = TIMEOUT_MS,
        .tries = TRIES,
        .lookups = lookups,
        .servers = servers,
        .nservers = (int)n,
        .resolvconf_path = no_file,
    };
    int rc =
        ares_init_options(&names->channel, &o,
                          ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS |
                              ARES_OPT_SERVERS | ARES_OPT_NOROTATE | ARES_OPT_RESOLVCONF);
    return rc == ARES_SUCCESS ? 0 : cl_fail(err, CL_E_SYS, 0, "c-ares: %s", ares_strerror(rc));
}

int names_open(const uint32_t *servers, size_t n, struct names **ret_names, struct cl_err *err)
{
    struct in_addr in[NET_SERVERS_MAX];
    CL_ASSERT(n > 0 && n <= NET_SERVERS_MAX);
    for (size_t i = 0; i < n; i++)
        in[i].s_addr = htonl(servers[i]);
    CL_AUTO(cl_freep) struct names *names = cl_zalloc(sizeof *names);
    if (!names)
        return cl_fail(err, CL_E_NOMEM, 0, "resolver");
    int rc = ares_library_init(ARES_LIB_INIT_ALL);
    if (rc != ARES_SUCCESS)
        return cl_fail(err, CL_E_SYS, 0, "c-ares: %s", ares_strerror(rc));
    if (open_channel(names, in, n, err) < 0)
        return -1;
    *ret_names = CL_STEAL(&names);
    return 0;
}

void names_close(struct names *names)
{
    if (!names)
        return;
    ares_destroy(names->channel);
    ares_library_cleanup();
    cl_free(names);
}

void names_ask(struct names *names, const char *name, names_found_fn *found, void *user)
{
    const struct net_dns_answer failed = {.rcode = NET_DNS_SERVFAIL};
    struct question *q = cl_zalloc(sizeof *q);
    if (!q) {
        found(user, &failed);
        return;
    }
    *q = (struct question){found, user};
    ares_query(names->channel, name, ns_c_in, ns_t_a, on_answer, q);
}

size_t names_fill(struct names *names, struct pollfd *fds, size_t max, uint32_t *timeout_ms)
{
    ares_socket_t sockets[ARES_GETSOCK_MAXNUM];
    struct timeval most = {(time_t)(*timeout_ms / 1000), (suseconds_t)(*timeout_ms % 1000) * 1000};
    struct timeval tv;
    size_t n = 0;
    if (!names)
        return 0;
    unsigned bits = (unsigned)ares_getsock(names->channel, sockets, ARES_GETSOCK_MAXNUM);
    for (unsigned i = 0; i < ARES_GETSOCK_MAXNUM && n < max; i++) {
        int events = (bits >> i & 1 ? POLLIN : 0) | (bits >> (i + 16) & 1 ? POLLOUT : 0);
        if (events)
            fds[n++] = (struct pollfd){.fd = sockets[i], .events = (short)events};
    }
    const struct timeval *wait = ares_timeout(names->channel, &most, &tv);
    *timeout_ms = CL_MIN(*timeout_ms, (uint32_t)(wait->tv_sec * 1000 + wait->tv_usec / 1000 + 1));
    return n;
}

void names_poll(struct names *names, const struct pollfd *fds, size_t n)
{
    if (!names)
        return;
    ares_process_fd(names->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD); /* what took too long */
    for (size_t i = 0; i < n; i++) {
        bool in = fds[i].revents & (POLLIN | POLLERR | POLLHUP), out = fds[i].revents & POLLOUT;
        if (in || out)
            ares_process_fd(names->channel, in ? fds[i].fd : ARES_SOCKET_BAD,
                            out ? fds[i].fd : ARES_SOCKET_BAD);
    }
}
