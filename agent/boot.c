/* agent/boot.c - see agent/boot.h. */
#include "agent/boot.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "agent/card.h"
#include "agent/cmdline.h"
#include "agent/ids.h"
#include "agent/port.h"
#include "agent/scratch.h"
#include "agent/verity.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/own.h"

enum {
    DEVICE_WAIT_MS = 10000, /* a disk or port that is not there by then is not configured */
    DEVICE_STEP_US = 500,
    MODULE_LIST_MAX = 16384,
};

static int do_mount(const char *source, const char *target, const char *type, unsigned long flags,
                    const char *data, struct cl_err *err)
{
    if (mkdir(target, 0755) < 0 && errno != EEXIST && errno != EROFS)
        return cl_fail(err, CL_E_SYS, errno, "create '%s'", target);
    if (mount(source, target, type, flags, data) < 0)
        return cl_fail(err, CL_E_SYS, errno, "mount %s on '%s'", type ? type : source, target);
    return 0;
}

static int mount_kernel_trees(struct cl_err *err)
{
    if (do_mount("dev", "/dev", "devtmpfs", MS_NOSUID, NULL, err) < 0 ||
        do_mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, err) < 0 ||
        do_mount("sys", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, err) < 0)
        return -1;
    int console = open("/dev/console", O_RDWR | O_NOCTTY | O_CLOEXEC);
    for (int fd = 0; console >= 0 && fd <= 2; fd++)
        (void)dup2(console, fd); /* no console is no reason to stop */
    if (console > 2)
        (void)close(console);
    return 0;
}

static int read_cmdline(struct boot_args *ret_args, struct cl_err *err)
{
    struct cl_buf text;
    cl_buf_init(&text, CMDLINE_MAX);
    int rc = cl_file_read(AT_FDCWD, "/proc/cmdline", &text, err);
    if (rc == 0)
        rc = cl_buf_append(&text, "", 1, err);
    if (rc == 0)
        rc = cmdline_parse((const char *)text.data, ret_args, err);
    cl_buf_fini(&text);
    return rc < 0 ? cl_wrap(err, "kernel command line") : 0;
}

static int write_number(const char *path, uint64_t number, struct cl_err *err)
{
    CL_AUTO(cl_closep) int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || dprintf(fd, "%" PRIu64, number) < 0)
        return cl_fail(err, CL_E_SYS, errno, "write '%s'", path);
    return 0;
}

/* debugfs is there for this moment only.  A kernel that cannot be told keeps its own: slower, and
 * nothing worse. */
