/* worker/probe.c - see worker/probe.h. */
#include "worker/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/own.h"
#include "worker/cgroup.h"
#include "worker/digest.h"
#include "worker/jail.h"

/* The kernel needs it where no PIT calibration works: a wrong TSC rate hangs the boot on a busy
 * host. */
static uint64_t measure_tsc_khz(void)
{
    uint64_t t0 = cl_now_ns(), c0 = __rdtsc();
    const struct timespec wait = {.tv_nsec = 40 * 1000 * 1000};
    (void)nanosleep(&wait, NULL);
    uint64_t ns = cl_now_ns() - t0, cycles = __rdtsc() - c0;
    uint64_t khz = (uint64_t)((__uint128_t)cycles * 1000000 / (ns ? ns : 1));
    return (khz + 50) / 100 * 100; /* stable between probes: it is part of the snapshot key */
}

static void identify_cpu(struct host_probe *p, const char *flags)
{
    char hex[DIGEST_HEX];
    digest_hex(flags, strlen(flags), hex);
    (void)snprintf(p->cpu_id, sizeof p->cpu_id, "%s/%.16s", p->cpu_model, hex);
}

static void read_cpu(struct host_probe *p)
{
    char line[4096];
    CL_AUTO(cl_fclosep) FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && fgets(line, sizeof line, f)) {
        const char *value = strchr(line, ':');
        if (value && strncmp(line, "model name", 10) == 0 && !p->cpu_model[0])
            (void)sscanf(value + 1, " %63[^\n]", p->cpu_model);
        if (value && strncmp(line, "flags", 5) == 0) {
            p->vmx_or_svm = strstr(value, " vmx ") || strstr(value, " svm ");
            identify_cpu(p, value);
            return;
        }
    }
}

static int try_namespaces(void *arg)
{
    (void)arg;
    return 0;
}

