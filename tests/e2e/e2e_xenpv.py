#!/usr/bin/env python3
"""The driver kvm/xenpv: a stock kernel natively where KVM interprets ring 0, in both modes.  In the shared one user code can reach
its guest's kernel, so tenants that want it isolated get none of those."""
import json
import os
import pathlib
import re
import time

os.environ["CLOCHE_DRIVER"] = "kvm/xenpv-shared"

from clones import differ  # noqa: E402
from harness import Cluster, Suite, code_of, command, error_of, follow, pb, run, skip, soon, spec  # noqa: E402

suite = Suite("xenpv")
check, equal = suite.check, suite.equal


@suite.scenario
def told(c):
    f = run(c.admin, "python3", "-c", "print(6*7)", template="python")
    equal("python prints 42", (f.outcome, bytes(f.out)), ("EXITED", b"42\n"))
    job = c.admin.jobs.Get(pb.GetRequest(job_id=f.job_id)).job
    equal("the driver is told", job.driver, "kvm/xenpv")
    equal("what is not separated is told", job.guest_separation, pb.GUEST_SEPARATION_SHARED)
    (started,) = c.worker.events("STARTED")
    check("the worker's log says what KVM takes", 100 < int(started["transition_ns"]) < 10**7 and 100 < int(started["page_fault_ns"]) < 10**7, started)


def counters(c, box):
    stats = c.admin.sandboxes.Stats(pb.StatsRequest(unit_id=box.id)).stats
    return {counter.name: counter.value for counter in stats.counters}


@suite.scenario
def counted(c):
    """Why the guest is left: by what it asks of the agent's channel, and hardly by anything else."""
    box = c.admin.sandboxes.Create(pb.CreateRequest(template="python", ttl_ns=60 * 10**9), timeout=60).sandbox
    n = counters(c, box)
    check("its kicks and interrupts are counted", n["kicks.vsock"] > 0 and n["interrupts.vsock"] > 0, n)
    check("… and what it has no controller and no card for is not", n["exits.interrupt-chip"] == n["kicks.net"] == n["interrupts.net"] == 0, n)
    check("… and what KVM itself does for it", n["kvm.exits"] > n["kicks.vsock"] and n["kvm.interrupts"] > 0, n)
    started = c.admin.execs.Start(pb.StartRequest(sandbox_id=box.id, command=command("echo", "hello")))
    heard = follow(c.admin.execs.Attach(pb.AttachRequest(sandbox_id=box.id, exec_id=started.exec_id), timeout=soon(60)))
    equal("a program runs in it", bytes(heard.out), b"hello\n")
    more = {name: value - n[name] for name, value in counters(c, box).items()}
    check("… for which the channel interrupts", more["interrupts.vsock"] > 0, more)
    equal("… and none of its registers is asked why", more["exits.vsock"], 0)
    c.admin.sandboxes.Kill(pb.KillRequest(sandbox_id=box.id))


@suite.scenario
def idle(c):
    """A guest in which nothing is to be done is hardly ever woken: thousands of them share a host."""
    box, rest_s, often = c.admin.sandboxes.Create(pb.CreateRequest(template="base", ttl_ns=600 * 10**9), timeout=60).sandbox, 10, 9
    time.sleep(3)  # what its claim began ends
    n = counters(c, box)
    time.sleep(rest_s)
    per_s = {name: (value - n[name]) / rest_s for name, value in counters(c, box).items()}
    check(f"an idle guest has less than {often} interrupts a second", per_s["kvm.interrupts"] < often, per_s)
    print(f"     an idle second: {per_s['kvm.interrupts']:.1f} interrupts, {per_s['kvm.exits']:.0f} exits to KVM", flush=True)
    c.admin.sandboxes.Kill(pb.KillRequest(sandbox_id=box.id))


def computes(c, client, what):
    """Programs that compute, and never ask the kernel for anything, leave the only vCPU to others."""
    box = client.sandboxes.Create(pb.CreateRequest(template="base", ttl_ns=600 * 10**9), timeout=60).sandbox

    def start(*argv):
        return client.execs.Start(pb.StartRequest(sandbox_id=box.id, command=command(*argv)), timeout=soon(60)).exec_id
    busy = [start("sh", "-c", "while :; do :; done") for _ in range(2)]
    heard = follow(client.execs.Attach(pb.AttachRequest(sandbox_id=box.id, exec_id=start("echo", "hello")), timeout=soon(60)))
    equal(f"{what}: beside programs that compute for ever another runs", bytes(heard.out), b"hello\n")
    for exec_id in busy:
        client.execs.Signal(pb.SignalRequest(sandbox_id=box.id, exec_id=exec_id, signal=9), timeout=soon(60))
        end = client.execs.Wait(pb.WaitRequest(sandbox_id=box.id, exec_id=exec_id), timeout=soon(60))
        check(f"{what}: … and they can be ended", end is not None)
    client.sandboxes.Kill(pb.KillRequest(sandbox_id=box.id))


