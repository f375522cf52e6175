#!/usr/bin/env python3
"""bench/cells.py - what the first cells of a new sandbox take, in which its interpreter meets what the template left in it.

usage: bench/cells.py [--build DIR] [--rounds N] [DRIVER...]      (default: build 10 kvm/xenpv-shared)
Environment: CLOCHE_IMAGES (out/images), a list with `:` between compares images, in turn.  As root.

In each round a new sandbox of `python` from a warm VM, then one after the other, each over a unix socket to its end: `first` prints a
number; `lists` makes 20,000 lists, which makes the collector of garbage run some thirty times; `collect` is gc.collect();
`again` is that once more; `lines` prints 2,000 lines.
"""
import argparse
import os
import pathlib
import statistics
import sys
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build")
parser.add_argument("--rounds", type=int, default=10)
parser.add_argument("drivers", nargs="*", default=["kvm/xenpv-shared"])
args = parser.parse_args()
REPO = pathlib.Path(__file__).resolve().parents[1]
os.environ["CLOCHE_BUILD"] = str(REPO / args.build)
sys.path.insert(0, str(REPO / "tests" / "e2e"))
import harness  # noqa: E402
from harness import SECOND, Cluster, pb  # noqa: E402

CELLS = {"first": "print(1)", "lists": "x = [[] for _ in range(20000)]", "collect": "import gc; gc.collect()", "again": "gc.collect()", "lines": "for i in range(2000): print(i)"}
IMAGES = [pathlib.Path(p).resolve() for p in os.environ.get("CLOCHE_IMAGES", str(REPO / "out/images")).split(":")]


class Rig:
    def __init__(self, driver, images):
        harness.DRIVER, harness.IMAGES = driver, images
        harness.isolating_drivers.cache_clear()
        self.cluster = Cluster("cells", templates="python")
        self.client, self.took = self.cluster.start().admin, {}

    def round(self):
        self.cluster.await_ready()
        time.sleep(1)  # the VM that takes this one's place is made
        box = self.client.sandboxes.Create(pb.CreateRequest(template="python", ttl_ns=600 * SECOND), timeout=120).sandbox.id
        for what, code in CELLS.items():
            begin = time.monotonic()
            events = list(self.client.codes.RunCode(pb.RunCodeRequest(sandbox_id=box, code=code, language=pb.LANGUAGE_PYTHON), timeout=120))
            self.took.setdefault(what, []).append((time.monotonic() - begin) * 1e3)
            if events[-1].ended.outcome != pb.CELL_OUTCOME_OK:
                sys.exit(f"cells: error: {what} ended with {events[-1]}")
        self.client.sandboxes.Kill(pb.KillRequest(sandbox_id=box), timeout=60)


def main():
    model = next(line.split(": ")[1] for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    print(f"host: {os.cpu_count()} x {model}, load {os.getloadavg()[0]:.1f}; {args.rounds} rounds; ms: median (least to most), an image a column")
    for driver in args.drivers:
        rigs = []
        try:
            for images in IMAGES:
                rigs.append(Rig(driver, images))
            for _ in range(args.rounds):
                for rig in rigs:
                    rig.round()
        finally:
            for rig in rigs:
                rig.cluster.stop()
        for what in CELLS:
            print(f"{driver}: {what:8} " + "    ".join(f"{statistics.median(r.took[what]):7.1f} ({min(r.took[what]):.1f} to {max(r.took[what]):.1f})" for r in rigs))


main()
