#!/usr/bin/env python3
"""bench/snapshot.py - what it takes to keep a sandbox as a snapshot, and to begin with one, beside making a new one as far as that.

usage: bench/snapshot.py [--build DIR] [--rounds N] [DRIVER...]      (default: build 15 kvm/xenpv-shared kvm/xenpv qemu/tcg)

Each round asks each driver to keep its two sandboxes of `python`, one that holds a list and one that holds 64 MiB of random
bytes, and then begins with what was kept; times are those of the API call, over a unix socket.  `stands still` is what the worker
says of the one that is kept; `first word` is from the call to the result of a cell that asks for the variable; `again` begins with it
right after the first; `four` at once, the time is until the last has come.  `job` is one that prints a word, from the call
to its end.  `as far, anew` makes a new sandbox from a warm VM and runs the code again that the first one began with.
Environment: CLOCHE_IMAGES (out/images).  As root.
"""
import argparse
import os
import pathlib
import statistics
import sys
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build")
parser.add_argument("--rounds", type=int, default=15)
parser.add_argument("drivers", nargs="*", default=["kvm/xenpv-shared", "kvm/xenpv", "qemu/tcg"])
args = parser.parse_args()
REPO = pathlib.Path(__file__).resolve().parents[1]
os.environ["CLOCHE_BUILD"] = str(REPO / args.build)
sys.path.insert(0, str(REPO / "tests" / "e2e"))
import harness  # noqa: E402
from harness import MIB, SECOND, Cluster, command, follow, in_parallel, pb  # noqa: E402

HOLDS = {"small": "kept = list(range(1000))", "64 MiB": "import os; kept = os.urandom(64 << 20)"}


class Rig:
    def __init__(self, driver):
        harness.DRIVER, self.name = driver, driver
        harness.isolating_drivers.cache_clear()
        self.cluster = Cluster("snapshot", templates="python")
        self.client = self.cluster.start().admin
        self.got = {}
        self.boxes = {name: self.make(code) for name, code in HOLDS.items()}

    def cell(self, box, code):
        for event in self.client.codes.RunCode(pb.RunCodeRequest(sandbox_id=box, code=code, language=pb.LANGUAGE_PYTHON), timeout=300):
            if event.WhichOneof("event") == "ended" and event.ended.outcome != pb.CELL_OUTCOME_OK:
                sys.exit(f"snapshot: error: {event}")

    def create(self, **kw):
        return self.client.sandboxes.Create(pb.CreateRequest(ttl_ns=3600 * SECOND, **kw), timeout=300).sandbox.id

    def make(self, code):
        box = self.create(template="python")
        self.cell(box, code)
        return box

    def kill(self, box):
        self.client.sandboxes.Kill(pb.KillRequest(sandbox_id=box))

    def timed(self, what, call):
        begin = time.monotonic()
        got = call()
        self.got.setdefault(what, []).append((time.monotonic() - begin) * 1e3)
        return got

    def first_word(self, snapshot):
        box = self.create(snapshot=snapshot)
        self.cell(box, "len(kept)")
        return box

    def job(self, snapshot):
        spec = pb.JobSpec(snapshot=snapshot, command=command("echo", "word"))
        done = follow(self.client.jobs.Run(pb.RunRequest(spec=spec), timeout=300))
        if done.result.exit_code != 0 or bytes(done.out) != b"word\n":
            sys.exit(f"snapshot: error: {done}")

    def round(self):
        for name, box in self.boxes.items():
            request = pb.SnapshotServiceCreateRequest(sandbox_id=box)
            kept = self.timed(f"{name}: keep, ms", lambda request=request: self.client.snapshots.Create(request, timeout=300).snapshot)
            still = [int(row["still_us"]) for row in self.cluster.worker.events("GUEST_COPIED") if row["unit"] == box]
            self.got.setdefault(f"{name}: stands still, ms", []).append(still[-1] / 1e3)
            self.got.setdefault(f"{name}: takes of the disk, MiB", []).append(kept.image_bytes / MIB)
            boxes = [self.timed(f"{name}: begin, to its first word, ms", lambda kept=kept: self.first_word(kept.id))]
            boxes.append(self.timed(f"{name}: begin again, ms", lambda kept=kept: self.create(snapshot=kept.id)))
            boxes += self.timed(f"{name}: four begin, ms", lambda kept=kept: in_parallel(lambda _: self.create(snapshot=kept.id), range(4)))
            in_parallel(self.kill, boxes)
            self.timed(f"{name}: job, ms", lambda kept=kept: self.job(kept.id))
            self.client.snapshots.Delete(pb.SnapshotServiceDeleteRequest(snapshot=kept.id))
            time.sleep(0.5)
            self.kill(self.timed(f"{name}: as far, anew, ms", lambda name=name: self.make(HOLDS[name])))
            time.sleep(0.5)

    def stop(self):
        for box in self.boxes.values():
            self.kill(box)
        self.cluster.stop()
        self.cluster.remove_cgroups()


def p99(values):
    return sorted(values)[min(len(values) - 1, len(values) * 99 // 100)]


print(next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), f"N={args.rounds}", flush=True)
rigs = []
try:
    for d in args.drivers:
        rigs.append(Rig(d))
    for n in range(args.rounds + 1):
        for r in rigs:
            r.round()
            if n == 0:
                r.got.clear()  # the first one finds nothing in the caches
finally:
    for r in rigs:
        r.stop()
for what in rigs[0].got:
    for r in rigs:
        print(f"{r.name:18} {what:36} p50 {statistics.median(r.got[what]):8.1f}  p99 {p99(r.got[what]):8.1f}")
