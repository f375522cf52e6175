#!/usr/bin/env python3
"""The driver kvm/xenpv: a stock kernel natively where KVM interprets ring 0.  User code in its guests can reach their kernel, so
tenants that want it separate get none of them."""
import os
import pathlib
import re
import sys
import time

os.environ["CLOCHE_DRIVER"] = "kvm/xenpv"

from harness import Suite, follow, pb, run, skip, soon, spec  # noqa: E402

CLONES = 20
NAP = 0.5  # seconds that a timer in each clone sleeps
suite = Suite("xenpv")
check, equal = suite.check, suite.equal


@suite.scenario
def told(c):
    f = run(c.admin, "python3", "-c", "print(6*7)", template="python")
    equal("python prints 42", (f.outcome, bytes(f.out)), ("EXITED", b"42\n"))
    job = c.admin.jobs.Get(pb.GetRequest(job_id=f.job_id)).job
    equal("the driver is told", job.driver, "kvm/xenpv")
    equal("what is not separated is told", job.guest_separation, pb.GUEST_SEPARATION_SHARED)
    f = run(c.admin, "sh", "-c", "cat /sys/hypervisor/type 2>/dev/null; cat /sys/devices/system/clocksource/clocksource0/current_clocksource")
    equal("the guest's clock is Xen's", bytes(f.out).split()[-1:], [b"xen"])


@suite.scenario
def clones(c):
    """Each job is a clone of one snapshot: they must share nothing that was random, and no clock may stand still."""
    script = (f"cat /proc/sys/kernel/random/uuid; date +%s.%N; a=$(cut -d' ' -f1 /proc/uptime); sleep {NAP}; "
              "b=$(cut -d' ' -f1 /proc/uptime); echo $a $b")
    words, skews, slept = set(), [], []
    for i in range(CLONES):
        begin, wall = time.monotonic(), time.time()
        f = run(c.admin, "sh", "-c", script)
        took = time.monotonic() - begin
        lines = bytes(f.out).decode().split("\n")
        if not check(f"clone {i + 1} runs to its end", f.outcome == "EXITED" and len(lines) == 4, f):
            return
        words.add(lines[0])
        skews.append((float(lines[1]) - wall, took))
        slept.append(float(lines[2].split()[1]) - float(lines[2].split()[0]))
    equal("each clone has a random number of its own", len(words), CLONES)
    check("… and the right time", all(-0.5 < s < took + 0.5 for s, took in skews), skews)
    check("… and timers that end when they should", all(NAP - 0.05 <= s < NAP + soon(1) for s in slept), slept)


@suite.scenario
def tenants(c):
    """Of one worker, which is shared."""
    f = run(c.tenant("easy", separation="shared-ok"), "echo", "hello")
    equal("a tenant that says shared-ok has its job run", bytes(f.out), b"hello\n")
    wary = c.tenant("wary", separation="isolated")
    job_id = wary.jobs.Submit(pb.SubmitRequest(spec=spec("echo", "hello", wait=2))).job_id
    f = follow(wary.jobs.Watch(pb.WatchRequest(job_id=job_id), timeout=soon(60)))
    equal("one that wants isolation waits to its deadline", (f.outcome, f.result.reason), ("FAILED", pb.REASON_QUEUE_DEADLINE))
    equal("… and nothing of it has run", (f.attempts, bytes(f.out)), ([], b""))


@suite.scenario
def limits(c):
    f = run(c.admin, "true", resources=(2, 512, 0))
    check("more than one vCPU is refused, and said why", f.outcome == "FAILED" and "1 so far" in str(f), f)


if __name__ == "__main__":
    if re.search(r"^flags.*\b(vmx|svm)\b", pathlib.Path("/proc/cpuinfo").read_text(), re.M):
        skip("for hosts without VMX and SVM: the driver kvm is faster here")
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        skip("/dev/kvm cannot be opened")
    sys.exit(suite.main(templates="base,python", warm=2))
