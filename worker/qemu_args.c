/* worker/qemu_args.c - QEMU's command line; see worker/qemu.h.  Pure. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "net/control.h"
#include "worker/qemu.h"

static int add(struct qemu_args *a, struct cl_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int add(struct qemu_args *a, struct cl_err *err, const char *fmt, ...)
{
    char text[QEMU_ARG_LEN];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    CL_ASSERT(a->n < QEMU_ARGS_MAX);
    if (n < 0 || (size_t)n >= sizeof text)
        return cl_fail(err, CL_E_TOOBIG, 0, "a QEMU argument of %d bytes", n);
    a->argv[a->n] = cl_strdup(text);
    if (!a->argv[a->n])
        return cl_fail(err, CL_E_NOMEM, 0, "QEMU's arguments");
    a->n++;
    return 0;
}

static int add_words(struct qemu_args *a, const char *const *words, size_t n, struct cl_err *err)
{
    for (size_t i = 0; i < n; i++) {
        if (add(a, err, "%s", words[i]) < 0)
            return -1;
    }
    return 0;
}

/* Translated code is kept in up to tb-size MiB, by default up to 1 GiB: a busy guest would grow
 * past its cgroup (QEMU_OVERHEAD_MIB in machine_io.c) and be killed. */
#define TCG "tcg,thread=single,tb-size=128"

static int add_machine(struct qemu_args *a, const struct qemu_settings *s,
                       const struct vm_spec *spec, struct cl_err *err)
{
    const struct template *t = spec->template;
    const char *share = spec->origin == VM_BOOT ? "on" : "off";
    if (add(a, err, "%s", s->binary) < 0 || add(a, err, "-M") < 0 ||
        add(a, err, "microvm,acpi=on,pit=off,rtc=on,memory-backend=ram") < 0 ||
        add(a, err, "-accel") < 0 || add(a, err, "%s", s->kvm ? "kvm" : TCG) < 0 ||
        add(a, err, "-cpu") < 0 || add(a, err, "%s", s->kvm ? "host" : "max") < 0 ||
        add(a, err, "-smp") < 0 || add(a, err, "%u", t->vcpus) < 0 || add(a, err, "-m") < 0 ||
        add(a, err, "%uM", t->memory_mib) < 0 || add(a, err, "-object") < 0 ||
        add(a, err, "memory-backend-file,id=ram,size=%uM,mem-path=/proc/self/fd/%d,share=%s",
            t->memory_mib, QEMU_FD_RAM, share) < 0)
        return -1;
    return 0;
}

static int add_boot(struct qemu_args *a, const struct qemu_settings *s, const struct vm_spec *spec,
                    struct cl_err *err)
{
    if (spec->origin == VM_CLONE)
        return add(a, err, "-incoming") < 0 || add(a, err, "defer") < 0 ||
                       add(a, err, "-serial") < 0 || add(a, err, "null") < 0
                   ? -1
                   : 0;
    /* The console goes where stderr goes; its last lines explain a boot that fails. */
    static const char *const console[] = {"-chardev", "socket,id=console,fd=11", "-serial",
                                          "chardev:console"};
    _Static_assert(QEMU_FD_CONSOLE == 11, "the table above names it");
    if (add_words(a, console, CL_COUNT(console), err) < 0 || add(a, err, "-kernel") < 0 ||
        add(a, err, "/proc/self/fd/%d", QEMU_FD_KERNEL) < 0 || add(a, err, "-initrd") < 0 ||
        add(a, err, "/proc/self/fd/%d", QEMU_FD_INITRD) < 0 || add(a, err, "-append") < 0 ||
        add(a, err, "%s tsc_early_khz=%llu", spec->template->m.cmdline,
            (unsigned long long)s->tsc_khz) < 0)
        return -1;
    return 0;
}

/* Nothing of it outlives the VM, so nothing is synced; zeros and deleted blocks are holes.  When
 * the host's disk is full the guest gets the error: by default QEMU would stop it. */
static int add_scratch(struct qemu_args *a, const struct template *t, struct cl_err *err)
{
    static const char *const device[] = {"-device",
                                         "virtio-blk-device,drive=scratch,serial=scratch"};
    if (!t->m.scratch_sha256[0])
        return 0;
    if (add(a, err, "-add-fd") < 0 || add(a, err, "fd=%d,set=2", QEMU_FD_DISK) < 0 ||
        add(a, err, "-drive") < 0 ||
        add(a, err,
            "id=scratch,file=/dev/fdset/2,format=raw,if=none,auto-read-only=off,cache=unsafe,"
            "discard=unmap,detect-zeroes=unmap,werror=report,rerror=report,file.locking=off") < 0)
        return -1;
    return add_words(a, device, CL_COUNT(device), err);
}

/* A frame is a datagram of its socket. */
static int add_card(struct qemu_args *a, const struct template *t, struct cl_err *err)
{
    static const uint8_t mac[] = NET_GUEST_MAC;
    if (!t->network)
        return 0;
    if (add(a, err, "-netdev") < 0 ||
        add(a, err, "dgram,id=wire,local.type=fd,local.str=%d", QEMU_FD_WIRE) < 0 ||
        add(a, err, "-device") < 0 ||
        add(a, err, "virtio-net-device,netdev=wire,host_mtu=%d,mac=%02x:%02x:%02x:%02x:%02x:%02x",
            NET_LINK_MTU, mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]) < 0)
        return -1;
    return 0;
}

int qemu_args_build(const struct qemu_settings *settings, const struct vm_spec *spec,
                    struct qemu_args *ret_args, struct cl_err *err)
{
    static const char *const fixed[] = {
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
        "-sandbox",
        "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
        "-device",
        "virtio-blk-device,drive=rootfs",
        "-device",
        "virtio-serial-device",
        "-device",
        "virtserialport,chardev=agent,name=cloche.agent",
        "-mon",
        "chardev=qmp,mode=control",
    };
    struct qemu_args a = {0};
    if (add_machine(&a, settings, spec, err) < 0 || add_boot(&a, settings, spec, err) < 0 ||
        add(&a, err, "-add-fd") < 0 || add(&a, err, "fd=%d,set=1", QEMU_FD_ROOTFS) < 0 ||
        add(&a, err, "-drive") < 0 ||
        add(&a, err,
            "id=rootfs,file=/dev/fdset/1,format=raw,if=none,readonly=on,file.locking=off") < 0 ||
        add(&a, err, "-chardev") < 0 ||
        add(&a, err, "socket,id=agent,fd=%d", QEMU_FD_CHANNEL) < 0 ||
        add(&a, err, "-chardev") < 0 || add(&a, err, "socket,id=qmp,fd=%d", QEMU_FD_QMP) < 0 ||
        add_words(&a, fixed, CL_COUNT(fixed), err) < 0 ||
        add_scratch(&a, spec->template, err) < 0 || /* after the root: that one is /dev/vda */
        add_card(&a, spec->template, err) < 0) {
        qemu_args_fini(&a);
        return -1;
    }
    *ret_args = a;
    return 0;
}

void qemu_args_fini(struct qemu_args *args)
{
    for (int i = 0; i < args->n; i++)
        cl_free(args->argv[i]);
    *args = (struct qemu_args){0};
}
