/* vmm/probe.c - see vmm/probe.h. */
#include "vmm/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/own.h"
#include "vmm/kvm.h"

enum {
    PAGE = 4096,
    CODE_AT = 0x1000, /* guest-physical; real mode reaches it without tables */
    ROUNDS = 60000,   /* so many that the entry and a tick of the host's take little of it */
    TRIES = 4,        /* a busy host is slow at times, an interpreter always */
};

static const char silent[] = "KVM did not answer in time, or ended the process that asked it";

struct tiny {
    int vm_fd, vcpu_fd; /* owned */
    struct kvm_run *run;
    size_t run_bytes;
    uint8_t *page;
};

static void tiny_close(struct tiny *t)
{
    if (t->run)
        (void)munmap(t->run, t->run_bytes);
    if (t->page)
        (void)munmap(t->page, PAGE);
    cl_closep(&t->vcpu_fd);
    cl_closep(&t->vm_fd);
}

static int tiny_open(struct tiny *t, int kvm_fd, struct cl_err *err)
{
    *t = (struct tiny){.vm_fd = -1, .vcpu_fd = -1};
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return cl_fail(err, CL_E_NOMEM, errno, "a page");
    t->page = page;
    const struct kvm_slot slot = {.gpa = CODE_AT, .host = page, .bytes = PAGE};
    if (kvm_create_vm(kvm_fd, &t->vm_fd, err) < 0 || kvm_set_slot(t->vm_fd, &slot, err) < 0 ||
        kvm_create_vcpu(t->vm_fd, 0, &t->vcpu_fd, err) < 0)
        return -1;
    return kvm_map_run(kvm_fd, t->vcpu_fd, &t->run, &t->run_bytes, err);
}

/* mov cx, ROUNDS; again: loop again; hlt - from reset's real mode, at CODE_AT. */
static int tiny_load(struct tiny *t, struct cl_err *err)
{
    static const uint8_t code[] = {0xb9, ROUNDS & 0xff, ROUNDS >> 8, 0xe2, 0xfe, 0xf4};
    struct kvm_regs regs = {.rip = CODE_AT, .rflags = 2};
    struct kvm_sregs sregs;
    memcpy(t->page, code, sizeof code);
    if (KVM_CALL(t->vcpu_fd, KVM_GET_SREGS, &sregs, err) < 0)
        return -1;
    sregs.cs.base = 0;
    sregs.cs.selector = 0;
    if (KVM_CALL(t->vcpu_fd, KVM_SET_SREGS, &sregs, err) < 0)
        return -1;
    return KVM_CALL(t->vcpu_fd, KVM_SET_REGS, &regs, err);
}

static int tiny_time(struct tiny *t, uint64_t *ret_ns, struct cl_err *err)
{
    if (tiny_load(t, err) < 0)
        return -1;
    uint64_t begin_ns = cl_now_ns();
    do {
        if (ioctl(t->vcpu_fd, KVM_RUN, 0UL) < 0 && errno != EINTR)
            return cl_fail(err, CL_E_SYS, errno, "KVM_RUN");
    } while (t->run->exit_reason == KVM_EXIT_INTR);
    if (t->run->exit_reason != KVM_EXIT_HLT)
        return cl_fail(err, CL_E_SYS, 0, "a guest of three instructions ended by exit %u",
                       t->run->exit_reason);
    *ret_ns = cl_now_ns() - begin_ns;
    return 0;
}

/* ns of a ring-0 instruction, and never less than it takes: of the entry and of what others took
 * meanwhile nothing is taken off, so a busy host can look slow, but an interpreter not fast. */
static int measure(int kvm_fd, uint64_t *ret_ns, struct cl_err *err)
{
    struct tiny t;
    uint64_t ns = 0, best = UINT64_MAX;
    int rc = tiny_open(&t, kvm_fd, err);
    for (int i = 0; i < TRIES && rc == 0 && best > PROBE_NS_MAX; i++) {
        rc = tiny_time(&t, &ns, err);
        if (rc == 0)
            best = CL_MIN(best, ns / ROUNDS);
    }
    tiny_close(&t);
    *ret_ns = best;
    return rc;
}

