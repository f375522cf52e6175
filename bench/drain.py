#!/usr/bin/env python3
"""bench/drain.py - what it takes to empty a host, and how long a sandbox that is used all the while is not heard of.

usage: bench/drain.py [--build DIR] [--rounds N] [--boxes N] [DRIVER...]    (default: build 10 12 kvm/xenpv-shared kvm/xenpv)

Two workers of each driver on this machine; sandboxes of `python` with a list, and one more that holds 64 MiB of random bytes.
Each round drains the worker that they are on, until all run on the other one.  A client asks one of the small ones and the
large one for a file all the while, and again when it is told to: the longest of these is how long it was away.  Environment: CLOCHE_IMAGES
(out/images).  As root.
"""
import argparse
import os
import pathlib
import statistics
import sys
import threading
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build")
parser.add_argument("--rounds", type=int, default=10)
parser.add_argument("--boxes", type=int, default=12, help="that hold little")
parser.add_argument("drivers", nargs="*", default=["kvm/xenpv-shared", "kvm/xenpv"])
args = parser.parse_args()
REPO = pathlib.Path(__file__).resolve().parents[1]
os.environ["CLOCHE_BUILD"] = str(REPO / args.build)
sys.path.insert(0, str(REPO / "tests" / "e2e"))
import harness  # noqa: E402
from harness import MIB, SECOND, Cluster, code_of, error_of, pb, until  # noqa: E402

SMALL, LARGE = "kept = list(range(1000))", "import os; kept = os.urandom(64 << 20)"


class Caller:
    """Asks a sandbox for a file until it is stopped; the longest call, in ms."""

    def __init__(self, client, box):
        self.client, self.box, self.longest, self.cut, self.over = client, box, 0, 0, False
        self.thread = threading.Thread(target=self.call)
        self.thread.start()

    def call(self):
        while not self.over:
            begin = time.monotonic()
            while True:
                err = error_of(self.client.files.Stat, pb.StatRequest(sandbox_id=self.box, path="/tmp"), timeout=300)
                if code_of(err) != "UNAVAILABLE":
                    break
                self.cut += 1
                time.sleep(0.005)
            self.longest = max(self.longest, (time.monotonic() - begin) * 1e3)
            time.sleep(0.005)

    def stop(self):
        self.over = True
        self.thread.join()
        return self.longest


class Rig:
    def __init__(self, driver):
        harness.DRIVER, self.name, self.got = driver, driver, {}
        harness.isolating_drivers.cache_clear()
        self.cluster = Cluster("drain", workers=2, templates="python")
        self.client = self.cluster.start().admin
        self.ids = [(w.state_dir / "id").read_text().strip() for w in self.cluster.workers]
        self.drain(self.ids[1])
        self.boxes = [self.create(SMALL) for _ in range(args.boxes)] + [self.create(LARGE)]
        self.drain(self.ids[1], undo=True)
        self.moved = 0

    def create(self, code):
        box = self.client.sandboxes.Create(pb.CreateRequest(template="python", ttl_ns=3600 * SECOND), timeout=120).sandbox.id
        self.cell(box, code)
        return box

    def cell(self, box, code):
        for event in self.client.codes.RunCode(pb.RunCodeRequest(sandbox_id=box, code=code, language=pb.LANGUAGE_PYTHON), timeout=300):
            if event.WhichOneof("event") == "ended" and event.ended.outcome != pb.CELL_OUTCOME_OK:
                sys.exit(f"drain: error: {event}")

    def drain(self, worker_id, undo=False):
        self.client.fleet.DrainWorker(pb.DrainWorkerRequest(worker_id=worker_id, undo=undo))

    def note(self, what, value):
        self.got.setdefault(what, []).append(value)

    def round(self):
        here, there = self.ids
        callers = {"small": Caller(self.client, self.boxes[0]), "64 MiB": Caller(self.client, self.boxes[-1])}
        get = lambda box: self.client.sandboxes.Get(pb.SandboxServiceGetRequest(sandbox_id=box)).sandbox
        is_there = lambda box: (get(box).worker_id, get(box).state) == (there, pb.UNIT_STATE_RUNNING)
        begin = time.monotonic()
        self.drain(here)
        if not until(lambda: all(is_there(box) for box in self.boxes), 300, 0.01):
            sys.exit("drain: error: not all have moved")
        self.note(f"until all {len(self.boxes)} run on the other host, ms", (time.monotonic() - begin) * 1e3)
        for name, caller in callers.items():
            self.note(f"{name}: longest call, ms", caller.stop())
            self.note(f"{name}: calls that had to be asked again", caller.cut)
        for box in self.boxes:
            self.cell(box, "assert len(kept) in (1000, 64 << 20)")
        events = self.cluster.scheduler.events("SANDBOX_MOVED")[self.moved:]
        self.moved += len(events)
        sizes = {e["unit"]: int(e["bytes"]) / MIB for e in events}
        self.note("bytes of a small one, MiB", statistics.median(sizes[box] for box in self.boxes[:-1]))
        self.note("bytes of all, MiB", sum(sizes.values()))
        self.drain(here, undo=True)
        self.ids.reverse()

    def stop(self):
        self.cluster.stop()
        self.cluster.remove_cgroups()


def p99(values):
    return sorted(values)[min(len(values) - 1, len(values) * 99 // 100)]


print(next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), f"N={args.rounds}", flush=True)
for driver in args.drivers:
    rig = Rig(driver)
    try:
        for n in range(args.rounds + 1):
            rig.round()
            if n == 0:
                print(f"{driver}: the first time: " + ", ".join(f"{what} {values[0]:.1f}" for what, values in rig.got.items()), flush=True)
                rig.got.clear()  # the memory of their snapshot went with it
        for what, values in rig.got.items():
            print(f"{driver}: {what}: p50 {statistics.median(values):.1f} p99 {p99(values):.1f}", flush=True)
    finally:
        rig.stop()
