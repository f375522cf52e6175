/* agent/card.c - see agent/card.h. */
#include "agent/card.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/route.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/own.h"

enum { CARD_WAIT_MS = 10000, CARD_STEP_US = 500 };

#define CARD "eth0" /* nobody renames it: there is no udev */

static struct sockaddr address_of(uint32_t host_order)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(host_order)};
    struct sockaddr out;
    _Static_assert(sizeof in == sizeof out, "copied whole");
    memcpy(&out, &in, sizeof out);
    return out;
}

static int await_card(int fd, struct cl_err *err)
{
    uint64_t deadline_ns = cl_now_ns() + CARD_WAIT_MS * CL_NS_PER_MS;
    struct ifreq req = {.ifr_name = CARD};
    while (ioctl(fd, SIOCGIFFLAGS, &req) < 0) {
        if (cl_now_ns() > deadline_ns)
            return cl_fail(err, CL_E_NOTFOUND, 0,
                           "no network card after %d ms: the template has no driver for it, build "
                           "it again",
                           CARD_WAIT_MS);
        (void)usleep(CARD_STEP_US);
    }
    return 0;
}

static int set_up(int fd, const struct card_args *args, struct cl_err *err)
{
    struct ifreq address = {.ifr_name = CARD, .ifr_addr = address_of(args->address)};
    struct ifreq mask = {.ifr_name = CARD,
                         .ifr_netmask = address_of(UINT32_MAX << (32 - args->prefix))};
    struct ifreq flags = {.ifr_name = CARD, .ifr_flags = IFF_UP | IFF_RUNNING};
    struct rtentry route = {.rt_dst = address_of(0),
                            .rt_genmask = address_of(0),
                            .rt_gateway = address_of(args->gateway),
                            .rt_flags = RTF_UP | RTF_GATEWAY};
    if (ioctl(fd, SIOCSIFADDR, &address) < 0 || ioctl(fd, SIOCSIFNETMASK, &mask) < 0 ||
        ioctl(fd, SIOCSIFFLAGS, &flags) < 0 || ioctl(fd, SIOCADDRT, &route) < 0)
        return cl_fail(err, CL_E_SYS, errno, "set up the network card");
    return 0;
}

/* Whatever the template has there was made for another machine. */
static int write_resolver(uint32_t dns, struct cl_err *err)
{
    char text[INET_ADDRSTRLEN];
    struct in_addr in = {.s_addr = htonl(dns)};
    (void)unlink("/etc/resolv.conf");
    CL_AUTO(cl_closep)
    int fd = open("/etc/resolv.conf", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 || dprintf(fd, "nameserver %s\n", inet_ntop(AF_INET, &in, text, sizeof text)) < 0)
        return cl_fail(err, CL_E_SYS, errno, "write /etc/resolv.conf");
    return 0;
}

int card_up(const struct card_args *args, struct cl_err *err)
{
    if (args->address == 0)
        return 0;
    CL_AUTO(cl_closep) int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return cl_fail(err, CL_E_SYS, errno, "socket");
    return await_card(fd, err) < 0 || set_up(fd, args, err) < 0 ? -1
                                                                : write_resolver(args->dns, err);
}
