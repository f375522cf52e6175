/* agent/port.c - see agent/port.h. */
#include "agent/port.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/own.h"

static const char port_name[] = "cloche.agent";

void port_places_init(struct port_places *ret_places)
{
    static const struct sockaddr_vm host = {
        .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_HOST, .svm_port = PORT_VSOCK};
    *ret_places = (struct port_places){.ports = "/sys/class/virtio-ports",
                                       .devices = "/dev",
                                       .host = (const struct sockaddr *)&host,
                                       .host_len = sizeof host};
}

static bool is_ours(int ports, const char *entry)
{
    char path[300], name[64] = "";
    if (entry[0] == '.')
        return false;
    (void)snprintf(path, sizeof path, "%s/name", entry);
    CL_AUTO(cl_closep) int fd = openat(ports, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, name, sizeof name - 1);
    name[strcspn(name, "\n")] = '\0';
    return n > 0 && strcmp(name, port_name) == 0;
}

/* The device of the port with our name; -1 while there is none. */
static int open_port(const struct port_places *places)
{
    char path[600];
    int fd = -1;
    DIR *dir = opendir(places->ports);
    for (struct dirent *e; dir && fd < 0 && (e = readdir(dir));) {
        if (!is_ours(dirfd(dir), e->d_name))
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", places->devices, e->d_name);
        fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    }
    if (dir)
        (void)closedir(dir);
    return fd;
}

/* Without a vsock device the kernel refuses at once; with one, an answer takes no time that is
 * worth a wait of our own (the kernel gives up after 2 s). */
static int connect_host(const struct port_places *places)
{
    CL_AUTO(cl_closep) int fd = socket(places->host->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, places->host, places->host_len) < 0 ||
        fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
        return -1;
    return cl_steal_fd(&fd);
}

int port_open(const struct port_places *places, int *ret_fd, struct cl_err *err)
{
    int fd = open_port(places);
    if (fd < 0)
        fd = connect_host(places);
    if (fd < 0)
        return cl_fail(err, CL_E_NOTFOUND, errno, "no virtio port '%s' and no vsock to the host",
                       port_name);
    *ret_fd = fd;
    return 0;
}
