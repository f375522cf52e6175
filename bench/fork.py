#!/usr/bin/env python3
"""bench/fork.py - what it takes to copy a sandbox that runs, beside making a new one as far as that.

usage: bench/fork.py [--build DIR] [--rounds N] [DRIVER...]      (default: build 15 kvm/xenpv-shared kvm/xenpv qemu/tcg)

Each round asks each driver for copies of its two sandboxes of `python`, one that holds a list and one that holds 64 MiB of random
bytes; times are those of the API call, over a unix socket.  `stands still` is what the worker says of the one that is copied;
`first word` is from the call to the result of a cell of the copy that asks for the variable; `four more of that moment` are
asked for at once, the time is until the last has come.  `as far, anew` makes a new sandbox from a warm VM and runs the code
again that the first one began with.  Environment: CLOCHE_IMAGES (out/images).  As root.
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
from harness import MIB, SECOND, Cluster, in_parallel, pb, rss_bytes  # noqa: E402

HOLDS = {"small": "kept = list(range(1000))", "64 MiB": "import os; kept = os.urandom(64 << 20)"}


class Rig:
    def __init__(self, driver):
        harness.DRIVER, self.name = driver, driver
        harness.isolating_drivers.cache_clear()
        self.cluster = Cluster("fork", templates="python")
        self.client = self.cluster.start().admin
        self.got = {}
        self.boxes = {name: self.make(code) for name, code in HOLDS.items()}

    def cell(self, box, code):
        for event in self.client.codes.RunCode(pb.RunCodeRequest(sandbox_id=box, code=code, language=pb.LANGUAGE_PYTHON), timeout=300):
            if event.WhichOneof("event") == "ended" and event.ended.outcome != pb.CELL_OUTCOME_OK:
                sys.exit(f"fork: error: {event}")

    def make(self, code):
        box = self.client.sandboxes.Create(pb.CreateRequest(template="python", ttl_ns=3600 * SECOND), timeout=120).sandbox.id
        self.cell(box, code)
        return box

    def fork(self, box, moment):
        return self.client.sandboxes.Fork(pb.ForkRequest(sandbox_id=box, moment=moment, ttl_ns=600 * SECOND), timeout=300).sandbox.id

    def kill(self, box):
        self.client.sandboxes.Kill(pb.KillRequest(sandbox_id=box))

    def note(self, what, value):
        self.got.setdefault(what, []).append(value)

    def round(self, n):
        for name, box in self.boxes.items():
            begin = time.monotonic()
            copies = [self.fork(box, f"{name} {n}")]
            self.note(f"{name}: fork, ms", (time.monotonic() - begin) * 1e3)
            self.cell(copies[0], "len(kept)")
            self.note(f"{name}: fork to first word, ms", (time.monotonic() - begin) * 1e3)
            still = [int(row["still_us"]) for row in self.cluster.worker.events("GUEST_COPIED") if row["unit"] == box]
            self.note(f"{name}: stands still, ms", still[-1] / 1e3)
            self.note(f"{name}: resident of the copy, MiB", rss_bytes(self.cluster.vm_of(copies[0])) / MIB)
            begin = time.monotonic()
            copies += in_parallel(lambda _, box=box, name=name: self.fork(box, f"{name} {n}"), range(4))
            self.note(f"{name}: four more of that moment, ms", (time.monotonic() - begin) * 1e3)
            in_parallel(self.kill, copies)
            time.sleep(0.5)
            begin = time.monotonic()
            new = self.make(HOLDS[name])
            self.note(f"{name}: as far, anew, ms", (time.monotonic() - begin) * 1e3)
            self.kill(new)
            time.sleep(0.5)

    def stop(self):
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
            r.round(n)
            if n == 0:
                r.got.clear()  # the first one finds nothing in the caches
finally:
    for r in rigs:
        r.stop()
for what in rigs[0].got:
    for r in rigs:
        print(f"{r.name:18} {what:36} p50 {statistics.median(r.got[what]):8.1f}  p99 {p99(r.got[what]):8.1f}")
