#!/usr/bin/env python3
"""What rests outlives its host's start where the keys are on a disk: three lives of one machine, whose /tmp is kept.

usage: lab_reboot.py 1|2|3
  1  sandboxes are made, one rests; all is stopped in order
  2  it goes on; then all processes are killed at once
  3  what rested goes on, what ran has ended
"""
import json
import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from box import Box  # noqa: E402
from harness import Cluster, Suite, command, follow, pb, until  # noqa: E402

LIFE = int(sys.argv[1])
HOME = pathlib.Path("/tmp/cloche-reboot")
FACTS = HOME / "facts.json"
COUNT_TO_FILE = "i=0; while :; do echo $i >> /tmp/count; i=$((i + 1)); sleep 0.1; done"
LOOK = ("sh", "-c", "sha256sum /home/user/noise; cat /proc/sys/kernel/random/boot_id; hostname")
suite = Suite(f"reboot-{LIFE}")
check, equal = suite.check, suite.equal


def boot_id():
    return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def count(box):
    return [int(n) for n in box.exec("cat", "/tmp/count").out.split()]


def remember(**facts):
    FACTS.write_text(json.dumps(facts))


def existing(c, sandbox_id):
    box = Box.__new__(Box)
    box.client, box.id = c.admin, sandbox_id
    return box


def goes_on(box, facts, x):
    seen = count(box)
    equal("its variable is there", box.python("x + 1"), str(x + 1))
    equal("its files and its identity are as they were", bytes(box.exec(*LOOK).out).decode(), facts["look"])
    until(lambda: len(count(box)) > len(seen) + 5, 20)
    now = count(box)
    check("what ran runs on, where it was, and once", len(now) > len(seen) + 5 and now == list(range(len(now))), now[-20:])
    check("its clock is right", box.clock_is_right(), box.clock_error())


def first(c):
    asleep, awake = Box(c.admin, template="python"), Box(c.admin, template="python")
    for box in (asleep, awake):
        box.python("x = 41")
        box.exec("sh", "-c", "head -c 3000000 /dev/urandom > /home/user/noise")
        box.start("sh", "-c", COUNT_TO_FILE, timeout=24 * 3600)
    check("all have begun", all(until(lambda: len(count(b)) > 5, 20) for b in (asleep, awake)))
    looks = [bytes(b.exec(*LOOK).out).decode() for b in (asleep, awake)]
    awake.snapshot("ready")
    asleep.pause()
    remember(boot=boot_id(), asleep={"id": asleep.id, "look": looks[0]}, awake={"id": awake.id, "look": looks[1]})
    statuses = c.stop()
    check("every process ends in order when asked", all(s == 0 for s in statuses.values()), statuses)


def second(c, facts):
    asleep, awake = existing(c, facts["asleep"]["id"]), existing(c, facts["awake"]["id"])
    check("what ran runs", until(lambda: awake.state() == "RUNNING", 60), awake.get())
    goes_on(awake, facts["awake"], 41)
    equal("what rested rests", asleep.state(), "PAUSED")
    asleep.resume()
    goes_on(asleep, facts["asleep"], 41)
    asleep.python("x = 51")
    job = follow(c.admin.jobs.Run(pb.RunRequest(spec=pb.JobSpec(snapshot="ready", command=command("tail", "-n1", "/tmp/count"))), timeout=300))
    check("a job begins with the snapshot", job.result.exit_code == 0 and int(job.out) > 0, job)
    begun = Box(c.admin, template="", snapshot="ready")
    equal("… and a sandbox", begun.python("x"), "41")
    begun.kill()
    asleep.pause()
    time.sleep(1)
    remember(**{**facts, "boot": boot_id()})
    for p in c.processes():
        p.signal(signal.SIGKILL)


def third(c, facts):
    asleep, awake = existing(c, facts["asleep"]["id"]), existing(c, facts["awake"]["id"])
    check("what ran has ended with its host", until(lambda: awake.state() == "ENDED", 120) and awake.get().reason == pb.REASON_WORKER_LOST, awake.get())
    equal("what rested rests", asleep.state(), "PAUSED")
    asleep.resume()
    goes_on(asleep, facts["asleep"], 51)
    equal("the snapshot is there, too", Box(c.admin, template="", snapshot="ready").python("x"), "41")
    for box in c.admin.sandboxes.List(pb.SandboxServiceListRequest()).sandboxes:
        c.admin.sandboxes.Kill(pb.KillRequest(sandbox_id=box.id))
    c.admin.snapshots.Delete(pb.SnapshotServiceDeleteRequest(snapshot="ready"))


facts = json.loads(FACTS.read_text()) if LIFE > 1 else {}
check("it is another life", facts.get("boot") != boot_id(), facts)
c = Cluster("reboot", at=HOME, templates="python", worker_args=("--pause-on-stop=yes",))
c.start()
if LIFE == 1:
    first(c)
elif LIFE == 2:
    second(c, facts)
else:
    third(c, facts)
    suite.close(c)
os.sync()
suite.finish()