/* --- what is told --------------------------------------------------------------------------- */

/* Whole or not at all: a report is smaller than PIPE_BUF. */
static void tell(int out_fd, const struct probe_report *report)
{
    (void)!write(out_fd, report, sizeof *report);
}
_Static_assert(sizeof(struct probe_report) <= PIPE_BUF, "one write, one report");

static void judge_pace(uint64_t ns, struct probe_report *report)
{
    report->can = ns <= PROBE_NS_MAX;
    (void)snprintf(report->why, sizeof report->why,
                   report->can ? "an instruction of a guest's kernel takes about %llu ns"
                               : "this KVM interprets guest kernels, %llu ns an instruction: the "
                                 "CPU offers it neither VMX nor SVM",
                   (unsigned long long)CL_MAX(ns, UINT64_C(1)));
}

static void measure_costs(int kvm_fd, struct probe_report *report)
{
    struct cl_err err = {0};
    report->is_measured = costs_measure(kvm_fd, &report->costs, &err) == 0;
    (void)snprintf(report->costs_why, sizeof report->costs_why, "%.*s", PROBE_TEXT - 1, err.text);
}

void probe_look(const char *path, int out_fd)
{
    struct cl_err err = {0};
    uint64_t ns;
    struct probe_report report = {.can = false};
    CL_AUTO(cl_closep) int kvm = open(path, O_RDWR | O_CLOEXEC);
    if (kvm < 0)
        (void)cl_fail(&err, CL_E_SYS, errno, "%s cannot be opened", path);
    if (kvm < 0 || kvm_check(kvm, &err) < 0 || measure(kvm, &ns, &err) < 0) {
        (void)snprintf(report.why, sizeof report.why, "%.*s", PROBE_TEXT - 1, err.text);
        (void)snprintf(report.costs_why, sizeof report.costs_why, "%s", report.why);
        tell(out_fd, &report);
        return;
    }
    judge_pace(ns, &report);
    (void)snprintf(report.costs_why, sizeof report.costs_why, "%s", silent);
    tell(out_fd, &report);
    measure_costs(kvm, &report);
    tell(out_fd, &report);
}

/* --- with a time limit ---------------------------------------------------------------------- */

/* The newest report; false at the end, or when there was none in time. */
static bool hear(int in_fd, uint64_t deadline_ns, struct probe_report *report)
{
    struct probe_report next;
    uint64_t now_ns = cl_now_ns();
    int wait_ms = deadline_ns > now_ns ? (int)((deadline_ns - now_ns) / CL_NS_PER_MS) + 1 : 0;
    struct pollfd fd = {.fd = in_fd, .events = POLLIN};
    if (poll(&fd, 1, wait_ms) <= 0 || read(in_fd, &next, sizeof next) != (ssize_t)sizeof next)
        return false;
    *report = next;
    return true;
}

static _Noreturn void look_and_exit(probe_look_fn *look, int out_fd)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)close(STDOUT_FILENO); /* whoever reads it waits for our parent alone */
    look(out_fd);
    _exit(0);
}

void probe_within(probe_look_fn *look, uint64_t limit_ns, struct probe_report *ret_report)
{
    int ends[2];
    uint64_t deadline_ns = cl_now_ns() + limit_ns;
    *ret_report = (struct probe_report){.can = false};
    (void)snprintf(ret_report->why, sizeof ret_report->why, "%s", silent);
    (void)snprintf(ret_report->costs_why, sizeof ret_report->costs_why, "%s", silent);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return;
    pid_t pid = fork();
    if (pid == 0)
        look_and_exit(look, ends[1]);
    (void)close(ends[1]);
    while (pid > 0 && hear(ends[0], deadline_ns, ret_report))
        continue;
    (void)close(ends[0]);
    if (pid > 0 && kill(pid, SIGKILL) == 0)
        (void)waitpid(pid, NULL, WNOHANG); /* one that hangs in KVM may never go */
}

static void look_at_dev_kvm(int out_fd)
{
    probe_look("/dev/kvm", out_fd);
}

void probe_kvm(struct probe_report *ret_report)
{
    probe_within(look_at_dev_kvm, PROBE_LIMIT_NS, ret_report);
}
