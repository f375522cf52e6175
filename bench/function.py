#!/usr/bin/env python3
"""bench/function.py - what a call of a function takes, beside a job and a sandbox that load the same code anew.

usage: bench/function.py [--build DIR] [--rounds N] [DRIVER...]      (default: build 30 kvm/xenpv-shared kvm/xenpv qemu/tcg)

Two functions of template `python`: `small` is two lines, `loaded` imports a dozen modules of the standard library and holds a table
of 200,000 entries.  In each round each driver, in turn: `call` is FunctionService.Call over a unix socket, to its answer, which comes
when the VM is gone; `inside` is the function's own time; `job` runs the same source by python3 in a new VM, with the same
arguments; `sandbox` makes one from a warm VM, runs the source and the call as cells, and ends it.  `host` is python3 on this host,
without any isolation.  `four` calls at once, until the last has answered.
Environment: CLOCHE_IMAGES (out/images).  As root.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build")
parser.add_argument("--rounds", type=int, default=30)
parser.add_argument("drivers", nargs="*", default=["kvm/xenpv-shared", "kvm/xenpv", "qemu/tcg"])
args = parser.parse_args()
REPO = pathlib.Path(__file__).resolve().parents[1]
os.environ["CLOCHE_BUILD"] = str(REPO / args.build)
sys.path.insert(0, str(REPO / "tests" / "e2e"))
import harness  # noqa: E402
from harness import SECOND, Cluster, command, follow, in_parallel, pb  # noqa: E402

SOURCES = {"small": "def f(a, b):\n    return a + b\n",
           "loaded": "import asyncio, csv, decimal, difflib, email.message, html.parser, http.client, logging, sqlite3, statistics, unittest, xml.dom.minidom\n"
                     "TABLE = {str(i): i * i for i in range(200_000)}\n"
                     "def f(a, b):\n    return a + b + TABLE['100']\n"}
WANTED = {"small": "5", "loaded": "10005"}
LAST = "\nprint(f(2, 3))\n"


def timed(into, what, call):
    begin = time.monotonic()
    got = call()
    into.setdefault(what, []).append((time.monotonic() - begin) * 1e3)
    return got


def expect(got, name):
    if got != WANTED[name]:
        sys.exit(f"function: error: {name} answered {got!r}")


class Rig:
    def __init__(self, driver):
        harness.DRIVER, self.name = driver, driver
        harness.isolating_drivers.cache_clear()
        self.cluster = Cluster("function", templates="python")
        self.client = self.cluster.start().admin
        self.got = {}
        for name, source in SOURCES.items():
            made = self.client.functions.Create(pb.FunctionServiceCreateRequest(name=name, source=source, entry="f"), timeout=300)
            if not made.HasField("function"):
                sys.exit(f"function: error: {made}")

    def call(self, name):
        got = self.client.functions.Call(pb.CallRequest(function=name, arguments="[2, 3]"), timeout=300)
        expect(got.result, name)
        return got

    def job(self, name):
        spec = pb.JobSpec(template="python", command=command("python3", "-c", SOURCES[name] + LAST))
        expect(bytes(follow(self.client.jobs.Run(pb.RunRequest(spec=spec), timeout=300)).out).decode().strip(), name)

    def sandbox(self, name):
        box = self.client.sandboxes.Create(pb.CreateRequest(template="python", ttl_ns=600 * SECOND), timeout=300).sandbox.id
        request = pb.RunCodeRequest(sandbox_id=box, code=SOURCES[name] + LAST, language=pb.LANGUAGE_PYTHON)
        out = b"".join(e.output.data for e in self.client.codes.RunCode(request, timeout=300) if e.WhichOneof("event") == "output")
        self.client.sandboxes.Kill(pb.KillRequest(sandbox_id=box))
        expect(out.decode().strip(), name)

    def round(self):
        for name in SOURCES:
            got = timed(self.got, f"{name}: call, ms", lambda name=name: self.call(name))
            self.got.setdefault(f"{name}: inside, ms", []).append(got.wall_ns / 1e6)
            timed(self.got, f"{name}: four at once, ms", lambda name=name: in_parallel(lambda _: self.call(name), range(4)))
            time.sleep(0.5)  # for the pool
            timed(self.got, f"{name}: job, ms", lambda name=name: self.job(name))
            timed(self.got, f"{name}: sandbox, ms", lambda name=name: self.sandbox(name))
            time.sleep(0.5)

    def stop(self):
        for name in SOURCES:
            self.client.snapshots.Delete(pb.SnapshotServiceDeleteRequest(snapshot=name))
        self.cluster.stop()
        self.cluster.remove_cgroups()


def p99(values):
    return sorted(values)[min(len(values) - 1, len(values) * 99 // 100)]


def on_host(into):
    for name, source in SOURCES.items():
        done = timed(into, f"{name}: host, ms", lambda source=source: subprocess.run([sys.executable, "-c", source + LAST], capture_output=True, text=True, check=True))
        expect(done.stdout.strip(), name)


print(next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), f"N={args.rounds}",
      "load", json.dumps(os.getloadavg()[0]), flush=True)
rigs, host = [], {}
try:
    for d in args.drivers:
        rigs.append(Rig(d))
    for n in range(args.rounds + 1):
        for r in rigs:
            r.round()
        on_host(host)
        if n == 0:  # the first one finds nothing in the caches
            host.clear()
            for r in rigs:
                r.got.clear()
finally:
    for r in rigs:
        r.stop()
for what in rigs[0].got:
    for r in rigs:
        print(f"{r.name:18} {what:28} p50 {statistics.median(r.got[what]):8.1f}  p99 {p99(r.got[what]):8.1f}")
for what, values in host.items():
    print(f"{'-':18} {what:28} p50 {statistics.median(values):8.1f}  p99 {p99(values):8.1f}")
