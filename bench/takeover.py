#!/usr/bin/env python3
"""bench/takeover.py - how long nobody answers when the scheduler that leads goes, and another one was standing by.

usage: bench/takeover.py [--build DIR] [--rounds N] [--driver DRIVER] [--boxes N] [WAY...]     (default: build 10 kvm/xenpv 8, all ways)

Two schedulers, two workers, Redis and an audit writer on this machine, sandboxes that run.  In each round the one that leads goes, in one of these ways:

    killed      SIGKILL; its death is seen on the same host
    elsewhere   SIGKILL of one in a PID namespace of its own, as on another host: its time (--lead-ttl) has to run out
    stopped     SIGTERM, a rolling upgrade; from the signal, so with all that it does before its end
    still       SIGSTOP: its sockets take connections, and nobody answers

From the signal on it is measured until the other one answers a call, until a sandbox that runs executes a command again by it, until `cloche ps` with both
addresses comes through when it is repeated, and until a client of grpcio, with both addresses and the settings of docs/standby.md, which was connected and calls all the while,
was without an answer at most.  Environment: CLOCHE_IMAGES (out/images).  As root.
"""
import argparse
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

WAYS = ("killed", "elsewhere", "stopped", "still")
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build")
parser.add_argument("--rounds", type=int, default=10)
parser.add_argument("--driver", default="kvm/xenpv")
parser.add_argument("--boxes", type=int, default=8, help="sandboxes that run meanwhile")
parser.add_argument("ways", nargs="*", default=WAYS, metavar="WAY")
args = parser.parse_args()
REPO = pathlib.Path(__file__).resolve().parents[1]
os.environ["CLOCHE_BUILD"] = str(REPO / args.build)
os.environ["CLOCHE_DRIVER"] = args.driver
sys.path.insert(0, str(REPO / "tests" / "e2e"))
from harness import BUILD, SECOND, Client, Cluster, command, grpc, pb, until  # noqa: E402

LIST = pb.ListRequest(page_size=1)


def die(text):
    sys.exit(f"takeover: error: {text}")


class Calls(threading.Thread):
    """A connected client that calls all the while, one call at a time; when each good one ended."""

    def __init__(self, client):
        super().__init__(daemon=True)
        self.client, self.good, self.failed, self.over = client, [], 0, False
        self.start()

    def run(self):
        while not self.over:
            try:
                self.client.jobs.List(LIST, timeout=60)
                self.good.append(time.monotonic())
            except grpc.RpcError:
                self.failed += 1
            time.sleep(0.005)

    def gap(self, since):
        """The longest time without an answer from then until now and the next one, in s."""
        mark = time.monotonic()
        if not until(lambda: self.good[-1] > mark, 60, 0.01):
            die("the connected client has no answer")
        times = [t for t in self.good if t > since - 1]
        return max(b - a for a, b in zip(times, times[1:]))


class Rig:
    def __init__(self):
        self.cluster = Cluster("takeover", workers=2, standbys=1).start()
        self.boxes = [self.cluster.admin.sandboxes.Create(pb.CreateRequest(template="base", ttl_ns=3600 * SECOND), timeout=60).sandbox.id
                      for _ in range(args.boxes)]
        self.failed = 0
        self.env = {**os.environ, "CLOCHE_ENDPOINT": self.cluster.endpoint, "CLOCHE_API_KEY": self.cluster.admin_key}

    def settle(self, apart):
        """Both are there, each with the namespace that this way wants, and all workers with the one that leads: (leader, other)."""
        c = self.cluster
        for s in c.schedulers:
            if s.is_running() and s.apart != apart:
                s.stop()
            if not s.is_running():
                s.apart = apart
                s.start()
        if not until(lambda: sorted(str(s.leads()) for s in c.schedulers) == ["False", "True"], 30):
            die(f"not one leads\n{c.tails()}")
        if not until(lambda: len(c.admin.fleet.ListWorkers(pb.ListWorkersRequest()).workers) == 2, 30):
            die(f"the workers are not there\n{c.tails()}")
        lead = c.leader()
        time.sleep(0.5)
        return lead, next(s for s in c.schedulers if s is not lead)

    def again(self, since, what, call):
        end = time.monotonic() + 120
        while time.monotonic() < end:
            try:
                if call():
                    return time.monotonic() - since
            except grpc.RpcError:
                pass
            time.sleep(0.002)
        return die(f"{what} does not come\n{self.cluster.tails()}")

    def execute(self, client):
        exec_id = client.execs.Start(pb.StartRequest(sandbox_id=self.boxes[0], command=command("true")), timeout=10).exec_id
        return client.execs.Wait(pb.WaitRequest(sandbox_id=self.boxes[0], exec_id=exec_id), timeout=10).result.outcome == pb.OUTCOME_EXITED

    def direct(self, other):
        """A client of the one that takes over, which asks for a connection at short intervals."""
        return Client(other.api, self.cluster.admin_key, None, [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 100)])

    def watchers(self, other, since, got):
        def serves():
            while not self.listens(other):
                time.sleep(0.002)
            client = self.direct(other)
            got["the other one answers"] = self.again(since, "an answer", lambda: client.jobs.List(LIST, timeout=10) is not None)
            got["a sandbox executes a command"] = self.again(since, "a command", lambda: self.execute(client))
            client.close()

        def command_line():
            ps = lambda: subprocess.run([BUILD / "cloche", "ps"], env=self.env, capture_output=True, check=False).returncode == 0
            got["`cloche ps` comes through"] = self.again(since, "cloche ps", ps)
        return [threading.Thread(target=f) for f in (serves, command_line)]

    @staticmethod
    def listens(s):
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(s.api[5:])
            except OSError:
                return False
            return True

    def round(self, way):
        lead, other = self.settle(way == "elsewhere")
        calls, got = Calls(self.cluster.client()), {}
        until(lambda: len(calls.good) > 20, 20)
        since = time.monotonic()
        threads = self.watchers(other, since, got)
        for t in threads:
            t.start()
        lead.signal({"killed": signal.SIGKILL, "elsewhere": signal.SIGKILL, "stopped": signal.SIGTERM, "still": signal.SIGSTOP}[way])
        if way == "stopped":
            lead.child.wait(30)
            got["the old one has ended"] = time.monotonic() - since
        for t in threads:
            t.join()
        got["a connected client, longest without an answer"] = calls.gap(since)
        calls.over = True
        calls.join()
        self.failed += calls.failed
        if way == "still":
            lead.signal(signal.SIGCONT)
        lead.child.wait(30)
        return got

    def stop(self):
        self.cluster.stop()
        self.cluster.remove_cgroups()


def p99(values):
    return sorted(values)[min(len(values) - 1, len(values) * 99 // 100)]


print(next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), f"N={args.rounds} {args.driver}", flush=True)
rig = Rig()
try:
    for way in args.ways:
        rig.failed = 0
        rows = [rig.round(way) for _ in range(args.rounds)]
        for what in rows[0]:
            values = [row[what] * 1e3 for row in rows]
            print(f"{way}: {what}, ms: p50 {statistics.median(values):.0f} p99 {p99(values):.0f}", flush=True)
        print(f"{way}: calls of the connected client that failed: {rig.failed}", flush=True)
finally:
    rig.stop()
