#!/usr/bin/env python3
"""bench/start.py - how long a worker that starts has nothing to run in: with and without the snapshots that an earlier one left.

usage: bench/start.py [--build DIR] [--rounds N] [--driver DRIVER] [--templates LIST] [WAY...]     (default: build 9 kvm/xenpv base,python, all ways)

Redis, an audit writer and a scheduler on this machine, and a worker that is started again and again, in each round once in each of these ways:

    boot    --snapshot-cache none: every template is booted
    kept    the snapshots of an earlier worker are there, and in the host's page cache
    cold    … and not in it: from the disk

From the worker's start on it is measured until each template has a snapshot (as the worker says), until a VM of each is warm, and until a job that waited in the queue
has said its first bytes: Python's `print`, or, without the template python, `echo`.  Environment: CLOCHE_IMAGES (out/images).  As root.
"""
import argparse
import os
import pathlib
import statistics
import sys
import time

WAYS = ("boot", "kept", "cold")
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build")
parser.add_argument("--rounds", type=int, default=9)
parser.add_argument("--driver", default="kvm/xenpv")
parser.add_argument("--templates", default="base,python")
parser.add_argument("ways", nargs="*", default=WAYS, metavar="WAY")
args = parser.parse_args()
REPO = pathlib.Path(__file__).resolve().parents[1]
os.environ["CLOCHE_BUILD"] = str(REPO / args.build)
os.environ["CLOCHE_DRIVER"] = args.driver
os.environ.pop("CLOCHE_SNAPSHOTS", None)
sys.path.insert(0, str(REPO / "tests" / "e2e"))
from harness import Cluster, pb, spec, until  # noqa: E402

NAMES = args.templates.split(",")
JOB = ("python3", "-c", "print(6*7)") if "python" in NAMES else ("echo", "42")
JOB_TEMPLATE = "python" if "python" in NAMES else NAMES[0]


def drop_page_cache():
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


def start(c, way):
    """One start: {what: ms}."""
    c.worker.stop()
    if not until(lambda: not c.admin.fleet.ListWorkers(pb.ListWorkersRequest()).workers, 30):
        sys.exit("start: error: the worker is still there")
    if way == "cold":
        drop_page_cache()
    c.worker.argv = BASE + (["--snapshot-cache", "none"] if way == "boot" else [])
    stream = c.admin.jobs.Run(pb.RunRequest(spec=spec(*JOB, template=JOB_TEMPLATE, wait=300)), timeout=300)
    seen = len(c.worker.events("TEMPLATE_READY"))
    began = time.monotonic()
    c.worker.start()
    first = next((time.monotonic() - began for event in stream if event.WhichOneof("event") == "output"), None)
    rows = lambda: c.worker.events("TEMPLATE_READY")[seen:]  # noqa: E731
    if first is None or not until(lambda: len(rows()) >= len(NAMES) and all(c.warm_vms(n) for n in NAMES), 120, 0.005):
        sys.exit(f"start: error: {way} does not come\n{c.tails()}")
    warm = time.monotonic() - began
    took = {row["template"]: float(row["took_ms"]) for row in rows()}
    wrong = [row for row in rows() if row["from"] != ("boot" if way == "boot" else "cache")]
    if wrong:
        sys.exit(f"start: error: {way}: {wrong}")
    stream.cancel()
    return {**{f"snapshot of {n}": took[n] for n in NAMES}, "all warm": warm * 1000, "first bytes of a job": first * 1000}


def p99(values):
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]


c = Cluster("start", templates=args.templates)
try:
    c.start()
    BASE = list(c.worker.argv)
    folder = c.worker.state_dir / "snapshots"
    if not until(lambda: len([p for p in folder.rglob("*") if len(p.name) == 64]) >= len(NAMES), 60):
        sys.exit(f"start: error: no snapshots are kept\n{c.tails()}")
    got = {way: [] for way in args.ways}
    for _ in range(args.rounds):
        for way in args.ways:
            got[way].append(start(c, way))
    size = sum(p.stat().st_size for p in folder.rglob("ram_*")) / 1e6
    print(f"{args.driver}, {args.templates}, N = {args.rounds}; p50 / p99, ms; {size:.0f} MB of snapshots")
    for what in got[args.ways[0]][0]:
        cells = []
        for way in args.ways:
            values = [row[what] for row in got[way]]
            ratio = statistics.median(values) / statistics.median([row[what] for row in got[args.ways[0]]])
            cells.append(f"{way} {statistics.median(values):7.0f} / {p99(values):7.0f} ({ratio:.3f})")
        print(f"  {what:22s} " + "   ".join(cells))
finally:
    c.stop()