static void set_fault_around(uint64_t bytes)
{
    static const char debug[] = "/sys/kernel/debug";
    struct cl_err err = {0};
    if (bytes == 0)
        return;
    int rc = do_mount("debug", debug, "debugfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, &err);
    if (rc == 0) {
        rc = write_number("/sys/kernel/debug/fault_around_bytes", bytes, &err);
        (void)umount2(debug, MNT_DETACH);
    }
    if (rc < 0)
        (void)dprintf(STDERR_FILENO, "cloche-agent: %s\n", err.text);
}

/* A module without work on this machine is as good as one that is there (ENODEV). */
static int load_module(const char *name, struct cl_err *err)
{
    char path[256];
    (void)snprintf(path, sizeof path, "/modules/%s", name);
    CL_AUTO(cl_closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return cl_fail(err, CL_E_SYS, errno, "open module '%s'", path);
    if (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST && errno != ENODEV)
        return cl_fail(err, CL_E_SYS, errno, "load module '%s'", name);
    (void)unlink(path); /* the initramfs is memory: give it back */
    return 0;
}

/* /modules/list names the modules in load order, one a line; the image builder wrote it. */
static int load_modules(struct cl_err *err)
{
    struct cl_buf list;
    cl_buf_init(&list, MODULE_LIST_MAX);
    int rc = cl_file_read(AT_FDCWD, "/modules/list", &list, err);
    if (rc == 0)
        rc = cl_buf_append(&list, "", 1, err);
    char *save = NULL;
    for (char *name = rc < 0 ? NULL : strtok_r((char *)list.data, "\n", &save); name && rc == 0;
         name = strtok_r(NULL, "\n", &save))
        rc = load_module(name, err);
    cl_buf_fini(&list);
    return rc;
}

static int wait_for_device(const char *path, struct cl_err *err)
{
    uint64_t deadline_ns = cl_now_ns() + DEVICE_WAIT_MS * CL_NS_PER_MS;
    while (access(path, F_OK) < 0) {
        if (cl_now_ns() > deadline_ns)
            return cl_fail(err, CL_E_NOTFOUND, 0, "no '%s' after %d ms", path, DEVICE_WAIT_MS);
        (void)usleep(DEVICE_STEP_US);
    }
    return 0;
}

/* A template of a recipe has no such file.  What it says is for the agent's whole life. */
static int read_image_conf(struct people *people, struct cl_err *err)
{
    static struct cl_buf text;
    struct image_conf conf = {0};
    cl_buf_init(&text, IMAGE_CONF_MAX);
    if (access("/image", F_OK) == 0 &&
        (cl_file_read(AT_FDCWD, "/image", &text, err) < 0 ||
         image_conf_parse((const char *)text.data, text.len, &conf, err) < 0))
        return -1;
    return people_init(people, &conf, err);
}

/* --- root file system ------------------------------------------------------------------------ */

static int mount_tmpfs(uint64_t bytes, struct cl_err *err)
{
    struct sysinfo info;
    if (bytes == 0 && sysinfo(&info) == 0)
        bytes = (uint64_t)info.totalram * info.mem_unit / 2;
    char options[64];
    (void)snprintf(options, sizeof options, "mode=0755,size=%" PRIu64, bytes);
    return do_mount("scratch", "/scratch", "tmpfs", MS_NOSUID | MS_NODEV, options, err);
}

static int mount_disk(struct cl_err *err)
{
    char device[SCRATCH_DEVICE];
    uint64_t deadline_ns = cl_now_ns() + DEVICE_WAIT_MS * CL_NS_PER_MS;
    while (!scratch_find(device)) {
        if (cl_now_ns() > deadline_ns)
            return cl_fail(err, CL_E_NOTFOUND, 0, "no scratch disk after %d ms", DEVICE_WAIT_MS);
        (void)usleep(DEVICE_STEP_US);
    }
    if (wait_for_device(device, err) < 0)
        return -1;
    /* Tables of new groups stay as they are: the host reads zeros where nobody wrote.  Nothing
     * outlives the VM, so no file is hurried to the disk.  What is deleted goes back to the host by
     * and by (scratch_trim()): `discard` would ask it about each file, and wait.
     */
    return do_mount(device, "/scratch", "ext4", MS_NOSUID | MS_NODEV | MS_NOATIME,
                    "noinit_itable,noauto_da_alloc", err);
}

static int mount_scratch(const struct boot_args *args, int *ret_fd, struct cl_err *err)
{
    if ((args->has_disk ? mount_disk(err) : mount_tmpfs(args->scratch_bytes, err)) < 0)
        return -1;
    if (mkdir("/scratch/upper", 0755) < 0 || mkdir("/scratch/work", 0755) < 0 ||
        chown("/scratch/upper", AGENT_ID_BASE, AGENT_ID_BASE) < 0)
        return cl_fail(err, CL_E_SYS, errno, "prepare /scratch");
    int fd = open("/scratch", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return cl_fail(err, CL_E_SYS, errno, "open /scratch");
    *ret_fd = fd;
    return args->has_disk ? scratch_grow(fd, 0, err) : 0;
}

static int mount_root(const struct boot_args *args, int *ret_scratch_fd, struct cl_err *err)
{
    const char *device = "/dev/vda";
    if (wait_for_device(device, err) < 0)
        return -1;
    if (args->has_verity) {
        if (verity_open(device, &args->verity, err) < 0)
            return -1;
        device = "/dev/dm-0";
        if (wait_for_device(device, err) < 0)
            return -1;
    }
    CL_AUTO(cl_closep) int scratch = -1;
    if (do_mount(device, "/lower", "erofs", MS_RDONLY | MS_NODEV | MS_NOSUID, NULL, err) < 0 ||
        mount_scratch(args, &scratch, err) < 0 ||
        do_mount("root", "/new", "overlay", MS_NODEV | MS_NOSUID,
                 "lowerdir=/lower,upperdir=/scratch/upper,workdir=/scratch/work", err) < 0)
        return -1;
    *ret_scratch_fd = cl_steal_fd(&scratch);
    return 0;
}

/* --- the new /dev ---------------------------------------------------------------------------- */

static const struct {
    const char *name;
    unsigned major, minor;
} dev_nodes[] = {
    {"null", 1, 3},   {"zero", 1, 5},    {"full", 1, 7},
    {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
};
static const struct {
    const char *name, *target;
} dev_links[] = {
    {"fd", "/proc/self/fd"},       {"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"},
    {"stderr", "/proc/self/fd/2"}, {"ptmx", "pts/ptmx"},
};

static int fill_dev(struct cl_err *err)
{
    int dir = open("/new/dev", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return cl_fail(err, CL_E_SYS, errno, "open the new /dev");
    int rc = 0;
    for (size_t i = 0; i < CL_COUNT(dev_nodes) && rc == 0; i++) {
        dev_t dev = makedev(dev_nodes[i].major, dev_nodes[i].minor);
        if (mknodat(dir, dev_nodes[i].name, S_IFCHR | 0666, dev) < 0 ||
            fchmodat(dir, dev_nodes[i].name, 0666, 0) < 0)
            rc = cl_fail(err, CL_E_SYS, errno, "make /dev/%s", dev_nodes[i].name);
    }
    for (size_t i = 0; i < CL_COUNT(dev_links) && rc == 0; i++)
        if (symlinkat(dev_links[i].target, dir, dev_links[i].name) < 0)
            rc = cl_fail(err, CL_E_SYS, errno, "link /dev/%s", dev_links[i].name);
    (void)close(dir);
    return rc;
}

static int mount_dev(struct cl_err *err)
{
    char pts[96];
    (void)snprintf(pts, sizeof pts, "newinstance,ptmxmode=0666,mode=0620,gid=%d",
                   AGENT_ID_BASE + AGENT_TTY_GID);
    if (do_mount("dev", "/new/dev", "tmpfs", MS_NOSUID, "mode=0755,size=64k,nr_inodes=64", err) <
            0 ||
        fill_dev(err) < 0 ||
        do_mount("pts", "/new/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, pts, err) < 0 ||
        do_mount("shm", "/new/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777", err) < 0)
        return -1;
    return 0;
}

/* --- channel and the switch ------------------------------------------------------------------ */

static int open_channel(int *ret_fd, struct cl_err *err)
{
    uint64_t deadline_ns = cl_now_ns() + DEVICE_WAIT_MS * CL_NS_PER_MS;
    struct port_places places;
    port_places_init(&places);
    while (port_open(&places, ret_fd, err) < 0) {
        if (cl_now_ns() > deadline_ns)
            return cl_wrap(err, "channel, after %d ms", DEVICE_WAIT_MS);
        (void)usleep(DEVICE_STEP_US);
    }
    return 0;
}

static int loopback_up(struct cl_err *err)
{
    CL_AUTO(cl_closep) int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq req = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &req) < 0)
        return cl_fail(err, CL_E_SYS, errno, "set lo up");
    return 0;
}

/* The initramfs cannot be pivoted away; moving the new root over it hides it for good. */
static int switch_root(struct cl_err *err)
{
    if (do_mount("proc", "/new/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, err) < 0 ||
        do_mount("sys", "/new/sys", "sysfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL,
                 err) < 0)
        return -1;
    if (chdir("/new") < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 ||
        chdir("/") < 0)
        return cl_fail(err, CL_E_SYS, errno, "switch root");
    return 0;
}

int boot_run(struct boot *ret_boot, struct cl_err *err)
{
    static struct people people;
    struct boot_args args = {0};
    CL_AUTO(cl_closep) int scratch = -1;
    CL_AUTO(cl_closep) int chan = -1;
    (void)umask(022);
    if (mount_kernel_trees(err) < 0 || read_cmdline(&args, err) < 0 ||
        read_image_conf(&people, err) < 0)
        return cl_wrap(err, "boot");
    set_fault_around(args.fault_around);
    if (load_modules(err) < 0 || mount_root(&args, &scratch, err) < 0 || mount_dev(err) < 0 ||
        open_channel(&chan, err) < 0 || switch_root(err) < 0 || loopback_up(err) < 0 ||
        card_up(&args.card, err) < 0)
        return cl_wrap(err, "boot");
    ret_boot->people = &people;
    ret_boot->sensor_us = args.sensor_us;
    ret_boot->chan_fd = cl_steal_fd(&chan);
    ret_boot->scratch_fd = cl_steal_fd(&scratch);
    return 0;
}

_Noreturn void boot_power_off(const char *why)
{
    (void)dprintf(STDERR_FILENO, "cloche-agent: %s; power off\n", why);
    sync();
    (void)reboot(RB_POWER_OFF);
    (void)reboot(RB_AUTOBOOT); /* a machine without a power button still has a reset */
    for (;;)
        (void)pause();
}