static bool probe_namespaces(bool is_root)
{
    static _Alignas(16) char stack[65536];
    int flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | SIGCHLD;
    pid_t pid =
        clone(try_namespaces, stack + sizeof stack, is_root ? flags : flags | CLONE_NEWUSER, NULL);
    int status = 1;
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static bool has_subuid(void)
{
    char line[256], user[16];
    (void)snprintf(user, sizeof user, "%u:", getuid());
    const char *name = getenv("USER");
    CL_AUTO(cl_fclosep) FILE *f = fopen("/etc/subuid", "re");
    while (f && fgets(line, sizeof line, f)) {
        size_t n = name ? strlen(name) : 0;
        if (strncmp(line, user, strlen(user)) == 0 ||
            (n && strncmp(line, name, n) == 0 && line[n] == ':'))
            return true;
    }
    return false;
}

static void read_qemu_build(const char *qemu, char *out, size_t size)
{
    char command[600], line[256] = "";
    if (access(qemu, X_OK) < 0 || strpbrk(qemu, "'\\"))
        return;
    (void)snprintf(command, sizeof command, "'%s' --version 2>/dev/null", qemu);
    FILE *f = popen(command, "re");
    if (f && fgets(line, sizeof line, f)) {
        const char *version = strstr(line, "version ");
        (void)snprintf(out, size, "qemu %.48s", version ? version + 8 : line);
        out[strcspn(out, "\n")] = '\0';
    }
    if (f)
        (void)pclose(f);
}

enum {
    VMM_LINES = 3,                  /* of cloche-vmm --probe */
    COST_NS_MAX = 10 * 1000 * 1000, /* more: a clock went wrong, or the host is at its end */
};

/* "costs TRANSITION FAULT INSTRUCTION SAMPLES", or "nocosts WHY". */
static void take_costs(struct host_probe *p, const char *line)
{
    unsigned long long transition, fault;
    char by[sizeof p->transition_by];
    unsigned samples;
    if (sscanf(line, "nocosts %159[^\n]", p->costs_why) == 1 ||
        sscanf(line, "costs %llu %llu %15[A-Z] %u", &transition, &fault, by, &samples) != 4)
        return;
    if (transition == 0 || transition > COST_NS_MAX || fault == 0 || fault > COST_NS_MAX) {
        (void)snprintf(p->costs_why, sizeof p->costs_why,
                       "%llu and %llu ns were measured, which cannot be", transition, fault);
        return;
    }
    p->transition_ns = transition;
    p->page_fault_ns = fault;
    p->cost_samples = samples;
    p->costs_why[0] = '\0';
    memcpy(p->transition_by, by, sizeof by);
}

void host_probe_take_line(struct host_probe *p, unsigned number, const char *line)
{
    if (number == 0) {
        (void)sscanf(line, "%63[^\n]", p->vmm_build);
    } else if (number == 1) {
        p->vmm_can = strncmp(line, "yes ", 4) == 0;
        (void)sscanf(line, "%*s %159[^\n]", p->vmm_why);
    } else if (number == 2) {
        take_costs(p, line);
    }
}

/* Its own time limit is cloche-vmm's business. */
static void ask_vmm(struct host_probe *p, const char *vmm)
{
    char command[PATH_MAX + 32], line[256] = "";
    (void)snprintf(p->vmm_why, sizeof p->vmm_why, "no program '%.100s' (set it with --vmm)", vmm);
    (void)snprintf(p->costs_why, sizeof p->costs_why, "%s", p->vmm_why);
    if (access(vmm, X_OK) < 0 || strpbrk(vmm, "'\\"))
        return;
    (void)snprintf(command, sizeof command, "'%s' --probe 2>/dev/null", vmm);
    (void)snprintf(p->vmm_why, sizeof p->vmm_why, "cloche-vmm --probe gave no answer");
    (void)snprintf(p->costs_why, sizeof p->costs_why, "%s", p->vmm_why);
    FILE *f = popen(command, "re");
    for (unsigned i = 0; f && i < VMM_LINES && fgets(line, sizeof line, f); i++)
        host_probe_take_line(p, i, line);
    if (f)
        (void)pclose(f);
}

static void probe_kvm(struct host_probe *p)
{
    struct stat st;
    gid_t group;
    CL_AUTO(cl_closep) int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    p->kvm_node = kvm >= 0;
    p->kvm_for_vms =
        kvm >= 0 && (!p->is_root || (fstat(kvm, &st) == 0 && jail_kvm_groups(&st, &group) >= 0));
}

bool host_probe_has_kvm(const struct host_probe *p)
{
    return p->kvm_node && p->kvm_for_vms && p->vmx_or_svm;
}

int probe_find_program(const char *option, const char *name, char out[static PATH_MAX],
                       struct cl_err *err)
{
    if (option[0]) {
        (void)snprintf(out, PATH_MAX, "%s", option);
    } else {
        ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 32);
        if (n < 0)
            return cl_fail(err, CL_E_SYS, errno, "find %s", name);
        out[n] = '\0';
        (void)snprintf(strrchr(out, '/') + 1, 24, "%s", name);
    }
    return 0;
}

/* What is fast comes first; behind it what every tenant may have, and what boots where our own
 * monitor does not. */
static void choose_drivers(struct host_probe *p)
{
    bool kvm = host_probe_has_kvm(p), qemu = p->qemu_build[0] != '\0';
    const char *why = !p->kvm_node     ? "/dev/kvm cannot be opened"
                      : !p->vmx_or_svm ? "/dev/kvm is there, but the CPU shows neither VMX nor SVM"
                      : !p->kvm_for_vms
                          ? "/dev/kvm is for root alone: chgrp kvm /dev/kvm && chmod 0660 /dev/kvm"
                          : "/dev/kvm with VMX or SVM";
    (void)snprintf(p->driver, sizeof p->driver, "%s",
                   p->vmm_can     ? "kvm"
                   : kvm          ? "qemu/kvm"
                   : p->xenpv_can ? "kvm/xenpv"
                                  : "qemu/tcg");
    (void)snprintf(p->driver_why, sizeof p->driver_why, "%s", why);
    (void)snprintf(p->drivers, sizeof p->drivers, "%s%s%s",
                   strcmp(p->driver, "kvm/xenpv") == 0 ? "kvm/xenpv-shared," : "", p->driver,
                   strncmp(p->driver, "qemu/", 5) == 0 || !qemu ? ""
                   : kvm                                        ? ",qemu/kvm"
                                                                : ",qemu/tcg");
}

