#!/usr/bin/env python3
"""tests/soak/snapshots.py - snapshots that are made, replaced, begun with and deleted while workers and schedulers die.

usage: tests/soak/snapshots.py [SECONDS]      (default 120; CLOCHE_DRIVER, CLOCHE_BUILD and CLOCHE_IMAGES as of tests/e2e)

Four clients each have names of their own and know which value a sandbox that begins with each must have, in a file and
in a variable.  Every few seconds the worker or the scheduler is killed and started again.  What a call that was cut off has done
is not known, so both are right then, until the next look.  At the end nothing may be held, and no file be left.
Exit status: 0 all of it is as it should be; 1 not.
"""
import pathlib
import random
import signal
import sys
import threading
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from box import Box  # noqa: E402
from harness import DRIVER, SECOND, Cluster, code_of, grpc, pb, until  # noqa: E402

LASTS = int(sys.argv[1]) if len(sys.argv) > 1 else 120
CLIENTS, NAMES = 4, 3
ABSENT = None
LIMITS = {"sandboxes": 100, "vcpu_milli": 100000, "memory_mib": 100000, "disk_mib": 100000}


# Of a call that did not come to its end, found what is away or full just now, or was about a sandbox that died meanwhile.
CUT = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "RESOURCE_EXHAUSTED", "NOT_FOUND", "FAILED_PRECONDITION")


class Cut(Exception):
    """What a sandbox that died answers, which is no refusal."""


class Client:
    def __init__(self, client, number, bad):
        self.client, self.number, self.bad, self.chance = client, number, bad, random.Random(number)
        self.value, self.box = 0, None
        self.known = {f"soak-{number}-{i}": {ABSENT} for i in range(NAMES)}  # name -> values that it may have
        self.counts = dict.fromkeys(("kept", "kept at rest", "begun with", "deleted", "not there", "cut off"), 0)

    def wrong(self, text):
        self.bad.append(f"client {self.number}: {text}")

    def set(self, value):
        if self.box.exec("sh", "-c", f"echo {value} > /tmp/value").result.exit_code != 0:
            raise Cut("the sandbox is gone")
        self.box.python(f"value = {value}")

    def look(self, box):
        return int(box.exec("cat", "/tmp/value").out or b"-1"), int(box.python("value") or -1)

    def keep(self):
        if self.box is None:
            self.box = Box(self.client, template="python", ttl=15)
        self.value += 1
        value = self.number * 1000000 + self.value
        self.set(value)
        rests = self.chance.random() < 0.3
        if rests:
            self.box.pause()
        name = self.chance.choice(list(self.known))
        before = self.known[name]
        self.known[name] = before | {value}
        self.box.snapshot(name, replace=True, timeout=60)
        self.known[name] = {value}
        self.counts["kept at rest" if rests else "kept"] += 1
        if rests:
            self.box.resume()

    def begin(self, name=None):
        name = name or self.chance.choice(list(self.known))
        may = self.known[name]
        try:
            box = Box(self.client, template="", snapshot=name, ttl=15)
        except grpc.RpcError as err:
            if code_of(err) != "NOT_FOUND":
                raise
            if ABSENT not in may:
                self.wrong(f"{name} is not there, and may be {may}: {err.details()}")
            self.known[name] = {ABSENT}
            self.counts["not there"] += 1
            return
        got = self.look(box)
        if -1 in got:
            raise Cut("the sandbox is gone")
        if got[0] != got[1] or got[0] not in may:
            self.wrong(f"{name} has {got}, and may have {may}")
        self.known[name] = {got[0]}
        self.counts["begun with"] += 1
        if self.chance.random() < 0.5:
            box, self.box = self.box, box  # and goes on with it
        if box:
            box.kill()

    def delete(self):
        name = self.chance.choice(list(self.known))
        self.known[name] = self.known[name] | {ABSENT}
        try:
            self.client.snapshots.Delete(pb.SnapshotServiceDeleteRequest(snapshot=name))
        except grpc.RpcError as err:
            if code_of(err) != "NOT_FOUND":
                raise
        self.known[name] = {ABSENT}
        self.counts["deleted"] += 1

    def run(self, until_when):
        while time.monotonic() < until_when:
            time.sleep(0.05)
            try:
                self.chance.choices((self.keep, self.begin, self.delete), (4, 5, 1))[0]()
            except (Cut, grpc.RpcError) as err:
                if isinstance(err, grpc.RpcError) and code_of(err) not in CUT:
                    self.wrong(f"{code_of(err)}: {err.details()}")
                self.counts["cut off"] += 1
                self.box = None  # it may have died
                time.sleep(0.5)
            except Exception:  # noqa: BLE001
                self.wrong(traceback.format_exc())
                return


def disturb(c, until_when, deaths):
    chance = random.Random(0)
    while time.monotonic() < until_when:
        time.sleep(4 + 6 * chance.random())
        if chance.random() < 0.6:
            c.worker.kill()
            time.sleep(chance.random())
            c.worker.start()
            deaths["worker"] += 1
        else:
            c.scheduler.signal(signal.SIGKILL)
            c.scheduler.stop()
            time.sleep(chance.random())
            c.scheduler.start()
            deaths["scheduler"] += 1
        c.await_answer()
        until(lambda: c.template_rows(), 20)


def end_sandboxes(tenants):
    for t in tenants:
        for box in t.sandboxes.List(pb.SandboxServiceListRequest()).sandboxes:
            t.sandboxes.Kill(pb.KillRequest(sandbox_id=box.id))


def clear(c, tenants, bad):
    end_sandboxes(tenants)
    for t in tenants:
        for snapshot in t.snapshots.List(pb.SnapshotServiceListRequest()).snapshots:
            t.snapshots.Delete(pb.SnapshotServiceDeleteRequest(snapshot=snapshot.id))
    if not until(lambda: not c.held(), 20):
        bad.append(f"held at the end: {c.held()}")
    files = c.worker.state_dir / "paused"
    if not until(lambda: not list(files.glob("s[bn][xp]_*")), 20):
        bad.append(f"files at the end: {sorted(p.name for p in files.iterdir())}")


def main():
    bad, deaths = [], {"worker": 0, "scheduler": 0}
    c = Cluster("soak", templates="python")
    try:
        c.start()
        end = time.monotonic() + LASTS
        tenants = [c.tenant(f"soak-{n}", **LIMITS) for n in range(CLIENTS)]
        clients = [Client(tenant, n, bad) for n, tenant in enumerate(tenants)]
        threads = [threading.Thread(target=x.run, args=(end,)) for x in clients] + [threading.Thread(target=disturb, args=(c, end, deaths))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        c.await_ready(120)
        end_sandboxes(tenants)
        for x in clients:
            for name in x.known:
                x.begin(name)
        clear(c, tenants, bad)
        bad += c.sanitizer_reports()
    finally:
        c.stop()
        c.remove_cgroups()
    for line in bad:
        print(f"FAIL {line}")
    counts = {k: sum(x.counts[k] for x in clients) for k in clients[0].counts}
    print(f"snapshots: {DRIVER}: {CLIENTS} clients, {LASTS} s, deaths {deaths}, {counts}, {len(bad)} failed")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
