#!/usr/bin/env python3
"""bench/watch.py - what it costs a program that its doings are recorded: sandboxes that are watched, and whose system calls are counted besides,
beside such that are not, in turn.

usage: bench/watch.py [--build DIR] [--rounds N] [DRIVER...]      (default: build 15 kvm/xenpv-shared kvm/xenpv)

Each driver has three workers on one host, one with --guest-events=no, and a sandbox of the template `toolchain` on each. A figure is the
time of one exec as its client sees it.  Environment: CLOCHE_IMAGES (out/images).  As root.
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
parser.add_argument("drivers", nargs="*", default=["kvm/xenpv-shared", "kvm/xenpv"])
args = parser.parse_args()
REPO = pathlib.Path(__file__).resolve().parents[1]
os.environ["CLOCHE_BUILD"] = str(REPO / args.build)
sys.path.insert(0, str(REPO / "tests" / "e2e"))
import harness  # noqa: E402
from harness import SECOND, Cluster, command, follow, pb  # noqa: E402

WORK = {
    "gcc -O2 of hello.c, 8 times": "for i in 1 2 3 4 5 6 7 8; do gcc -O2 -o /tmp/hello /tmp/hello.c || exit; done",
    "python3 -c pass, 8 times": "for i in 1 2 3 4 5 6 7 8; do python3 -c pass; done",
    "/bin/true, 200 times": "i=0; while [ $i -lt 200 ]; do /bin/true; i=$((i+1)); done",
    "5,000 files opened for writing": "python3 -c \"for i in range(5000): open('/tmp/o', 'w').close()\"",
    "5,000 files made, moved and removed": "python3 -c \"import os\nfor i in range(5000): open('/tmp/o', 'w').close(); os.rename('/tmp/o', '/tmp/p'); os.remove('/tmp/p')\"",
    "100 files of its own opened for reading, 100 times": "python3 -c \"for i in range(10000): open('/tmp/r/%d' % (i % 100)).close()\"",
    "5,000 files of its own opened for reading": "python3 -c \"for i in range(5000): open('/tmp/r/%d' % i).close()\"",
    "300,000 times getppid()": "python3 -c \"import os\nfor i in range(300000): os.getppid()\"",
    "20,000 files opened for reading": "python3 -c \"for i in range(20000): open('/etc/hostname').close()\"",
}
HELLO = b'#include <stdio.h>\nint main(void) { puts("hello"); }\n'


class Rig:
    """A cluster with one sandbox."""

    def __init__(self, name, worker_args=(), **limits):
        self.cluster = Cluster(name, templates="toolchain", worker_args=worker_args).start()
        client = self.client = self.cluster.tenant("bench", separation="shared-ok" if harness.IS_SHARED else "isolated", **limits)
        self.box = client.sandboxes.Create(pb.CreateRequest(template="toolchain", ttl_ns=3600 * SECOND), timeout=120).sandbox.id
        self.took("mkdir /tmp/r; cd /tmp/r; i=0; while [ $i -lt 5000 ]; do : > $i; i=$((i+1)); done")
        client.files.Write(iter([pb.WriteRequest(sandbox_id=self.box, path="/tmp/hello.c", mode=0o644, data=HELLO, commit=True)]))

    def took(self, script):
        begun = time.monotonic()
        job = self.client.execs.Start(pb.StartRequest(sandbox_id=self.box, command=command("/bin/sh", "-c", script))).exec_id
        done = follow(self.client.execs.Attach(pb.AttachRequest(sandbox_id=self.box, exec_id=job), timeout=300))
        if not done.result or done.result.exit_code:
            sys.exit(f"watch: error: {script[:40]}: {done} {bytes(done.err)[:300]}")
        return (time.monotonic() - begun) * 1000

    def stop(self):
        self.cluster.stop()
        self.cluster.remove_cgroups()


def p99(times):
    return sorted(times)[min(len(times) - 1, len(times) * 99 // 100)]


def measure(driver):
    harness.DRIVER = driver
    harness.IS_SHARED = driver.endswith("-shared")
    harness.isolating_drivers.cache_clear()
    rigs = [Rig("unwatched", ("--guest-events=no",)), Rig("watched"), Rig("counted", count_calls=True)]
    times = {(name, i): [] for name in WORK for i in range(len(rigs))}
    try:
        for turn in range(args.rounds + 1):
            for name, script in WORK.items():
                for i in (0, 1, 2) if turn % 2 else (2, 1, 0):
                    took = rigs[i].took(script)
                    if turn:  # the first warms up
                        times[name, i].append(took)
    finally:
        for rig in rigs:
            rig.stop()
    print(f"\n| {driver}, N = {args.rounds} | not watched, p50 / p99 | watched | ratio of p50 | counted, too | ratio |\n|---|---|---|---|---|---|")
    for name in WORK:
        none, *others = (times[name, i] for i in range(len(rigs)))
        row = [f"{statistics.median(none):,.0f} / {p99(none):,.0f} ms"]
        for some in others:
            row += [f"{statistics.median(some):,.0f} / {p99(some):,.0f} ms", f"{statistics.median(some) / statistics.median(none):.2f}"]
        print(f"| {name} | {' | '.join(row)} |", flush=True)


model = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
family = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("cpu family"))
print(f"{os.cpu_count()} x {model}, family {family}; load {os.getloadavg()[0]:.1f}")
for one in args.drivers:
    measure(one)
