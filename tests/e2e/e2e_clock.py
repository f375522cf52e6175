#!/usr/bin/env python3
"""The wall clock of a sandbox follows its host's: after a suspend, a step, and while NTP bends it."""
import contextlib
import ctypes
import os
import pathlib
import signal
import struct
import tempfile
import threading
import time

from harness import BUILD, SECOND, Cluster, Suite, command, follow, pb, soon, until

suite = Suite("clock")
check = suite.check
FAR_S = 5  # what a healthy machine's RPC and a new process may take at most


def step_by_a_microsecond():
    """Who watches the host's clock hears that it was set (adjtimex(2), ADJ_SETOFFSET)."""
    timex = (ctypes.c_long * 32)()
    timex[0], timex[10] = 0x100, 1  # modes, time.tv_usec
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.adjtimex(timex) < 0:
        raise OSError(ctypes.get_errno(), "adjtimex")


class Host:
    """What a worker takes for the host's wall clock, ahead of the real one by what one says."""

    def __init__(self):
        self.file = pathlib.Path(tempfile.mkstemp(prefix="cloche-e2e-host-clock.")[1])
        self.say(0)
        self.env = {"LD_PRELOAD": str(BUILD / "e2e_host_clock.so"), "HOST_CLOCK": str(self.file),
                    "ASAN_OPTIONS": "verify_asan_link_order=0:quarantine_size_mb=8:abort_on_error=0"}

    def say(self, seconds, aloud=False):
        """aloud: the kernel tells who watches the clock, as it does after a suspend."""
        with open(self.file, "r+b") as f:
            f.write(struct.pack("=q", int(seconds * SECOND)))
        self.ahead = seconds
        if aloud:
            step_by_a_microsecond()

    def time(self):
        return time.time() + self.ahead

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.unlink()


class Box:
    def __init__(self, c):
        self.client = c.admin
        self.id = c.admin.sandboxes.Create(pb.CreateRequest(template="base", ttl_ns=600 * SECOND), timeout=60).sandbox.id

    def sh(self, script):
        """What it prints, whole lines."""
        begun = self.client.execs.Start(pb.StartRequest(sandbox_id=self.id, command=command("/bin/sh", "-c", script))).exec_id
        done = follow(self.client.execs.Attach(pb.AttachRequest(sandbox_id=self.id, exec_id=begun), timeout=soon(120)))
        return bytes(done.out).decode().split()

    def error(self):
        """Seconds that its clock is wrong by at least, however long the question takes."""
        before = time.time()
        now = int(self.sh("date +%s%N")[0]) / 1e9
        return max(before - now, now - time.time(), 0)

    def is_right(self):
        before = host.time()
        now = int(self.sh("date +%s%N")[0]) / 1e9
        return before - 0.2 < now < host.time() + 0.2 + FAR_S

    def kill(self):
        self.client.sandboxes.Kill(pb.KillRequest(sandbox_id=self.id))


def told(c):
    """The lags in seconds that the worker has told guests, in their order."""
    return [int(row["lag_us"]) / 1e6 for row in c.worker.events("GUEST_CLOCK")]


@suite.scenario
def a_claim_gets_the_time(c):
    host.say(0)
    box = Box(c)
    check("of now", box.is_right())
    box.kill()


@suite.scenario
def the_host_was_suspended(c, aloud=False):
    host.say(0)
    box = Box(c)
    for ahead in (3 * 3600, -1800, 0):
        host.say(ahead, aloud)
        check(f"with {ahead} s more the sandbox's clock is right soon", until(box.is_right, 20))
    box.kill()


@suite.scenario
def a_little_is_slewed(c):
    """By 500 ppm: what is lacking shrinks by 0.5 ms a second, and no program sees time go backwards."""
    host.say(0)
    begun = len(told(c))
    box = Box(c)
    time.sleep(2)  # some answers: how far a claim on a busy host left its clock behind
    left = (told(c)[begun:] or [0])[-1]
    begun = len(told(c))
    host.say(-0.09 - left)
    back = box.sh("last=0 n=0; while [ $n -lt 300 ]; do now=$(date +%s%N); [ $now -gt $last ] || echo $last $now; last=$now n=$((n+1)); done")
    check("time went on", not back, back[:6])

    def shrunk():
        lags = told(c)[begun:]
        most = min(lags, default=0)  # a busy guest's first answers leave much unsure
        return most < -0.06 and max(lags[lags.index(most):]) > most + 0.002
    check("less and less is lacking", until(shrunk, 60), told(c)[begun:][:20])
    box.kill()


def a_guest_hears_late(c):
    """As on a busy host: what time it is was long ago when the guest gets to read it."""
    host.say(0)
    waiting = c.vms()
    for pid in waiting:
        os.kill(pid, signal.SIGSTOP)
    late = threading.Timer(1.5, lambda: [os.kill(pid, signal.SIGCONT) for pid in waiting])
    late.start()
    box = Box(c)
    check("its clock is right soon", until(lambda: box.error() < 0.05, 10), box.error())
    late.join()
    box.kill()


@contextlib.contextmanager
def cluster(name, every):
    c = Cluster(name, worker_args=("--clock-every", every), worker_env=host.env)
    try:
        yield c.start()
    finally:
        suite.close(c)


if __name__ == "__main__":
    with Host() as host:
        with cluster("clock", "500ms") as c:
            suite.play(c)
        with cluster("clock-told", "1h") as c:
            a_guest_hears_late(c)
            if os.geteuid() == 0:
                the_host_was_suspended(c, aloud=True)
            else:
                print("left out: who watches the clock hears of it at once (only root sets a clock)")
    suite.finish()