PREFAULTED = {  # guest_memory.py's questions; pages by number, [first, last]
    "one_by_one": ("a page that is written to comes with the 16 KiB that it lies in", [[4, 7]]),
    "goes_on": ("… with twice that when a program goes on, up to 64 KiB", [[[0, 3]], [[0, 11]], [[0, 27]], [[0, 43]], [[0, 59]]]),
    "kernel_writes": ("… also when the kernel writes to it", [[4, 7]]),
    "is_read": ("… alone when it is only read", [[5, 5]]),
    "is_advised": ("… alone where the program says so", [[5, 5]]),
    "ends_early": ("… with no more than is mapped", [[4, 5]]),
    "is_of_a_fork": ("… and without copies of what is shared with a parent", [0]),
    "here_and_there": ("memory that is written to here and there costs no more than there is", 16384)}


def prefaults(client, what):
    """A page fault is dear, so it is for more than a page (images/module/cloche_prefault.c)."""
    script = (pathlib.Path(__file__).parent / "guest_memory.py").read_text()
    f = run(client, "python3", "-c", script, template="python")
    told = dict(json.loads(line) for line in bytes(f.out).splitlines())
    equal(f"{what}: all about memory is told", (f.outcome, f.result.exit_code, set(told)), ("EXITED", 0, set(PREFAULTED)))
    for question, (says, expected) in PREFAULTED.items():
        answers = told[question]
        often = max(answers, key=answers.get)
        equal(f"{what}: {says}", json.loads(often), expected)


@suite.scenario
def memory(c):
    prefaults(c.admin, "shared")


@suite.scenario
def computing(c):
    computes(c, c.admin, "shared")


@suite.scenario
def clones(c):
    differ(suite, c, {"xen"})


@suite.scenario
def tenants(c):
    """Of one worker, which is shared."""
    f = run(c.tenant("easy", separation="shared-ok"), "echo", "hello")
    equal("a tenant that says shared-ok has its job run", bytes(f.out), b"hello\n")
    wary = c.tenant("wary", separation="isolated")
    job_id = wary.jobs.Submit(pb.SubmitRequest(spec=spec("echo", "hello", wait=2))).job_id
    f = follow(wary.jobs.Watch(pb.WatchRequest(job_id=job_id), timeout=soon(60)))
    equal("one that wants isolation waits to its deadline", (f.outcome, f.result.reason), ("FAILED", pb.REASON_QUEUE_DEADLINE))
    check("… and learns why", "isolated" in f.result.message, f)
    equal("… and nothing of it has run", (f.attempts, bytes(f.out)), ([], b""))


def isolated():
    """What a tenant gets by default."""
    c = Cluster("xenpv-isolated", templates="base,python", warm=2, worker_args=("--driver", "kvm/xenpv"))
    try:
        c.start()
        wary = c.tenant("wary", separation="isolated")
        f = run(wary, "python3", "-c", "print(6*7)", template="python")
        equal("isolated: python prints 42", (f.outcome, bytes(f.out)), ("EXITED", b"42\n"))
        job = wary.jobs.Get(pb.GetRequest(job_id=f.job_id)).job
        equal("… and that is told", (job.driver, job.guest_separation), ("kvm/xenpv", pb.GUEST_SEPARATION_ISOLATED))
        probe = "import ctypes; print(ctypes.c_ubyte.from_address(0xffff810000010000).value)"
        f = run(wary, "python3", "-c", probe, template="python")
        equal("… user code cannot read what its kernel's hypervisor keeps", (f.outcome, f.result.signal, bytes(f.out)), ("SIGNALED", 11, b""))
        f = run(wary, "echo", "still here")
        equal("… and the next job runs", bytes(f.out), b"still here\n")
        computes(c, wary, "isolated")
        prefaults(wary, "isolated")
        differ(suite, c, {"xen"})
    finally:
        suite.close(c)


@suite.scenario
def limits(c):
    f = run(c.admin, "nproc", resources=(4, 512, 0))
    equal("four vCPUs are there", (f.outcome, bytes(f.out)), ("EXITED", b"4\n"))
    err = error_of(c.admin.jobs.Run, pb.RunRequest(spec=spec("true", resources=(5, 512, 0))))
    check("a fifth is refused, and said why", code_of(err) == "INVALID_ARGUMENT" and "limit of 4000" in err.details(), err)
    f = run(c.admin, "awk", "/MemTotal/{print ($2 > 3900 * 1024)}", "/proc/meminfo", resources=(1, 4096, 0), timeout_rpc=180)
    equal("all memory that one may ask for is there", (f.outcome, bytes(f.out)), ("EXITED", b"1\n"))


if __name__ == "__main__":
    if re.search(r"^flags.*\b(vmx|svm)\b", pathlib.Path("/proc/cpuinfo").read_text(), re.M):
        skip("for hosts without VMX and SVM: the driver kvm is faster here")
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        skip("/dev/kvm cannot be opened")
    isolated()
    suite.main(templates="base,python", warm=2)
