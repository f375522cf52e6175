#!/usr/bin/env python3
"""Guests that attack their VM: each ends with the right outcome, and a neighbour does not notice."""
import threading
import time

from harness import FACTOR, Followed, Suite, grpc, pb, rss_bytes, run, soon, spec, MIB

suite = Suite("hostile")
check, equal = suite.check, suite.equal

CAP = 64 << 10  # of endless output: a sick machine gets over it too
NEIGHBOUR = "i=0; while [ $i -lt 20 ]; do echo tick $i; i=$((i+1)); sleep 0.1; done"


class Neighbour(threading.Thread):
    """A harmless job of another tenant beside the attack."""

    def __init__(self, c):
        super().__init__(daemon=True)
        self.client, self.f, self.took, self.error = c.client(c.key("neighbour").secret), Followed(), 0, None

    def run(self):
        begin = time.monotonic()
        try:
            for event in self.client.jobs.Run(pb.RunRequest(spec=spec("sh", "-c", NEIGHBOUR)), timeout=60):
                self.f.take(event)
        except grpc.RpcError as err:
            self.error = err
        self.took = time.monotonic() - begin

    def is_fine(self):
        return self.f.outcome == "EXITED" and self.f.out.count(b"tick") == 20 and self.took < soon(10)


def attack(c, name, *argv, expect, timeout=3, resources=(1, 192, 0), **kw):
    before = {p.name: rss_bytes(p.pid) for p in (c.scheduler, c.worker)}
    neighbour = Neighbour(c)
    neighbour.start()
    timeout *= FACTOR  # so that the attack gets as far on a slow machine
    begin = time.monotonic()
    f = run(c.admin, *argv, timeout=timeout, resources=resources, timeout_rpc=timeout + soon(20), **kw)
    took = time.monotonic() - begin
    neighbour.join(soon(60))
    check(f"{name} ends as {' or '.join(expect)} ({took:.1f} s)", f.outcome in expect, f)
    check(f"{name} ends in time", took < timeout + soon(10), took)
    check(f"{name}: the neighbour does not notice", neighbour.is_fine(), (neighbour.took, neighbour.error, str(neighbour.f)))
    grown = {p.name: (rss_bytes(p.pid) - before[p.name]) // MIB for p in (c.scheduler, c.worker)}
    check(f"{name}: the host's processes do not grow", all(v < 32 for v in grown.values()), grown)
    return f


@suite.scenario
def fork_bomb(c):
    attack(c, "a fork bomb", "bash", "-c", ":(){ :|:& };:; sleep 60", expect=("TIMED_OUT", "OOM_KILLED", "EXITED"), timeout=2)


@suite.scenario
def fork_bomb_python(c):
    attack(c, "a fork bomb that waits", "python3", "-c", "import os\nwhile True:\n try: os.fork()\n except OSError: pass", expect=("TIMED_OUT", "OOM_KILLED"), timeout=2, template="python")


@suite.scenario
def memory_hog(c):
    attack(c, "a memory hog", "python3", "-c", "x = []\nwhile True: x.append(b'a' * (8 << 20))", expect=("OOM_KILLED",), timeout=120, template="python")
    # Near the end it reads again and again what it runs from, and the kernel finds nothing wrong with that.
    bit_by_bit = "import json,os,re,zlib\nx=[]\nwhile True:\n x.append(bytearray(32768))\n s=json.dumps({'l':os.listdir('/'),'n':len(x)/7}); json.loads(s); re.sub('(a|b)+','c',s); zlib.compress(s.encode())"
    attack(c, "a memory hog that takes bit by bit", "python3", "-c", bit_by_bit, expect=("OOM_KILLED",), timeout=120, template="python")
    # This one leaves them no cache at all, so that the kernel sees none of it in use.
    attack(c, "a memory hog in small pieces", "python3", "-c", "x = []\nwhile True: x.append(b'a' * 4096)", expect=("OOM_KILLED",), timeout=120, template="python")
    attack(c, "a memory hog in a child", "python3", "-c", "import subprocess,sys; print(subprocess.run([sys.executable,'-c','x=bytearray(2<<30)']).returncode)",
           expect=("EXITED", "OOM_KILLED"), timeout=120, template="python")
    attack(c, "a hog of the file system in memory", "sh", "-c", "dd if=/dev/zero of=/tmp/big bs=1M; df /tmp >&2; echo survived", expect=("EXITED", "OOM_KILLED"), timeout=120)


@suite.scenario
def endless_output(c):
    f = attack(c, "endless output", "sh", "-c", "yes; true", expect=("TIMED_OUT",), cap=CAP)
    check("endless output is cut and counted", f.result.stdout.truncated and f.result.stdout.bytes > CAP >= len(f.out), f.result.stdout)


@suite.scenario
def kill_all(c):
    f = attack(c, "kill -9 -1", "sh", "-c", "sh -c 'kill -9 -1; sleep 60'; true", expect=("SIGNALED", "EXITED"), timeout=20)
    check("kill -9 -1 is told as its signal", f.result.signal == 9 or f.outcome == "EXITED", f)
    attack(c, "kill -9 -1 as root", "sh", "-c", "kill -9 -1; kill -9 1; sleep 1; echo alive", expect=("SIGNALED", "EXITED"), user="root", timeout=20)


@suite.scenario
def closed_fds(c):
    f = attack(c, "closing every fd", "python3", "-c", "import os,time\nos.closerange(0,4096)\ntime.sleep(1)\nos._exit(9)", expect=("EXITED",), template="python", timeout=20)
    equal("its exit code is told all the same", f.result.exit_code, 9)
    f = attack(c, "a daemon that leaves", "sh", "-c", "(setsid sleep 60 >/dev/null 2>&1 </dev/null &) ; echo gone", expect=("EXITED",))
    f = attack(c, "a daemon that keeps stdout", "sh", "-c", "setsid sleep 60 & echo gone", expect=("EXITED", "TIMED_OUT"))


@suite.scenario
def the_next_job(c):
    f = run(c.admin, "echo", "all is well")
    check("after all this a job runs as ever", bytes(f.out) == b"all is well\n", f)


if __name__ == "__main__":
    import harness
    original = harness.Cluster.start

    def start(self):
        original(self)
        self.tenant("neighbour")
        return self
    harness.Cluster.start = start
    suite.main(templates="base,python")