/* With VMX or SVM the kernel runs natively as it is. */
static void check_xenpv(struct host_probe *p)
{
    const char *why = !p->vmm_build[0] ? "cloche-vmm is not there"
                      : !p->kvm_node   ? "/dev/kvm cannot be opened"
                      : p->vmx_or_svm  ? "this host has VMX or SVM; the driver kvm is faster here"
                                       : "/dev/kvm without VMX or SVM: a stock kernel, natively";
    p->xenpv_can = p->vmm_build[0] && p->kvm_node && !p->vmx_or_svm;
    (void)snprintf(p->xenpv_why, sizeof p->xenpv_why, "%s", why);
}

void host_probe(const struct probe_programs *programs, struct host_probe *ret_probe)
{
    struct host_probe p = {.is_root = geteuid() == 0, .cpus = (uint32_t)get_nprocs()};
    struct sysinfo info;
    if (sysinfo(&info) == 0)
        p.memory_bytes = (uint64_t)info.totalram * info.mem_unit;
    probe_kvm(&p);
    read_cpu(&p);
    p.namespaces = probe_namespaces(p.is_root);
    struct cgroup_root root;
    cgroup_root_open("probe", &root);
    p.cgroups = root.n > 0;
    p.cgroup_v2 = root.v2;
    cgroup_root_close(&root);
    p.subuid = has_subuid();
    p.tsc_khz = measure_tsc_khz();
    read_qemu_build(programs->qemu, p.qemu_build, sizeof p.qemu_build);
    ask_vmm(&p, programs->vmm);
    check_xenpv(&p);
    choose_drivers(&p);
    *ret_probe = p;
}

static json_t *to_json(const struct host_probe *p)
{
    json_t *o = json_pack("{s:b, s:b, s:b, s:b, s:b, s:b, s:b, s:b, s:b, s:b}", "kvm_node",
                          p->kvm_node, "kvm_for_vms", p->kvm_for_vms, "vmx_or_svm", p->vmx_or_svm,
                          "namespaces", p->namespaces, "cgroups", p->cgroups, "cgroup_v2",
                          p->cgroup_v2, "is_root", p->is_root, "subuid", p->subuid, "vmm_can",
                          p->vmm_can, "xenpv_can", p->xenpv_can);
    json_t *more =
        json_pack("{s:i, s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "cpus", (int)p->cpus,
                  "memory_bytes", (json_int_t)p->memory_bytes, "tsc_khz", (json_int_t)p->tsc_khz,
                  "cpu_model", p->cpu_model, "qemu_build", p->qemu_build, "driver", p->driver,
                  "driver_why", p->driver_why, "vmm_build", p->vmm_build, "vmm_why", p->vmm_why,
                  "drivers", p->drivers, "xenpv_why", p->xenpv_why);
    json_t *costs = json_pack("{s:I, s:I, s:i, s:s, s:s}", "transition_ns",
                              (json_int_t)p->transition_ns, "page_fault_ns",
                              (json_int_t)p->page_fault_ns, "cost_samples", (int)p->cost_samples,
                              "transition_by", p->transition_by, "costs_why", p->costs_why);
    bool good =
        o && more && costs && json_object_update(o, more) == 0 && json_object_update(o, costs) == 0;
    json_decref(more);
    json_decref(costs);
    if (!good) {
        json_decref(o);
        return NULL;
    }
    return o;
}

int host_probe_print(const struct probe_programs *programs, FILE *out)
{
    struct host_probe p;
    host_probe(programs, &p);
    json_t *o = to_json(&p);
    int rc = o ? json_dumpf(o, out, JSON_COMPACT) : -1;
    json_decref(o);
    return rc < 0 || fputc('\n', out) == EOF || fflush(out) != 0 ? -1 : 0;
}
