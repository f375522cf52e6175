#!/usr/bin/env python3
"""Everything as an ordinary user without subuids, cgroups or /dev/kvm: a run works."""
import os
import random
import time

from harness import DRIVER, Suite, command, follow, pb, read_text, run, skip, until

suite = Suite("ordinary-user")
check, equal = suite.check, suite.equal


@suite.scenario
def nobody_special(c):
    uids = {p.name: read_text(f"/proc/{p.pid}/status").split("Uid:")[1].split()[0] for p in c.processes()}
    equal("every process runs as that user", set(uids.values()), {str(c.user)})
    caps = {p.name: read_text(f"/proc/{p.pid}/status").split("CapEff:")[1].split()[0] for p in c.processes()}
    equal("none has a capability", {int(v, 16) for v in caps.values()}, {0})
    check("the user has no subuids", str(c.user) not in read_text("/etc/subuid"))
    started = c.worker.events("STARTED")
    check("the worker says that it has no cgroups", started and started[-1].get("cgroups") == "0", started)


@suite.scenario
def a_run_works(c):
    f = run(c.admin, "python3", "-c", "print(6*7)", template="python")
    check("python prints 42", bytes(f.out) == b"42\n" and f.outcome == "EXITED", f)
    f = run(c.admin, "sh", "-c", "echo $((40+2)); exit 5", resources=(2, 512, 0))
    check("exit codes and other sizes work", (f.outcome, f.result.exit_code, bytes(f.out)) == ("EXITED", 5, b"42\n"), f)
    f = run(c.admin, "sleep", "60", timeout=1)
    check("time limits work", f.outcome == "TIMED_OUT", f)
    box = c.admin.sandboxes.Create(pb.CreateRequest(template="base")).sandbox
    e = c.admin.execs.Start(pb.StartRequest(sandbox_id=box.id, command=command("echo", "in a box"))).exec_id
    f = follow(c.admin.execs.Attach(pb.AttachRequest(sandbox_id=box.id, exec_id=e)))
    check("sandboxes work", bytes(f.out) == b"in a box\n", f)
    owners = {os.stat(f"/proc/{pid}").st_uid for pid in c.vms()}
    check("VMs run as that user or below it, never as root", owners and 0 not in owners, owners)
    c.admin.sandboxes.Kill(pb.KillRequest(sandbox_id=box.id))


@suite.scenario
def a_dead_worker(c):
    c.worker.kill()
    vms = set(c.vms())
    c.worker.start()
    check("without cgroups too a restarted worker sweeps", vms and until(lambda: not vms & set(c.vms()), 10), vms & set(c.vms()))
    begin = time.monotonic()
    check("and runs again", run(c.admin, "true").outcome == "EXITED")
    check("… long before a lease ends", time.monotonic() - begin < 25, time.monotonic() - begin)


if __name__ == "__main__":
    if os.geteuid() != 0:
        skip("needs root to become an ordinary user")
    if DRIVER not in ("auto", "qemu/tcg"):
        skip(f"is about a user without /dev/kvm, which {DRIVER} needs")
    suite.main(templates="base,python", user=random.randint(200000, 299999))
