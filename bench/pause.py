#!/usr/bin/env python3
"""bench/pause.py - what it takes to put a sandbox to rest and to let it go on, beside a new one.

usage: bench/pause.py [--build DIR] [--rounds N] [DRIVER...]      (default: build 20 kvm/xenpv-shared kvm/xenpv qemu/tcg)

Each round asks each driver's two sandboxes of `python`, one that holds a list and one that holds 64 MiB of random bytes, to
pause and to resume; times are those of the API call, over a unix socket.  `first word` is from the call of Resume to the
result of a cell that asks for the variable.  Then come restarts of workers with one paused, and with several that run.  Environment: CLOCHE_IMAGES (out/images).  As root.
"""
import argparse
import os
import pathlib
import statistics
import sys
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build")
parser.add_argument("--rounds", type=int, default=20)
parser.add_argument("--restarts", type=int, default=5, help="of each worker, with a sandbox paused")
parser.add_argument("--stops", type=int, default=5, help="of each worker, with sandboxes that run")
parser.add_argument("--boxes", type=int, default=12, help="of these")
parser.add_argument("drivers", nargs="*", default=["kvm/xenpv-shared", "kvm/xenpv", "qemu/tcg"])
args = parser.parse_args()
REPO = pathlib.Path(__file__).resolve().parents[1]
os.environ["CLOCHE_BUILD"] = str(REPO / args.build)
sys.path.insert(0, str(REPO / "tests" / "e2e"))
import harness  # noqa: E402
from harness import MIB, SECOND, Cluster, pb, rss_bytes  # noqa: E402

HOLDS = {"small": "kept = list(range(1000))", "64 MiB": "import os; kept = os.urandom(64 << 20)"}


