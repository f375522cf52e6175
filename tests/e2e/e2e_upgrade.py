#!/usr/bin/env python3
"""Another build of cloche-vmm is installed: what runs and what rests goes on, each under the build that knows it.

CLOCHE_OLDER_VMM names that of an earlier release, which is then the first one; else the second is made of this one.
"""
import hashlib
import os
import pathlib
import subprocess
import sys

from box import Box, refused
from harness import BUILD, DRIVER, Cluster, Suite, command, follow, in_parallel, pb, skip, until

suite = Suite("upgrade")
check, equal = suite.check, suite.equal
COUNT_TO_FILE = "i=0; while :; do echo $i >> /tmp/count; i=$((i + 1)); sleep 0.2; done"
MAGIC, OTHER_MAGIC = b"CLVMSTAT", b"CLVMSTA2"  # of a VM's state (vmm/state.c)


def build_name(program):
    return subprocess.run([program, "--probe"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def another_build(data, name):
    """Of another name, and it reads and writes other states."""
    digest = name.split()[-1].encode()
    if (data.count(digest), data.count(MAGIC)) != (1, 1):
        raise RuntimeError("cloche-vmm does not have its name and the magic of its states once each")
    return data.replace(digest, digest[::-1]).replace(MAGIC, OTHER_MAGIC)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def install(data):
    """As a package does: another file of that name."""
    fresh = VMM.with_suffix(".new")
    fresh.write_bytes(data)
    fresh.chmod(0o755)
    fresh.rename(VMM)


def replace_worker(c, w=None):
    w = w or c.worker
    before = len(c.scheduler.events("WORKER_UP"))
    equal("the worker ends in order", w.stop(), 0)
    w.start()
    until(lambda: len(c.scheduler.events("WORKER_UP")) > before, 60)
    c.await_ready(300)


def runs_under(c, box):
    """Which build its monitor is of."""
    pid = until(lambda: c.vm_of(box.id), 10)
    return {sha256(FIRST): "first", sha256(SECOND): "second"}.get(sha256(pathlib.Path(f"/proc/{pid}/exe").read_bytes()), "?")


def kept_builds(w):
    return sorted(p.name for p in (w.state_dir / "monitors").iterdir())


def count(box):
    return [int(n) for n in box.exec("cat", "/tmp/count").out.split()]


def goes_on(box):
    seen = count(box)
    until(lambda: len(count(box)) > len(seen) + 5, 20)
    now = count(box)
    return len(now) > len(seen) + 5 and now == list(range(len(now)))


def said(c, box, *words):
    """In the worker's log, of what it could not let go on."""
    return [e for e in c.worker.events("UNIT_NOT_KEPT") if e["unit"] == box.id and all(w in e["text"] for w in words)]


def clear(c):
    for box in c.admin.sandboxes.List(pb.SandboxServiceListRequest()).sandboxes:
        c.admin.sandboxes.Kill(pb.KillRequest(sandbox_id=box.id))
    for snapshot in c.admin.snapshots.List(pb.SnapshotServiceListRequest()).snapshots:
        c.admin.snapshots.Delete(pb.SnapshotServiceDeleteRequest(snapshot=snapshot.id))


def begin_with_first(c):
    clear(c)
    install(FIRST)
    replace_worker(c)


@suite.scenario
def there_and_back(c):
    awake, asleep = Box(c.admin, template="python"), Box(c.admin, template="python")
    for box in (awake, asleep):
        box.python("x = 41")
        box.start("sh", "-c", COUNT_TO_FILE)
    equal("all of it is of the first build", [runs_under(c, b) for b in (awake, asleep)], ["first"] * 2)
    check("all have begun", all(until(lambda: len(count(b)) > 5, 20) for b in (awake, asleep)), [count(b) for b in (awake, asleep)])
    snapshot = awake.snapshot("ready")
    asleep.pause()
    install(SECOND)
    replace_worker(c)
    check("what ran runs", until(lambda: awake.state() == "RUNNING", 60), awake.get())
    equal("what was paused is paused", asleep.state(), "PAUSED")
    asleep.resume()
    equal("both are of the build that they were paused under", [runs_under(c, b) for b in (awake, asleep)], ["first"] * 2)
    equal("their variables are there", [b.python("x + 1") for b in (awake, asleep)], ["42"] * 2)
    check("what ran runs on, where it was, and once", all(goes_on(b) for b in (awake, asleep)), [count(b) for b in (awake, asleep)])
    restored = c.worker.events("UNIT_RESTORED")[-3:]
    equal("the log says which build it is", {e["monitor"] for e in restored}, {build_name_of_first})
    copy, begun = awake.fork(), Box(c.admin, template="", snapshot="ready")
    equal("so are copies, and what begins with a snapshot", [(runs_under(c, b), b.python("x + 1")) for b in (copy, begun)], [("first", "42")] * 2)
    job = follow(c.admin.jobs.Run(pb.RunRequest(spec=pb.JobSpec(snapshot=snapshot.id, command=command("tail", "-n1", "/tmp/count"))), timeout=120))
    check("… and a job", job.result.exit_code == 0 and int(job.out) > 0, job)
    new = Box(c.admin, template="python")
    new.python("x = 1")
    new.start("sh", "-c", COUNT_TO_FILE)
    equal("what is new is of the second", runs_under(c, new), "second")
    equal("both are kept", kept_builds(c.worker), sorted(map(sha256, (FIRST, SECOND))))
    asleep.pause()
    install(FIRST)
    replace_worker(c)
    asleep.resume()
    equal("the way back is the same", [(runs_under(c, b), b.python("x + 1")) for b in (awake, asleep, new)], [("first", "42"), ("first", "42"), ("second", "2")])
    check("… and all of it goes on", all(goes_on(b) for b in (awake, asleep, new)))


@suite.scenario
def under_a_worker_that_runs(c):
    """The file is exchanged, and the worker is started anew later, or not."""
    begin_with_first(c)
    install(SECOND)
    boxes = in_parallel(lambda _: Box(c.admin), range(6))
    equal("clones are of the build that their template's snapshot is of", [runs_under(c, b) for b in boxes], ["first"] * 6)
    boxes[0].pause()
    boxes[0].resume()
    equal("… also those that were paused", runs_under(c, boxes[0]), "first")


@suite.long_scenario
def a_spoiled_copy(c):
    begin_with_first(c)
    box = Box(c.admin)
    box.pause()
    copy = c.worker.state_dir / "monitors" / sha256(FIRST) / "cloche-vmm"
    equal("the worker ends in order", c.worker.stop(), 0)
    install(SECOND)
    data = bytearray(copy.read_bytes())
    data[len(data) // 2] ^= 1
    copy.unlink()
    copy.write_bytes(data)
    copy.chmod(0o555)
    c.worker.start()
    check("is not run: what needs it ends", until(lambda: box.state() == "ENDED", 60) and box.get().reason == pb.REASON_WORKER_LOST, box.get())
    check("… and it is said why", said(c, box, build_name_of_first, "no copy"), c.worker.events("UNIT_NOT_KEPT"))
    c.await_ready(300)
    replace_worker(c)
    install(FIRST)
    replace_worker(c)
    again = Box(c.admin)
    equal("it is made again when it is needed", (runs_under(c, again), sha256(copy.read_bytes())), ("first", sha256(FIRST)))


@suite.long_scenario
def one_with_a_hole(c):
    """An operator may want what the older build saved to end."""
    begin_with_first(c)
    box, snapshot = Box(c.admin), Box(c.admin).snapshot("old")
    box.pause()
    install(SECOND)
    c.worker.argv.append("--older-monitors=no")
    replace_worker(c)
    c.worker.argv.pop()
    check("both have ended", until(lambda: box.state() == "ENDED", 60), box.get())
    check("… and it is said why", said(c, box, build_name_of_first, "older-monitors"), c.worker.events("UNIT_NOT_KEPT"))
    equal("nothing begins with the snapshot", refused(lambda: Box(c.admin, template="", snapshot=snapshot.id))[0], "NOT_FOUND")
    new = Box(c.admin)
    new.pause()
    new.resume()
    equal("what is new is as ever", runs_under(c, new), "second")


@suite.long_scenario
def another_host_has_run_it_too(c):
    begin_with_first(c)
    first = c.worker
    second = c.add_worker()
    second.start()
    c.await_ready(300)
    install(SECOND)
    names = {w: (w.state_dir / "id").read_text().strip() for w in (first, second)}
    boxes = [Box(c.admin, template="python") for _ in range(4)]
    for box in boxes:
        box.python("x = 41")
        box.pause()
    here = [b for b in boxes if b.get().worker_id == names[first]]
    check("some are on the first host", here)
    for w in (first, second):
        replace_worker(c, w)
    c.admin.fleet.DrainWorker(pb.DrainWorkerRequest(worker_id=names[first]))
    check("they move", until(lambda: all(b.get().worker_id == names[second] for b in here), 60), [b.get() for b in here])
    for box in here:
        box.resume()
    equal("… and go on there, under the build that saved them", [(runs_under(c, b), b.python("x + 1")) for b in here], [("first", "42")] * len(here))
    c.admin.fleet.DrainWorker(pb.DrainWorkerRequest(worker_id=names[first], undo=True))


if __name__ == "__main__":
    if DRIVER.startswith("qemu"):
        skip(f"{DRIVER} is not run by cloche-vmm: its monitor is its host's")
    now = (BUILD / "cloche-vmm").read_bytes()
    older = os.environ.get("CLOCHE_OLDER_VMM")
    build_name_of_first = build_name(older or BUILD / "cloche-vmm")
    FIRST = pathlib.Path(older).read_bytes() if older else now
    SECOND = now if older else another_build(FIRST, build_name_of_first)
    c = Cluster("upgrade", templates="base,python", worker_args=("--pause-on-stop=yes",))
    VMM = c.dir / "cloche-vmm"
    c.worker.argv += ["--vmm", VMM]
    c.worker_args = (*c.worker_args, "--vmm", VMM)
    install(FIRST)
    try:
        c.start()
        suite.play(c, sys.argv[1:])
        clear(c)
    finally:
        suite.close(c)
    suite.finish()
