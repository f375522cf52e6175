#!/usr/bin/env python3
"""bench/network.py - what a network grant costs: bytes and connections of a guest, beside the same program on the host.

usage: bench/network.py [--build DIR] [--rounds N] [DRIVER...]      (default: build 9 kvm/xenpv-shared kvm/xenpv)

The other side of the network is a namespace of this machine (tests/e2e/outside.py), reached over a veth pair by both.  Each round asks the
host, then each driver's sandbox.  The first line of a driver is what its VMs take to start, with a grant and without.
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
parser.add_argument("--rounds", type=int, default=9)
parser.add_argument("drivers", nargs="*", default=["kvm/xenpv-shared", "kvm/xenpv"])
args = parser.parse_args()
REPO = pathlib.Path(__file__).resolve().parents[1]
os.environ["CLOCHE_BUILD"] = str(REPO / args.build)
sys.path.insert(0, str(REPO / "tests" / "e2e"))
import harness  # noqa: E402
import outside  # noqa: E402
from harness import SECOND, Cluster, command, follow, pb  # noqa: E402

net = outside.Outside(harness.folder("bench"))
PROBE = f"""
import json, socket, time, urllib.request
big, got = 'http://{outside.PUBLIC}/big', {{}}
body, piece = urllib.request.urlopen(big).read(), bytearray(65536)  # new pages cost a guest more than what comes over the network
t = time.perf_counter(); r = urllib.request.urlopen(big)
while r.readinto(piece): pass
got['down_mb_s'] = len(body) / 1e6 / (time.perf_counter() - t)
t = time.perf_counter(); urllib.request.urlopen(urllib.request.Request('http://{outside.PUBLIC}/', body, {{'Content-Type': 'x'}})).read()
got['up_mb_s'] = len(body) / 1e6 / (time.perf_counter() - t)
def connect():
    t = time.perf_counter(); socket.create_connection(('{outside.PUBLIC}', 80)).close(); return (time.perf_counter() - t) * 1e3
got['connect_ms'] = sorted(connect() for _ in range(100))[50]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('{outside.PUBLIC}', 7777)); s.settimeout(5)
def echo():
    t = time.perf_counter(); s.send(b'x'); s.recv(9); return (time.perf_counter() - t) * 1e3
got['round_trip_ms'] = sorted(echo() for _ in range(200))[100]
def resolve():
    t = time.perf_counter(); socket.gethostbyname('web.test'); return (time.perf_counter() - t) * 1e3
try: got['name_ms'] = sorted(resolve() for _ in range(50))[25]
except OSError: pass
print(json.dumps(got))
"""
GRANT = pb.NetworkGrant(allow=["public", "web.test:80", f"{outside.PUBLIC}:7777/udp"])


class Rig:
    def __init__(self, driver):
        harness.DRIVER, self.name = driver, driver
        harness.isolating_drivers.cache_clear()
        self.cluster = Cluster("net", templates="python", worker_args=("--net-dns", outside.RESOLVER))
        self.client = self.cluster.start().admin
        self.starts = {granted: [self.start(granted) for _ in range(args.rounds + 1)][1:] for granted in (False, True)}
        request = pb.CreateRequest(template="python", ttl_ns=3600 * SECOND, network_grant=GRANT)
        self.box = self.client.sandboxes.Create(request, timeout=120).sandbox.id

    def start(self, granted):
        spec = pb.JobSpec(template="python", command=command("true"))
        if granted:
            spec.network_grant.CopyFrom(GRANT)
        begun = time.monotonic()
        follow(self.client.jobs.Run(pb.RunRequest(spec=spec), timeout=300))
        took = (time.monotonic() - begun) * 1000
        time.sleep(1)  # the pool is full again
        return took

    def probe(self):
        job = self.client.execs.Start(pb.StartRequest(sandbox_id=self.box, command=command("python3", "-c", PROBE))).exec_id
        done = follow(self.client.execs.Attach(pb.AttachRequest(sandbox_id=self.box, exec_id=job), timeout=300))
        if not done.result or done.result.exit_code:
            sys.exit(f"network: error: {done} {bytes(done.err).decode()[-400:]}")
        return json.loads(bytes(done.out))

    def stop(self):
        self.cluster.stop()
        self.cluster.remove_cgroups()


class Host:
    name = "host"

    @staticmethod
    def probe():
        return json.loads(subprocess.check_output([sys.executable, "-c", PROBE]))


def p99(values):
    return sorted(values)[min(len(values) - 1, len(values) * 99 // 100)]


print(next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), f"N={args.rounds}", flush=True)
rigs = []
try:
    for d in args.drivers:
        rigs.append(Rig(d))
    got = {r.name: [] for r in [Host, *rigs]}
    for _ in range(args.rounds):
        for r in [Host, *rigs]:
            got[r.name].append(r.probe())
finally:
    for r in rigs:
        r.stop()
for r in rigs:
    for granted, name in ((False, "a job without network, ms"), (True, "a job with network, ms")):
        print(f"{r.name:18} {name:28} p50 {statistics.median(r.starts[granted]):8.1f}  p99 {p99(r.starts[granted]):8.1f}")
for key, name in {"down_mb_s": "8 MiB down, MB/s", "up_mb_s": "8 MiB up, MB/s", "connect_ms": "TCP connect, ms",
                  "round_trip_ms": "UDP there and back, ms", "name_ms": "a name, ms"}.items():
    for r in [Host, *rigs]:
        values = [g[key] for g in got[r.name] if key in g]
        if values:
            print(f"{r.name:18} {name:28} p50 {statistics.median(values):8.2f}  p99 {p99(values):8.2f}")