class Rig:
    def __init__(self, driver):
        harness.DRIVER, self.name = driver, driver
        harness.isolating_drivers.cache_clear()
        self.cluster = Cluster("pause", templates="python", worker_args=("--pause-on-stop=yes",))
        self.client = self.cluster.start().admin
        self.boxes, self.got = {}, {}
        for name, code in HOLDS.items():
            request = pb.CreateRequest(template="python", ttl_ns=3600 * SECOND)
            self.boxes[name] = self.client.sandboxes.Create(request, timeout=120).sandbox.id
            self.cell(self.boxes[name], code)

    def cell(self, box, code):
        for event in self.client.codes.RunCode(pb.RunCodeRequest(sandbox_id=box, code=code, language=pb.LANGUAGE_PYTHON), timeout=300):
            if event.WhichOneof("event") == "ended" and event.ended.outcome != pb.CELL_OUTCOME_OK:
                sys.exit(f"pause: error: {event}")

    def note(self, what, value):
        self.got.setdefault(what, []).append(value)

    def round(self):
        for name, box in self.boxes.items():
            self.note(f"{name}: resident, MiB", rss_bytes(self.cluster.vm_of(box)) / MIB)
            begin = time.monotonic()
            view = self.client.sandboxes.Pause(pb.PauseRequest(sandbox_id=box), timeout=300).sandbox
            self.note(f"{name}: pause, ms", (time.monotonic() - begin) * 1e3)
            self.note(f"{name}: image, MiB", view.image_bytes / MIB)
            time.sleep(0.2)
            begin = time.monotonic()
            self.client.sandboxes.Resume(pb.ResumeRequest(sandbox_id=box), timeout=300)
            self.note(f"{name}: resume, ms", (time.monotonic() - begin) * 1e3)
            self.cell(box, "len(kept)")
            self.note(f"{name}: resume to first word, ms", (time.monotonic() - begin) * 1e3)
        begin = time.monotonic()
        box = self.client.sandboxes.Create(pb.CreateRequest(template="python", ttl_ns=60 * SECOND), timeout=120).sandbox.id
        self.cell(box, "1")
        self.note("a new one, warm, to first word, ms", (time.monotonic() - begin) * 1e3)
        self.client.sandboxes.Kill(pb.KillRequest(sandbox_id=box))
        time.sleep(0.5)

    def restart(self):
        """Its worker ends with one paused, and the next one lets it go on."""
        c = self.cluster
        self.kill_all()
        box = self.client.sandboxes.Create(pb.CreateRequest(template="python", ttl_ns=3600 * SECOND), timeout=120).sandbox.id
        self.cell(box, HOLDS["small"])
        begin = time.monotonic()
        self.client.sandboxes.Pause(pb.PauseRequest(sandbox_id=box), timeout=300)
        self.note("first of its snapshot: pause, ms", (time.monotonic() - begin) * 1e3)
        files = (c.worker.state_dir / "paused").glob("ram_*")
        self.note("its snapshot's RAM, MiB", max(f.stat().st_blocks * 512 for f in files) / MIB)
        known = len(c.scheduler.events("WORKER_UP"))
        c.worker.stop()
        begin = time.monotonic()
        c.worker.start()
        if not harness.until(lambda: len(c.scheduler.events("WORKER_UP")) > known, 60, 0.005):
            sys.exit("pause: error: the worker does not come back")
        self.note("a worker that starts: until it is there, ms", (time.monotonic() - begin) * 1e3)
        begin = time.monotonic()
        self.client.sandboxes.Resume(pb.ResumeRequest(sandbox_id=box), timeout=300)
        self.cell(box, "len(kept)")
        self.note("resume there to first word, ms", (time.monotonic() - begin) * 1e3)
        self.client.sandboxes.Kill(pb.KillRequest(sandbox_id=box))
        c.await_ready(120)

    def kill_all(self):
        for box in self.boxes.values():
            self.client.sandboxes.Kill(pb.KillRequest(sandbox_id=box))
        self.boxes = {}

    def stop_and_start(self):
        """Its worker is stopped, and the next one lets all go on that ran."""
        c, n = self.cluster, args.boxes
        while len(self.boxes) < n:
            box = self.client.sandboxes.Create(pb.CreateRequest(template="python", ttl_ns=3600 * SECOND), timeout=120).sandbox.id
            self.cell(box, HOLDS["small"])
            self.boxes[len(self.boxes)] = box
        begin = time.monotonic()
        c.worker.stop()
        self.note(f"a worker's stop, {n} running, ms", (time.monotonic() - begin) * 1e3)
        state = lambda box: self.client.sandboxes.Get(pb.SandboxServiceGetRequest(sandbox_id=box)).sandbox.state
        begin = time.monotonic()
        c.worker.start()
        if not harness.until(lambda: all(state(box) == pb.UNIT_STATE_RUNNING for box in self.boxes.values()), 120, 0.005):
            sys.exit("pause: error: not all go on")
        self.note(f"its start, until all {n} run, ms", (time.monotonic() - begin) * 1e3)
        for box in self.boxes.values():
            self.cell(box, "assert len(kept) == 1000")
        c.await_ready(120)

    def stop(self):
        self.cluster.stop()
        self.cluster.remove_cgroups()


def p99(values):
    return sorted(values)[min(len(values) - 1, len(values) * 99 // 100)]


print(next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), f"N={args.rounds}, {args.restarts} restarts, {args.stops} stops", flush=True)
rigs = []
try:
    for d in args.drivers:
        rigs.append(Rig(d))
    for n in range(args.rounds + 1):
        for r in rigs:
            r.round()
            if n == 0:
                r.got.clear()  # the first pause finds nothing in the caches
    for n in range(args.restarts):
        for r in rigs:
            r.restart()
    for r in rigs:
        for _ in range(args.stops):
            r.stop_and_start()
finally:
    for r in rigs:
        r.stop()
for what in rigs[0].got:
    for r in rigs:
        print(f"{r.name:18} {what:44} p50 {statistics.median(r.got[what]):8.1f}  p99 {p99(r.got[what]):8.1f}")
